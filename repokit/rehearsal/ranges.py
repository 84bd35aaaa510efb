"""`Range: bytes=...`, RFC 9110 section 14."""

from __future__ import annotations

import re

from repokit.rehearsal.refusals import RangeNotSatisfiable

_ONE_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def wanted_range(header: str, size: int) -> tuple[int, int] | None:
    """Offset and length of the part that is asked for; None where the answer is the whole.

    Several ranges at once, and what is not a range of bytes, are answered with the whole, as the RFC allows.

    Raises:
        RangeNotSatisfiable: It starts at or after the end.
    """
    found = _ONE_RANGE.fullmatch(header.replace(" ", ""))
    if found is None or found[0] == "bytes=-":
        return None
    first, last = found.groups()
    if not first:
        start, end = max(size - int(last), 0), size
    elif last and int(last) < int(first):
        return None
    else:
        start, end = int(first), min(int(last) + 1, size) if last else size
    if start >= end:
        raise RangeNotSatisfiable(f"There are {size} bytes", Content_Range=f"bytes */{size}")
    return start, end - start
