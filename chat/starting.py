"""Starting a run over HTTP: what is asked for is read and checked first, then stored in one transaction."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import re
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from accounts.auth import Principal
from chat import beginnings, contents, frames, gateway, history, inputs, queries
from chat.batch import Batch, SessionRow
from chat.control import ForRun, Slots
from chat.models import ACTIVE, ChatSession, IdempotencyKey, Run, RunStatus
from chat.telling import RunRef
from hermes_site.errors import Conflict, GatewayError, Gone, InvalidRequest, NotFound, Offline, RateLimited
from media import services
from media.models import Media

CLIENT_RUN_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")
IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class ReplaceUnsupported(GatewayError):
    """The session's agent cannot replace what was said."""

    code = "unsupported"
    api_code = "replace_unsupported"
    status = 422
    type = "invalid_request_error"


@dataclass
class Order:
    """What a client asks for."""

    session: str
    said: inputs.Input | None
    instructions: str | None
    replace_from: str | None
    client_run_id: str | None
    key: str | None
    digest: str
    pictures: dict[str, Media] = field(default_factory=dict)  # by the URL they came as


@dataclass
class Started:
    """The run that was started, or the one an idempotency key had started before."""

    ref: RunRef
    status: str
    replayed: bool = False


async def read_order(principal: Principal, session: str, body: dict[str, Any], key: str | None) -> Order:
    """
    Read and check a request, up to what needs the writer; pictures in data URLs are stored.

    Raises:
        GatewayError: With the code that says what is wrong.
    """
    standing = await queries.pool.read(_session_stands, principal.user_id, session)
    if not standing:
        raise NotFound("there is no such session", api_code="session_not_found")
    replace_from = body.get("replace_from")
    if replace_from is not None and not (isinstance(replace_from, str) and replace_from):
        raise InvalidRequest(
            "replace_from must name a run", api_code="invalid_replace_from", field="replace_from"
        )
    said = inputs.read_input(body)
    if said is None and replace_from is None:
        raise InvalidRequest("there is nothing to say", api_code="missing_message", field="input")
    client_run_id = body.get("run_id")
    if client_run_id is not None and not (
        isinstance(client_run_id, str) and CLIENT_RUN_ID.fullmatch(client_run_id)
    ):
        raise InvalidRequest("run_id must be 1 to 128 URL-safe characters", field="run_id")
    if key is not None and not IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidRequest(
            "Idempotency-Key must be 1 to 255 visible ASCII characters", field="Idempotency-Key"
        )
    digest = hashlib.sha256(json.dumps([session, body], sort_keys=True).encode()).hexdigest()
    order = Order(session, said, inputs.read_instructions(body), replace_from, client_run_id, key, digest)
    if said is not None:
        order.pictures = await queries.pool.read(_pictures, principal, said.images)
    return order


async def start(principal: Principal, order: Order) -> Started:
    """
    Store it and start the run.

    Raises:
        GatewayError: If it cannot be started now; nothing is stored then.
    """
    here = gateway.running()
    started: Started = await here.journal.do(Start(principal, here.journal.slots, order))
    return started


