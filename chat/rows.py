"""
Plain SQL for the writer: many rows in one statement, and values as each database wants them.

PostgreSQL gets many rows as one JSON parameter. A statement with a placeholder for each value differs with their number,
so psycopg cuts it into its parts each time, which took longer than all else of a batch.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from django.db import connection, models
from django.db.backends.utils import CursorWrapper

ROWS_A_STATEMENT = 200
LISTED = 'jsonb_array_elements(%s::jsonb) AS "listed"("row")'
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


def prepare_transaction(lock_seconds: float) -> None:
    """
    Bound the wait for a row lock in this transaction; SQLite's one lock has its own bound.

    What the writer reads is named by its key. PostgreSQL, which knows a young table by guesses alone, shall not read all of
    it for that.
    """
    if is_postgresql():
        execute(
            f"SET LOCAL lock_timeout = {int(lock_seconds * 1000)};"
            " SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off",
            None,
        )


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
    if is_postgresql():
        _for_each(_insert_listed(model._meta, columns), rows)
        return
    with cursor() as cur:
        cur.executemany(_insert_one(model._meta, columns), rows)


def update(model: type[models.Model], columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> None:
    """Update rows by primary key, no key twice; each row is the new values and then the key."""
    if not rows:
        return
    if is_postgresql():
        _for_each(_update_listed(model._meta, columns), rows)
        return
    with cursor() as cur:
        cur.executemany(_update_one(model._meta, columns), rows)


def _for_each(sql: str, rows: Sequence[Sequence[Any]]) -> None:
    with cursor() as cur:
        for start in range(0, len(rows), ROWS_A_STATEMENT):
            cur.execute(sql, [_json(rows[start : start + ROWS_A_STATEMENT])])


def _json(rows: Sequence[Sequence[Any]]) -> str:
    return msgspec.json.encode(rows).decode()


@cache
def _insert_one(meta: Any, columns: tuple[str, ...]) -> str:
    return f'INSERT INTO "{meta.db_table}" ({_names(columns)}) VALUES {places(len(columns))}'


@cache
def _insert_listed(meta: Any, columns: tuple[str, ...]) -> str:
    values = ", ".join(_of_row(meta, columns))
    return f'INSERT INTO "{meta.db_table}" ({_names(columns)}) SELECT {values} FROM {LISTED}'


@cache
def _update_one(meta: Any, columns: tuple[str, ...]) -> str:
    sets = ", ".join(f'"{column}" = %s' for column in columns)
    return f'UPDATE "{meta.db_table}" SET {sets} WHERE "{_key(meta)}" = %s'


@cache
def _update_listed(meta: Any, columns: tuple[str, ...]) -> str:
    *values, key = _of_row(meta, (*columns, _key(meta)))
    sets = ", ".join(f'"{column}" = {value}' for column, value in zip(columns, values, strict=True))
    table = meta.db_table
    return f'UPDATE "{table}" SET {sets} FROM {LISTED} WHERE "{table}"."{_key(meta)}" = {key}'


@cache
def _matches_listed(meta: Any, columns: tuple[str, ...]) -> str:
    return f"({_names(columns)}) IN (SELECT {', '.join(_of_row(meta, columns))} FROM {LISTED})"


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _key(meta: Any) -> str:
    return meta.pk.column  # every model here has one


def _of_row(meta: Any, columns: tuple[str, ...]) -> list[str]:
    """What the columns are in a row that came as a list; a text that is too long is refused, not cut."""
    kinds = {field.column: field.db_type(connection) for field in meta.concrete_fields}
    texts = [kinds[column].startswith("varchar") for column in columns]
    return [
        f'("row"->>{at})' if text else f'("row"->>{at})::{kinds[column]}'
        for at, (column, text) in enumerate(zip(columns, texts, strict=True))
    ]


def select(sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    """All rows of a SELECT."""
    with cursor() as cur:
        cur.execute(sql, params)
        return list(cur.fetchall())


def one_of(numbers: Sequence[int]) -> tuple[str, list[Any]]:
    """What follows a column that is to be one of these numbers, and its parameters."""
    if is_postgresql():
        return "= ANY(%s)", [list(numbers)]
    return f"IN {places(len(numbers))}", list(numbers)


def matches(
    model: type[models.Model], columns: tuple[str, ...], keys: Sequence[tuple[Any, ...]]
) -> tuple[str, list[Any]]:
    """A condition for rows in which the columns are one of these tuples, and its parameters."""
    if is_postgresql():
        return _matches_listed(model._meta, columns), [_json(keys)]
    tuples = ", ".join([places(len(columns))] * len(keys))
    return f"({_names(columns)}) IN (VALUES {tuples})", [value for key in keys for value in key]


def places(count: int) -> str:
    """`count` placeholders in parentheses."""
    return "(" + ", ".join(["%s"] * count) + ")"


def execute(sql: str, params: Sequence[Any] | None) -> int:
    """Run one statement; returns how many rows it changed."""
    with cursor() as cur:
        cur.execute(sql, params)
        return int(cur.rowcount)
