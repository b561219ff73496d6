"""The `input` of a run as front ends send it: a text, content parts, or a list of messages. No I/O."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hermes_site.errors import InvalidRequest

TEXT_PARTS = frozenset({"text", "input_text"})
IMAGE_PARTS = frozenset({"image_url", "input_image"})


class Input(NamedTuple):
    """What a person says: text, images as URLs (in order), and the content as it was sent, for history."""

    text: str
    images: list[str]
    content: str | list[dict[str, Any]]


def read_input(body: dict[str, Any]) -> Input | None:
    """
    The input of a request's body; None if it names none at all.

    Raises:
        InvalidRequest: `missing_message`, `unsupported_content_type` or `invalid_image_url`.
    """
    raw = body.get("input", body.get("message"))
    if raw is None and "input" not in body and "message" not in body:
        return None
    if isinstance(raw, list) and raw and all(isinstance(one, dict) and "role" in one for one in raw):
        raw = next((one.get("content") for one in reversed(raw) if one.get("role") == "user"), None)
    if isinstance(raw, str):
        if not raw.strip():
            raise _missing()
        return Input(_checked(raw), [], raw)
    if not isinstance(raw, list):
        raise _missing()
    texts: list[str] = []
    images: list[str] = []
    for part in raw:
        _read_part(part, texts, images)
    text = "\n".join(texts)
    if not text.strip() and not images:
        raise _missing()
    return Input(_checked(text), images, raw)


def read_instructions(body: dict[str, Any]) -> str | None:
    """
    The instructions for one turn.

    Raises:
        InvalidRequest: `invalid_system_message`, if they are no text.
    """
    value = body.get("instructions", body.get("system_message"))
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(
            "instructions must be a text", api_code="invalid_system_message", field="instructions"
        )
    return _checked(value) if value else None


def is_data_image(url: str) -> bool:
    """Whether the picture itself is in the URL."""
    return url[:11].lower() == "data:image/"


def _read_part(part: Any, texts: list[str], images: list[str]) -> None:
    if isinstance(part, str):
        texts.append(part)
        return
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in TEXT_PARTS:
        if not isinstance(part.get("text"), str):
            raise _missing()
        texts.append(part["text"])
        return
    if kind not in IMAGE_PARTS:
        raise InvalidRequest(
            "only text and images are taken", api_code="unsupported_content_type", field="input"
        )
    value = part.get("image_url")
    url = value.get("url") if isinstance(value, dict) else value
    if not isinstance(url, str) or not url:
        raise _bad_url()
    if url[:5].lower() == "data:":
        if not is_data_image(url):
            raise InvalidRequest(
                "of data URLs only images are taken", api_code="unsupported_content_type", field="input"
            )
    elif not _is_web(url):
        raise _bad_url()
    images.append(url)


def _is_web(url: str) -> bool:
    if url.startswith("/media/"):
        return True
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme.lower() in ("http", "https") and bool(parts.netloc) and url.isprintable()


def _checked(text: str) -> str:
    if "\x00" in text:
        raise InvalidRequest("the text holds a NUL character", api_code="missing_message", field="input")
    return text


def _missing() -> InvalidRequest:
    return InvalidRequest("there is nothing to say", api_code="missing_message", field="input")


def _bad_url() -> InvalidRequest:
    return InvalidRequest(
        "an image needs an http(s) URL or a data:image one", api_code="invalid_image_url", field="input"
    )