class Start(ForRun):
    """The transaction: replacement, message and run."""

    def __init__(self, principal: Principal, slots: Slots, order: Order) -> None:
        super().__init__(principal.user_id, slots)
        self.username = principal.username
        self.order = order

    def load(self, batch: Batch) -> None:
        """The user's numbers, the session, the seats of the user's agents here."""
        batch.want_log(self.user_id)
        batch.want_session(self.user_id, self.order.session)
        for (user_id, _), slot in self.slots.items():
            if user_id == self.user_id:
                batch.want_seat(slot)

    def apply(self, batch: Batch) -> Started:
        """Check in the order the contract names, then store."""
        order = self.order
        session = batch.session(self.user_id, order.session)
        if session is None or session.deleted:
            raise NotFound("there is no such session", api_code="session_not_found")
        replaced = self._replaced(session)
        if (known := self._known_key(batch)) is not None:
            return known
        running = Run.objects.filter(session_id=session.key, status__in=ACTIVE).first()
        live = running or (self._waiting(session) if replaced is not None else None)
        if live is not None:
            raise Conflict(
                "a run of this session has not ended",
                api_code="run_already_active",
                extra={"run_id": live.public_id},
            )
        if order.client_run_id and queries.find_run(self.user_id, order.client_run_id) is not None:
            raise Conflict("this run id is taken", api_code="run_id_conflict", field="run_id")
        slot = beginnings.seat_of(batch, self.slots, self.user_id, session.agent)
        online = beginnings.is_online(slot, self.user_id, session.agent)
        self._check_agent(session, replaced, online)
        said = self._utterance(batch, session, replaced)
        turn = beginnings.begin(batch, session, said, slot, online=online)
        if order.key is not None:
            batch.remember_key(self.user_id, order.key, order.digest, turn.key)
        return Started(turn.ref, str(turn.status))

    def _replaced(self, session: SessionRow) -> Run | None:
        name = self.order.replace_from
        if name is None:
            return None
        run = queries.find_run(self.user_id, name)
        if run is None or run.session_id != session.key or run.user_message is None:
            raise NotFound("there is no such run in this session", api_code="run_not_found")
        if run.replaced_by_id is not None:
            raise Conflict("this run was replaced already", api_code="run_replaced")
        return run

    def _waiting(self, session: SessionRow) -> Run | None:
        return Run.objects.filter(session_id=session.key, status=RunStatus.QUEUED).first()

    def _known_key(self, batch: Batch) -> Started | None:
        key = self.order.key
        if key is None:
            return None
        fresh = IdempotencyKey.objects.filter(
            user_id=self.user_id, created_at__gt=batch.ago(settings.HERMES_IDEMPOTENCY_SECONDS)
        )
        known = fresh.filter(key=key).select_related("run__session", "run__user_message").first()
        if known is not None:
            if known.digest != self.order.digest:
                raise Conflict("this key came with another body", api_code="idempotency_key_conflict")
            run = known.run
            if run.replaced_by_id is not None:
                raise Gone("this run was replaced", api_code="run_replaced")
            return Started(
                queries.run_ref(run, run.session.public_id, self.username), run.status, replayed=True
            )
        if settings.HERMES_RATE_LIMIT and fresh.count() >= settings.HERMES_IDEMPOTENCY_KEYS:
            raise RateLimited("too many idempotency keys in a day", retry_after=3600)
        return None

    def _check_agent(self, session: SessionRow, replaced: Run | None, online: bool) -> None:
        if replaced is not None:
            if not online:
                raise Offline("the agent is away, and nothing can be replaced without it", retry_after=5)
            if "control" not in queries.agent_caps(self.user_id, session.agent):
                raise ReplaceUnsupported("this agent cannot replace what was said")
        full = beginnings.waiting_for(self.user_id, session.agent) >= settings.HERMES_QUEUE_LIMIT
        if not online and full:
            raise Offline("the agent is away and too many messages wait for it already", retry_after=30)

    def _utterance(self, batch: Batch, session: SessionRow, replaced: Run | None) -> beginnings.Utterance:
        order = self.order
        message_id = f"msg_{uuid.uuid4().hex}"
        target = replaced.user_message if replaced is not None else None
        if target is not None and replaced is not None:
            target.run = replaced
        if order.said is None and target is not None:  # regenerate: the old words again
            data = frames.read_data(target.data)
            kind, content = target.type, history.question_of(target.run)
            media: list[Media] = []
        else:
            assert order.said is not None
            media = list(dict.fromkeys(order.pictures.values()))
            data = _data(order.said, order.pictures, media)
            kind, content = ("image" if media else "text"), _content(order.said, order.pictures)
        data.pop("instructions", None)
        if order.instructions:
            data["instructions"] = order.instructions
        return beginnings.Utterance(
            self.user_id,
            self.username,
            session.agent,
            message_id,
            kind,
            None,
            int(batch.ts),
            data,
            hashlib.sha256(message_id.encode()).hexdigest(),
            content,
            media,
            target,
            order.client_run_id,
        )


def _session_stands(user_id: int, session: str) -> bool:
    return ChatSession.objects.filter(user_id=user_id, public_id=session, deleted_at=None).exists()


def _pictures(principal: Principal, urls: list[str]) -> dict[str, Media]:
    """
    The pictures among these URLs that rest, or are now put, with us.

    Raises:
        NotFound: If one of our own addresses names no file of this user.
    """
    found: dict[str, Media] = {}
    for url in urls:
        if inputs.is_data_image(url):
            found[url] = _store(principal, url)
        elif (media_id := _own_media(url)) is not None:
            media = Media.objects.filter(owner_id=principal.user_id, public_id=media_id).first()
            if media is None:
                raise NotFound("there is no such file", api_code="not_found", field="input")
            found[url] = media
    return found


def _store(principal: Principal, url: str) -> Media:
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
    name = f"image.{kind}" if kind.isalnum() else "image"
    media, _ = services.store(io.BytesIO(raw), name=name, owner_id=principal.user_id)
    if media.kind != "image":
        raise InvalidRequest(
            "a data URL must hold an image", api_code="unsupported_content_type", field="input"
        )
    return media


def _own_media(url: str) -> str | None:
    """The id of the file that one of our own addresses names."""
    base = settings.HERMES_PUBLIC_URL
    path = url[len(base) :] if base and url.startswith(base + "/") else url
    if not path.startswith("/media/"):
        return None
    return urlsplit(path).path.removeprefix("/media/")


def _data(said: inputs.Input, pictures: dict[str, Media], media: list[Media]) -> dict[str, Any]:
    """`data` of the message: text, stored files, and the URLs that were passed on as they are."""
    data: dict[str, Any] = {"text": said.text}
    if media:
        data["media"] = services.frame_fields(media[0])
        if len(media) > 1:
            data["media_list"] = [services.frame_fields(one) for one in media]
    others = [url for url in said.images if url not in pictures]
    if others:
        data["images"] = others
    return data


def _content(said: inputs.Input, pictures: dict[str, Media]) -> str | list[dict[str, Any]]:
    """The content as it was sent, but with the address of a picture in place of its bytes."""
    if isinstance(said.content, str):
        return said.content
    parts: list[dict[str, Any]] = []
    if said.text:
        parts.append({"type": "text", "text": said.text})
    for url in said.images:
        shown = contents.media_url(pictures[url]) if url in pictures else url
        parts.append({"type": "image_url", "image_url": {"url": shown}})
    return parts
