"""Boxes of ISO base media files (MP4, QuickTime, HEIF): where each begins and ends."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAX_BOXES = 100_000
"""Boxes looked at, one beside the other, before giving up."""


@dataclass(frozen=True, slots=True)
class Box:
    """One box: its four letters and the place of its content in the file, `stop` excluded."""

    name: bytes
    start: int
    stop: int


def boxes(file: BinaryIO, start: int, stop: int) -> Iterator[Box]:
    """The boxes that lie one after the other between two positions; ends at the first that makes no sense."""
    for _ in range(MAX_BOXES):
        if start + 8 > stop:
            return
        file.seek(start)
        header = file.read(16)
        length, content = int.from_bytes(header[:4], "big"), start + 8
        if length == 1:  # the true length, in 64 bits, follows the name
            length, content = int.from_bytes(header[8:16], "big"), start + 16
        end = stop if length == 0 else start + length
        if not content <= end <= stop:
            return
        yield Box(header[4:8], content, end)
        start = end


def find(file: BinaryIO, within: Box, *path: bytes) -> Box | None:
    """The first box under a path of names, or None."""
    found: Box | None = within
    for name in path:
        if found is None:
            return None
        found = next((box for box in boxes(file, found.start, found.stop) if box.name == name), None)
    return found


def content(file: BinaryIO, box: Box, limit: int = 65536) -> bytes:
    """What is in a box, its first `limit` bytes at most."""
    file.seek(box.start)
    return file.read(min(limit, box.stop - box.start))
