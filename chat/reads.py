"""What one transaction of the writer reads: asked for by its items, then read and locked in one order."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from django.db.models import Model

from chat import rows
from chat.models import ChatSession, Message, UserLog
from chat.staging import SessionRow
from chat.turns import Slot
from media.models import Media


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


class Reads:
    """
    Items say what they need by `want_*`; after `fetch` it is there.

    `loader` reads the turns of a slot that does not know them.
    """

    def __init__(self, process: uuid.UUID, loader: Callable[[Slot, uuid.UUID], None]) -> None:
        self.process = process
        self._loader = loader
        self._logs: dict[int, list[int]] = {}  # user -> [last_cursor, app_cursor]
        self._logs_before: dict[int, tuple[int, int]] = {}
        self._sessions: dict[tuple[int, str], SessionRow | None] = {}
        self._messages: dict[tuple[int, str, str], KnownMessage | None] = {}
        self._media: dict[tuple[int, str], Media | None] = {}
        self.slots: set[Slot] = set()
        self._seats_wanted: set[Slot] = set()
        self._seats: dict[tuple[int, str], int] = {}

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

    def want_seat(self, slot: Slot) -> None:
        """Whether another process has taken the slot over; its user's log must be wanted too."""
        self.slots.add(slot)
        self._seats_wanted.add(slot)

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
        if self._seats_wanted and rows.is_postgresql():  # SQLite has one process only
            self._fetch_seats()
        for slot in self.slots:
            self.load_turns(slot)

    def _fetch_logs(self) -> None:
        users = sorted(self._logs)
        these, params = rows.one_of(users)
        sql = (
            f'SELECT "user_id", "last_cursor", "app_cursor" FROM "chat_userlog" WHERE "user_id" {these}'
            f' ORDER BY "user_id"{rows.lock()}'
        )
        for user_id, last, app in rows.select(sql, params):
            self._logs[user_id] = [last, app]
        missing = [user_id for user_id in users if not self._logs[user_id]]
        rows.insert(
            UserLog, ("user_id", "last_cursor", "app_cursor"), [(user_id, 0, 0) for user_id in missing]
        )
        for user_id in missing:
            self._logs[user_id] = [0, 0]
        self._logs_before = {user_id: (log[0], log[1]) for user_id, log in self._logs.items()}

    def _fetch_seats(self) -> None:
        keys = [slot.key for slot in self._seats_wanted]
        for start in range(0, len(keys), rows.ROWS_A_STATEMENT):
            some = keys[start : start + rows.ROWS_A_STATEMENT]
            these, params = rows.one_of(some)
            sql = f'SELECT "user_id", "name", "generation" FROM "chat_agentslot" WHERE "id" {these}'
            for user_id, name, generation in rows.select(sql, params):
                self._seats[user_id, name] = generation

    def _fetch_sessions(self) -> None:
        sql = (
            'SELECT "id", "user_id", "public_id", "agent", "deleted_at", "runs", "title", "copied"'
            ' FROM "chat_chatsession" WHERE '
        )
        found = _by_keys(sql, ChatSession, ("user_id", "public_id"), list(self._sessions))
        for key, user_id, public_id, agent, deleted_at, runs, title, copied in found:
            row = SessionRow(key, user_id, public_id, agent, deleted_at is not None, runs, title)
            row.copied = copied
            self._sessions[user_id, public_id] = row

    def _fetch_messages(self) -> None:
        sql = (
            'SELECT "user_id", "side", "public_id", "id", "digest", "cursor", "run_id", "session_id", "reply_to"'
            ' FROM "chat_message" WHERE '
        )
        found = _by_keys(sql, Message, ("user_id", "side", "public_id"), list(self._messages))
        for user_id, side, public_id, *rest in found:
            self._messages[user_id, side, public_id] = KnownMessage(*rest)

    def load_turns(self, slot: Slot, owner: uuid.UUID | None = None) -> None:
        """Read a slot's turns unless they are known: those of this process, or of a dead `owner`."""
        if not slot.known:
            self._loader(slot, owner or self.process)

    def seated(self, slot: Slot) -> bool:
        """Whether the slot's agent is still the newest connection of its name, also in other processes' eyes."""
        return self._seats.get((slot.user_id, slot.name), slot.generation) == slot.generation

    # What was found

    def cursors(self, user_id: int) -> tuple[int, int]:
        """The last cursor given to this user, and the last agent message handed to an App socket."""
        last, app = self._logs[user_id]
        return last, app

    def cursors_before(self, user_id: int) -> tuple[int, int]:
        """The same, as they were before this batch."""
        last, app = self._logs_before[user_id]
        return last, app

    def session(self, user_id: int, public_id: str) -> SessionRow | None:
        """A conversation that was asked for, or made in this batch."""
        return self._sessions[user_id, public_id]

    def message(self, user_id: int, side: str, public_id: str) -> KnownMessage | None:
        """A message that was asked for, or stored in this batch."""
        return self._messages[user_id, side, public_id]

    def media(self, user_id: int, public_id: str) -> Media | None:
        """A file that was asked for."""
        return self._media[user_id, public_id]


def _by_keys(
    sql: str, model: type[Model], columns: tuple[str, ...], keys: list[tuple[Any, ...]]
) -> Iterable[tuple[Any, ...]]:
    for start in range(0, len(keys), rows.ROWS_A_STATEMENT):
        condition, params = rows.matches(model, columns, keys[start : start + rows.ROWS_A_STATEMENT])
        yield from rows.select(sql + condition, params)
