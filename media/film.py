"""What an MP4 or QuickTime file says of itself: its tracks, its size as displayed, how long it lasts."""

import struct
from dataclasses import dataclass, field
from typing import BinaryIO

from media.boxes import Box, boxes, content, find


@dataclass(slots=True)
class Film:
    """What is known of a film; a sound in a film's container has no picture."""

    width: int | None = None
    height: int | None = None
    seconds: float | None = None
    has_picture: bool = False
    has_sound: bool = False


@dataclass(slots=True)
class _Track:
    """What the pieces of a track that is written in pieces need: units in a second, and of a sample."""

    units_a_second: int = 0
    sample_units: int = 0
    end_units: int = 0


@dataclass(slots=True)
class _Reader:
    file: BinaryIO
    film: Film = field(default_factory=Film)
    tracks: dict[int, _Track] = field(default_factory=dict)


def film(file: BinaryIO, size: int) -> Film:
    """
    Read the boxes of a film.

    A film that was recorded live carries no length in front: then the ends of its pieces are looked up.
    """
    reader = _Reader(file)
    for box in boxes(file, 0, size):
        if box.name == b"moov":
            _movie(reader, box)
            if reader.film.seconds:
                break
        elif box.name == b"moof":
            for part in boxes(file, box.start, box.stop):
                if part.name == b"traf":
                    _fragment(reader, part)
    if not reader.film.seconds:
        ends = [
            track.end_units / track.units_a_second for track in reader.tracks.values() if track.units_a_second
        ]
        reader.film.seconds = max(ends, default=0.0) or None
    return reader.film


def _movie(reader: _Reader, movie: Box) -> None:
    file, film = reader.file, reader.film
    units_a_second = 0
    for box in boxes(file, movie.start, movie.stop):
        match box.name:
            case b"mvhd":
                units_a_second, units = _clock(content(file, box))
                film.seconds = units / units_a_second if units_a_second else None
            case b"trak":
                _track(reader, box)
            case b"mvex":
                _announcement(reader, box, units_a_second)


def _announcement(reader: _Reader, box: Box, units_a_second: int) -> None:
    """What a film in pieces says in front: perhaps its length, and how long a sample is unless a piece says so."""
    for part in boxes(reader.file, box.start, box.stop):
        data = content(reader.file, part)
        if part.name == b"mehd" and units_a_second:
            units = struct.unpack_from(">Q" if data[0] else ">I", data, 4)[0]
            reader.film.seconds = reader.film.seconds or units / units_a_second
        elif part.name == b"trex":
            number, sample_units = struct.unpack_from(">I4xI", data, 4)
            reader.tracks.setdefault(number, _Track()).sample_units = sample_units


def _track(reader: _Reader, track: Box) -> None:
    file, film = reader.file, reader.film
    header, handler = find(file, track, b"tkhd"), find(file, track, b"mdia", b"hdlr")
    clock = find(file, track, b"mdia", b"mdhd")
    if header is None or handler is None:
        return
    data = content(file, header)
    late = 12 if data[0] else 0  # version 1 has three times of 64 bits
    (number,) = struct.unpack_from(">I", data, 20 if data[0] else 12)
    if clock is not None:
        reader.tracks.setdefault(number, _Track()).units_a_second = _clock(content(file, clock))[0]
    kind = content(file, handler, 12)[8:12]
    if kind == b"soun":
        film.has_sound = True
    elif kind == b"vide":
        film.has_picture = True
        a, d = struct.unpack_from(">i12xi", data, 40 + late)
        width, height = (side >> 16 for side in struct.unpack_from(">II", data, 76 + late))
        if width and height and film.width is None:
            # Without a share of its own side in the matrix the picture lies turned by a quarter.
            film.width, film.height = (height, width) if a == 0 and d == 0 else (width, height)


def _fragment(reader: _Reader, fragment: Box) -> None:
    """Move the end of a track to the end of this piece of it."""
    track, sample_units, end = None, 0, 0
    for box in boxes(reader.file, fragment.start, fragment.stop):
        data = content(reader.file, box, 1 << 20)
        if box.name == b"tfhd":
            flags, number = struct.unpack_from(">II", data)
            track = reader.tracks.setdefault(number, _Track())
            at = 8 + (8 if flags & 1 else 0) + (4 if flags & 2 else 0)
            sample_units = struct.unpack_from(">I", data, at)[0] if flags & 8 else track.sample_units
            end = track.end_units
        elif box.name == b"tfdt":
            end = struct.unpack_from(">Q" if data[0] else ">I", data, 4)[0]
        elif box.name == b"trun":
            end += _run_units(data, sample_units)
    if track is not None:
        track.end_units = max(track.end_units, end)


def _run_units(data: bytes, sample_units: int) -> int:
    flags, count = struct.unpack_from(">II", data)
    if not flags & 0x100:
        return int(count * sample_units)
    start = 8 + (4 if flags & 1 else 0) + (4 if flags & 4 else 0)
    step = 4 * (flags >> 8 & 0xF).bit_count()
    return sum(int.from_bytes(data[at : at + 4], "big") for at in range(start, len(data), step)[:count])


def _clock(data: bytes) -> tuple[int, int]:
    """Units in a second and length in units, of a movie's or a track's header."""
    units_a_second, units = struct.unpack_from(">IQ" if data[0] else ">II", data, 20 if data[0] else 12)
    unknown = (1 << (64 if data[0] else 32)) - 1
    return units_a_second, 0 if units == unknown else units
