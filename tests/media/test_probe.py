"""Measures read from headers."""

import io
import struct

import pytest

from media import matroska, sound
from media.probe import MAX_SECONDS, probe
from media.sniff import sniff
from tests.media import samples


def facts(data: bytes):
    """What is known of a file with these bytes."""
    return probe(io.BytesIO(data), len(data), sniff(data[:4096], "x", False))


def vp8x(flags: int, width: int, height: int) -> tuple[bytes, bytes]:
    """The header of an extended WebP."""
    return b"VP8X", bytes([flags, 0, 0, 0]) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(
        3, "little"
    )


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (samples.png(4032, 3024), (4032, 3024)),
        (samples.png(4032, 3024, samples.exif(6)), (3024, 4032)),
        (samples.png(4032, 3024, b"nonsense"), (4032, 3024)),
        (samples.jpeg(4032, 3024), (4032, 3024)),
        (samples.jpeg(4032, 3024, samples.exif(6)), (3024, 4032)),
        (samples.jpeg(4032, 3024, samples.exif(8, ">")), (3024, 4032)),
        (samples.jpeg(4032, 3024, samples.exif(3)), (4032, 3024)),
        (samples.jpeg(4032, 3024, samples.exif(6)[:15]), (4032, 3024)),
        (samples.jpeg(4032, 3024, b"II*\0\xff\xff\xff\xff"), (4032, 3024)),
        (samples.gif(320, 200), (320, 200)),
        (samples.webp((b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 640, 480))), (640, 480)),
        (samples.webp((b"VP8L", b"\x2f" + struct.pack("<I", 639 | 479 << 14) + bytes(8))), (640, 480)),
        (samples.webp(vp8x(0, 640, 480)), (640, 480)),
        (samples.webp(vp8x(8, 640, 480), (b"EXIF", b"Exif\0\0" + samples.exif(5))), (480, 640)),
        (samples.webp(vp8x(8, 640, 480)), (640, 480)),
        (samples.heic(4032, 3024), (4032, 3024)),
        (samples.heic(4032, 3024, 3), (3024, 4032)),
    ],
)
def test_a_picture_has_the_size_it_is_shown_in(data, size):
    """Width and height come from the header, turned as the file says."""
    found = facts(data)
    assert (found.kind, found.width, found.height, found.duration) == ("image", *size, None)


SOUND = [samples.track(2, b"soun")]
PICTURE = [samples.track(1, b"vide", 1920, 1080)]
IN_PIECES = samples.box(b"mvex", samples.box(b"trex", struct.pack(">IIIIII", 0, 2, 1, 500, 0, 0)))
PLAIN_RUN = samples.box(
    b"moof",
    samples.box(
        b"traf",
        samples.box(b"tfhd", struct.pack(">II", 0, 2)),
        samples.box(b"trun", struct.pack(">II", 0, 5)),
    ),
)
VORBIS = b"\x01vorbis" + struct.pack("<IBI", 0, 1, 44100)


@pytest.mark.parametrize(
    ("data", "mime", "seconds"),
    [
        (samples.wav(1.5), "audio/wav", 1.5),
        (samples.wav(1.5, declared_bytes=0), "audio/wav", 1.5),
        (samples.wav(1.5, declared_bytes=0xFFFFFFFF), "audio/wav", 1.5),
        (samples.adts(50), "audio/aac", 3.2),
        (samples.mp3(100), "audio/mpeg", 100 * 1152 / 44100),
        (samples.mp3(2, b"Xing" + struct.pack(">II", 1, 60)), "audio/mpeg", 60 * 1152 / 44100),
        (samples.mp3(2, b"VBRI" + bytes(10) + struct.pack(">I", 60)), "audio/mpeg", 60 * 1152 / 44100),
        (b"ID3\4\0\0\0\0\1\0" + bytes(128) + samples.mp3(10), "audio/mpeg", 10 * 1152 / 44100),
        (samples.ogg(samples.opus_header(312), 100, 48000 * 4 + 312), "audio/ogg", 4.0),
        (samples.ogg(samples.opus_header(312), 48000 * 4 + 312, -1), "audio/ogg", 4.0),
        (samples.ogg(VORBIS, 88200), "audio/ogg", 2.0),
        (samples.ogg(b"Speex   " + bytes(28) + struct.pack("<I", 16000), 32000), "audio/ogg", 2.0),
        (samples.ogg(b"\x7fFLAC" + bytes(22) + (44100 << 4).to_bytes(3, "big"), 88200), "audio/ogg", 2.0),
        (b"fLaC" + bytes(14) + (44100 << 44 | 441000).to_bytes(8, "big") + bytes(16), "audio/flac", 10.0),
        (samples.mp4(*SOUND, seconds=7, brand=b"M4A "), "audio/mp4", 7.0),
        (samples.mp4(*SOUND, more=IN_PIECES) + PLAIN_RUN * 2, "audio/mp4", 5.0),
        (samples.webm(samples.webm_sound(), seconds=3.5), "audio/webm", 3.5),
        (
            samples.webm(
                samples.webm_sound(), clusters=samples.cluster(0, 0, 60) + samples.cluster(5000, 0, 60, 940)
            ),
            "audio/webm",
            5.94,
        ),
        (
            samples.webm(samples.webm_sound(), clusters=samples.cluster(1000, 0, 500, last_length=250)),
            "audio/webm",
            1.75,
        ),
    ],
)
def test_a_sound_lasts_as_long_as_its_headers_say(data, mime, seconds):
    """Duration is read from every sound of the list, from what a browser records live too."""
    found = facts(data)
    assert (found.type, found.kind, found.width) == (mime, "voice", None)
    assert found.duration == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("data", "mime", "size", "seconds"),
    [
        (samples.mp4(*PICTURE, *SOUND, seconds=30), "video/mp4", (1920, 1080), 30.0),
        (samples.mp4(*PICTURE, seconds=30, brand=b"qt  "), "video/quicktime", (1920, 1080), 30.0),
        (samples.mp4(samples.track(1, b"vide", 1920, 1080, True), seconds=1), "video/mp4", (1080, 1920), 1.0),
        (
            samples.mp4(*PICTURE) + samples.fragment(1, 0, [40, 40]) + samples.fragment(1, 2000, [40, 60]),
            "video/mp4",
            (1920, 1080),
            2.1,
        ),
        (
            samples.mp4(
                *PICTURE, more=samples.box(b"mvex", samples.box(b"mehd", struct.pack(">II", 0, 1200)))
            ),
            "video/mp4",
            (1920, 1080),
            2.0,
        ),
        (samples.mp4(*PICTURE), "video/mp4", (1920, 1080), None),
        (
            samples.webm(samples.webm_picture(640, 480), samples.webm_sound(), seconds=2.5),
            "video/webm",
            (640, 480),
            2.5,
        ),
    ],
)
def test_a_film_has_a_size_and_a_length(data, mime, size, seconds):
    """Width, height and duration come from the tracks and headers of a film."""
    found = facts(data)
    assert (found.type, found.kind, found.width, found.height) == (mime, "video", *size)
    assert found.duration == (pytest.approx(seconds) if seconds else None)


