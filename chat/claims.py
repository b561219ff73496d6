"""What the gateway writes and reads when it answers for itself: whose turn is next, and what Hermes was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from chat import agents, presence, queries, rows
from chat.batch import Batch
from chat.dispatch import take_up
from chat.keys import new_key
from chat.models import ACTIVE, LIVE, AgentSlot, ChatSession, Command, Process, Run, RunStatus
from chat.presence import Quiet
from chat.turns import Peer, Slot, Turn
from hermes_site.errors import Conflict
from media.models import Media

ASKED = "upstream"  # a command that is nobody's to take: that Hermes was asked, and as which of its runs
ONE_AT_A_TIME = 0x4865726D  # the lock of PostgreSQL under which turns are counted and claimed
LOOK_ROWS = 100


class Waiting(NamedTuple):
    """A run that may begin."""

    key: int
    user_id: int
    username: str


class Place(NamedTuple):
    """Where a message stands: its run, its session, Hermes' name of that, the conversation before it."""

    run: int
    session: int
    upstream_id: str | None
    history: list[dict[str, Any]]


class LeftOver(NamedTuple):
    """A run of Hermes, by its id, that goes on although ours has ended."""

    run: int
    hermes_id: str | None


# Reads


def waiting(me: Any) -> list[Waiting]:
    """The runs that may begin now and are not another process' to begin, the oldest first."""
    some = _next(me)[: max(0, _room())]
    return [Waiting(run.pk, run.user_id, run.user.username) for run in some]


def place(user_id: int, message_id: str) -> Place | None:
    """Where a person's message stands; None when its turn has ended."""
    run = _asked_by(user_id, message_id).select_related("session").first()
    if run is None:
        return None
    history = queries.history_before(
        run.session_id, run.ordinal, newest=settings.HERMES_UPSTREAM_HISTORY_MESSAGES
    )
    return Place(run.pk, run.session_id, run.session.upstream_id, history)


def left_over() -> list[LeftOver]:
    """What Hermes was asked for runs that have ended without anybody to note it: their process has died."""
    commands = Command.objects.filter(kind=ASKED).exclude(run__status__in=LIVE).order_by("pk")
    rows = commands.values_list("run_id", "payload")[:LOOK_ROWS]
    return [LeftOver(run, json.loads(payload).get("run_id")) for run, payload in rows]


def pictures(user_id: int, ids: Collection[str]) -> list[Media]:
    """These files of a user, in this order."""
    found = {media.public_id: media for media in Media.objects.filter(owner_id=user_id, public_id__in=ids)}
    return [found[one] for one in ids if one in found]


def _room() -> int:
    """How many more turns may run, in all processes together."""
    held = AgentSlot.objects.filter(name=settings.HERMES_UPSTREAM_AGENT, caps__contains=agents.UPSTREAM)
    running = Run.objects.filter(
        agent=settings.HERMES_UPSTREAM_AGENT, status__in=ACTIVE, user__in=held.values("user")
    )
    room: int = settings.HERMES_UPSTREAM_TURNS - running.count()
    return room


def _next(me: Any) -> QuerySet[Run]:
    """The first waiting run of each session in which none is active, the oldest first."""
    before = Run.objects.filter(
        Q(status__in=ACTIVE) | Q(ordinal__lt=OuterRef("ordinal")),
        session=OuterRef("session"),
        status__in=LIVE,
    )
    others = Process.objects.exclude(uuid=me).values("uuid")
    elsewhere = AgentSlot.objects.filter(
        user=OuterRef("user"), name=settings.HERMES_UPSTREAM_AGENT, process__in=others
    )
    queued = Run.objects.filter(
        status=RunStatus.QUEUED, delivered_at=None, user_message__isnull=False, user__is_active=True
    )
    return (
        agents.of_upstream(queued)
        .filter(~Exists(before), ~Exists(elsewhere))
        .select_related("session", "user_message", "user")
        .order_by("created_at", "pk")
    )


