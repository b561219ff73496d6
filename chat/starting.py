"""Starting a run over HTTP: what is asked for is read and checked first, then stored in one transaction."""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from accounts.auth import Principal
from chat import beginnings, contents, frames, gateway, history, inputs, pictures, queries
from chat.batch import Batch, SessionRow
from chat.control import ForRun, Slots
from chat.models import ACTIVE, LIVE, ChatSession, IdempotencyKey, Run
from chat.telling import RunRef
from chat.turns import Slot
from hermes_site.errors import (
    Conflict,
    Draining,
    GatewayError,
    InvalidRequest,
    NotFound,
    Offline,
    RateLimited,
)
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
    to_store: dict[str, pictures.Bytes] = field(default_factory=dict)  # pictures that have to be stored yet
    stored: pictures.Pictures = field(default_factory=dict)


@dataclass
class Started:
    """The run that was started, or the one an idempotency key had started before."""

    ref: RunRef
    status: str
    replayed: bool = False


async def read_order(principal: Principal, session: str, body: dict[str, Any], key: str | None) -> Order:
    """
    Read and check a request, up to what needs the writer.

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
    said = inputs.read_input(body, settings.HERMES_MAX_FRAME_BYTES - 2 * settings.HERMES_DATA_BYTES)
    if said is None and replace_from is None:
        raise InvalidRequest("there is nothing to say", api_code="missing_message", field="input")
    client_run_id = body.get("run_id")
    if client_run_id is not None and not (
        isinstance(client_run_id, str) and CLIENT_RUN_ID.fullmatch(client_run_id)
    ):
        raise InvalidRequest(
            "run_id must be 1 to 128 URL-safe characters", api_code="invalid_run_id", field="run_id"
        )
    if key is not None and not IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidRequest(
            "Idempotency-Key must be 1 to 255 visible ASCII characters",
            api_code="invalid_idempotency_key",
            field="Idempotency-Key",
        )
    instructions = inputs.read_instructions(body, settings.HERMES_DATA_BYTES)
    order = Order(session, said, instructions, replace_from, client_run_id, key, digest_of(session, body))
    if said is not None:
        order.to_store = pictures.read_bytes(said.images)
        order.stored = await queries.pool.read(pictures.find_own, principal, said.images)
    return order


def digest_of(session: str, body: dict[str, Any]) -> str:
    """
    What makes two requests the same.

    Raises:
        InvalidRequest: If the body is nested too deep to be written.
    """
    try:
        text = json.dumps([session, body], sort_keys=True)
    except RecursionError:
        raise InvalidRequest("the body is nested too deep", api_code="invalid_json") from None
    return hashlib.sha256(text.encode()).hexdigest()


async def start(principal: Principal, order: Order) -> Started:
    """
    Store it and start the run.

    Raises:
        GatewayError: If it cannot be started now; nothing is stored then.
    """
    here = gateway.running()
    if here.draining:
        raise Draining("this process is going away; try again", retry_after=1)
    if settings.HERMES_RATE_LIMIT:
        wait = here.app_frames.take(principal.user_id, 1, time.monotonic())
        if wait:
            raise RateLimited("too many messages", retry_after=wait)
    if order.to_store:  # stored only when nothing else is in the way
        known: Started | None = await here.journal.do(Check(principal, here.journal.slots, order))
        if known is not None:
            return known
        order.stored |= await pictures.store(principal, order.to_store)
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

    def apply(self, batch: Batch) -> Started | None:
        """Check in the order the contract names, then store."""
        order = self.order
        session = batch.session(self.user_id, order.session)
        if session is None or session.deleted:
            raise NotFound("there is no such session", api_code="session_not_found")
        if (known := self._known_key(batch)) is not None:
            return known
        replaced = self._replaced(session)
        slot = beginnings.seat_of(batch, self.slots, self.user_id, session.agent)
        online = beginnings.is_online(slot, self.user_id, session.agent)
        # What waits for an agent that is away may wait in line; what is on its way to one that is here may not.
        counting = LIVE if online or replaced is not None else ACTIVE
        live = Run.objects.filter(session_id=session.key, status__in=counting).order_by("ordinal").first()
        if live is not None:
            raise Conflict(
                "a run of this session has not ended",
                api_code="run_already_active",
                extra={"run_id": live.public_id},
            )
        if order.client_run_id and queries.find_run(self.user_id, order.client_run_id) is not None:
            raise Conflict("this run id is taken", api_code="run_id_conflict", field="run_id")
        self._check_agent(batch, session, replaced, online)
        return self._store(batch, session, replaced, slot, online)

    def _store(
        self, batch: Batch, session: SessionRow, replaced: Run | None, slot: Slot | None, online: bool
    ) -> Started | None:
        order = self.order
        said = self._utterance(batch, session, replaced)
        turn = beginnings.begin(batch, session, said, slot, online=online)
        if order.key is not None:
            batch.remember_key(self.user_id, order.key, order.digest, turn.key)
        return Started(turn.ref, str(turn.status))

    def _replaced(self, session: SessionRow) -> Run | None:
        name = self.order.replace_from
        if name is None:
            return None
        run = queries.find_run(self.user_id, name) if inputs.storable(name) else None
        if run is None or run.session_id != session.key or run.user_message is None:
            raise NotFound("there is no such run in this session", api_code="run_not_found")
        if run.replaced_by_id is not None:
            raise Conflict("this run was replaced already", api_code="run_replaced")
        return run

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
                raise Conflict("this run was replaced", api_code="run_replaced")
            return Started(
                queries.run_ref(run, run.session.public_id, self.username), run.status, replayed=True
            )
        if settings.HERMES_RATE_LIMIT and fresh.count() >= settings.HERMES_IDEMPOTENCY_KEYS:
            raise RateLimited("too many idempotency keys in a day", retry_after=3600)
        return None

    def _check_agent(self, batch: Batch, session: SessionRow, replaced: Run | None, online: bool) -> None:
        if replaced is not None:
            if not online:
                raise Offline("the agent is away, and nothing can be replaced without it", retry_after=5)
            if "control" not in queries.agent_caps(self.user_id, session.agent):
                raise ReplaceUnsupported("this agent cannot replace what was said")
        beginnings.check_queue(batch, self.user_id, session.agent, online=online, retry_after=30)

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
            media = list(dict.fromkeys(order.stored.values()))
            data = _data(order.said, order.stored, media)
            kind, content = ("image" if media else "text"), _content(order.said, order.stored)
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


class Check(Start):
    """The same up to the storing; the result is the run an idempotency key had started before, if any."""

    def _store(
        self, batch: Batch, session: SessionRow, replaced: Run | None, slot: Slot | None, online: bool
    ) -> None:
        """Nothing."""


def _session_stands(user_id: int, session: str) -> bool:
    return ChatSession.objects.filter(user_id=user_id, public_id=session, deleted_at=None).exists()


def _data(said: inputs.Input, found: pictures.Pictures, media: list[Media]) -> dict[str, Any]:
    """`data` of the message: text, stored files, and the URLs that were passed on as they are."""
    data: dict[str, Any] = {"text": said.text}
    if media:
        data["media"] = services.frame_fields(media[0])
        if len(media) > 1:
            data["media_list"] = [services.frame_fields(one) for one in media]
    others = [url for url in said.images if url not in found]
    if others:
        data["images"] = others
    return data


def _content(said: inputs.Input, found: pictures.Pictures) -> str | list[dict[str, Any]]:
    """The content as it was sent, but with the address of a picture in place of its bytes."""
    if isinstance(said.content, str):
        return said.content
    return [_shown(part, found) for part in said.content]


def _shown(part: dict[str, Any], found: pictures.Pictures) -> dict[str, Any]:
    media = found.get(part["image_url"]["url"]) if part["type"] == "image_url" else None
    if media is None:
        return part
    return {**part, "image_url": {**part["image_url"], "url": contents.media_url(media)}}
