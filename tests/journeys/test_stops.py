"""C68: a gateway full of life is stopped, or killed, and started again: nobody hangs, nothing streams for ever."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.rig.clerk import Person
from tests.rig.gateway import STOP_SECONDS, Gateway
from tests.rig.sockets import Agent, App
from tests.rig.timing import SCALE
from tests.second_door.client import Door, Stream

CAPS = "sync,events,control"
USERS, APPS = 5, 10
"""So many users, each with so many devices and an agent."""

BOUNDARY = "a-boundary-of-the-test"
pytestmark = pytest.mark.timeout(240 * SCALE)


@dataclass
class Crowd:
    """Everybody that is connected."""

    people: list[Person]
    apps: list[App] = field(default_factory=list)
    agents: list[Agent] = field(default_factory=list)
    followers: list[Stream] = field(default_factory=list)
    upload: asyncio.Task[httpx.Response] | None = None


async def endless_body(sent: asyncio.Event) -> AsyncIterator[bytes]:
    """The first part of an upload, whose rest never comes."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'
    yield head.encode() + b"x" * 300_000
    sent.set()
    await asyncio.Event().wait()


async def upload(gateway: Gateway, person: Person, sent: asyncio.Event) -> httpx.Response:
    """Upload a file slowly."""
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", "Content-Length": "1000000"}
    async with gateway.http(person) as http:
        return await http.post("/api/media/upload", content=endless_body(sent), headers=headers)


@contextlib.asynccontextmanager
async def crowd(gateway: Gateway) -> AsyncIterator[Crowd]:
    """50 Apps, 5 agents, 3 streams asked for on sockets, 2 runs followed by SSE, an upload on its way."""
    made = Crowd([gateway.person() for _ in range(USERS)])
    async with contextlib.AsyncExitStack() as stack:
        for person in made.people:
            for number in range(APPS):
                port = gateway.servers[number % len(gateway.servers)].port
                app = await stack.enter_async_context(await gateway.app(person, port=port, caps=CAPS))
                made.apps.append(app)
            agent = await stack.enter_async_context(await gateway.agent(person, caps=CAPS))
            made.agents.append(agent)
        for number, (person, agent) in enumerate(zip(made.people, made.agents, strict=True)):
            if number < 3:
                await made.apps[number * APPS].say("go on for ever", "S1")
            else:
                door = await stack.enter_async_context(Door(gateway, person))
                await door.create("S1")
                made.followers.append(await stack.enter_async_context(door.run("S1", "go on for ever")))
            question = (await agent.until(type="text"))[-1]
            await agent.start("S1", question["id"])
            await agent.piece(f"half of {number}", "S1")
        for number in range(3):
            for app in made.apps[number * APPS : (number + 1) * APPS]:
                await app.until(type="stream")
        for follower in made.followers:
            await follower.until("assistant.delta")
        sent = asyncio.Event()
        made.upload = asyncio.create_task(upload(gateway, made.people[0], sent))
        async with asyncio.timeout(20 * SCALE):
            await sent.wait()
        try:
            yield made
        finally:
            made.upload.cancel()
            await asyncio.gather(made.upload, return_exceptions=True)


async def end_of(follower: Stream) -> None:
    """Read an event stream to its end, which may be a line that breaks: nothing after it can be believed in."""
    with contextlib.suppress(httpx.HTTPError, AssertionError):
        await follower.rest(STOP_SECONDS)


async def is_as_after_a_crash(gateway: Gateway, people: list[Person]) -> None:
    """Nobody is online, no message streams, each half answer is kept and marked, no file is there."""
    assert gateway.clerk.ask("sql", statement="SELECT COUNT(*) FROM chat_connection") == [["0"]]
    online = "SELECT COUNT(*) FROM chat_agentslot WHERE process IS NOT NULL"
    assert gateway.clerk.ask("sql", statement=online) == [["0"]]
    for number, person in enumerate(people):
        async with gateway.http(person) as http:
            me = (await http.get("/api/me")).json()
        assert [agent["online"] for agent in me["agents"]] == [False], me
        question, answer = gateway.clerk.messages(person, "S1")
        assert answer["cursor"] == question["cursor"] + 1
        assert answer["data"] == {"text": f"half of {number}", "interrupted": True}
        assert [turn["status"] for turn in gateway.clerk.runs(person, "S1")] == ["interrupted"]
        async with await gateway.app(person, caps=CAPS, since="0") as app:
            ready = await app.expect(type="ready")
            assert ready["data"]["agents"] == [{"name": "hermes", "online": False}]
            await app.expect(type="text", cursor=1)
            await app.expect(type="text", cursor=2, text=f"half of {number}")
            await app.quiet()
    assert gateway.clerk.ask("sql", statement="SELECT COUNT(*) FROM media_media") == [["0"]]


def started_again(gateway: Gateway) -> None:
    """All processes anew, on their ports."""
    for server in gateway.servers:
        server.start()
    for server in gateway.servers:
        server.wait_ready()


SETTINGS = {"HERMES_RATE_LIMIT": "0", "HERMES_DRAIN_SECONDS": "3", "HERMES_DRAIN_LEAST_SECONDS": "1"}


async def test_c68_sigterm_with_live_sockets(make_gateway: Callable[..., Gateway], backend: str) -> None:
    """Every process has ended within 15 s, sockets are told 4001, event streams end; afterwards nothing is left open."""
    gateway = make_gateway(backend, SETTINGS)
    with gateway.clean_log():
        async with crowd(gateway) as made:
            begun = time.monotonic()
            gateway.begin_to_stop()
            peers: list[Any] = [*made.apps, *made.agents]
            closed = await asyncio.gather(*(peer.ended(STOP_SECONDS) for peer in peers))
            assert set(closed) == {4001}
            await asyncio.gather(*(end_of(follower) for follower in made.followers))
            statuses = [await asyncio.to_thread(server.wait_stopped) for server in gateway.servers]
            assert statuses == [0] * len(gateway.servers)
            assert time.monotonic() - begun <= STOP_SECONDS
        await asyncio.to_thread(started_again, gateway)
        await is_as_after_a_crash(gateway, made.people)


async def test_c68_sigkill_with_live_sockets(make_gateway: Callable[..., Gateway], backend: str) -> None:
    """The same after every process was killed: what was shown is there, what was half is marked."""
    gateway = make_gateway(backend, SETTINGS)
    with gateway.clean_log():
        async with crowd(gateway) as made:
            for server in gateway.servers:
                await asyncio.to_thread(server.kill)
                assert server.process.returncode == -signal.SIGKILL
            assert {await peer.ended() for peer in [*made.apps, *made.agents]} == {1006}
            await asyncio.gather(*(end_of(follower) for follower in made.followers))
        await asyncio.to_thread(started_again, gateway)
        await is_as_after_a_crash(gateway, made.people)
