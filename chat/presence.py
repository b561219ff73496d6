"""Which agent is connected where: taking a slot, letting it go, handing out what waits. For the writer."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, NamedTuple

from django.conf import settings
from django.utils import timezone

from chat import agents, ends, frames, rows
from chat.batch import Batch
from chat.keys import new_key
from chat.models import LIVE, AgentSlot, Connection, Process, Run, RunStatus
from chat.telling import Told
from chat.turns import Peer, Slot, Turn
from chat.waiting import TellWaiting
from chat.windows import wait_for_more
from hermes_site.errors import CloseCode, RateLimited


class Quiet:
    """An item nobody waits for."""

    def done(self, result: Any, error: BaseException | None) -> None:
        """Nothing to hear."""


class Seat(NamedTuple):
    """What an agent that has connected is told: its generation, the user's cursor, its open streams."""

    generation: int
    cursor: int
    streams: list[dict[str, Any]]


class Connect(Quiet):
    """
    An agent takes its slot; the newest connection wins.

    Its live turns become this process'.

    Raises:
        RateLimited: If this name was taken over too often: two bridges chase each other.
    """

    alone = True

    def __init__(self, slot: Slot, peer: Peer, caps: frozenset[str], since: int | None = None) -> None:
        self.slot = slot
        self.peer = peer
        self.caps = caps
        self.since = since

    def load(self, batch: Batch) -> None:
        """The slot's row is locked in `apply`, after all logs."""
        batch.want_log(self.slot.user_id)

    def apply(self, batch: Batch) -> Seat:
        """Take the slot and its runs."""
        slot = self.slot
        row = (
            AgentSlot.objects.select_for_update(no_key=rows.is_postgresql())
            .filter(user_id=slot.user_id, name=slot.name)
            .first()
        )
        if row is None:
            row = AgentSlot(id=new_key(), user_id=slot.user_id, name=slot.name)
        recent = self.admit(row, batch)
        row.generation += 1
        row.process = batch.process
        row.caps = ",".join(sorted(self.caps))
        row.connected_at, row.gone_at = batch.now, None
        row.takeovers = json.dumps(recent)
        row.save()
        batch.otherwise(partial(slot.restore, slot.seat()))
        slot.key, slot.generation, slot.caps = row.pk, row.generation, self.caps
        slot.dropping, slot.stopped = {}, {}
        last, _ = batch.cursors(slot.user_id)
        slot.redeliver = (0, 0)
        slot.handed = 0
        if "sync" in self.caps and self.since is not None:
            slot.handed = min(self.since, last)
            slot.redeliver = (slot.handed, last)
        Run.objects.filter(
            user_id=slot.user_id, agent=slot.name, status__in=LIVE, delivered_at__isnull=False
        ).update(owner=batch.process, epoch=row.generation)
        slot.forget()
        batch.want_turns(slot)
        batch.load_turns(slot)
        for turn in slot.all_turns():
            if turn.answered and turn.stream is None and not self.caps & {"events", "control"}:
                wait_for_more(batch, slot, turn)
        batch.later(settings.HERMES_STREAM_GRACE_SECONDS, EndStale(slot, row.generation - 1))
        self.announce(batch)
        generation, peer = row.generation, self.peer

        def seat() -> None:
            if slot.generation == generation:
                old, slot.peer = slot.peer, peer
                if old is not None and old is not peer:
                    old.close(CloseCode.REPLACED)

        batch.call(seat)
        streams = [
            {
                "id": turn.stream.public_id,
                "session": turn.ref.session,
                "reply_to": turn.stream.reply_to,
                "chars": len(turn.narrative.stream_text),
            }
            for turn in slot.all_turns()
            if turn.stream is not None
        ]
        return Seat(row.generation, last, streams)

    def announce(self, batch: Batch) -> None:
        """Tell Apps that the agent is there."""
        tell_presence(batch, self.slot, online=True)

    def admit(self, row: AgentSlot, batch: Batch) -> list[float]:
        """
        The times of the latest takeovers, this one included where it is one.

        Raises:
            RateLimited: If there were too many.
        """
        window, most = settings.HERMES_TAKEOVER_SECONDS, settings.HERMES_TAKEOVER_LIMIT
        latest: list[float] = json.loads(row.takeovers)[-most:]
        chase = len(latest) == most and latest[-1] - latest[0] <= window
        if chase and (left := latest[-1] + window - batch.ts) > 0:
            raise RateLimited("this agent name was taken over too often", retry_after=left)
        alive = row.process is not None and Process.objects.filter(uuid=row.process).exists()
        return [*latest, batch.ts][-most:] if alive else latest


