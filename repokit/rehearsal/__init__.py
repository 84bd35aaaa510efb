"""A Hub on 127.0.0.1: what `repokit demo` and the tests push to and pull from. A real HTTP server, kept in a folder.

Read `server.py` first: its table is the whole protocol. Large files travel by LFS or by xet, as the client likes.
"""

from __future__ import annotations

from repokit.rehearsal.server import Hub
from repokit.rehearsal.wire import Answer, Drop, Request

__all__ = ["Answer", "Drop", "Hub", "Request"]
