"""Verbs of media: what a frame says of a file, and which agent may have it."""

from typing import Any

from media.models import Media, MediaGrant

FRAME_FIELDS = {
    Media.Kind.IMAGE: ("id", "name", "type", "size", "width", "height"),
    Media.Kind.VOICE: ("id", "type", "size", "duration"),
    Media.Kind.VIDEO: ("id", "name", "type", "size", "duration", "width", "height"),
    Media.Kind.FILE: ("id", "name", "type", "size"),
}
"""The fields of the media object in a frame, by kind (docs/protocol.md)."""


def whole_seconds(duration: float | None) -> int:
    """A duration as frames carry it: whole seconds, at least 1, which also stands for an unknown one."""
    return max(1, int(duration + 0.5)) if duration is not None else 1


def frame_fields(media: Media) -> dict[str, Any]:
    """The media object of a frame, all values true: the fields of its kind and no others."""
    values = {
        "id": media.public_id,
        "name": media.name,
        "type": media.type,
        "size": media.size,
        "duration": whole_seconds(media.duration),
        "width": media.width,
        "height": media.height,
    }
    return {field: values[field] for field in FRAME_FIELDS[Media.Kind(media.kind)]}


def grant(media: Media, agent: str) -> None:
    """Let an agent of the owner download a file it is being sent; to do so again changes nothing."""
    if agent != media.agent:
        MediaGrant.objects.get_or_create(media=media, agent=agent)
