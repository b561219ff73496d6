"""What the bridge must still know after a crash: cursor, turns, session ids, the text of conversations."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

# A settled turn is remembered this long, so that the gateway may still hand it out again after a crash
# of its own: long enough for any commit it had under way.
REMEMBER_SECONDS = 600
CURSOR_LAG_SECONDS = 60
HISTORY_MESSAGES = 200
HISTORY_CHARS = 1_000_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cursor (user TEXT PRIMARY KEY, since INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS session (
    user TEXT NOT NULL, session TEXT NOT NULL, hermes_id TEXT NOT NULL, rewritten INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (user, session));
CREATE TABLE IF NOT EXISTS said (
    n INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, session TEXT NOT NULL,
    role TEXT NOT NULL, content TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS said_of_session ON said (user, session, n);
CREATE TABLE IF NOT EXISTS turn (
    user TEXT NOT NULL, message_id TEXT NOT NULL, session TEXT NOT NULL, agent TEXT NOT NULL,
    cursor INTEGER, stream_id TEXT NOT NULL, question TEXT NOT NULL, begun_at REAL NOT NULL,
    run_id TEXT, outcome TEXT, text TEXT, code TEXT, settled_at REAL,
    PRIMARY KEY (user, message_id));
"""


class StateInUse(Exception):
    """Another bridge has this state file open."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Where a session of the gateway lives in Hermes; `rewritten`: Hermes' own record of it is not the true one."""

    hermes_id: str
    rewritten: bool


@dataclass(frozen=True, slots=True)
class Record:
    """One turn as the disk has it; `outcome` is None until the agent ended it, `run_id` until it has begun."""

    user: str
    message_id: str
    session: str
    agent: str
    cursor: int | None
    stream_id: str
    question: str
    begun_at: float
    run_id: str | None = None
    outcome: str | None = None
    text: str | None = None
    code: str | None = None
    settled_at: float | None = None


