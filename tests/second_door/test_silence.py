"""A silence of 150 s in the middle of many streams, directly and behind nginx (CASES C48)."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.nginx import Nginx
from tests.rig.sockets import Agent, Frame
from tests.rig.timing import PROMPT, SCALE, TIMEOUT
from tests.second_door.agents import end_tool, playing, start_tool
from tests.second_door.client import Block, Door, check_order, read_block, text_of

STREAMS = 50
BEFORE, AFTER = 5, 3
"""Deltas, one a second, before the silence and after it."""

SILENCE_SECONDS = 150.0
FIRST_EVENT_SECONDS = 1.5 * SCALE
QUIET_SECONDS = 30.0
LOOK_SECONDS = 5.0
"""Between two looks whether other requests are answered."""


@dataclass
class Arrival:
    """One block as it came, and with which read of the socket."""

    at: float
    read: int
    block: Block


@dataclass
class Viewer:
    """One run and all that arrived of it."""

    asked_at: float = 0
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    arrivals: list[Arrival] = field(default_factory=list)

    async def watch(self, door: Door, session: str) -> None:
        """Begin a run and stamp everything up to the end of its stream."""
        self.asked_at = time.monotonic()
        async with door.run(session, headers={"Accept-Encoding": "gzip"}) as stream:
            self.headers = stream.response.headers
            waiting, reads = "", itertools.count()
            async for piece in stream.response.aiter_text():
                now, read = time.monotonic(), next(reads)
                *blocks, waiting = (waiting + piece).split("\n\n")
                self.arrivals += [Arrival(now, read, read_block(text)) for text in blocks]
            assert waiting == ""

    @property
    def deltas(self) -> list[Arrival]:
        """The pieces of the answer."""
        return [one for one in self.arrivals if one.block.name == "assistant.delta"]

    @property
    def comments(self) -> list[Arrival]:
        """What fills the silence."""
        return [one for one in self.arrivals if one.block.data is None]


class Slow:
    """An agent that says one delta a second, uses a tool for long, and goes on; it notes when it said what."""

    def __init__(self) -> None:
        self.said_at: dict[tuple[str, int], float] = {}
        self.all_silent = asyncio.Event()
        self.going_on = False
        self._silent = 0
        self._turns: set[asyncio.Task[None]] = set()

    async def play(self, agent: Agent, frame: Frame) -> None:
        """Begin one turn beside the others."""
        turn = asyncio.create_task(self._turn(agent, frame))
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)

    async def _turn(self, agent: Agent, ask: Frame) -> None:
        session = ask["session"]
        await agent.start(session, ask["id"])
        for number in range(BEFORE):
            await self._say(agent, session, number)
        await start_tool(agent, ask, "search", "c1", query="all of it")
        self._silent += 1
        if self._silent == STREAMS:
            self.all_silent.set()
        await asyncio.sleep(SILENCE_SECONDS)
        self.going_on = True
        await end_tool(agent, ask, "search", "c1", "found")
        for number in range(BEFORE, BEFORE + AFTER):
            await self._say(agent, session, number)
        await agent.end(session)

    async def _say(self, agent: Agent, session: str, number: int) -> None:
        self.said_at[session, number] = time.monotonic()
        await agent.piece(f"{number} ", session)
        await asyncio.sleep(1)


@dataclass
class Side:
    """One way to the gateway: a person of its own, an agent, and fifty viewers."""

    door: Door
    agent: Slow
    viewers: dict[str, Viewer]


def threads_of(gateway: Gateway) -> int:
    """The threads of the gateway's process."""
    return len(list(Path(f"/proc/{gateway.app_server.process.pid}/task").iterdir()))


@contextlib.asynccontextmanager
async def side(gateway: Gateway, name: str, port: int) -> AsyncIterator[Side]:
    """A way to the gateway through this port, with sessions to run in."""
    person: Person = gateway.person(name)
    viewers = {f"{name}-{number}": Viewer() for number in range(STREAMS)}
    agent = Slow()
    async with playing(gateway, person, agent.play) as socket, Door(gateway, person, port) as door:
        for session in viewers:
            assert (await door.create(session)).status_code == 201
        alive = asyncio.create_task(_ping(socket))
        try:
            yield Side(door, agent, viewers)
        finally:
            alive.cancel()


