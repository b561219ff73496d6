"""Servers for the tests: one that most of them share, fresh ones for those that change or end it."""

from collections.abc import Iterator

import pytest

from tests.serving.rig import Served


@pytest.fixture(scope="session")
def _lasting() -> Iterator[Served]:
    with Served() as server:
        yield server


@pytest.fixture
def server(_lasting: Served) -> Served:
    """A server whose state and log are as if it had just been started."""
    _lasting.forget()
    return _lasting


@pytest.fixture
def clean_server(server: Served) -> Iterator[Served]:
    """The same; nothing may fail in it during this test."""
    yield server
    assert "Traceback" not in server.log()


@pytest.fixture
def own_server() -> Iterator[Served]:
    """A server that the test may end."""
    with Served() as server:
        yield server
