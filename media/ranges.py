"""A Range header against a size (RFC 9110, section 14)."""

import re
from dataclasses import dataclass

from hermes_site.errors import InvalidRequest

_ONE = re.compile(r"bytes=[ \t]*([0-9]{0,100})-([0-9]{0,100})[ \t]*", re.IGNORECASE)


class RangeNotSatisfiable(InvalidRequest):
    """No byte of the file lies in the range asked for."""

    status = 416


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes from `start` up to `stop`, which is not among them."""

    start: int
    stop: int

    def content_range(self, size: int) -> str:
        """The Content-Range header of an answer that holds this span."""
        return f"bytes {self.start}-{self.stop - 1}/{size}"


def span(header: str | None, size: int) -> Span | None:
    """
    The part of a file that a Range header asks for; None means the whole file.

    What is no range of bytes is ignored, as the standard wants; so are several ranges at once, which it allows.

    Raises:
        RangeNotSatisfiable: If no byte of the file lies in the range.
    """
    match = _ONE.fullmatch(header or "")
    if match is None:
        return None
    first, last = match.groups()
    if first:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    elif last:
        start, stop = max(0, size - int(last)), size
    else:
        return None
    if start >= stop:
        raise RangeNotSatisfiable(f"the file has {size} bytes")
    return Span(start, stop)
