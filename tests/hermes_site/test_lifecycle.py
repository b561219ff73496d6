"""Start-up happens once, before anything is answered; a failed one is tried again."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from chat import lifecycle as chat_lifecycle
from hermes_site import lifecycle


class Parts:
    """Stands in for what the process starts."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def startup(self) -> None:
        """Wait for the test, then fail as often as it wants."""
        self.calls.append("start")
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise RuntimeError("not today")

    async def shutdown(self) -> None:
        """Remember it."""
        self.calls.append("stop")


@pytest.fixture
async def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The parts, in place of chat's."""
    made = Parts()
    monkeypatch.setattr(chat_lifecycle, "startup", made.startup)
    monkeypatch.setattr(chat_lifecycle, "shutdown", made.shutdown)
    return made


@pytest.fixture(autouse=True)
def not_started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a new process."""
    monkeypatch.setattr(lifecycle, "_starting", None)
    yield


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """An application that says which scope reached it."""
    await send({"type": scope["type"]})


async def call(kind: str) -> list[Any]:
    """One scope of this kind."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await lifecycle.after_startup(echo)({"type": kind}, None, send)  # type: ignore[arg-type]
    return sent


async def test_all_first_scopes_wait_for_one_start(parts: Parts) -> None:
    """Whatever kind they are."""
    parts.gate.clear()
    calls = [asyncio.ensure_future(call(kind)) for kind in ("http", "websocket", "http")]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(task.done() for task in calls)
    parts.gate.set()
    assert [task[0]["type"] for task in await asyncio.gather(*calls)] == ["http", "websocket", "http"]
    assert await call("http")
    assert parts.calls == ["start"]


async def test_one_that_leaves_does_not_stop_the_start(parts: Parts) -> None:
    """A client that disconnects while it waits."""
    parts.gate.clear()
    impatient, patient = (asyncio.ensure_future(call("http")) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    parts.gate.set()
    assert await patient
    assert parts.calls == ["start"]


async def test_a_failed_start_is_tried_again(parts: Parts) -> None:
    """By the next scope; the first gets the error."""
    parts.failures = 1
    with pytest.raises(RuntimeError):
        await call("http")
    assert await call("http")
    assert parts.calls == ["start", "start"]


async def test_shutdown_stops_what_was_started(parts: Parts) -> None:
    """Once, and only if it was."""
    await lifecycle.shutdown()
    assert parts.calls == []
    await lifecycle.startup()
    await lifecycle.shutdown()
    await lifecycle.shutdown()
    assert parts.calls == ["start", "stop"]


async def test_servers_with_a_lifespan_use_it(parts: Parts) -> None:
    """Start before they listen, stop at the end; a failure is told."""
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await lifecycle.after_startup(echo)({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert parts.calls == ["start", "stop"]
    parts.failures, messages = 1, iter([{"type": "lifespan.startup"}])
    with pytest.raises(RuntimeError):
        await lifecycle.after_startup(echo)({"type": "lifespan"}, receive, send)
    assert sent[-1] == "lifespan.startup.failed"
