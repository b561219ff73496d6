"""How long a sound lasts, read from its headers; nothing is decoded."""

import struct
from dataclasses import dataclass
from typing import BinaryIO

# A file of the smallest frames could hold millions; half a million of the usual ones are three hours.
MAX_FRAMES = 500_000

_RATES = (44100, 48000, 32000)
_ADTS_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)
_MP3_KBITS_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MP3_KBITS_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)


@dataclass(frozen=True, slots=True)
class Frame:
    """One compressed frame: its bytes, header included, and how long it sounds."""

    size: int
    samples: int
    rate: int


def adts_frame(data: bytes) -> Frame | None:
    """The AAC frame (ADTS) that `data` begins with, if it begins with one."""
    if len(data) < 7 or data[0] != 0xFF or data[1] & 0xF6 != 0xF0:
        return None
    rate = data[2] >> 2 & 0xF
    size = (data[3] & 3) << 11 | data[4] << 3 | data[5] >> 5
    if rate >= len(_ADTS_RATES) or size < 7:
        return None
    return Frame(size, 1024 * ((data[6] & 3) + 1), _ADTS_RATES[rate])


def mp3_frame(data: bytes) -> Frame | None:
    """The MPEG audio frame of layer III that `data` begins with, if it begins with one."""
    if len(data) < 4 or data[0] != 0xFF or data[1] & 0xE6 != 0xE2:
        return None
    version = data[1] >> 3 & 3  # 0: MPEG 2.5, 2: MPEG 2, 3: MPEG 1
    kbits, rate = data[2] >> 4, data[2] >> 2 & 3
    if version == 1 or kbits in (0, 15) or rate == 3:
        return None
    if version == 3:
        hertz, samples, bits = _RATES[rate], 1152, _MP3_KBITS_1[kbits] * 1000
    else:
        hertz, samples, bits = _RATES[rate] // (2 if version == 2 else 4), 576, _MP3_KBITS_2[kbits] * 1000
    return Frame(samples // 8 * bits // hertz + (data[2] >> 1 & 1), samples, hertz)


def aac_seconds(file: BinaryIO) -> float | None:
    """How long a file of ADTS frames lasts: all of them are counted."""
    position, seconds = 0, 0.0
    for _ in range(MAX_FRAMES):
        file.seek(position)
        frame = adts_frame(file.read(7))
        if frame is None:
            return seconds or None
        seconds += frame.samples / frame.rate
        position += frame.size
    return None


def mp3_seconds(file: BinaryIO, size: int) -> float | None:
    """How long an MP3 lasts: by the count in its first frame if there is one, else by counting the frames."""
    position = _after_id3(file)
    file.seek(position)
    head = file.read(2048)
    first = mp3_frame(head)
    if first is None:
        return None
    if (count := _xing_frames(head[: first.size])) and count * 8 < size:
        return count * first.samples / first.rate
    seconds = 0.0
    for _ in range(MAX_FRAMES):
        file.seek(position)
        frame = mp3_frame(file.read(4))
        if frame is None:
            return seconds
        seconds += frame.samples / frame.rate
        position += frame.size
    return None


def wav_seconds(file: BinaryIO, size: int) -> float | None:
    """How long a WAVE file lasts; one that was recorded to a pipe may not know its own length."""
    position, bytes_a_second = 12, 0
    while position + 8 <= size:
        file.seek(position)
        name, length = struct.unpack("<4sI", file.read(8))
        if name == b"fmt ":
            header = file.read(16)
            if len(header) == 16:
                bytes_a_second = int.from_bytes(header[8:12], "little")
        elif name == b"data":
            there = size - position - 8
            return min(length or there, there) / bytes_a_second if bytes_a_second else None
        position += 8 + length + length % 2
    return None


def ogg_seconds(file: BinaryIO, size: int) -> float | None:
    """How long an Ogg sound lasts: the position that its last page gives."""
    file.seek(0)
    head = file.read(4096)
    serial = head[14:18]
    if (at := head.find(b"OpusHead")) >= 0:
        rate, skipped = 48000, int.from_bytes(head[at + 10 : at + 12], "little")
    elif (at := head.find(b"\x01vorbis")) >= 0:
        rate, skipped = int.from_bytes(head[at + 12 : at + 16], "little"), 0
    elif (at := head.find(b"Speex   ")) >= 0:
        rate, skipped = int.from_bytes(head[at + 36 : at + 40], "little"), 0
    elif (at := head.find(b"\x7fFLAC")) >= 0:
        rate, skipped = int.from_bytes(head[at + 27 : at + 30], "big") >> 4, 0
    else:
        return None
    file.seek(max(0, size - 65536 - 4096))  # a page has at most 65,307 bytes
    tail = file.read()
    end = len(tail)
    while (at := tail.rfind(b"OggS", 0, end)) >= 0:
        page, end = tail[at : at + 18], at
        position = int.from_bytes(page[6:14], "little", signed=True)
        if page[14:18] == serial and position >= 0:  # -1: no packet ends on that page
            return (position - skipped) / rate if rate and position > skipped else None
    return None


def flac_seconds(file: BinaryIO) -> float | None:
    """How long a FLAC lasts, by its first block; a recorder that could not go back leaves it open."""
    file.seek(18)
    packed = int.from_bytes(file.read(8), "big")
    rate, samples = packed >> 44, packed & (1 << 36) - 1
    return samples / rate if rate and samples else None


def _after_id3(file: BinaryIO) -> int:
    file.seek(0)
    tag = file.read(10)
    if len(tag) < 10 or tag[:3] != b"ID3":
        return 0
    length = 0
    for byte in tag[6:10]:
        length = length << 7 | byte & 0x7F
    return 10 + length + (10 if tag[5] & 0x10 else 0)


def _xing_frames(frame: bytes) -> int:
    for mark in (b"Xing", b"Info"):
        if (at := frame.find(mark)) >= 0 and frame[at + 4 : at + 8] and frame[at + 7] & 1:
            return int.from_bytes(frame[at + 8 : at + 12], "big")
    if (at := frame.find(b"VBRI")) >= 0:
        return int.from_bytes(frame[at + 14 : at + 18], "big")
    return 0