class State:
    """
    One SQLite file, held by one bridge; every call is committed when it returns.

    Raises:
        StateInUse: If another bridge holds the file.
    """

    def __init__(self, path: Path | None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.fresh = path is None or not path.exists()
        if path is not None:
            path.touch(mode=0o600)  # conversations are in it
        self._db = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=1)
        try:
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=PERSIST")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        except sqlite3.OperationalError as error:
            self._db.close()
            if "locked" not in str(error):
                raise
            raise StateInUse(f"{path} is in use by another bridge: give each its own --state") from error

    def close(self) -> None:
        """Let the file go."""
        self._db.close()

    # -- the cursor

    def since(self, user: str | None = None) -> int:
        """The cursor below which all turns are finished; before the user is known, that of the only one, or 0."""
        rows = self._db.execute("SELECT since FROM cursor WHERE user=coalesce(?, user)", (user,)).fetchall()
        return rows[0][0] if len(rows) == 1 else 0

    def advance(self, user: str, highest: int, unfinished: Iterable[int]) -> int:
        """Move the cursor as far as the unfinished turns, and those that ended just now, let it; returns it."""
        recent = self._db.execute(
            "SELECT min(cursor) FROM turn WHERE user=? AND cursor IS NOT NULL"
            " AND (settled_at IS NULL OR settled_at > ?)",
            (user, time.time() - CURSOR_LAG_SECONDS),
        ).fetchone()[0]
        lowest = min([*unfinished, *([recent] if recent is not None else [])], default=highest + 1)
        since = min(highest, lowest - 1)
        if since != self.since(user):
            self.set_since(user, since)
        return since

    def set_since(self, user: str, since: int) -> None:
        """The cursor as the gateway says it is."""
        self._db.execute(
            "INSERT INTO cursor VALUES (?, ?) ON CONFLICT (user) DO UPDATE SET since=excluded.since",
            (user, since),
        )

    # -- sessions

    def conversation(self, user: str, session: str) -> Conversation:
        """Where this session lives in Hermes, made up on first use: random, never the client's string."""
        self._db.execute(
            "INSERT INTO session (user, session, hermes_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (user, session, f"chat_{uuid.uuid4().hex}"),
        )
        row = self._db.execute(
            "SELECT hermes_id, rewritten FROM session WHERE user=? AND session=?", (user, session)
        ).fetchone()
        return Conversation(row[0], bool(row[1]))

    def history(self, user: str, session: str) -> tuple[dict[str, str], ...]:
        """The newest messages of the session, oldest first, within the bounds above."""
        rows = self._db.execute(
            "SELECT role, content FROM said WHERE user=? AND session=? ORDER BY n DESC LIMIT ?",
            (user, session, HISTORY_MESSAGES),
        ).fetchall()
        kept: list[dict[str, str]] = []
        room = HISTORY_CHARS
        for role, content in rows:
            room -= len(content)
            if room < 0:
                break
            kept.append({"role": role, "content": content})
        while kept and kept[-1]["role"] != "user":  # a conversation begins with a question
            kept.pop()
        return tuple(reversed(kept))

    def rewrite(self, user: str, session: str, rows: Sequence[tuple[str, str]]) -> None:
        """The session's past is now this, under a new Hermes id: there the old one cannot be changed."""
        with self._transaction():
            self._db.execute("DELETE FROM said WHERE user=? AND session=?", (user, session))
            self._db.executemany(
                "INSERT INTO said (user, session, role, content) VALUES (?, ?, ?, ?)",
                [(user, session, role, content) for role, content in rows],
            )
            self._db.execute(
                "INSERT INTO session VALUES (?, ?, ?, ?) ON CONFLICT (user, session)"
                " DO UPDATE SET hermes_id=excluded.hermes_id, rewritten=excluded.rewritten",
                (user, session, f"chat_{uuid.uuid4().hex}", int(bool(rows))),
            )

    # -- turns

    def turn(self, user: str, message_id: str) -> Record | None:
        """What is known of a turn that was begun."""
        row = self._db.execute(
            "SELECT * FROM turn WHERE user=? AND message_id=?", (user, message_id)
        ).fetchone()
        return Record(*row) if row else None

    def unfinished(self) -> list[Record]:
        """The turns whose end the gateway is not known to have, in the order they began."""
        rows = self._db.execute("SELECT * FROM turn WHERE settled_at IS NULL ORDER BY begun_at")
        return [Record(*row) for row in rows.fetchall()]

    def begin(self, record: Record) -> None:
        """A turn is about to be given to the agent."""
        self._db.execute(
            "INSERT OR REPLACE INTO turn VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(record)
        )

    def running(self, user: str, message_id: str, run_id: str) -> None:
        """The agent took the turn under this id."""
        self._db.execute("UPDATE turn SET run_id=? WHERE user=? AND message_id=?", (run_id, user, message_id))

    def finish(self, user: str, message_id: str, outcome: str, text: str, code: str | None) -> None:
        """
        The agent ended the turn: `completed`, `failed` or `cancelled`.

        Its question and answer become part of the conversation, a failed one does not.
        """
        with self._transaction():
            row = self._db.execute(
                "UPDATE turn SET outcome=?, text=?, code=? WHERE user=? AND message_id=? AND outcome IS NULL"
                " RETURNING session, question",
                (outcome, text, code, user, message_id),
            ).fetchone()
            if row and outcome != "failed":
                session, question = row
                rows = [("user", question)] + ([("assistant", text)] if text else [])
                self._db.executemany(
                    "INSERT INTO said (user, session, role, content) VALUES (?, ?, ?, ?)",
                    [(user, session, role, content) for role, content in rows],
                )

    def settle(self, user: str, message_id: str) -> None:
        """The gateway has the end of this turn; what settled long ago is forgotten."""
        now = time.time()
        with self._transaction():
            self._db.execute(
                "UPDATE turn SET settled_at=? WHERE user=? AND message_id=? AND settled_at IS NULL",
                (now, user, message_id),
            )
            self._db.execute("DELETE FROM turn WHERE settled_at < ?", (now - REMEMBER_SECONDS,))

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)


class _Transaction:
    """All of it or nothing."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._db.execute("ROLLBACK" if kind else "COMMIT")
