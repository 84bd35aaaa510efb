"""repokit assembles, checks and publishes model repositories."""

from __future__ import annotations

__version__ = "0.1.0"
