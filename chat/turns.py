"""
The live turns of one agent, as the process that holds its socket knows them.

All of it is a cache over the database: `Slot.forget` drops it, and it is read again before it is used. Only
the writer's thread touches it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

from chat.events import Event, Narrative
from chat.telling import RunRef


class Peer(Protocol):
    """An agent's socket, as the event loop's side of the house offers it."""

    def push(self, text: str) -> None:
        """Queue one frame for the agent."""

    def close(self, code: int) -> None:
        """End the socket with this close code."""

    def wake(self) -> None:
        """Look for messages that wait for this agent."""


class OpenStream:
    """A streamed reply that has not ended: the `Message` row without a cursor."""

    __slots__ = ("carry", "generation", "interrupted", "key", "public_id", "reply_to", "size", "ts")

    def __init__(self, key: int, public_id: str, reply_to: str | None, ts: int, generation: int) -> None:
        self.key = key
        self.public_id = public_id
        self.reply_to = reply_to
        self.ts = ts
        self.generation = generation  # of the connection that began it, or went on with it
        self.interrupted = False  # pieces may be missing
        self.size = 0  # characters so far
        self.carry = ""  # a high surrogate that waits for the next piece


class Turn:
    """A live run that an agent has been handed, or began by itself."""

    __slots__ = (
        "answered", "asked_stop", "files", "heard", "held", "key", "narrative", "ordinal", "ref", "session", "sign",
        "status", "stream", "told_silence", "window",
    )  # fmt: skip

    def __init__(self, key: int, ref: RunRef, session: int, ordinal: int, status: str, heard: int) -> None:
        self.key = key
        self.ref = ref
        self.session = session  # its row's key
        self.ordinal = ordinal
        self.status = status
        self.heard = heard  # generation of the connection that was handed it, or last said something of it
        self.narrative = Narrative()
        self.stream: OpenStream | None = None
        self.answered = False  # at least one message of it is finished
        self.asked_stop = False
        self.files = 0  # that the agent has announced and not sent yet
        self.held: tuple[Event, ...] = ()  # ends of tools that wait for ends of earlier ones
        self.window = 0  # counts what may yet belong to it after an answer; a timer of an older count is void
        self.sign = time.monotonic()  # last sign of life
        self.told_silence = False

    def take_narrative(self, events: list[Event]) -> None:
        """What was told of it so far."""
        for event in events:
            self.narrative.add(event)

    def recall(self, old: Turn) -> None:
        """Take over from an older picture of the same turn what is not in the database."""
        self.heard, self.sign, self.window, self.told_silence = (
            old.heard,
            old.sign,
            old.window,
            old.told_silence,
        )
        self.files, self.held = old.files, old.held
        self.asked_stop = self.asked_stop or old.asked_stop
        if self.stream is not None and old.stream is not None and self.stream.key == old.stream.key:
            self.stream.generation = old.stream.generation
            self.stream.interrupted = old.stream.interrupted

    @property
    def begun(self) -> bool:
        """Whether anything has come of it."""
        return (
            self.answered
            or self.stream is not None
            or self.narrative.message_id is not None
            or bool(self.narrative.segments)
        )


class Slot:
    """The place of one agent name of one user, held by this process while `peer` or a grace time lives."""

    def __init__(self, key: int, user_id: int, username: str, name: str) -> None:
        self.key = key
        self.user_id = user_id
        self.username = username
        self.name = name
        self.generation = 0
        self.broken = -1  # the generation of which a frame could not be stored: nothing after it is taken
        self.caps: frozenset[str] = frozenset()
        self.peer: Peer | None = None
        self.handed = 0  # every App message up to this cursor has been handed out, or is not for this agent
        self.dropping: dict[
            str, bool
        ] = {}  # sessions whose frames are dropped up to their `stream_end`; told yet?
        self.stopped: dict[str, bool] = {}  # messages whose turns were cancelled while they waited; told yet?
        self.redeliver = (0, 0)  # live turns after the first cursor, up to the second, are handed out again
        self.known = False  # whether `turns` is what the database says
        self.before: dict[int, Turn] = {}  # turns that were forgotten: what no row says of them
        self.turns: dict[int, list[Turn]] = {}  # by session, in order
        self._by_key: dict[int, Turn] = {}
        self._by_question: dict[str, Turn] = {}  # by the id of the user's message
        self.open: dict[str, Turn] = {}  # those with an open stream, by the session's id

    def wake(self) -> None:
        """Have the agent's socket look for what waits. In the event loop."""
        if self.peer is not None:
            self.peer.wake()

    def seat(self) -> tuple[Any, ...]:
        """What it knows of its connection, for `restore`."""
        return self.key, self.generation, self.caps, self.dropping, self.stopped, self.redeliver

    def restore(self, seat: tuple[Any, ...]) -> None:
        """The connection it had is the newest again: the next one could not be seated."""
        self.key, self.generation, self.caps, self.dropping, self.stopped, self.redeliver = seat

    def forget(self) -> None:
        """Drop what was cached, after a commit that failed."""
        self.before.update({turn.key: turn for turn in self.all_turns()})
        self.known = False
        self.clear()
        self.handed = 0

    def clear(self) -> None:
        """Hold no turns."""
        self.turns, self.open, self._by_key, self._by_question = {}, {}, {}, {}

    def all_turns(self) -> Iterator[Turn]:
        """Every live turn."""
        for turns in self.turns.values():
            yield from turns

    def add(self, turn: Turn) -> None:
        """Take up a turn, in its place."""
        turns = self.turns.setdefault(turn.session, [])
        turns.append(turn)
        if len(turns) > 1 and turns[-2].ordinal > turn.ordinal:
            turns.sort(key=lambda other: other.ordinal)
        self._by_key[turn.key] = turn
        if turn.ref.reply_to is not None:
            self._by_question[turn.ref.reply_to] = turn

    def remove(self, turn: Turn) -> None:
        """Let go of a turn that has ended."""
        turns = self.turns.get(turn.session, [])
        if self._by_key.pop(turn.key, None) is not None:
            turns.remove(turn)
            self._by_question.pop(turn.ref.reply_to or "", None)
        if self.open.get(turn.ref.session) is turn:
            del self.open[turn.ref.session]
        if not turns:
            self.turns.pop(turn.session, None)

    def get(self, key: int) -> Turn | None:
        """The turn with this key, if it is still live here."""
        return self._by_key.get(key)

    def answering(self, session: int, reply_to: str | None) -> Turn | None:
        """Which turn a frame belongs to: the one `reply_to` names, or without one the oldest; None: its own."""
        if reply_to is None:
            turns = self.turns.get(session)
            return turns[0] if turns else None
        turn = self._by_question.get(reply_to)
        return turn if turn is not None and turn.session == session else None

    def active(self, session: int) -> Turn | None:
        """The running turn of a session."""
        return next((turn for turn in self.turns.get(session, ()) if turn.status != "queued"), None)


def terminal(status: str, code: str, text: str, narrative: Narrative, **more: Any) -> dict[str, Any]:
    """The fields of the event that ends a run (CHATKIT's names)."""
    if status == "completed":
        fields: dict[str, Any] = {"completed": True, "messages": [], "usage": {}}
    elif status == "failed":
        fields = {
            "code": code,
            "turn_exit_reason": code,
            "error": text,
            "message": text,
            "partial": narrative.message_id is not None,
        }
    elif status == "cancelled":
        fields = {"interrupted": True, "turn_exit_reason": "interrupted_by_user"}
    else:
        fields = {"reason": code, "error": text, "partial": True}
    return {**fields, **more}
