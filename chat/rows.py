"""Plain SQL for the writer: many rows in one statement, and values as each database wants them."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db import connection, models
from django.db.backends.utils import CursorWrapper

ROWS_A_STATEMENT = 200
CONTENTION = frozenset({"55P03", "40P01", "40001"})  # lock not available, deadlock, serialization failure


def cursor() -> CursorWrapper:
    """A cursor that does not keep statements for a debug page, whatever DEBUG says."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        return connection.make_cursor(connection.create_cursor())


def is_postgresql() -> bool:
    """Whether the database locks rows; SQLite locks itself as a whole when a transaction begins."""
    return _vendor() == "postgresql"


@cache
def _vendor() -> str:
    return connection.vendor


def lock() -> str:
    """What ends a SELECT that takes its rows for itself."""
    return " FOR NO KEY UPDATE" if is_postgresql() else ""


def limit_lock_waits(limit_seconds: float) -> None:
    """Bound the wait for a row lock in this transaction; SQLite's one lock has its own bound."""
    if is_postgresql():
        execute(f"SET LOCAL lock_timeout = {int(limit_seconds * 1000)}", [])


def is_contention(error: Exception) -> bool:
    """Whether a statement failed for a lock held by somebody else, the connection being good."""
    if not is_postgresql():
        return True
    return getattr(error.__cause__, "sqlstate", None) in CONTENTION


def moment(value: datetime.datetime) -> Any:
    """A point in time as the database wants it."""
    return value if is_postgresql() else connection.ops.adapt_datetimefield_value(value)


def unique(value: uuid.UUID) -> Any:
    """A UUID as the database wants it."""
    return value if is_postgresql() else value.hex


def insert(model: type[models.Model], columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows; `columns` are names of database columns."""
    if not rows:
        return
    head = _insert_head(model._meta.db_table, columns)
    one = "(" + ", ".join(["%s"] * len(columns)) + ")"
    with cursor() as cur:
        if not is_postgresql():
            cur.executemany(head + one, rows)
            return
        for start in range(0, len(rows), ROWS_A_STATEMENT):
            some = rows[start : start + ROWS_A_STATEMENT]
            cur.execute(head + ", ".join([one] * len(some)), [value for row in some for value in row])


@cache
def _insert_head(table: str, columns: tuple[str, ...]) -> str:
    return f'INSERT INTO "{table}" (' + ", ".join(f'"{column}"' for column in columns) + ") VALUES "


def update(model: type[models.Model], columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Update rows by primary key; each row is the new values and then the key."""
    if not rows:
        return
    sets = ", ".join(f'"{column}" = %s' for column in columns)
    key = model._meta.pk.column  # every model here has one
    with cursor() as cur:
        cur.executemany(f'UPDATE "{model._meta.db_table}" SET {sets} WHERE "{key}" = %s', rows)


def select(sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    """All rows of a SELECT."""
    with cursor() as cur:
        cur.execute(sql, params)
        return list(cur.fetchall())


def places(count: int) -> str:
    """`count` placeholders in parentheses."""
    return "(" + ", ".join(["%s"] * count) + ")"


def execute(sql: str, params: Sequence[Any]) -> int:
    """Run one statement; returns how many rows it changed."""
    with cursor() as cur:
        cur.execute(sql, params)
        return int(cur.rowcount)
