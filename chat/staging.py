"""
The rows that a batch leaves, and how they are written: a few statements for any number of rows.

The order matters: runs end before their successors begin, for a session has one active run.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from typing import Any

from chat import events as run_events
from chat import rows
from chat.events import Event
from chat.keys import new_key
from chat.models import ChatSession, Command, IdempotencyKey, JournalRow, Message, Run
from media.models import MediaGrant


class NotOurs(Exception):
    """A run this batch wrote to belongs to another process by now."""


class HeldForDead(NotOurs):
    """Others hold this whole process for dead, and have ended what it owned."""


class SessionRow:
    """What the writer knows of a conversation."""

    __slots__ = (
        "agent",
        "copied",
        "deleted",
        "dirty",
        "key",
        "parent",
        "public_id",
        "runs",
        "title",
        "user_id",
    )

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
        self.parent: str | None = None
        self.copied: int | None = None
        self.dirty = False


class Staging:
    """What is to be written; rows as the database wants their values."""

    def __init__(self) -> None:
        self.sessions: list[SessionRow] = []
        self.runs: dict[int, tuple[Any, ...]] = {}
        self.messages: dict[int, list[Any]] = {}
        self.message_updates: dict[int, dict[str, Any]] = defaultdict(dict)
        self.run_updates: dict[int, dict[str, Any]] = defaultdict(dict)
        self.journal: dict[int, list[Event]] = defaultdict(list)
        self.written: set[int] = set()  # further runs that this batch may write to only as their owner
        self.unowned: set[int] = set()  # runs whose rows this batch has locked although they are not its own
        self.grants: set[tuple[int, str]] = set()
        self.asked: list[tuple[Any, ...]] = []
        self.idempotency: list[tuple[Any, ...]] = []

    def write(self, process: uuid.UUID, now: Any) -> None:
        """
        Write it all; `now` as the database wants it.

        Raises:
            NotOurs: If a run written to is not the process' own.
        """
        rows.insert(
            ChatSession,
            _SESSION_COLUMNS,
            [
                (
                    row.key,
                    row.user_id,
                    row.public_id,
                    row.agent,
                    row.title,
                    False,
                    False,
                    row.runs,
                    now,
                    now,
                    row.parent,
                    row.copied,
                )
                for row in self.sessions
            ],
        )
        for row in self.sessions:
            row.dirty = False
        self._check_ownership(process)
        _update(Run, {key: values for key, values in self.run_updates.items() if key not in self.runs})
        last = {key: events[-1]["seq"] for key, events in self.journal.items()}
        rows.insert(Run, _RUN_COLUMNS, [(*row, last.get(key, 0)) for key, row in self.runs.items()])
        _update(Run, {key: values for key, values in self.run_updates.items() if key in self.runs})
        rows.insert(Message, MESSAGE_COLUMNS, list(self.messages.values()))
        _update(Message, self.message_updates)
        rows.insert(
            JournalRow,
            _JOURNAL_COLUMNS,
            [
                (new_key(), key, events[0]["seq"], events[-1]["seq"], run_events.dump(events))
                for key, events in self.journal.items()
            ],
        )
        rows.insert(Command, _COMMAND_COLUMNS, self.asked)
        for _, user_id, key, *_ in self.idempotency:  # one that has run out may still hold the key
            IdempotencyKey.objects.filter(user_id=user_id, key=key).delete()
        rows.insert(IdempotencyKey, _IDEMPOTENCY_COLUMNS, self.idempotency)
        if self.grants:
            self._grant()

    def _grant(self) -> None:
        media = {pk for pk, _ in self.grants}
        have = set(MediaGrant.objects.filter(media_id__in=media).values_list("media_id", "agent"))
        MediaGrant.objects.bulk_create(
            MediaGrant(media_id=pk, agent=agent) for pk, agent in sorted(self.grants - have)
        )

    def _check_ownership(self, process: uuid.UUID) -> None:
        touched = self.journal.keys() | self.run_updates.keys() | self.written
        written = sorted(touched - self.runs.keys() - self.unowned)
        for start in range(0, len(written), rows.ROWS_A_STATEMENT):
            some = written[start : start + rows.ROWS_A_STATEMENT]
            these, params = rows.one_of(some)
            sql = (
                f'SELECT "id" FROM "chat_run" WHERE "id" {these} AND "owner" = %s ORDER BY "id"{rows.lock()}'
            )
            if len(rows.select(sql, [*params, rows.unique(process)])) != len(some):
                raise NotOurs("runs were taken over")


def _update(model: type[Message] | type[Run], updates: dict[int, dict[str, Any]]) -> None:
    groups: dict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for key, values in sorted(updates.items()):
        groups[tuple(values)].append((*values.values(), key))
    for columns in sorted(groups, key=lambda columns: "ended_at" not in columns):  # ends before what moves up
        rows.update(model, columns, groups[columns])


_SESSION_COLUMNS = (
    "id", "user_id", "public_id", "agent", "title", "pinned", "archived", "runs", "created_at", "active_at",
    "parent", "copied",
)  # fmt: skip
_RUN_COLUMNS = (
    "id", "public_id", "user_id", "session_id", "agent", "ordinal", "user_message_id", "client_run_id", "status",
    "code", "owner", "epoch", "created_at", "delivered_at", "transcript", "last_seq",
)  # fmt: skip
MESSAGE_COLUMNS = (
    "id", "user_id", "side", "public_id", "session_id", "run_id", "cursor", "type", "agent", "reply_to",
    "replace_from", "ts", "data", "digest", "created_at",
)  # fmt: skip
_JOURNAL_COLUMNS = ("id", "run_id", "first_seq", "last_seq", "events")
_COMMAND_COLUMNS = ("id", "run_id", "kind", "payload", "created_at")
_IDEMPOTENCY_COLUMNS = ("id", "user_id", "key", "digest", "run_id", "created_at")