class Opened(Quiet):
    """A socket is open: a row for operators to see. The result is its key."""

    def __init__(self, **row: Any) -> None:
        self.row = row

    def load(self, batch: Batch) -> None:
        """Nothing."""

    def apply(self, batch: Batch) -> None:
        """Note it."""
        Connection.objects.create(process=batch.process, connected_at=batch.now, **self.row)


class Closed(Quiet):
    """A socket is gone."""

    insists = True

    def __init__(self, key: int) -> None:
        self.key = key

    def load(self, batch: Batch) -> None:
        """Nothing."""

    def apply(self, batch: Batch) -> None:
        """Forget it."""
        Connection.objects.filter(pk=self.key).delete()


class Disconnect(Quiet):
    """An agent's socket has ended; what it had been handed has a grace time."""

    insists = True

    def __init__(self, slot: Slot, generation: int) -> None:
        self.slot = slot
        self.generation = generation

    def load(self, batch: Batch) -> None:
        """Nothing: the update is conditional."""

    def apply(self, batch: Batch) -> None:
        """Empty the slot unless somebody newer sits in it."""
        slot = self.slot
        gone = AgentSlot.objects.filter(
            user_id=slot.user_id, name=slot.name, generation=self.generation, process=batch.process
        ).update(process=None, gone_at=batch.now)
        if gone:
            batch.later(settings.HERMES_STREAM_GRACE_SECONDS, EndStale(slot, self.generation))
            batch.later(0, TellWaiting(slot.user_id, slot.username, slot.name))
            self.announce(batch)

    def announce(self, batch: Batch) -> None:
        """Tell Apps that the agent has gone."""
        tell_presence(batch, self.slot, online=False)


class EndStale(Quiet):
    """
    The grace time of a connection is over: what was last heard on it, or before, has ended.

    Turns that an agent with `sync` had not begun go back to the queue instead.
    """

    alone = True
    insists = True

    def __init__(self, slot: Slot, generation: int) -> None:
        self.slot = slot
        self.generation = generation

    def load(self, batch: Batch) -> None:
        """The user's numbers and the agent's turns."""
        batch.want_log(self.slot.user_id)
        batch.want_turns(self.slot)

    def apply(self, batch: Batch) -> None:
        """End what was not taken up again."""
        slot = self.slot
        owned = set(
            Run.objects.filter(
                user_id=slot.user_id, agent=slot.name, status__in=LIVE, owner=batch.process
            ).values_list("id", flat=True)
        )
        for turn in list(slot.all_turns()):
            if turn.key not in owned:
                slot.remove(turn)  # another process has taken it over
            elif turn.heard <= self.generation:
                end_lost(batch, slot, turn)
        batch.idle.append(slot)


def end_lost(batch: Batch, slot: Slot, turn: Turn) -> dict[str, Any] | None:
    """
    End a turn whose agent is gone: complete if it was answered, back to the queue, or interrupted.

    Returns the `error` frame of an interrupted one.
    """
    if turn.answered and turn.stream is None:
        ends.end_turn(batch, slot, turn, "completed")
        return None
    if not turn.begun and not turn.asked_stop and "sync" in slot.caps and turn.ref.reply_to is not None:
        batch.update_run(turn.key, status=RunStatus.QUEUED, owner=None, delivered_at=None)
        slot.remove(turn)
        slot.handed = 0
        batch.call(slot.wake)
        return None
    reply_to = turn.ref.reply_to
    if turn.stream is not None:
        batch.drop_frames(slot, turn.ref.session)
        reply_to = turn.stream.reply_to or reply_to
    text = "the agent went away before it had finished; what it had said is kept"
    if turn.stream is None:
        text = "the agent went away before it answered"
    error = ends.notice_error(
        batch, slot, session=turn.ref.session, reply_to=reply_to, code="offline", text=text, queued=False
    )
    ends.end_turn(
        batch, slot, turn, "interrupted", code="agent_gone", text=text, error=error, interrupted=True
    )
    return error


def online_agents(user_id: int) -> dict[str, bool]:
    """The names of a user's agents and whether each is connected; the upstream always is."""
    default, names = agents.find_names(user_id)
    living = Process.objects.filter(lease__gt=timezone.now()).values("uuid")
    held = agents.held_by_agents().filter(user_id=user_id, process__in=living)
    online = set(held.values_list("name", flat=True))
    online.update(name for name in names if agents.is_upstream(user_id, name))
    return {name: name in online for name in (names or (default,))}


def tell_presence(batch: Batch, slot: Slot, *, online: bool) -> None:
    """Tell Apps with `events` that an agent came or went."""
    frame = {
        "id": frames.new_id(), "type": "event", "from": slot.name, "to": slot.username, "session": "-",
        "ts": int(batch.ts), "data": {"event": "agent.online" if online else "agent.offline", "agent": slot.name},
    }  # fmt: skip
    batch.tell(Told(slot.user_id, notice=frame))
