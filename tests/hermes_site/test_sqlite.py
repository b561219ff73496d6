"""Which SQLite is used, and that WAL is used only where it is safe."""

import sqlite3
import sys

import pytest
from django.db import connection

from hermes_site import sqlite


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 0), False),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 53, 4), True),
        ((4, 0, 0), True),
    ],
)
def test_wal_only_where_the_reset_race_is_fixed(version: tuple[int, ...], safe: bool) -> None:
    """3.51.3 and later, and the two older lines that got the fix."""
    assert sqlite.has_safe_wal(version) is safe


@pytest.mark.skipif(sys.platform != "linux", reason="pysqlite3 is installed on Linux")
def test_the_newer_sqlite_takes_the_place_of_the_old() -> None:
    """Before Django has seen another."""
    assert sqlite3.__name__ == "pysqlite3"
    assert sqlite.journal_mode() == "WAL"


@pytest.mark.django_db(transaction=True)
def test_a_connection_is_opened_as_agreed() -> None:
    """Journal mode, every commit synchronous, and the wait for the one writer."""
    if connection.vendor != "sqlite":
        pytest.skip("this run is on PostgreSQL")
    with connection.cursor() as cursor:
        found = {
            name: cursor.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout")
        }
    assert found == {"journal_mode": sqlite.journal_mode().lower(), "synchronous": 2, "busy_timeout": 20000}
