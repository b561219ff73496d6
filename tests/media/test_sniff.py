"""What bytes are, told by the bytes."""

import pytest

from media.sniff import HEAD_BYTES, TextCheck, sniff
from tests.media import samples


def sniffed(data: bytes, name: str = "x") -> tuple[str, str]:
    """Type and kind of a whole file."""
    check = TextCheck()
    check.feed(data)
    found = sniff(data[:HEAD_BYTES], name, check.is_text())
    return found.type, found.kind


@pytest.mark.parametrize(
    ("data", "mime", "kind"),
    [
        (samples.png(), "image/png", "image"),
        (samples.jpeg(1, 1), "image/jpeg", "image"),
        (samples.gif(1, 1), "image/gif", "image"),
        (samples.webp((b"VP8L", bytes(5))), "image/webp", "image"),
        (samples.heic(1, 1), "image/heic", "image"),
        (samples.wav(0.01), "audio/wav", "voice"),
        (samples.adts(2), "audio/aac", "voice"),
        (samples.adts(1), "audio/aac", "voice"),
        (samples.mp3(2), "audio/mpeg", "voice"),
        (b"ID3\3\0\0\0\0\0\0" + samples.mp3(1), "audio/mpeg", "voice"),
        (samples.ogg(samples.opus_header(0), 0), "audio/ogg", "voice"),
        (samples.ogg(b"\x80theora", 0), "application/ogg", "file"),
        (b"fLaC" + bytes(40), "audio/flac", "voice"),
        (samples.mp4(), "video/mp4", "video"),
        (samples.mp4(brand=b"qt  "), "video/quicktime", "video"),
        (samples.webm(), "video/webm", "video"),
        (samples.webm(document=b"matroska"), "video/x-matroska", "video"),
        (b"%PDF-1.7\n%\xe2\xe3", "application/pdf", "file"),
        (b"PK\3\4" + bytes(30), "application/zip", "file"),
        (b"hello", "text/plain", "file"),
        (b"\x00\x01\x02", "application/octet-stream", "file"),
        (b"", "application/octet-stream", "file"),
    ],
)
def test_the_bytes_decide(data, mime, kind):
    """Every type of the list is known by its bytes, whatever the file is called."""
    assert sniffed(data, "x") == (mime, kind)
    if not mime.startswith(("text/", "application/")):
        assert sniffed(data, "page.html") == (mime, kind)


@pytest.mark.parametrize(
    ("name", "data", "mime"),
    [
        ("sales.CSV", b"a,b\n1,2\n", "text/csv"),
        ("notes.md", "# é\n".encode(), "text/markdown"),
        ("x.json", b"{}", "application/json"),
        ("x.csv", b"", "text/csv"),
        ("x.csv", b"a,b\0c", "application/octet-stream"),
        ("x.csv", "é".encode("latin-1"), "application/octet-stream"),
        ("x.csv", "汉".encode()[:2], "application/octet-stream"),
        ("x.png", b"no picture", "text/plain"),
        ("x.docx", b"PK\3\4", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("x.docx", b"text", "text/plain"),
    ],
)
def test_a_name_decides_only_between_equal_bytes(name, data, mime):
    """Among texts and among kinds of zip the name is asked, and only when the bytes are such."""
    assert sniffed(data, name) == (mime, "file")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.svg", b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'),
        ("x.html", b"<script>alert(1)</script>"),
        ("x.xhtml", b'<html xmlns="http://www.w3.org/1999/xhtml"><script>alert(1)</script></html>'),
        ("x.js", b"alert(1)"),
    ],
)
def test_what_could_run_is_plain_text(name, data):
    """Markup and scripts are files of plain text, never pictures or pages."""
    assert sniffed(data, name) == ("text/plain", "file")


@pytest.mark.parametrize(
    "data", [b"\xff\xfb\x90\x00 and then words", b"\xff\xf1", b"ID3 tags are small", b"\xff\xd8"]
)
def test_a_chance_beginning_is_no_sound(data):
    """Two bytes that a sound begins with do not make one."""
    assert sniffed(data)[1] == "file"


def test_text_may_come_in_pieces():
    """A letter cut in two by the pieces is still text."""
    check = TextCheck()
    for byte in "汉字, ü\n".encode():
        check.feed(bytes([byte]))
    assert check.is_text()
