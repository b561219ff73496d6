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
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from django.utils import timezone

from chat import events as run_events
from chat import rows
from chat.events import Event
from chat.keys import new_key
from chat.models import ChatSession, Command, JournalRow, Message, Process, Run, UserLog
from chat.telling import RunRef, Told
from chat.turns import Slot, Turn
from media.models import Media, MediaGrant

TITLE_CHARACTERS = 80


class NotOurs(Exception):
    """A run this batch wrote to, or this whole process, belongs to somebody else by now."""


class Postponed(Exception):
    """An item needs to read what this very batch writes: it is put again, for the next one."""


class Item(Protocol):
    """
    One verb's share of a transaction.

    An item whose class says `alone = True` gets a transaction of its own: it reads rows that others in its
    batch may have staged.
    """

    def load(self, batch: Batch) -> None:
        """Say what will be needed."""

    def apply(self, batch: Batch) -> Any:
        """Check, decide and stage; raises a GatewayError to refuse."""

    def done(self, result: Any, error: BaseException | None) -> None:
        """Hear the outcome, in the event loop, after the commit and after it was told."""


class SessionRow:
    """What the writer knows of a conversation."""

    __slots__ = ("agent", "deleted", "dirty", "key", "public_id", "runs", "title", "user_id")

    def __init__(
        self, key: int, user_id: int, public_id: str, agent: str, deleted: bool, runs: int, title: str | None
    ) -> None:
        self.key = key
        self.user_id = user_id
        self.public_id = public_id
        self.agent = agent
        self.deleted = deleted
        self.runs = runs
        self.title = title
        self.dirty = False


class KnownMessage:
    """What the writer knows of a message whose id was named."""

    __slots__ = ("cursor", "digest", "key", "reply_to", "run", "session")

    def __init__(
        self, key: int, digest: str, cursor: int | None, run: int, session: int, reply_to: str | None
    ) -> None:
        self.key = key
        self.digest = digest
        self.cursor = cursor
        self.run = run
        self.session = session
        self.reply_to = reply_to


