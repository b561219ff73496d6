"""How large a HEIF picture (HEIC, AVIF) is shown, read from its boxes."""

import struct
from typing import BinaryIO

from media.boxes import Box, boxes, content, find


def heif_size(file: BinaryIO, size: int) -> tuple[int, int] | None:
    """Width and height of the primary picture, turned as its own rotation says."""
    meta = find(file, Box(b"", 0, size), b"meta")
    if meta is None:
        return None
    inside = Box(b"meta", meta.start + 4, meta.stop)  # version and flags come first
    primary, properties = find(file, inside, b"pitm"), find(file, inside, b"iprp", b"ipco")
    links = find(file, inside, b"iprp", b"ipma")
    if primary is None or properties is None or links is None:
        return None
    head = content(file, primary)
    (item,) = struct.unpack_from(">I" if head[0] else ">H", head, 4)
    wanted = _properties_of(item, content(file, links))
    found, turned = None, False
    for number, box in enumerate(boxes(file, properties.start, properties.stop), 1):
        if number not in wanted:
            continue
        data = content(file, box, 12)
        if box.name == b"ispe":
            width, height = struct.unpack_from(">II", data, 4)
            found = (width, height)
        elif box.name == b"irot":
            turned = data[0] % 2 == 1
    if found is None or not min(found):
        return None
    return (found[1], found[0]) if turned else found


def _properties_of(item: int, links: bytes) -> set[int]:
    """The numbers of the properties that belong to an item; they count from 1."""
    version, wide = links[0], links[3] & 1
    (count,) = struct.unpack_from(">I", links, 4)
    at = 8
    for _ in range(min(count, len(links))):
        number, properties = struct.unpack_from(">IB" if version else ">HB", links, at)
        at += 5 if version else 3
        layout = f">{properties}{'H' if wide else 'B'}"
        numbers = struct.unpack_from(layout, links, at)
        at += struct.calcsize(layout)
        if number == item:
            return {value & (0x7FFF if wide else 0x7F) for value in numbers}
    return set()
