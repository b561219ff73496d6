"""How a run begins: a person's message is stored, its run made, and both handed on. For the writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from chat import agents, frames, queries, replacing
from chat.batch import Batch, SessionRow
from chat.dispatch import begins_fork, hand_out
from chat.keys import new_key
from chat.models import Message, Run, RunStatus
from chat.telling import Told
from chat.turns import Slot, Turn
from hermes_site.errors import Offline, RateLimited
from media.models import Media


@dataclass
class Utterance:
    """What a person says, checked and complete: nothing about it is refused any more."""

    user_id: int
    username: str
    agent: str
    message_id: str
    kind: str
    reply_to: str | None
    ts: int
    data: dict[str, Any]
    digest: str
    content: str | list[dict[str, Any]]  # as history shows it
    media: list[Media] = field(default_factory=list)
    replaces: Message | None = None
    client_run_id: str | None = None


def seat_of(batch: Batch, slots: dict[tuple[int, str], Slot], user_id: int, agent: str) -> Slot | None:
    """The agent's slot, if its socket is here and nobody has taken it over; the upstream takes no message by itself."""
    slot = slots.get((user_id, agent))
    if slot is None or slot.peer is None or agents.UPSTREAM in slot.caps or not batch.seated(slot):
        return None
    return slot


def is_online(slot: Slot | None, user_id: int, agent: str) -> bool:
    """Whether the agent is connected, here or elsewhere, or the gateway itself asks for it."""
    return (
        slot is not None
        or agents.held_by_agents().filter(user_id=user_id, name=agent).exists()
        or agents.is_upstream(user_id, agent)
    )


def waiting_for(user_id: int, agent: str) -> int:
    """How many messages wait for an agent."""
    return Run.objects.filter(
        user_id=user_id, agent=agent, status=RunStatus.QUEUED, delivered_at__isnull=True
    ).count()


def check_queue(
    batch: Batch, user_id: int, agent: str, *, online: bool, retry_after: int | None = None
) -> None:
    """
    Whether one more message may wait for an agent; one that is connected takes it at once, the upstream does not.

    Raises:
        Offline: If too many wait for an agent that is away.
        RateLimited: If too many wait for the upstream.
    """
    if online and agent != agents.upstream_name():
        return
    if waiting_for(user_id, agent) + batch.queued[user_id, agent] >= settings.HERMES_QUEUE_LIMIT:
        if online:
            raise RateLimited("too many messages wait for the agent already", retry_after=retry_after or 30)
        text = "the agent is away and too many messages wait for it already"
        raise Offline(text, retry_after=retry_after)


def begin(batch: Batch, session: SessionRow, said: Utterance, slot: Slot | None, *, online: bool) -> Turn:
    """
    Store a message under the next cursor, with the run it starts.

    It is handed to its agent in the same transaction where that is this process' to do and nothing waits
    before it; else the agent's dispatcher finds it.
    """
    last, _ = batch.cursors(said.user_id)
    direct = slot is not None and slot.handed == last
    key = new_key()
    status = RunStatus.QUEUED
    if direct and slot is not None and slot.active(session.key) is None:
        status = RunStatus.RUNNING
    turn = batch.new_run(
        session,
        said.username,
        status=status,
        slot=slot if direct else None,
        question=(key, said.message_id),
        client_run_id=said.client_run_id,
    )
    cursor = batch.next_cursor(said.user_id, undelivered_for=None if direct else said.agent)
    replace_from = said.replaces.public_id if said.replaces is not None else None
    batch.insert_message(
        key=key,
        session=session,
        run=turn.key,
        side="app",
        public_id=said.message_id,
        cursor=cursor,
        kind=said.kind,
        reply_to=said.reply_to,
        ts=said.ts,
        data=said.data,
        digest=said.digest,
        replace_from=replace_from,
    )
    batch.touch(session, said.data.get("text"))
    question = {"id": said.message_id, "role": "user", "content": said.content}
    events = [batch.event(turn, "run.started", user_message=question)]
    if not direct:
        batch.queued[said.user_id, said.agent] += 1
    if not online:
        events.append(batch.event(turn, "run.queued", status="queued", reason="agent_offline"))
    for media in said.media:
        batch.grant(media, said.agent)
    message = frames.message_frame(
        message_id=said.message_id,
        kind=said.kind,
        sender=said.username,
        to=said.agent,
        session=session.public_id,
        reply_to=said.reply_to,
        ts=said.ts,
        data=said.data,
        replace_from=replace_from,
    )
    batch.tell(
        Told(
            said.user_id,
            cursor=cursor,
            run=turn.ref,
            first=1,
            last=len(events),
            events=events,
            message=message,
            side="app",
            status={"id": turn.ref.public_id, "status": status, "code": None},
        )
    )
    if said.replaces is not None:
        replacing.replace(batch, said.user_id, said.username, said.replaces, session, (key, turn.key))
    if direct and slot is not None:
        slot.add(turn)
        if said.replaces is not None or begins_fork(slot, session.copied, turn.ordinal):
            history = queries.history_before(session.key, turn.ordinal)
            message = {**message, "data": {**said.data, "history": history}}
        hand_out(batch, slot, turn, message, cursor)
    return turn
