"""The two ends of the bridge, played: a gateway that speaks the agent's socket, a Hermes that plays a script."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve

from bridge import events
from bridge.events import Order, Refused

Frame = dict[str, Any]
SECONDS = 10.0


async def until(true: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Wait until something is true and return it; fails after the deadline."""
    deadline = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.005)
    return value


class Connection:
    """One connection of a bridge, as the gateway sees it."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        request = socket.request
        assert request is not None
        self.headers = request.headers
        self.query = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        self.frames: list[Frame] = []
        self.pings = 0
        self.open = True

    async def send(self, **frame: Any) -> None:
        """Send one frame."""
        await self.socket.send(json.dumps(frame))

    async def ask(self, text: str, *, id: str = "m1", session: str = "s1", **more: Any) -> None:
        """A text of the user alice."""
        data = {"text": text} | more.pop("data", {})
        await self.send(
            id=id, type="text", **{"from": "alice"}, to="hermes", session=session, ts=1, data=data, **more
        )

    async def control(self, type: str, *, session: str = "s1", id: str = "c1", **more: Any) -> None:
        """A stop, a steer or an event of the user alice."""
        await self.send(id=id, type=type, **{"from": "alice"}, to="hermes", session=session, ts=1, **more)

    def of_type(self, *types: str) -> list[Frame]:
        """The frames of these types, in the order they came."""
        return [frame for frame in self.frames if frame["type"] in types]

    async def wait_for(self, type: str, count: int = 1) -> list[Frame]:
        """Wait until so many frames of a type have come."""
        await until(lambda: len(self.of_type(type)) >= count)
        return self.of_type(type)

    def text(self, session: str = "s1") -> str:
        """All streamed text of a session."""
        return "".join(f["data"]["text"] for f in self.of_type("stream") if f["session"] == session)

    async def cut(self) -> None:
        """End the connection as a dead network does."""
        self.socket.transport.abort()
        await until(lambda: not self.open)


class FakeGateway:
    """The gateway's side of the agent's socket. `caps` is what it grants; None is a gateway that knows only v3."""

    def __init__(self, caps: str | None = None) -> None:
        self.caps = caps
        self.ready: Frame = {}
        self.answers_pings = True
        self.refusal: tuple[int, dict[str, str]] | None = None
        self.close_at_once: tuple[int, str] | None = None
        self.attempts: list[float] = []
        self.connections: list[Connection] = []
        self._server: Server | None = None

    async def __aenter__(self) -> FakeGateway:
        self._server = await serve(
            self._meet, "127.0.0.1", 0, process_request=self._admit, ping_interval=None
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close(close_connections=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Where a bridge connects."""
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}/ws/agent"

    async def connection(self, number: int = 1) -> Connection:
        """The n-th connection that was accepted, when it has come."""
        await until(lambda: len(self.connections) >= number)
        return self.connections[number - 1]

    def _admit(self, socket: ServerConnection, request: Any) -> Any:
        self.attempts.append(time.monotonic())
        if self.refusal is None:
            return None
        status, headers = self.refusal
        response = socket.respond(status, "refused\n")
        response.headers.update(headers)
        return response

    async def _meet(self, socket: ServerConnection) -> None:
        connection = Connection(socket)
        if self.close_at_once is not None:
            self.connections.append(connection)
            await socket.close(*self.close_at_once)
            return
        asked = connection.query.get("caps", "").split(",")
        if self.caps is not None and any(asked):
            granted = [cap for cap in self.caps.split(",") if cap in asked]
            data = {"user": "alice", "caps": granted, "cursor": 0, "truncated": False, "agents": []}
            await connection.send(type="ready", data=data | self.ready)
        self.connections.append(connection)
        with contextlib.suppress(Exception):
            async for message in socket:
                frame = json.loads(message)
                if frame["type"] != "ping":
                    connection.frames.append(frame)
                    continue
                connection.pings += 1
                if self.answers_pings:
                    await connection.send(type="pong")
        connection.open = False


class FakeHermes:
    """
    An agent that plays what the test puts into it.

    Each order gets a run id; `say` adds events to a run, which ends with the first end among them.
    """

    def __init__(self, *, takes_media: bool = False, idempotent: bool = False) -> None:
        self.takes_media = takes_media
        self.orders: list[Order] = []
        self.stopped: list[str] = []
        self.approved: list[tuple[str, str]] = []
        self.resumed: list[str] = []
        self.steered: list[tuple[str, str]] = []
        self.refuse: Refused | None = None
        self.can_steer = False
        self.running = 0
        self.most_running = 0
        self._idempotent = idempotent
        self._numbers = itertools.count(1)
        self._runs: dict[str, asyncio.Queue[events.Event]] = {}

    async def repeatable(self) -> bool:
        return self._idempotent

    async def rereadable(self) -> bool:
        return self._idempotent

    async def start(self, order: Order) -> str:
        self.orders.append(order)
        if self.refuse is not None:
            raise self.refuse
        run_id = f"run{next(self._numbers)}"
        self._runs.setdefault(run_id, asyncio.Queue())
        return run_id

    def say(self, run_id: str, *happening: events.Event | str) -> None:
        """What happens next in a run; a string is a piece of text."""
        run = self._runs.setdefault(run_id, asyncio.Queue())
        for event in happening:
            run.put_nowait(events.Delta(event) if isinstance(event, str) else event)

    async def follow(self, run_id: str, *, resumed: bool = False) -> AsyncGenerator[events.Event, None]:
        if resumed:
            self.resumed.append(run_id)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            run = self._runs.setdefault(run_id, asyncio.Queue())
            while True:
                event = await run.get()
                yield event
                if isinstance(event, events.End):
                    return
        finally:
            self.running -= 1

    async def stop(self, run_id: str) -> None:
        self.stopped.append(run_id)
        self.say(run_id, events.Cancelled())

    async def steer(self, run_id: str, text: str) -> bool:
        self.steered.append((run_id, text))
        return self.can_steer

    async def approve(self, run_id: str, request_id: str, choice: str) -> None:
        self.approved.append((request_id, choice))

    async def close(self) -> None:
        """Nothing to close."""


@contextlib.asynccontextmanager
async def running(work: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Work going on beside the test, cancelled at its end."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ExceptionGroup):
            await task
