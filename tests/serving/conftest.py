"""Servers that tests may share."""

from collections.abc import Iterator

import pytest

from tests.serving.rig import Served


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Served]:
    """One server for all tests that leave it as it was; nothing may have failed in it."""
    with Served() as server:
        yield server
        assert "Traceback" not in server.log()


@pytest.fixture
def server() -> Iterator[Served]:
    """A server of the test's own."""
    with Served() as server:
        yield server
