"""
Which SQLite this process uses, and how its journal is kept.

SQLite before 3.51.3 (3.50.7 and 3.44.6 in the older lines) can lose committed pages in WAL mode when one connection
writes while another checkpoints: https://sqlite.org/wal.html#walresetbug. Where `pysqlite3` is installed it takes the
place of the standard module, which must happen before Django is imported.
"""

import sys


def install() -> None:
    """Put `pysqlite3` in the place of `sqlite3`, if it is there; harmless to call again."""
    if sys.modules.get("sqlite3") is sys.modules.get("pysqlite3", sys):
        return
    try:
        import pysqlite3
        import pysqlite3.dbapi2
    except ImportError:
        return
    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2


def has_safe_wal(version: tuple[int, ...]) -> bool:
    """Whether this version of SQLite is free of the WAL reset race."""
    if version[:2] == (3, 44):
        return version >= (3, 44, 6)
    if version[:2] == (3, 50):
        return version >= (3, 50, 7)
    return version >= (3, 51, 3)


def journal_mode() -> str:
    """`WAL` where it is safe, else `DELETE` (a rollback journal)."""
    import sqlite3

    return "WAL" if has_safe_wal(sqlite3.sqlite_version_info) else "DELETE"


def version() -> str:
    """The version of the SQLite library in use."""
    import sqlite3

    return sqlite3.sqlite_version
