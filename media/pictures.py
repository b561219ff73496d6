"""How large a picture is shown, read from its header and its EXIF orientation; nothing is decoded."""

import struct
from typing import BinaryIO

Size = tuple[int, int]
"""Width and height in pixels."""

MAX_PARTS = 10_000
"""Chunks or segments looked at before giving up."""

_FRAME_MARKERS = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_SIDEWAYS = {5, 6, 7, 8}


def png_size(file: BinaryIO) -> Size | None:
    """The size of a PNG, turned as its eXIf chunk says."""
    file.seek(16)
    size = _pair(file.read(8), ">II")
    position = 8
    for _ in range(MAX_PARTS):
        file.seek(position)
        header = file.read(8)
        if len(header) < 8 or header[4:] == b"IEND":
            break
        length = int.from_bytes(header[:4], "big")
        if header[4:] == b"eXIf":
            return _turned(size, file.read(min(length, 65536)))
        position += 12 + length
    return size


def jpeg_size(file: BinaryIO) -> Size | None:
    """The size of a JPEG, turned as its EXIF orientation says."""
    position, exif = 2, b""
    for _ in range(MAX_PARTS):
        file.seek(position)
        header = file.read(4)
        if len(header) < 4 or header[0] != 0xFF:
            return None
        marker = header[1]
        if marker == 0xFF:  # padding
            position += 1
            continue
        length = int.from_bytes(header[2:], "big")
        if marker in _FRAME_MARKERS:
            size = _pair(file.read(5)[1:], ">HH")
            return _turned((size[1], size[0]), exif) if size else None
        if marker == 0xE1 and not exif:
            data = file.read(length - 2 if length > 2 else 0)
            exif = data[6:] if data.startswith(b"Exif\0\0") else b""
        position += 2 + length
    return None


def gif_size(file: BinaryIO) -> Size | None:
    """The size of a GIF's screen."""
    file.seek(6)
    return _pair(file.read(4), "<HH")


def webp_size(file: BinaryIO) -> Size | None:
    """The size of a WebP, turned as its EXIF chunk says."""
    file.seek(12)
    head = file.read(18)
    if len(head) < 18:
        return None
    match head[:4]:
        case b"VP8 ":
            if head[11:14] != b"\x9d\x01\x2a":
                return None
            width, height = struct.unpack("<HH", head[14:18])
            return _sane((width & 0x3FFF, height & 0x3FFF))
        case b"VP8L":
            bits = int.from_bytes(head[9:13], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            size = int.from_bytes(head[12:15], "little") + 1, int.from_bytes(head[15:18], "little") + 1
            return _turned(size, _webp_exif(file)) if head[8] & 0x08 else size
        case _:
            return None


def _webp_exif(file: BinaryIO) -> bytes:
    position = 12
    for _ in range(MAX_PARTS):
        file.seek(position)
        header = file.read(8)
        if len(header) < 8:
            break
        length = int.from_bytes(header[4:], "little")
        if header[:4] == b"EXIF":
            return file.read(min(length, 65536)).removeprefix(b"Exif\0\0")
        position += 8 + length + length % 2
    return b""


def _turned(size: Size | None, exif: bytes) -> Size | None:
    """The size as displayed: EXIF orientations 5 to 8 lay the picture on its side. Broken EXIF turns nothing."""
    if size and _orientation(exif) in _SIDEWAYS:
        return size[1], size[0]
    return size


def _orientation(exif: bytes) -> int:
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", exif, 4)
        (count,) = struct.unpack_from(order + "H", exif, start)
        for entry in range(min(count, 512)):
            tag, _, _, value = struct.unpack_from(order + "HHIH", exif, start + 2 + 12 * entry)
            if tag == 0x0112:
                return int(value)
    except struct.error:
        return 1
    return 1


def _pair(data: bytes, layout: str) -> Size | None:
    if len(data) != struct.calcsize(layout):
        return None
    first, second = struct.unpack(layout, data)
    return _sane((first, second))


def _sane(size: Size) -> Size | None:
    return size if min(size) > 0 else None
