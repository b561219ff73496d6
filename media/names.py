"""A file's name as it is shown and saved: what a stranger sent, made harmless. It is never a path."""

import re
import unicodedata
from urllib.parse import quote

NAME_BYTES = 255
"""The longest name, in bytes of UTF-8: what the usual file systems take, so that it can be saved again."""

FALLBACK = "file"

# Characters that turn the direction of what follows: `photo<RLO>gpj.exe` reads `photoexe.jpg`. Joiners stay, for
# emoji and several scripts are written with them.
_DIRECTION = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_DROPPED = {*_DIRECTION, 0xFEFF}


def display_name(name: str) -> str:
    """
    The last part of what a client calls its file, safe to show, to log and to put into a header.

    Path parts, control and direction characters are taken out, the rest is in Unicode's composed form (NFC) and at
    most `NAME_BYTES` long, its extension kept. Nothing left: "file".
    """
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    kept = "".join(filter(None, map(_kept, last)))
    clean = " ".join(unicodedata.normalize("NFC", kept).split()).rstrip(".")
    return _shortened(clean.strip()) or FALLBACK


def extension(name: str) -> str:
    """What follows the last dot, in lower case; empty when there is none."""
    stem, dot, last = name.rpartition(".")
    return last.lower() if stem and dot else ""


def disposition(name: str, inline: bool) -> str:
    """
    The Content-Disposition header under which a browser shows or saves a file by its true name (RFC 6266).

    The plain form is for old clients only: it has nothing that one of them could take for an escape.
    """
    plain = re.sub(r"[^A-Za-z0-9 ._-]", "_", name)
    return f"{'inline' if inline else 'attachment'}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _kept(char: str) -> str:
    if char.isspace():
        return " "
    if ord(char) in _DROPPED or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp"):
        return ""
    return char


def _shortened(name: str) -> str:
    if len(name.encode()) <= NAME_BYTES:
        return name
    stem, dot, last = name.rpartition(".")
    ending = dot + last if stem and len(last.encode()) <= 16 else ""
    room = NAME_BYTES - len(ending.encode())
    stem = name.removesuffix(ending).encode()[:room].decode(errors="ignore")
    return stem.rstrip(" .\u200d") + ending