def _asked_by(user_id: int, message_id: str) -> QuerySet[Run]:
    return Run.objects.filter(
        user_id=user_id, user_message__public_id=message_id, user_message__side="app", status__in=LIVE
    )


# For the writer


class Sit(presence.Connect):
    """
    The gateway takes a user's place for the upstream; `held` is what the journal has of the turns it goes on with.

    `going_on` names them, by message. Apps are told nothing: the upstream is always there.

    Raises:
        Conflict: If an agent's socket, or another process, has it, or the user has a key for it by now.
    """

    def __init__(self, slot: Slot, peer: Peer, going_on: Callable[[], Collection[str]]) -> None:
        super().__init__(slot, peer, agents.UPSTREAM_CAPS)
        self.going_on = going_on
        self.held: dict[str, tuple[str | None, str]] = {}  # by message: id and text of its open stream

    def announce(self, batch: Batch) -> None:
        """Nothing."""

    def admit(self, row: AgentSlot, batch: Batch) -> list[float]:
        """No takeover."""
        others = Process.objects.exclude(uuid=batch.process)
        if self.slot.peer not in (None, self.peer) or others.filter(uuid=row.process).exists():
            raise Conflict("somebody else has this place")
        if not agents.is_upstream(self.slot.user_id, self.slot.name):
            raise Conflict("this user has an agent of that name")
        recent: list[float] = json.loads(row.takeovers)
        return recent

    def apply(self, batch: Batch) -> presence.Seat:
        """Go on with what is under way here; anything else was a dead connection's and ends."""
        seat = super().apply(batch)
        going_on = tuple(self.going_on())
        self.held = {}
        for turn in list(self.slot.all_turns()):
            if turn.ref.reply_to is None or turn.ref.reply_to not in going_on:
                presence.end_lost(batch, self.slot, turn)
                continue
            turn.heard = seat.generation
            if turn.stream is not None:
                turn.stream.generation = seat.generation  # not a piece is missing: the gateway looks itself
            stream_id = turn.stream.public_id if turn.stream is not None else None
            self.held[turn.ref.reply_to] = (stream_id, turn.narrative.stream_text)
        return seat


class Leave(presence.Disconnect):
    """The gateway lets a user's place go; turns that are still under way there have ended."""

    alone = True

    def load(self, batch: Batch) -> None:
        """The user's numbers and the agent's turns."""
        batch.want_log(self.slot.user_id)
        batch.want_turns(self.slot)

    def apply(self, batch: Batch) -> None:
        """Unless somebody newer sits there."""
        if self.slot.generation == self.generation:
            for turn in list(self.slot.all_turns()):
                presence.end_lost(batch, self.slot, turn)
        super().apply(batch)

    def announce(self, batch: Batch) -> None:
        """Nothing."""


class Claim(Quiet):
    """Begin runs, as many as there is room for; the result is how many. Their messages go to their agents here."""

    alone = True

    def __init__(
        self, slots: dict[tuple[int, str], Slot], generations: dict[int, int], keys: list[int]
    ) -> None:
        self.slots = slots
        self.generations = generations  # of the agents here that are ready, by user
        self.keys = keys

    def load(self, batch: Batch) -> None:
        """The numbers of the users, and their agents' turns."""
        for user_id in Run.objects.filter(pk__in=self.keys).values_list("user_id", flat=True).distinct():
            batch.want_log(user_id)
            slot = self._slot(user_id)
            if slot is not None:
                batch.want_seat(slot)

    def apply(self, batch: Batch) -> int:
        """Count under a lock, then take the oldest."""
        if rows.is_postgresql():
            rows.select("SELECT pg_advisory_xact_lock(%s)", [ONE_AT_A_TIME])
        room, claimed = _room(), 0
        for run in _next(batch.process).filter(pk__in=self.keys)[: max(0, room)]:
            slot = self._slot(run.user_id)
            if slot is not None and batch.seated(slot):
                take_up(batch, slot, run)
                claimed += 1
        return claimed

    def _slot(self, user_id: int) -> Slot | None:
        slot = self.slots.get((user_id, settings.HERMES_UPSTREAM_AGENT))
        if slot is None or slot.peer is None or slot.generation != self.generations.get(user_id):
            return None
        return slot


