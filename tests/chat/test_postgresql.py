"""The same on PostgreSQL: the tests of the writer and its items once more, on a database of their own."""

import os
import subprocess
import sys

import pytest
from django.db import connection

from tests.rig.backends import NAME_PREFIX, database_url, server_connection
from tests.rig.paths import ROOT

FILES = ("journal", "runs", "presence")
QUICK = "?options=-c%20synchronous_commit%3Doff"  # nobody pulls the plug here


@pytest.mark.timeout(400)
def test_the_writer_keeps_its_word_on_postgresql() -> None:
    """Row locks, plain SQL, types and lost commits are another database's there."""
    if connection.vendor == "postgresql":
        pytest.skip("this run is on PostgreSQL itself")
    with server_connection():  # skips where there is none
        pass
    environment = {**os.environ, "DATABASE_URL": database_url(f"{NAME_PREFIX}_{os.getpid()}_writer") + QUICK}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *(f"tests/chat/test_{one}.py" for one in FILES),
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]
    assert "passed" in done.stdout