class Batch:
    """See the module. `process` is who writes; `loader` reads the turns of a slot that does not know them."""

    def __init__(self, process: uuid.UUID, loader: Callable[[Slot], None]) -> None:
        self.process = process
        self.now = timezone.now()
        self.ts = time.time()
        self.monotonic = time.monotonic()
        self.told: list[Told] = []
        self.pushes: list[tuple[Slot, str]] = []
        self.timers: list[tuple[float, Item]] = []
        self.calls: list[Callable[[], None]] = []
        self.words: list[dict[str, Any]] = []  # to all processes, after the commit
        self.slots_of_user: dict[int, list[Slot]] = {}
        self.has_apps: Callable[[int], bool] = lambda user_id: False
        self._loader = loader
        self._logs: dict[int, list[int]] = {}  # user -> [last_cursor, app_cursor]
        self._logs_before: dict[int, tuple[int, int]] = {}
        self._dirty_logs: set[int] = set()
        self._sessions: dict[tuple[int, str], SessionRow | None] = {}
        self._messages: dict[tuple[int, str, str], KnownMessage | None] = {}
        self._media: dict[tuple[int, str], Media | None] = {}
        self.slots: set[Slot] = set()
        self._new_sessions: list[SessionRow] = []
        self._new_runs: dict[int, tuple[Any, ...]] = {}
        self._new_messages: dict[int, list[Any]] = {}
        self._message_updates: dict[int, dict[str, Any]] = defaultdict(dict)
        self._run_updates: dict[int, dict[str, Any]] = defaultdict(dict)
        self._journal: dict[int, list[Event]] = defaultdict(list)
        self._unowned: set[int] = set()
        self._grants: set[tuple[int, str]] = set()
        self._asked: list[tuple[Any, ...]] = []

    # What will be needed

    def want_log(self, user_id: int) -> None:
        """The user's numbers, locked."""
        self._logs.setdefault(user_id, [])

    def want_session(self, user_id: int, public_id: str) -> None:
        """A conversation by its id."""
        self._sessions[user_id, public_id] = None

    def want_message(self, user_id: int, side: str, public_id: str) -> None:
        """Whether an id is taken."""
        self._messages[user_id, side, public_id] = None

    def want_media(self, user_id: int, public_id: str) -> None:
        """A file of this user."""
        self._media[user_id, public_id] = None

    def want_turns(self, slot: Slot) -> None:
        """The live turns of a slot, and leave to write to them."""
        self.slots.add(slot)

    def fetch(self) -> None:
        """Read and lock all that was asked for."""
        if self._logs:
            self._fetch_logs()
        if self._sessions:
            self._fetch_sessions()
        if self._messages:
            self._fetch_messages()
        if self._media:
            users = {user_id for user_id, _ in self._media}
            names = {name for _, name in self._media}
            for media in Media.objects.filter(owner_id__in=users, public_id__in=names):
                if (media.owner_id, media.public_id) in self._media:
                    self._media[media.owner_id, media.public_id] = media
        for slot in self.slots:
            self.load_turns(slot)

    def _fetch_logs(self) -> None:
        users = sorted(self._logs)
        sql = (
            'SELECT "user_id", "last_cursor", "app_cursor" FROM "chat_userlog" WHERE "user_id" IN '
            + rows.places(len(users))
            + ' ORDER BY "user_id"'
            + rows.lock()
        )
        for user_id, last, app in rows.select(sql, users):
            self._logs[user_id] = [last, app]
        missing = [user_id for user_id in users if not self._logs[user_id]]
        rows.insert(
            UserLog, ("user_id", "last_cursor", "app_cursor"), [(user_id, 0, 0) for user_id in missing]
        )
        for user_id in missing:
            self._logs[user_id] = [0, 0]
        self._logs_before = {user_id: (log[0], log[1]) for user_id, log in self._logs.items()}

    def _fetch_sessions(self) -> None:
        sql = (
            'SELECT "id", "user_id", "public_id", "agent", "deleted_at", "runs", "title" FROM "chat_chatsession"'
            ' WHERE ("user_id", "public_id") IN (VALUES '
        )
        for key, user_id, public_id, agent, deleted_at, runs, title in _by_pairs(sql, list(self._sessions)):
            row = SessionRow(key, user_id, public_id, agent, deleted_at is not None, runs, title)
            self._sessions[user_id, public_id] = row

    def _fetch_messages(self) -> None:
        sql = (
            'SELECT "user_id", "side", "public_id", "id", "digest", "cursor", "run_id", "session_id", "reply_to"'
            ' FROM "chat_message" WHERE ("user_id", "side", "public_id") IN (VALUES '
        )
        for user_id, side, public_id, *rest in _by_pairs(sql, list(self._messages)):
            self._messages[user_id, side, public_id] = KnownMessage(*rest)

    def load_turns(self, slot: Slot) -> None:
        """Read a slot's turns unless they are known."""
        if not slot.known:
            self._loader(slot)

    def ago(self, seconds: float) -> datetime.datetime:
        """That long before this batch."""
        return self.now - datetime.timedelta(seconds=seconds)

    # What was found

    def cursors(self, user_id: int) -> tuple[int, int]:
        """The last cursor given to this user, and the last agent message handed to an App socket."""
        last, app = self._logs[user_id]
        return last, app

    def cursors_before(self, user_id: int) -> tuple[int, int]:
        """The same, as they were before this batch."""
        last, app = self._logs_before[user_id]
        return last, app

    def is_new(self, key: int) -> bool:
        """Whether a message or run with this key is staged in this batch, and so not to be read yet."""
        return key in self._new_messages or key in self._new_runs

    def session(self, user_id: int, public_id: str) -> SessionRow | None:
        """A conversation that was asked for, or made in this batch."""
        return self._sessions[user_id, public_id]

    def message(self, user_id: int, side: str, public_id: str) -> KnownMessage | None:
        """A message that was asked for, or stored in this batch."""
        return self._messages[user_id, side, public_id]

    def media(self, user_id: int, public_id: str) -> Media | None:
        """A file that was asked for."""
        return self._media[user_id, public_id]

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
        return log[0]

    def move_app_cursor(self, user_id: int, cursor: int) -> None:
        """Everything up to `cursor` counts as handed to an App socket."""
        log = self._logs[user_id]
        if cursor > log[1]:
            log[1] = cursor
            self._dirty_logs.add(user_id)

    def new_session(self, user_id: int, public_id: str, agent: str) -> SessionRow:
        """Make a conversation."""
        row = SessionRow(new_key(), user_id, public_id, agent, False, 0, None)
        self._sessions[user_id, public_id] = row
        self._new_sessions.append(row)
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
        self._new_runs[key] = (
            key, ref.public_id, session.user_id, session.key, session.agent, session.runs,
            question[0] if question else None, client_run_id, status, "",
            rows.unique(self.process) if slot else None, generation, rows.moment(self.now),
            rows.moment(self.now) if slot else None, "",
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
        self._new_messages[key] = [
            key, session.user_id, side, public_id, session.key, run, cursor, kind, session.agent, reply_to,
            replace_from, ts, rows_json(data), digest, rows.moment(self.now),
        ]  # fmt: skip

    def update_message(self, key: int, **values: Any) -> None:
        """Change columns of a message; `data` is given as a dictionary."""
        if "data" in values:
            values["data"] = rows_json(values["data"])
        new = self._new_messages.get(key)
        if new is not None:
            for name, value in values.items():
                new[_MESSAGE_COLUMNS.index(name)] = value
        else:
            self._message_updates[key].update(values)

    def update_run(self, key: int, **values: Any) -> None:
        """Change columns of a run, by column name, in the database's own values."""
        self._run_updates[key].update(values)

    def claim(self, turn: Turn) -> None:
        """This batch has the run's row locked, so it may write to it although nobody or another owns it."""
        self._unowned.add(turn.key)

    def event(self, turn: Turn, name: str, **fields: Any) -> Event:
        """Give an event the next number of its run and stage it."""
        event: Event = {"event": name, "seq": turn.narrative.last_seq + 1, "ts": round(self.ts, 3), **fields}
        turn.narrative.add(event)
        self._journal[turn.key].append(event)
        return event

    def grant(self, media: Media, agent: str) -> None:
        """This agent was sent this file."""
        self._grants.add((media.pk, agent))

    def ask(self, run: int, kind: str, payload: dict[str, Any]) -> None:
        """Keep something that is asked in a run until it is answered."""
        self._asked.append((new_key(), run, kind, rows_json(payload), rows.moment(self.now)))

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

    # Writing

    def flush(self) -> None:
        """
        Write everything that was staged.

        Raises:
            NotOurs: If a run written to is no longer this process'.
        """
        now = rows.moment(self.now)
        rows.insert(ChatSession, _SESSION_COLUMNS, [
            (s.key, s.user_id, s.public_id, s.agent, s.title, False, False, s.runs, now, now)
            for s in self._new_sessions
        ])  # fmt: skip
        for session in self._new_sessions:
            session.dirty = False
        self._check_ownership()
        old = {key: values for key, values in self._run_updates.items() if key not in self._new_runs}
        _update(Run, old)  # first: a run that ends makes room for a new one of its session
        last = {key: events[-1]["seq"] for key, events in self._journal.items()}
        rows.insert(Run, _RUN_COLUMNS, [(*row, last.get(key, 0)) for key, row in self._new_runs.items()])
        _update(Run, {key: values for key, values in self._run_updates.items() if key in self._new_runs})
        rows.insert(Message, _MESSAGE_COLUMNS, list(self._new_messages.values()))
        _update(Message, self._message_updates)
        rows.insert(JournalRow, _JOURNAL_COLUMNS, [
            (new_key(), key, events[0]["seq"], events[-1]["seq"], run_events.dump(events))
            for key, events in self._journal.items()
        ])  # fmt: skip
        rows.insert(Command, ("id", "run_id", "kind", "payload", "created_at"), self._asked)
        dirty = [s for s in self._sessions.values() if s is not None and s.dirty]
        if dirty:
            rows.update(
                ChatSession, ("runs", "title", "active_at"), [(s.runs, s.title, now, s.key) for s in dirty]
            )
        if self._dirty_logs:
            rows.update(
                UserLog,
                ("last_cursor", "app_cursor"),
                [(*self._logs[user_id], user_id) for user_id in sorted(self._dirty_logs)],
            )
        if self._grants:
            have = set(
                MediaGrant.objects.filter(media_id__in={pk for pk, _ in self._grants}).values_list(
                    "media_id", "agent"
                )
            )
            MediaGrant.objects.bulk_create(
                MediaGrant(media_id=pk, agent=agent) for pk, agent in sorted(self._grants - have)
            )

    def count_commit(self, number: int) -> None:
        """
        Note in the process' own row that this batch is committed, should the answer get lost.

        Raises:
            NotOurs: If the row is gone: others hold this process for dead.
        """
        sql = 'UPDATE "chat_process" SET "commits" = %s WHERE "uuid" = %s'
        if not rows.execute(sql, [number, rows.unique(self.process)]):
            raise NotOurs("this process is held for dead")

    def _check_ownership(self) -> None:
        touched = sorted(
            (self._journal.keys() | self._run_updates.keys()) - self._new_runs.keys() - self._unowned
        )
        for start in range(0, len(touched), rows.ROWS_A_STATEMENT):
            some = touched[start : start + rows.ROWS_A_STATEMENT]
            sql = (
                f'SELECT "id" FROM "chat_run" WHERE "id" IN {rows.places(len(some))} AND "owner" = %s'
                f' ORDER BY "id"{rows.lock()}'
            )
            if len(rows.select(sql, [*some, rows.unique(self.process)])) != len(some):
                raise NotOurs("runs were taken over")


def wrote_commit(process: uuid.UUID, number: int) -> bool:
    """Whether the batch with this number was committed, although its answer was lost."""
    return Process.objects.filter(uuid=process, commits=number).exists()


def rows_json(value: dict[str, Any]) -> str:
    """A dictionary as a JSON column holds it."""
    return run_events.dump_object(value)


def _by_pairs(sql: str, keys: list[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
    for start in range(0, len(keys), rows.ROWS_A_STATEMENT):
        some = keys[start : start + rows.ROWS_A_STATEMENT]
        one = rows.places(len(some[0]))
        yield from rows.select(
            sql + ", ".join([one] * len(some)) + ")", [value for key in some for value in key]
        )


def _update(model: type[Message] | type[Run], updates: dict[int, dict[str, Any]]) -> None:
    groups: dict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for key, values in sorted(updates.items()):
        groups[tuple(values)].append((*values.values(), key))
    for columns in sorted(groups, key=lambda columns: "ended_at" not in columns):  # ends before what moves up
        rows.update(model, columns, groups[columns])


_SESSION_COLUMNS = (
    "id", "user_id", "public_id", "agent", "title", "pinned", "archived", "runs", "created_at", "active_at",
)  # fmt: skip
_RUN_COLUMNS = (
    "id", "public_id", "user_id", "session_id", "agent", "ordinal", "user_message_id", "client_run_id", "status",
    "code", "owner", "epoch", "created_at", "delivered_at", "transcript", "last_seq",
)  # fmt: skip
_MESSAGE_COLUMNS = (
    "id", "user_id", "side", "public_id", "session_id", "run_id", "cursor", "type", "agent", "reply_to",
    "replace_from", "ts", "data", "digest", "created_at",
)  # fmt: skip
_JOURNAL_COLUMNS = ("id", "run_id", "first_seq", "last_seq", "events")