async def _ping(agent: Agent) -> None:
    """Be heard while there is nothing to say."""
    while True:
        await asyncio.sleep(20)
        await agent.send({"type": "ping"})


async def look(one: Side) -> float:
    """An upload, a list and a page of history; returns how long the longest took."""
    slowest = 0.0
    session = next(iter(one.viewers))
    for method, path, body in (
        ("POST", "/api/media/upload", {"files": {"file": ("x.bin", bytes(300_000))}}),
        ("GET", "/api/hermes/api/sessions", {}),
        ("GET", f"/api/hermes/api/sessions/{session}/messages", {}),
    ):
        begun = time.monotonic()
        answer = await one.door.http.request(method, path, **body)
        assert answer.status_code in (200, 201), answer.text
        slowest = max(slowest, time.monotonic() - begun)
    return slowest


@pytest.mark.timeout(60 + SILENCE_SECONDS + 90 * SCALE)
async def test_c48_fifty_streams_live_through_a_long_silence_directly_and_behind_nginx(
    make_gateway: Callable[..., Gateway],
) -> None:
    """
    C48: the first event comes within 1.5 s, deltas one by one as they are said, never in a lump; 150 s of a silent
    tool are filled by comments without ids, others upload and read meanwhile, and every stream goes on to its end.
    """
    gateway = make_gateway("embedded")
    with Nginx(gateway.app_server.port) as nginx:
        async with side(gateway, "direct", 0) as direct, side(gateway, "proxied", nginx.port) as proxied:
            sides = (direct, proxied)
            for one in sides:
                await look(one)
            threads = threads_of(gateway)
            async with asyncio.TaskGroup() as watching:
                for session, other in zip(direct.viewers, proxied.viewers, strict=True):
                    watching.create_task(direct.viewers[session].watch(direct.door, session))
                    watching.create_task(proxied.viewers[other].watch(proxied.door, other))
                    await asyncio.sleep(0.1)
                async with asyncio.timeout(TIMEOUT + SILENCE_SECONDS / 2):
                    await asyncio.gather(*(one.agent.all_silent.wait() for one in sides))
                looks = 0
                while not any(one.agent.going_on for one in sides):
                    assert max(await asyncio.gather(*map(look, sides))) < 3 * PROMPT
                    assert threads_of(gateway) <= threads + 8, "streams hold threads"
                    looks += 1
                    await asyncio.sleep(LOOK_SECONDS)
                assert looks >= 10
        for one in sides:
            for session, viewer in one.viewers.items():
                check(viewer, session, one.agent)
        assert all(viewer.headers["X-Accel-Buffering"] == "no" for viewer in direct.viewers.values())
        assert "[error]" not in nginx.log(), nginx.log()
    assert "synchronous iterators" not in gateway.log() and "Traceback" not in gateway.log()


def check(viewer: Viewer, session: str, agent: Slow) -> None:
    """What one viewer saw, and when."""
    assert viewer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert "no-cache" in viewer.headers["Cache-Control"] and "Content-Encoding" not in viewer.headers
    assert viewer.arrivals[0].block.name == "run.started"
    assert viewer.arrivals[0].at - viewer.asked_at < FIRST_EVENT_SECONDS, session

    events = [one.block.data for one in viewer.arrivals if one.block.data is not None]
    check_order(events)
    assert events[-2]["event"] == "run.completed"
    assert text_of(events) == "".join(f"{number} " for number in range(BEFORE + AFTER))
    assert len(viewer.deltas) == BEFORE + AFTER, "deltas were joined"
    delays = [one.at - agent.said_at[session, number] for number, one in enumerate(viewer.deltas)]
    assert max(delays) < PROMPT, (session, delays)
    assert len({one.read for one in viewer.deltas}) == len(viewer.deltas), "deltas came in a lump"

    gaps = [later.at - one.at for one, later in itertools.pairwise(viewer.arrivals)]
    assert max(gaps) < QUIET_SECONDS, (session, gaps)
    assert len(viewer.comments) >= SILENCE_SECONDS / QUIET_SECONDS
    assert {(one.block.id, one.block.comment) for one in viewer.comments} == {(None, "keepalive")}
