"""
An API key as a value: `hk_<prefix>_<secret>`.

The prefix is public and finds the row; of the whole key only a SHA-256 digest is stored. A plain digest is right here
because the secret is random: there is nothing to guess faster.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

LEAD = "hk_"
PREFIX_BYTES = 5  # 40 bits, written in hex: unique enough to look up by, retried on a collision
SECRET_BYTES = 32
SHAPE = re.compile(r"hk_([0-9a-f]{10})_([A-Za-z0-9_-]{43})")

NO_DIGEST = "0" * 64  # compared with when no key has the prefix: the same work, never equal


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made; `text` is shown once and then forgotten."""

    text: str
    prefix: str
    digest: str


def generate() -> NewKey:
    """Make a key; URL-safe, so that it is the same percent-encoded and raw."""
    return compose(secrets.token_hex(PREFIX_BYTES), secrets.token_urlsafe(SECRET_BYTES))


def compose(prefix: str, secret: str) -> NewKey:
    """The key of this prefix and this secret."""
    text = f"{LEAD}{prefix}_{secret}"
    return NewKey(text=text, prefix=prefix, digest=digest(text))


def digest(text: str) -> str:
    """What is stored of a key: 64 hexadecimal characters."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def looks_like_key(text: str) -> bool:
    """Whether this is meant to be an API key, good or bad."""
    return text.startswith(LEAD)


def prefix_of(text: str) -> str | None:
    """The prefix by which to look a key up; None if it cannot be a key of ours."""
    match = SHAPE.fullmatch(text)
    return match.group(1) if match else None


def matches(text: str, stored_digest: str) -> bool:
    """Whether the digest is that of the key; takes the same time for every wrong key."""
    return hmac.compare_digest(digest(text), stored_digest)