@pytest.mark.parametrize(
    "data",
    [
        samples.png()[:12],
        samples.png(0, 5),
        samples.png(2**31, 5),
        samples.jpeg(5, 0),
        b"\xff\xd8\xff\xe0",
        samples.gif(0, 0),
        samples.webp((b"VP8 ", bytes(20))),
        samples.heic(5, 0),
        samples.heic(5, 5)[:-9],
        samples.mp4(),
        samples.mp4(samples.track(1, b"vide", 0, 0), seconds=3),
        samples.mp4(*PICTURE)[:60],
        samples.webm(),
        samples.webm(samples.webm_picture(0, 0), seconds=1),
    ],
)
def test_a_picture_or_film_of_unknown_size_is_a_file(data):
    """A frame of a picture needs its size: what has none that can be told is a file, and keeps its type."""
    found = facts(data)
    assert (found.kind, found.width, found.height) == ("file", None, None)
    assert found.type.startswith(("image/", "video/"))


@pytest.mark.parametrize(
    "data",
    [
        samples.riff(b"WAVE", (b"data", b"")),
        samples.riff(b"WAVE", (b"fmt ", bytes(16)), (b"data", b"12")),
        samples.ogg(samples.opus_header(0)),
        samples.ogg(samples.opus_header(0), -1),
        samples.ogg(b"\x01vorbis" + bytes(9), 5),
        b"fLaC" + bytes(40),
        b"ID3\4\0\0\0\0\0\0no frames",
        samples.webm(samples.webm_sound(), seconds=float("nan")),
        samples.webm(samples.webm_sound(), seconds=float("inf")),
        samples.webm(samples.webm_sound(), seconds=-5),
        samples.webm(samples.webm_sound(), seconds=1e15),
    ],
)
def test_a_sound_of_unknown_length_is_still_a_sound(data):
    """A length that the headers lack, or that nobody could mean, is unknown."""
    assert (facts(data).kind, facts(data).duration) == ("voice", None)


@pytest.mark.parametrize(
    "data",
    [
        samples.png(3, 2, samples.exif(6)),
        samples.jpeg(3, 2, samples.exif(6)),
        samples.webp(vp8x(8, 3, 2), (b"EXIF", samples.exif(6))),
        samples.heic(3, 2, 1),
        samples.wav(0.01),
        samples.ogg(samples.opus_header(3), 500),
        samples.mp4(*PICTURE, *SOUND, more=IN_PIECES) + samples.fragment(1, 0, [40]) + PLAIN_RUN,
        samples.webm(samples.webm_picture(3, 2), clusters=samples.cluster(0, 0, 5, last_length=3)),
    ],
)
def test_no_damage_is_an_error(data):
    """Whatever byte of a file is wrong, and wherever it is cut, something is known or nothing is."""
    sniffed = sniff(data[:4096], "x", False)
    for at in range(len(data)):
        for spoiled in (data[:at], data[:at] + b"\xff" + data[at + 1 :], data[:at] + b"\0" + data[at + 1 :]):
            found = probe(io.BytesIO(spoiled), len(spoiled), sniffed)
            shaped = bool(found.width and found.height)
            assert shaped == (found.kind in ("image", "video"))
            assert found.duration is None or 0 <= found.duration <= MAX_SECONDS


def test_endless_parts_are_given_up(monkeypatch):
    """A file of more parts than anybody means does not keep the server busy: its length is unknown."""
    recorded = samples.webm(samples.webm_sound(), clusters=samples.cluster(0, *range(30)))
    assert facts(samples.adts(30)).duration and facts(samples.mp3(30)).duration and facts(recorded).duration
    monkeypatch.setattr(sound, "MAX_FRAMES", 20)
    monkeypatch.setattr(matroska, "MAX_ELEMENTS", 20)
    assert [facts(data).duration for data in (samples.adts(30), samples.mp3(30), recorded)] == [None] * 3
