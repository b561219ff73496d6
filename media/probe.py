"""What a file holds: the size of a picture or film as displayed, how long a sound or film lasts. Nothing is decoded."""

import math
import struct
from dataclasses import dataclass
from typing import BinaryIO

from media import film, heif, matroska, pictures, sound
from media.sniff import Kind, Sniffed

MAX_SIDE = 2**31 - 1
"""Pixels; what the database keeps."""

MAX_SECONDS = 10 * 365 * 86400.0
"""No sound is longer; a header that says so is wrong."""

_SOUND_OF = {"video/mp4": "audio/mp4", "video/quicktime": "audio/mp4", "video/webm": "audio/webm"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a file; None where it does not apply, or where the file does not say."""

    type: str
    kind: Kind
    width: int | None = None
    height: int | None = None
    duration: float | None = None


def probe(file: BinaryIO, size: int, sniffed: Sniffed) -> Facts:
    """
    Read the headers of a file that `sniff` has seen.

    A picture or film whose size cannot be told becomes a `file`, for its frame would lack what it must have; a film
    without pictures is `voice`. A broken header is no error: then nothing is known.

    Args:
        file: Seekable; where it stands afterwards is not defined.
        size: Of the file, in bytes.
    """
    try:
        return _settled(_read(file, size, sniffed))
    except (struct.error, IndexError, ValueError, OverflowError):
        return _settled(Facts(sniffed.type, sniffed.kind))


def _read(file: BinaryIO, size: int, sniffed: Sniffed) -> Facts:
    match sniffed.kind:
        case "image":
            shape = _shape(file, size, sniffed.type)
            return Facts(sniffed.type, "image", *shape) if shape else Facts(sniffed.type, "image")
        case "voice":
            return Facts(sniffed.type, "voice", duration=_seconds(file, size, sniffed.type))
        case "video":
            read = film.film if sniffed.type in ("video/mp4", "video/quicktime") else matroska.film
            seen = read(file, size)
            if seen.has_sound and not seen.has_picture and sniffed.type in _SOUND_OF:
                return Facts(_SOUND_OF[sniffed.type], "voice", duration=seen.seconds)
            if seen.has_picture:
                return Facts(sniffed.type, "video", seen.width, seen.height, seen.seconds)
    return Facts(sniffed.type, "file")


def _shape(file: BinaryIO, size: int, mime: str) -> pictures.Size | None:
    match mime:
        case "image/png":
            return pictures.png_size(file)
        case "image/jpeg":
            return pictures.jpeg_size(file)
        case "image/gif":
            return pictures.gif_size(file)
        case "image/webp":
            return pictures.webp_size(file)
        case _:
            return heif.heif_size(file, size)


def _seconds(file: BinaryIO, size: int, mime: str) -> float | None:
    match mime:
        case "audio/wav":
            return sound.wav_seconds(file, size)
        case "audio/ogg":
            return sound.ogg_seconds(file, size)
        case "audio/flac":
            return sound.flac_seconds(file)
        case "audio/aac":
            return sound.aac_seconds(file)
        case _:
            return sound.mp3_seconds(file, size)


def _settled(facts: Facts) -> Facts:
    """The facts without numbers that nobody could mean, and the kind that the rest allows."""
    sides = (facts.width, facts.height)
    shaped = all(side is not None and 0 < side <= MAX_SIDE for side in sides)
    seconds = facts.duration
    if seconds is not None and not (math.isfinite(seconds) and 0 <= seconds <= MAX_SECONDS):
        seconds = None
    if facts.kind in ("image", "video") and not shaped:
        return Facts(facts.type, "file")
    return Facts(facts.type, facts.kind, facts.width, facts.height, seconds)
