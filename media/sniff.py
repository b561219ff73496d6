"""
What these bytes are, told by the bytes. The name helps only where several types are the same kind of bytes.

The list is short on purpose: every type here is one that something behind it will try to decode.
"""

import codecs
from dataclasses import dataclass
from typing import Literal

from media.names import extension
from media.sound import adts_frame, mp3_frame

Kind = Literal["image", "voice", "video", "file"]

HEAD_BYTES = 4096
"""How much of the beginning `sniff` wants to see."""

UNKNOWN = "application/octet-stream"

_OPEN_XML = "application/vnd.openxmlformats-officedocument"
_ZIP_TYPES = {
    "docx": f"{_OPEN_XML}.wordprocessingml.document",
    "xlsx": f"{_OPEN_XML}.spreadsheetml.sheet",
    "pptx": f"{_OPEN_XML}.presentationml.presentation",
}
_TEXT_TYPES = {
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "md": "text/markdown",
    "json": "application/json",
    "txt": "text/plain",
}
_OGG_AUDIO = (b"OpusHead", b"\x01vorbis", b"Speex   ", b"\x7fFLAC")
_STILL_BRANDS = {b"heic": "image/heic", b"heix": "image/heic", b"mif1": "image/heic", b"avif": "image/avif"}


@dataclass(frozen=True, slots=True)
class Sniffed:
    """A type and the kind that frames call it; a container is settled by `probe`, which sees its tracks."""

    type: str
    kind: Kind


class TextCheck:
    """Whether bytes that come in pieces are UTF-8 text; feed all of them, then ask."""

    # Terminals' escape and form feed are found in logs; the other controls are not found in text.
    _CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b")) + b"\x7f"

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._good = True

    def feed(self, piece: bytes) -> None:
        """Look at the next piece."""
        if not self._good:
            return
        try:
            self._decoder.decode(piece)
        except UnicodeDecodeError:
            self._good = False
            return
        self._good = len(piece.translate(None, self._CONTROLS)) == len(piece)

    def is_text(self) -> bool:
        """True if everything fed was text, to the last character."""
        if self._good:
            try:
                self._decoder.decode(b"", final=True)
            except UnicodeDecodeError:
                self._good = False
        return self._good


def sniff(head: bytes, name: str, is_text: bool) -> Sniffed:
    """
    The type of a file.

    Args:
        head: Its first `HEAD_BYTES` bytes, or all of it.
        name: Its name, asked only between text types and between kinds of zip.
        is_text: Whether the whole file is text (`TextCheck`).
    """
    binary = _picture(head) or _sound(head) or _container(head) or _document(head, name)
    if binary is not None:
        return binary
    if is_text and (by_name := _TEXT_TYPES.get(extension(name))):
        return Sniffed(by_name, "file")
    return Sniffed("text/plain" if is_text and head else UNKNOWN, "file")


def _picture(head: bytes) -> Sniffed | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return Sniffed("image/png", "image")
    if head.startswith(b"\xff\xd8\xff"):
        return Sniffed("image/jpeg", "image")
    if head.startswith((b"GIF87a", b"GIF89a")):
        return Sniffed("image/gif", "image")
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return Sniffed("image/webp", "image")
    return None


def _sound(head: bytes) -> Sniffed | None:
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return Sniffed("audio/wav", "voice")
    if head.startswith(b"OggS"):
        # All streams of the file begin in its first pages: a film has a picture stream among them.
        sound = any(codec in head for codec in _OGG_AUDIO) and b"\x80theora" not in head
        return Sniffed("audio/ogg", "voice") if sound else Sniffed("application/ogg", "file")
    if head.startswith(b"fLaC"):
        return Sniffed("audio/flac", "voice")
    if head[:3] == b"ID3" and head[3:4] in (b"\2", b"\3", b"\4"):
        return Sniffed("audio/mpeg", "voice")
    # Both begin with a dozen set bits, which chance gives too: where the first frame ends, another must begin.
    for frame_at, mime in ((adts_frame, "audio/aac"), (mp3_frame, "audio/mpeg")):
        first = frame_at(head)
        if first and (first.size == len(head) or frame_at(head[first.size :])):
            return Sniffed(mime, "voice")
    return None


def _container(head: bytes) -> Sniffed | None:
    if head[4:8] == b"ftyp":
        brand = head[8:12]
        if brand in _STILL_BRANDS:
            return Sniffed(_STILL_BRANDS[brand], "image")
        return Sniffed("video/quicktime" if brand == b"qt  " else "video/mp4", "video")
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        # The document type stands in the first element, well within the first hundred bytes.
        return Sniffed("video/webm" if b"webm" in head[:100] else "video/x-matroska", "video")
    return None


def _document(head: bytes, name: str) -> Sniffed | None:
    if head.startswith(b"%PDF-"):
        return Sniffed("application/pdf", "file")
    if head.startswith(b"PK\x03\x04"):
        return Sniffed(_ZIP_TYPES.get(extension(name), "application/zip"), "file")
    return None
