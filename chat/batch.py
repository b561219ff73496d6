"""
One transaction of the writer: what its items have read, and the rows and words they leave.

An item first says what it will need (`want_*`), then everything is read and locked in one order (logs,
sessions, messages), then items decide one after the other and stage their rows, then all is written, a few
statements for any number of items. Staging comes after an item's last check: an item that is refused has
staged nothing.
"""

from __future__ import annotations

import datetime
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from django.utils import timezone

from chat import events as run_events
from chat import rows
from chat.events import Event
from chat.keys import new_key
from chat.models import ChatSession, Process, UserLog
from chat.reads import KnownMessage, Reads
from chat.staging import MESSAGE_COLUMNS, HeldForDead, NotOurs, SessionRow, Staging
from chat.telling import RunRef, Told
from chat.turns import Slot, Turn
from media.models import Media

TITLE_CHARACTERS = 80


__all__ = [
    "Batch",
    "HeldForDead",
    "Item",
    "KnownMessage",
    "NotOurs",
    "Postponed",
    "SessionRow",
    "wrote_commit",
]


class Postponed(Exception):
    """An item needs to read what this very batch writes: it is put again, for the next one."""


class Item(Protocol):
    """
    One verb's share of a transaction.

    An item whose class says `alone = True` gets a transaction of its own: it reads rows that others in its
    batch may have staged. One that says `insists = True` is put again, later, when the database was away. One
    with a function `failed` hears in the writer's thread, before anything after it, that it was not written.
    """

    def load(self, batch: Batch) -> None:
        """Say what will be needed."""

    def apply(self, batch: Batch) -> Any:
        """Check, decide and stage; raises a GatewayError to refuse."""

    def done(self, result: Any, error: BaseException | None) -> None:
        """Hear the outcome, in the event loop, after the commit and after it was told."""


