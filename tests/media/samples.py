"""Small files made by hand: just enough of each format for its headers to be read."""

import struct
import zlib


def png(width: int = 3, height: int = 2, exif: bytes = b"") -> bytes:
    """A PNG header with one row of black, and an eXIf chunk if there is any."""
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))]
    if exif:
        parts.append(chunk(b"eXIf", exif))
    rows = (b"\0" + b"\0" * width) * height if width * height < 10_000 else b""
    parts += [chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def chunk(name: bytes, data: bytes) -> bytes:
    """One chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def exif(orientation: int, order: str = "<") -> bytes:
    """EXIF with nothing but an orientation."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return mark + struct.pack(f"{order}IHHHIHxxI", 8, 1, 0x0112, 3, 1, orientation, 0)


def jpeg(width: int, height: int, exif: bytes = b"") -> bytes:
    """A JPEG up to its frame header, with an Exif segment if there is any."""
    parts = [b"\xff\xd8", segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")]
    if exif:
        parts.append(segment(0xE1, b"Exif\0\0" + exif))
    parts += [b"\xff", segment(0xC2, struct.pack(">BHHB", 8, height, width, 3) + bytes(9))]
    return b"".join(parts)


def segment(marker: int, data: bytes) -> bytes:
    """One segment of a JPEG."""
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def gif(width: int, height: int) -> bytes:
    """A GIF's screen."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def webp(*chunks: tuple[bytes, bytes]) -> bytes:
    """A WebP of these chunks."""
    return riff(b"WEBP", *chunks)


def riff(form: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """A RIFF file of these chunks."""
    body = b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body) + 4) + form + body


def wav(seconds: float, rate: int = 8000, declared_bytes: int | None = None) -> bytes:
    """Silence in 8 bits; a pipe declares another length of data than there is."""
    silence = b"\x80" * int(seconds * rate)
    made = riff(b"WAVE", (b"fmt ", struct.pack("<HHIIHH", 1, 1, rate, rate, 1, 8)), (b"data", silence))
    if declared_bytes is None:
        return made
    at = made.index(b"data") + 4
    return made[:at] + struct.pack("<I", declared_bytes) + made[at + 4 :]


def adts(frames: int) -> bytes:
    """AAC frames of 1,024 samples at 16 kHz, each of 20 bytes."""
    size = 20
    header = bytes([0xFF, 0xF1, 8 << 2, size >> 11, size >> 3 & 0xFF, (size & 7) << 5, 0])
    return (header + bytes(size - 7)) * frames


def mp3(frames: int, first: bytes = b"") -> bytes:
    """MPEG 1 layer III at 128 kbit/s and 44.1 kHz: 417 bytes a frame; `first` lies inside the first one."""
    header = bytes([0xFF, 0xFB, 0x90, 0x00])
    body = [header + bytes(413)] * frames
    if first:
        body[0] = (header + bytes(32) + first).ljust(417, b"\0")
    return b"".join(body)


def ogg(codec: bytes, *positions: int) -> bytes:
    """An Ogg stream: a page with the codec's header, then a page for each position."""
    pages = [page(0, codec)] + [page(position, b"\0" * 10) for position in positions]
    return b"".join(pages)


def page(position: int, data: bytes) -> bytes:
    """One page of an Ogg stream."""
    return b"OggS\0\0" + struct.pack("<qIII", position, 7, 0, 0) + bytes([1, len(data)]) + data


def opus_header(skipped: int) -> bytes:
    """The first packet of Opus."""
    return b"OpusHead\1\1" + struct.pack("<HIhB", skipped, 48000, 0, 0)


def box(name: bytes, *content: bytes) -> bytes:
    """One box of an ISO base media file."""
    body = b"".join(content)
    return struct.pack(">I", len(body) + 8) + name + body


def track(number: int, handler: bytes, width: int = 0, height: int = 0, turned: bool = False) -> bytes:
    """A track of an MP4 with a thousand units a second."""
    matrix = (0, 1, 0, -1, 0, 0, 0, 0, 1) if turned else (1, 0, 0, 0, 1, 0, 0, 0, 1)
    header = struct.pack(">IIIIII8xHHHH", 0, 0, 0, number, 0, 0, 0, 0, 0, 0)
    header += struct.pack(">9i", *(side << 16 for side in matrix)) + struct.pack(
        ">II", width << 16, height << 16
    )
    clock = box(b"mdhd", struct.pack(">IIIIII", 0, 0, 0, 1000, 0, 0))
    return box(
        b"trak", box(b"tkhd", header), box(b"mdia", clock, box(b"hdlr", bytes(8) + handler + bytes(13)))
    )


def mp4(*tracks: bytes, seconds: float = 0, more: bytes = b"", brand: bytes = b"isom") -> bytes:
    """An MP4 whose movie header says how long it lasts; `more` lies inside the movie box."""
    movie = box(b"mvhd", struct.pack(">IIIII", 0, 0, 0, 600, int(seconds * 600)) + bytes(80))
    return box(b"ftyp", brand, bytes(4), brand) + box(b"moov", movie, *tracks, more) + box(b"mdat", bytes(8))


def fragment(number: int, begins: int, lengths: list[int]) -> bytes:
    """A piece of a track of an MP4 that was recorded live, in thousandths of a second."""
    head = box(b"tfhd", struct.pack(">II", 0x020000, number))
    time = box(b"tfdt", struct.pack(">IQ", 1 << 24, begins))
    run = struct.pack(">III", 0x301, len(lengths), 0) + b"".join(
        struct.pack(">II", each, 5) for each in lengths
    )
    return box(b"moof", box(b"traf", head, time, box(b"trun", run))) + box(b"mdat", bytes(8))


def heic(width: int, height: int, quarter_turns: int = 0) -> bytes:
    """A HEIC whose primary picture has number 2; number 1 is a small one beside it."""
    properties = box(
        b"ipco",
        box(b"ispe", struct.pack(">III", 0, 16, 16)),
        box(b"ispe", struct.pack(">III", 0, width, height)),
        box(b"irot", bytes([quarter_turns])),
    )
    links = box(b"ipma", struct.pack(">IIHBBHBBB", 0, 2, 1, 1, 0x81, 2, 2, 0x82, 0x83))
    meta = box(b"meta", bytes(4), box(b"pitm", struct.pack(">IH", 0, 2)), box(b"iprp", properties, links))
    return box(b"ftyp", b"heic", bytes(4), b"mif1") + meta


def element(name: int, content: bytes, unknown: bool = False) -> bytes:
    """One element of a Matroska file; a recorder leaves the size of what it has not finished unknown."""
    label = name.to_bytes((name.bit_length() + 7) // 8, "big")
    size = b"\x01" + b"\xff" * 7 if unknown else struct.pack(">Q", len(content) | 1 << 56)
    return label + size + content


def webm(
    *tracks: bytes, seconds: float | None = None, clusters: bytes = b"", document: bytes = b"webm"
) -> bytes:
    """A WebM; without `seconds` one as a browser records it."""
    info = element(0x2AD7B1, (1_000_000).to_bytes(3, "big"))
    if seconds is not None:
        info += element(0x4489, struct.pack(">d", seconds * 1000))
    body = element(0x1549A966, info) + element(0x1654AE6B, b"".join(tracks)) + clusters
    return element(0x1A45DFA3, element(0x4282, document)) + element(0x18538067, body, unknown=seconds is None)


def webm_picture(width: int, height: int) -> bytes:
    """A track of pictures."""
    shape = element(0xB0, width.to_bytes(2, "big")) + element(0xBA, height.to_bytes(2, "big"))
    return element(0xAE, element(0x83, b"\1") + element(0xE0, shape))


def webm_sound() -> bytes:
    """A track of sound."""
    return element(0xAE, element(0x83, b"\2"))


def cluster(milliseconds: int, *offsets: int, last_length: int | None = None) -> bytes:
    """A cluster with a block at each offset; `last_length` adds one in a group, which says how long it is."""
    body = element(0xE7, milliseconds.to_bytes(4, "big"))
    body += b"".join(element(0xA3, b"\x81" + struct.pack(">hB", offset, 0) + b"data") for offset in offsets)
    if last_length is not None:
        block = element(0xA1, b"\x81" + struct.pack(">hB", offsets[-1], 0) + b"data")
        body += element(0xA0, block + element(0x9B, last_length.to_bytes(2, "big")))
    return element(0x1F43B675, body, unknown=True)
