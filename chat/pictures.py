"""The images of an `input`: those that come as bytes are stored as media, our own are looked up, others left alone."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

from accounts.auth import Principal
from chat import inputs
from hermes_site.errors import InvalidRequest, NotFound
from media import services
from media.models import Media
from media.probe import probe
from media.sniff import HEAD_BYTES, sniff

T = TypeVar("T")
Pictures = dict[str, Media]  # by the URL they came as


class Bytes(NamedTuple):
    """A picture out of a data URL."""

    raw: bytes
    name: str


def read_bytes(urls: list[str]) -> dict[str, Bytes]:
    """
    The pictures that came as bytes, looked at but not stored.

    Raises:
        InvalidRequest: `invalid_image_url` or `unsupported_content_type`.
    """
    return {url: _read(url) for url in urls if inputs.is_data_image(url)}


def find_own(principal: Principal, urls: list[str]) -> Pictures:
    """
    The pictures that rest with us already.

    Raises:
        NotFound: If one of our own addresses names no file of this user.
    """
    found: Pictures = {}
    for url in urls:
        if (media_id := _own_media(url)) is None:
            continue
        media = Media.objects.filter(owner_id=principal.user_id, public_id=media_id).first()
        if media is None:
            raise NotFound("there is no such file", field="input")
        if media.kind != Media.Kind.IMAGE:
            raise InvalidRequest(
                "this file is not an image", api_code="unsupported_content_type", field="input"
            )
        found[url] = media
    return found


async def store(principal: Principal, pictures: dict[str, Bytes]) -> Pictures:
    """
    Keep pictures as media of the user; the same one again is kept once.

    Raises:
        GatewayError: If one is too large or could not be stored.
    """
    return await asyncio.to_thread(_with_own_connection, _store, principal, pictures)


def _store(principal: Principal, pictures: dict[str, Bytes]) -> Pictures:
    return {
        url: services.store(io.BytesIO(one.raw), name=one.name, owner_id=principal.user_id)[0]
        for url, one in pictures.items()
    }


def _with_own_connection(function: Callable[..., T], *arguments: Any) -> T:
    try:
        return function(*arguments)
    finally:
        connection.close()


def _read(url: str) -> Bytes:
    head, _, encoded = url.partition(",")
    try:
        if not head.lower().endswith(";base64"):
            raise ValueError(head)
        raw = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidRequest(
            "a data URL must be base64", api_code="invalid_image_url", field="input"
        ) from None
    kind = head[len("data:") :].split(";")[0].partition("/")[2].lower()
    name = f"image.{kind}" if kind.isascii() and kind.isalnum() else "image"
    if probe(io.BytesIO(raw), len(raw), sniff(raw[:HEAD_BYTES], name, False)).kind != "image":
        raise InvalidRequest(
            "a data URL must hold an image", api_code="unsupported_content_type", field="input"
        )
    return Bytes(raw, name)


def _own_media(url: str) -> str | None:
    """The id of the file that one of our own addresses names."""
    base = settings.HERMES_PUBLIC_URL
    path = url[len(base) :] if base and url.startswith(base + "/") else url
    if not path.startswith("/media/"):
        return None
    return urlsplit(path).path.removeprefix("/media/")
