"""What a WebM or Matroska file says of itself: its tracks, its size, how long it lasts."""

import enum
import struct
from typing import BinaryIO

from media.film import Film

MAX_ELEMENTS = 500_000
"""Elements looked at before giving up; an hour of film recorded live has about 200,000."""


class Element(enum.IntEnum):
    """The elements that are entered or read; all others are skipped."""

    SEGMENT = 0x18538067
    INFO = 0x1549A966
    SCALE = 0x2AD7B1
    LENGTH = 0x4489
    TRACKS = 0x1654AE6B
    TRACK = 0xAE
    TRACK_KIND = 0x83
    VIDEO = 0xE0
    WIDTH = 0xB0
    HEIGHT = 0xBA
    CLUSTER = 0x1F43B675
    CLUSTER_TIME = 0xE7
    SIMPLE_BLOCK = 0xA3
    GROUP = 0xA0
    BLOCK = 0xA1
    BLOCK_LENGTH = 0x9B


_ENTERED = {
    Element.SEGMENT,
    Element.INFO,
    Element.TRACKS,
    Element.TRACK,
    Element.VIDEO,
    Element.CLUSTER,
    Element.GROUP,
}
_READ = set(Element) - _ENTERED


def film(file: BinaryIO, size: int) -> Film:
    """
    Walk the elements of a film.

    What a browser records carries no length in front: then every block is looked at, and the latest is the end.
    """
    found = Film()
    nanoseconds, length, cluster, block, end = 1_000_000, 0.0, 0, 0, 0
    position = 0
    for _ in range(MAX_ELEMENTS):
        file.seek(position)
        head = file.read(12)
        name, name_bytes = _name(head)
        content, content_bytes = _size(head[name_bytes:])
        if not content_bytes or (name == Element.CLUSTER and length):
            break  # the end; or all that is asked for has been seen, for it stands before the first cluster
        position += name_bytes + content_bytes
        if name in _ENTERED:
            continue
        if content is None:
            break
        data = b""
        if name in _READ:
            file.seek(position)
            data = file.read(min(content, 16))
        position += content
        match name:
            case Element.SCALE:
                nanoseconds = _unsigned(data)
            case Element.LENGTH:
                length = struct.unpack(">f" if len(data) == 4 else ">d", data)[0]
            case Element.TRACK_KIND:
                found.has_picture |= _unsigned(data) == 1
                found.has_sound |= _unsigned(data) == 2
            case Element.WIDTH:
                found.width = found.width or _unsigned(data)
            case Element.HEIGHT:
                found.height = found.height or _unsigned(data)
            case Element.CLUSTER_TIME:
                cluster = _unsigned(data)
            case Element.SIMPLE_BLOCK | Element.BLOCK:
                track_bytes = _size(data)[1]
                block = cluster + int.from_bytes(data[track_bytes : track_bytes + 2], "big", signed=True)
                end = max(end, block)
            case Element.BLOCK_LENGTH:
                end = max(end, block + _unsigned(data))
    else:
        end = 0  # given up before the end
    found.seconds = (length or end) * nanoseconds / 1e9 or None
    return found


def _name(data: bytes) -> tuple[int, int]:
    """The name of an element, and how many bytes it takes; 0 bytes when there is none."""
    if not data or not data[0] & 0xF0:
        return 0, 0
    length = 9 - data[0].bit_length()
    return int.from_bytes(data[:length], "big"), length


def _size(data: bytes) -> tuple[int | None, int]:
    """The number that `data` begins with, None when it says "unknown", and how many bytes it takes."""
    if not data or not data[0]:
        return None, 0
    length = 9 - data[0].bit_length()
    bits = 7 * length
    value = int.from_bytes(data[:length], "big") & (1 << bits) - 1
    return (None if value == (1 << bits) - 1 else value), length


def _unsigned(data: bytes) -> int:
    return int.from_bytes(data[:8], "big")