class Batch(Reads):
    """See the module. `process` is who writes; `loader` reads the turns of a slot that does not know them."""

    def __init__(self, process: uuid.UUID, loader: Callable[[Slot, uuid.UUID], None]) -> None:
        super().__init__(process, loader)
        self.now = timezone.now()
        self.stamp = rows.moment(self.now)  # the same, as the database wants it
        self.ts = time.time()
        self.monotonic = time.monotonic()
        self.told: list[Told] = []
        self.pushes: list[tuple[Slot, str]] = []
        self.timers: list[tuple[float, Item]] = []
        self.calls: list[Callable[[], None]] = []
        self.queued: Counter[tuple[int, str]] = Counter()  # messages staged that wait for this agent
        self.begun: Counter[int] = Counter()  # sessions staged of this user
        self.undoings: list[Callable[[], object]] = []
        self.words: list[dict[str, Any]] = []  # to all processes, after the commit
        self.slots_of_user: dict[int, list[Slot]] = {}
        self.has_apps: Callable[[int], bool] = lambda user_id: False
        self._staged = Staging()
        self._dirty_logs: set[int] = set()
        self.idle: list[Slot] = []  # slots that nobody may need any more

    def is_new(self, key: int) -> bool:
        """Whether a message or run with this key is staged in this batch, and so not to be read yet."""
        return key in self._staged.messages or key in self._staged.runs

    def ago(self, seconds: float) -> datetime.datetime:
        """That long before this batch."""
        return self.now - datetime.timedelta(seconds=seconds)

    # What is to be written

    def next_cursor(
        self, user_id: int, *, from_agent: bool = False, undelivered_for: str | None = None
    ) -> int:
        """
        Take the user's next cursor.

        A message `from_agent` counts as handed to an App when one follows here. `undelivered_for` names the agent whose dispatcher has to hand this message out; every other agent of
        the user that this process holds need not look at it.
        """
        log = self._logs[user_id]
        log[0] += 1
        self._dirty_logs.add(user_id)
        if from_agent and self.has_apps(user_id):
            log[1] = log[0]
        for slot in self.slots_of_user.get(user_id, ()):
            if slot.handed == log[0] - 1 and slot.name != undelivered_for:
                slot.handed = log[0]
                self.slots.add(slot)  # which looks anew, should the commit fail
        return log[0]

    def move_app_cursor(self, user_id: int, cursor: int) -> None:
        """Everything up to `cursor` counts as handed to an App socket."""
        log = self._logs[user_id]
        if cursor > log[1]:
            log[1] = cursor
            self._dirty_logs.add(user_id)

    def claim_messages(self, user_id: int) -> None:
        """
        All agent messages up to now are handed to the App that joins: also those of this batch, told live.

        For another one that joins in this batch nothing of them is left.
        """
        last, _ = self._logs_before[user_id]
        self._logs_before[user_id] = (last, last)
        self.move_app_cursor(user_id, self._logs[user_id][0])

    def new_session(self, user_id: int, public_id: str, agent: str) -> SessionRow:
        """Make a conversation."""
        row = SessionRow(new_key(), user_id, public_id, agent, False, 0, None)
        self._sessions[user_id, public_id] = row
        self._staged.sessions.append(row)
        self.begun[user_id] += 1
        return row

    def touch(self, session: SessionRow, text: str | None = None) -> None:
        """Something was said in a conversation; the first text of a person is its title."""
        session.dirty = True
        if session.title is None and text and text.strip():
            session.title = " ".join(text.split())[:TITLE_CHARACTERS]

    def new_run(
        self,
        session: SessionRow,
        username: str,
        *,
        status: str,
        slot: Slot | None,
        question: tuple[int, str] | None = None,
        client_run_id: str | None = None,
    ) -> Turn:
        """
        Make a run; `question` is key and id of the user's message.

        With a `slot` it is this process' own and counts as delivered. Returned as a turn, which only a slot
        keeps.
        """
        key = new_key()
        session.runs += 1
        session.dirty = True
        ref = RunRef(
            key,
            f"run_{uuid.uuid4().hex}",
            session.public_id,
            session.agent,
            username,
            question[1] if question else None,
        )
        generation = slot.generation if slot else 0
        self._staged.runs[key] = (
            key, ref.public_id, session.user_id, session.key, session.agent, session.runs,
            question[0] if question else None, client_run_id, status, "",
            rows.unique(self.process) if slot else None, generation, self.stamp,
            self.stamp if slot else None, "",
        )  # fmt: skip
        return Turn(key, ref, session.key, session.runs, status, generation)

    def insert_message(
        self,
        *,
        key: int,
        session: SessionRow,
        run: int,
        side: str,
        public_id: str,
        cursor: int | None,
        kind: str,
        reply_to: str | None,
        ts: int,
        data: dict[str, Any],
        digest: str,
        replace_from: str | None = None,
    ) -> None:
        """Store a message; with `cursor` None it is a stream that has only begun."""
        self._messages[session.user_id, side, public_id] = KnownMessage(
            key, digest, cursor, run, session.key, reply_to
        )
        self._staged.messages[key] = [
            key, session.user_id, side, public_id, session.key, run, cursor, kind, session.agent, reply_to,
            replace_from, ts, rows_json(data), digest, self.stamp,
        ]  # fmt: skip

    def update_message(self, key: int, **values: Any) -> None:
        """Change columns of a message; `data` is given as a dictionary."""
        if "data" in values:
            values["data"] = rows_json(values["data"])
        new = self._staged.messages.get(key)
        if new is not None:
            for name, value in values.items():
                new[MESSAGE_COLUMNS.index(name)] = value
        else:
            self._staged.message_updates[key].update(values)

    def update_run(self, key: int, **values: Any) -> None:
        """Change columns of a run, by column name, in the database's own values."""
        self._staged.run_updates[key].update(values)

    def as_owner(self, turn: Turn) -> None:
        """This batch writes to what belongs to a run, and must own it, although it does not write to its row."""
        self._staged.written.add(turn.key)

    def claim(self, turn: Turn) -> None:
        """This batch has the run's row locked, so it may write to it although nobody or another owns it."""
        self._staged.unowned.add(turn.key)

    def event(self, turn: Turn, name: str, **fields: Any) -> Event:
        """Give an event the next number of its run and stage it."""
        event: Event = {"event": name, "seq": turn.narrative.last_seq + 1, "ts": round(self.ts, 3), **fields}
        turn.narrative.add(event)
        self._staged.journal[turn.key].append(event)
        return event

    def grant(self, media: Media, agent: str) -> None:
        """This agent was sent this file."""
        self._staged.grants.add((media.pk, agent))

    def ask(self, run: int, kind: str, payload: dict[str, Any]) -> None:
        """Keep something that is asked in a run until it is answered."""
        self._staged.asked.append((new_key(), run, kind, rows_json(payload), self.stamp))

    def remember_key(self, user_id: int, key: str, digest: str, run: int) -> None:
        """Have an idempotency key stand for a run."""
        self._staged.idempotency.append((new_key(), user_id, key, digest, run, self.stamp))

    def tell(self, told: Told) -> None:
        """Have readers told after the commit."""
        self.told.append(told)

    def push(self, slot: Slot, text: str) -> None:
        """Have an agent handed a frame after the commit."""
        self.pushes.append((slot, text))

    def later(self, seconds: float, item: Item) -> None:
        """Have an item put to the writer that long after the commit."""
        self.timers.append((seconds, item))

    def call(self, function: Callable[[], None]) -> None:
        """Have a function called in the event loop after the commit."""
        self.calls.append(function)

    def otherwise(self, function: Callable[[], object]) -> None:
        """Have a function put right what is no row, in the writer's thread, should the commit fail."""
        self.undoings.append(function)

    def drop_frames(self, slot: Slot, session: str) -> None:
        """What an agent still says of the open stream of a session is nobody's, up to its end; it is told once."""
        slot.dropping[session] = False
        self.otherwise(lambda: slot.dropping.pop(session, None))

    def drop_answers(self, slot: Slot, message_id: str) -> None:
        """What an agent still answers to a message is nobody's; it is told once."""
        slot.stopped[message_id] = False
        self.otherwise(lambda: slot.stopped.pop(message_id, None))

    # Writing

    def flush(self) -> None:
        """
        Write everything that was staged.

        Raises:
            NotOurs: If a run written to is no longer this process'.
        """
        self._staged.write(self.process, self.stamp)
        now = self.stamp
        touched = [session for session in self._sessions.values() if session is not None and session.dirty]
        rows.update(
            ChatSession,
            ("runs", "title", "active_at"),
            [(session.runs, session.title, now, session.key) for session in touched],
        )
        rows.update(
            UserLog,
            ("last_cursor", "app_cursor"),
            [(*self._logs[user_id], user_id) for user_id in sorted(self._dirty_logs)],
        )

    def count_commit(self, number: int) -> None:
        """
        Note in the process' own row that this batch is committed, should the answer get lost.

        Raises:
            HeldForDead: If the row is gone.
        """
        sql = 'UPDATE "chat_process" SET "commits" = %s WHERE "uuid" = %s'
        if not rows.execute(sql, [number, rows.unique(self.process)]):
            raise HeldForDead("this process is held for dead")


def wrote_commit(process: uuid.UUID, number: int) -> bool:
    """Whether the batch with this number was committed, although its answer was lost."""
    return Process.objects.filter(uuid=process, commits=number).exists()


def rows_json(value: dict[str, Any]) -> str:
    """A dictionary as a JSON column holds it."""
    return run_events.dump_object(value)
