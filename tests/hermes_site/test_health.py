"""Alive and ready, told truthfully, whoever asks under whatever name."""

import threading
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections
from django.test import AsyncClient, Client

from hermes_site import health, sqlite

pytestmark = pytest.mark.django_db(transaction=True)


def test_health_is_told_to_any_host(client: Client, settings: Any) -> None:
    """A load balancer knows an address and no name, and speaks plain HTTP."""
    settings.SECURE_SSL_REDIRECT = True
    for page in ("/healthz", "/readyz"):
        answer = client.get(page, headers={"Host": "10.0.0.7:8000"})
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        assert client.head(page).status_code == 200


async def test_health_is_told_asynchronously(async_client: AsyncClient) -> None:
    """As under a real server."""
    answer = await async_client.get("/readyz", headers={"Host": "10.0.0.7:8000"})
    assert answer.status_code == 200


def test_readiness_says_how_sqlite_keeps_its_journal(client: Client) -> None:
    """The choice made at start-up can be seen."""
    database = client.get("/readyz").json()["database"]
    if connection.vendor == "sqlite":
        assert (database["journal"], database["version"]) == (sqlite.journal_mode().lower(), sqlite.version())
    else:
        assert database == {"ok": True, "kind": "postgresql"}


def test_a_database_that_does_not_answer_is_503(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is alive all the same."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr(type(connections["default"]), "cursor", refuse)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "unavailable"
    assert answer.json()["database"]["ok"] is False
    assert client.get("/healthz").status_code == 200


async def test_a_database_that_hangs_is_503_in_time(
    async_client: AsyncClient, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it longer than the setting says."""
    released = threading.Event()
    settings.HERMES_READY_SECONDS = 0.05
    monkeypatch.setattr(health, "look_at_database", lambda: {"ok": released.wait(10)})
    try:
        assert (await async_client.get("/readyz")).status_code == 503
        assert not released.is_set()
    finally:
        released.set()


def test_a_layer_that_does_not_answer_is_503(client: Client, settings: Any) -> None:
    """Redis configured and not there."""
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["layer"] == {"ok": False, "kind": "redis"}
