"""Messages as content of a run: files as Markdown links or parts, texts as they are."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from media.models import Media

ESCAPED = "\\[]()<>*_`!"


def media_url(media: Media) -> str:
    """Where a file is downloaded; absolute when the public address is known."""
    return f"{settings.HERMES_PUBLIC_URL}/media/{media.public_id}"


def link(media: Media) -> str:
    """A file as Markdown: a picture shown, anything else linked by its name."""
    name = "".join("\\" + char if char in ESCAPED else char for char in media.name) or media.public_id
    return f"{'!' if media.kind == 'image' else ''}[{name}]({media_url(media)})"


def agent_text(media: Media | None, data: dict[str, Any]) -> str:
    """What an agent's whole message adds to the text of its run."""
    text = str(data.get("text") or "")
    if media is None:
        return text
    return f"{text}\n\n{link(media)}" if text else link(media)


def user_content(media: Media | None, data: dict[str, Any]) -> str | list[dict[str, Any]]:
    """A person's message as history shows it: a text, or parts when there is a file."""
    text = str(data.get("text") or "")
    if media is None:
        return text
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    if media.kind == "image":
        parts.append({"type": "image_url", "image_url": {"url": media_url(media)}})
    else:
        parts.append({"type": "text", "text": link(media)})
    return parts
