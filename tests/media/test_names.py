"""Names that strangers give their files, made harmless."""

import unicodedata

import pytest

from media.names import NAME_BYTES, display_name, extension


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("photo.jpg", "photo.jpg"),
        ("../../etc/x", "x"),
        ("..\\..\\x", "x"),
        ("/abs/x", "x"),
        ("C:\\x", "x"),
        ("dir/", "file"),
        (".", "file"),
        ("..", "file"),
        ("", "file"),
        ("   ", "file"),
        ("CON", "CON"),
        (".htaccess", ".htaccess"),
        ("photo\u202egpj.exe", "photogpj.exe"),
        ("a\u2066b\u2069\u200fc.txt", "abc.txt"),
        ("tab\there.txt", "tab here.txt"),
        ("line\r\nSet-Cookie: s=1.txt", "line Set-Cookie: s=1.txt"),
        ("nul\0.txt", "nul.txt"),
        ("lone\ud800.txt", "lone.txt"),
        ('naïve "q";x.pdf', 'naïve "q";x.pdf'),
        ("\U0001f469\u200d\U0001f467.png", "\U0001f469\u200d\U0001f467.png"),
        ("%41.txt", "%41.txt"),
        ("report. ", "report"),
    ],
)
def test_a_name_is_made_safe_to_show(given, shown):
    """A display name has no path, no controls and no turned direction, and keeps everything else."""
    assert display_name(given) == shown


def test_a_decomposed_name_is_composed():
    """The two ways to write one letter give one name."""
    assert display_name(unicodedata.normalize("NFD", "naïve.txt")) == unicodedata.normalize(
        "NFC", "naïve.txt"
    )


@pytest.mark.parametrize(
    "given", ["汉" * 100 + ".png", "a" * 300, "a" * 300 + ".tar", "é" * 254 + "." + "x" * 40]
)
def test_a_long_name_is_cut_by_bytes(given):
    """A name never has more bytes than a file system takes, and is still text."""
    shown = display_name(given)
    assert 200 < len(shown.encode()) <= NAME_BYTES


def test_a_long_name_keeps_its_extension():
    """What opens a file is told by its extension, so the cut is made before it."""
    assert display_name("汉" * 100 + ".png").endswith("汉.png")


@pytest.mark.parametrize(
    ("name", "last"), [("A.CSV", "csv"), ("a.tar.gz", "gz"), (".htaccess", ""), ("x", "")]
)
def test_an_extension_is_what_follows_the_last_dot(name, last):
    """Case does not matter, and a hidden file has none."""
    assert extension(name) == last
