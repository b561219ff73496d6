"""The `input` of a run as front ends send it: a text, content parts, or a list of messages. No I/O."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hermes_site.errors import InvalidRequest, TooLarge

TEXT_PARTS = ("text", "input_text")  # no sets: what is asked for may be no text, nor anything a set can hold
IMAGE_PARTS = ("image_url", "input_image")
DETAILS = ("auto", "low", "high")


Part = dict[str, Any]


class Input(NamedTuple):
    """What a person says: its text, its images as URLs, and both in the order they were sent, for history."""

    text: str
    images: list[str]
    content: str | list[Part]


def read_input(body: dict[str, Any], most_bytes: int) -> Input | None:
    """
    The input of a request's body; None if it names none at all. Text and URLs have at most `most_bytes`.

    Raises:
        InvalidRequest: `missing_message`, `unsupported_content_type` or `invalid_image_url`.
        TooLarge: If no agent could be handed so much in one frame.
    """
    raw = body.get("input")
    if raw is None:
        raw = body.get("message")
    if raw is None:
        return None
    if isinstance(raw, list) and raw and all(isinstance(one, dict) and "role" in one for one in raw):
        raw = next((one.get("content") for one in reversed(raw) if one.get("role") == "user"), None)
    if isinstance(raw, str):
        raw_parts, content = [raw], raw
    elif isinstance(raw, list):
        raw_parts, content = raw, None
    else:
        raise _missing()
    parts = [_read_part(part) for part in raw_parts]
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    images = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    if not text.strip() and not images:
        raise _missing()
    check_text(text, "missing_message", "input")
    addresses = [url for url in images if not is_data_image(url)]
    if sum(len(said.encode()) for said in (text, *addresses)) > most_bytes:
        raise TooLarge(f"at most {most_bytes} bytes can be said at once", field="input")
    return Input(text, images, parts if content is None else content)


def read_instructions(body: dict[str, Any], most_bytes: int) -> str | None:
    """
    The instructions for one turn, at most so many bytes.

    Raises:
        InvalidRequest: `invalid_system_message`, if they are no text, or too long a one.
    """
    value = body.get("instructions", body.get("system_message"))
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(
            "instructions must be a text", api_code="invalid_system_message", field="instructions"
        )
    if value:
        check_text(value, "invalid_system_message", "instructions")
        if len(value.encode()) > most_bytes:
            raise InvalidRequest(
                f"instructions have at most {most_bytes} bytes",
                api_code="invalid_system_message",
                field="instructions",
            )
    return value or None


def is_data_image(url: str) -> bool:
    """Whether the picture itself is in the URL."""
    return url[:11].lower() == "data:image/"


def check_text(text: str, api_code: str, field: str) -> None:
    """
    Make sure that a text can be stored and sent: whole Unicode without NUL.

    Raises:
        InvalidRequest: If it is not.
    """
    if not storable(text):
        raise InvalidRequest(
            "the text holds a NUL character or half of a character", api_code=api_code, field=field
        )


def storable(text: str) -> bool:
    """Whether a text is whole Unicode without NUL."""
    return "\x00" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _read_part(part: Any) -> Part:
    """One part, in the one form that history shows."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in TEXT_PARTS:
        if not isinstance(part.get("text"), str):
            raise _missing()
        return {"type": "text", "text": part["text"]}
    if kind not in IMAGE_PARTS:
        raise InvalidRequest(
            "only text and images are taken", api_code="unsupported_content_type", field="input"
        )
    value = part.get("image_url")
    given = value if isinstance(value, dict) else {"url": value}
    url = given.get("url")
    if not isinstance(url, str) or not url:
        raise _bad_url()
    if url[:5].lower() == "data:":
        if not is_data_image(url):
            raise InvalidRequest(
                "of data URLs only images are taken", api_code="unsupported_content_type", field="input"
            )
    elif not _is_web(url):
        raise _bad_url()
    detail = given.get("detail")
    shown = {"url": url, "detail": detail} if detail in DETAILS else {"url": url}
    return {"type": "image_url", "image_url": shown}


def _is_web(url: str) -> bool:
    if not url.isprintable():
        return False
    if url.startswith("/media/"):
        return True
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme.lower() in ("http", "https") and bool(parts.netloc)


def _missing() -> InvalidRequest:
    return InvalidRequest("there is nothing to say", api_code="missing_message", field="input")


def _bad_url() -> InvalidRequest:
    return InvalidRequest(
        "an image needs an http(s) URL or a data:image one", api_code="invalid_image_url", field="input"
    )