class Asking(Quiet):
    """
    Hermes is about to be asked: whatever happens from here on, it is not asked again.

    Raises:
        Conflict: If the turn has ended meanwhile.
    """

    alone = True

    def __init__(self, user_id: int, place: Place, upstream_id: str) -> None:
        self.user_id = user_id
        self.place = place
        self.upstream_id = upstream_id

    def load(self, batch: Batch) -> None:
        """The user's numbers: who ends this run waits."""
        batch.want_log(self.user_id)

    def apply(self, batch: Batch) -> None:
        """Note it, and Hermes' name of the session."""
        if not Run.objects.filter(pk=self.place.run, status__in=LIVE, owner=batch.process).exists():
            raise Conflict("this turn has ended")
        if self.upstream_id != self.place.upstream_id:
            ChatSession.objects.filter(pk=self.place.session).update(upstream_id=self.upstream_id)
        Command.objects.create(
            id=new_key(), run_id=self.place.run, kind=ASKED, payload="{}", created_at=batch.now
        )


class Asked(Quiet):
    """Hermes has taken it, as this run of its own; `caps` is what its dialect lets the agent do."""

    def __init__(self, run: int, hermes_id: str, slot: Slot, caps: frozenset[str]) -> None:
        self.run = run
        self.hermes_id = hermes_id
        self.slot = slot
        self.caps = caps

    def load(self, batch: Batch) -> None:
        """Nothing."""

    def apply(self, batch: Batch) -> None:
        """Note it, so that it can be stopped when this process has died."""
        payload = json.dumps({"run_id": self.hermes_id})
        Command.objects.filter(run_id=self.run, kind=ASKED).update(payload=payload)
        slot = self.slot
        if agents.UPSTREAM in slot.caps and slot.caps != self.caps:
            seat = AgentSlot.objects.filter(pk=slot.key, generation=slot.generation, process=batch.process)
            if seat.update(caps=",".join(sorted(self.caps))):
                batch.otherwise(partial(slot.restore, slot.seat()))
                slot.caps = self.caps


class Settled(Quiet):
    """Nothing of this run goes on at Hermes; `heard` hears when that is written, or could not be."""

    def __init__(self, run: int, heard: Callable[[BaseException | None], None] | None = None) -> None:
        self.run = run
        self.heard = heard

    def load(self, batch: Batch) -> None:
        """Nothing."""

    def apply(self, batch: Batch) -> None:
        """Forget what it was asked."""
        Command.objects.filter(run_id=self.run, kind=ASKED).delete()

    def done(self, result: Any, error: BaseException | None) -> None:
        """Say so."""
        if self.heard is not None:
            self.heard(error)


class Lose(Quiet):
    """What the gateway's own agent says of a turn cannot be written: the turn has ended, if it has not yet."""

    alone = True
    insists = True

    def __init__(self, slot: Slot, session: str, message_id: str) -> None:
        self.slot = slot
        self.session = session
        self.message_id = message_id

    def load(self, batch: Batch) -> None:
        """The user's numbers and the agent's turns."""
        batch.want_log(self.slot.user_id)
        batch.want_turns(self.slot)

    def apply(self, batch: Batch) -> None:
        """End it as interrupted."""
        for turn in list(self.slot.all_turns()):
            if self._is_meant(turn):
                presence.end_lost(batch, self.slot, turn)

    def _is_meant(self, turn: Turn) -> bool:
        return turn.ref.session == self.session and turn.ref.reply_to == self.message_id
