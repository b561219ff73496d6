"""Verbs of media: store a file, find it for those who may have it, say in a frame what it is."""

import hashlib
from typing import Any, BinaryIO

from django.conf import settings
from django.db import IntegrityError, transaction

from accounts import scopes
from accounts.auth import Principal
from hermes_site.errors import Forbidden, NotFound, TooLarge
from media import storage
from media.models import Media, MediaGrant
from media.names import display_name
from media.probe import Facts, probe
from media.sniff import HEAD_BYTES, Kind, TextCheck, sniff

READ_BYTES = 256 * 1024

FRAME_FIELDS = {
    Media.Kind.IMAGE: ("id", "name", "type", "size", "width", "height"),
    Media.Kind.VOICE: ("id", "type", "size", "duration"),
    Media.Kind.VIDEO: ("id", "name", "type", "size", "duration", "width", "height"),
    Media.Kind.FILE: ("id", "name", "type", "size"),
}
"""The fields of the media object in a frame, by kind (docs/protocol.md)."""


def store(file: BinaryIO, *, name: str, owner_id: int, agent: str = "") -> tuple[Media, bool]:
    """
    Keep a file for a user; the same bytes under the same name are kept once.

    Args:
        file: Seekable and complete; it may be moved away, so nothing else may be done with it afterwards.
        name: As the client says it; what is kept is safe to show.
        owner_id: The user's primary key.
        agent: The agent that uploads it; empty for the user itself. It may download the file again.

    Returns:
        The row, and whether it is new.

    Raises:
        TooLarge: If it is larger than its kind may be.
        UploadFailed: If it could not be stored; nothing is left behind then.
    """
    size = file.seek(0, 2)
    _refuse_above(max(limits_bytes().values()), size)
    name = display_name(name)
    digest, facts = _examined(file, size, name)
    _refuse_above(limits_bytes()[facts.kind], size)

    same_bytes = Media.objects.filter(owner_id=owner_id, sha256=digest, size=size)
    if (known := same_bytes.filter(name=name).first()) is not None:
        if not storage.exists(
            known.storage_name
        ):  # lost, and now there again: for all rows that share the bytes
            same_bytes.filter(storage_name=known.storage_name).update(storage_name=storage.write(file))
        return _had(known, agent), False

    twin = same_bytes.first()
    shared = twin is not None and storage.exists(twin.storage_name)
    storage_name = twin.storage_name if twin and shared else storage.write(file)
    media = Media(
        owner_id=owner_id,
        name=name,
        kind=facts.kind,
        type=facts.type,
        size=size,
        width=facts.width,
        height=facts.height,
        duration=facts.duration,
        sha256=digest,
        storage_name=storage_name,
        agent=agent,
    )
    try:
        with transaction.atomic():
            media.save(force_insert=True)
    except BaseException as error:
        if not shared:
            storage.delete(storage_name)
        if isinstance(error, IntegrityError) and (known := same_bytes.filter(name=name).first()):
            return _had(known, agent), False  # another upload of the same was faster
        raise
    return media, True


def limits_bytes() -> dict[Kind, int]:
    """How large a file of each kind may be."""
    return {
        "image": settings.HERMES_MEDIA_MAX_IMAGE_BYTES,
        "voice": settings.HERMES_MEDIA_MAX_VOICE_BYTES,
        "video": settings.HERMES_MEDIA_MAX_VIDEO_BYTES,
        "file": settings.HERMES_MEDIA_MAX_FILE_BYTES,
    }


def require_media(principal: Principal) -> None:
    """
    Let only those pass who may use media at all: Apps, and keys with the scope `media` or `chat`.

    Raises:
        Forbidden: If the credential is not such.
    """
    if not principal.scopes & {scopes.MEDIA, scopes.CHAT}:
        raise Forbidden(f"this credential does not have the scope {scopes.MEDIA}")


def uploader(principal: Principal) -> str:
    """Whose name stands on an upload: the agent's, or none for the user and for programs that act as its App."""
    if principal.agent is None or (scopes.CHAT in principal.scopes and scopes.AGENT not in principal.scopes):
        return ""
    return principal.agent


async def find(principal: Principal, public_id: str) -> Media:
    """
    The file of that id, if the caller may have it: an App all of its user's, an agent what it uploaded or was sent.

    Raises:
        NotFound: If there is none, or it is not for the caller; the answer is the same.
    """
    agent = None if scopes.CHAT in principal.scopes else principal.agent or ""
    media = await Media.objects.visible_to(principal.user_id, agent).filter(public_id=public_id).afirst()
    if media is None:
        raise NotFound("there is no such file")
    return media


def grant(media: Media, agent: str) -> None:
    """Let an agent of the owner download a file it is being sent; to do so again changes nothing."""
    if agent != media.agent:
        MediaGrant.objects.get_or_create(media=media, agent=agent)


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


def _had(media: Media, agent: str) -> Media:
    """A file that its owner has already; an agent that brings it has shown that it has the bytes."""
    if agent:
        grant(media, agent)
    return media


def _examined(file: BinaryIO, size: int, name: str) -> tuple[str, Facts]:
    """The SHA-256 of a file and what it is: one pass, then a look at its headers."""
    digest, text = hashlib.sha256(), TextCheck()
    file.seek(0)
    head = b""
    while piece := file.read(READ_BYTES):
        head = head or piece[:HEAD_BYTES]
        digest.update(piece)
        text.feed(piece)
    return digest.hexdigest(), probe(file, size, sniff(head, name, text.is_text()))


def _refuse_above(limit_bytes: int, size: int) -> None:
    if size > limit_bytes:
        raise TooLarge(f"the file has {size} bytes; at most {limit_bytes} are taken")
