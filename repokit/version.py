"""The version of repokit, in one place: read by the build backend, shown by `--version`, recorded in plans."""

from __future__ import annotations

__version__ = "0.1.0"
