"""A device that never reads costs the gateway no more than its outbox, and nobody else anything."""

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway, Server
from tests.rig.sockets import App
from tests.rig.timing import SCALE, eventually
from tests.serving.rig import CLOSE, Line

PIECES = 100_000
WINDOW = 2_000
MIB = 1024 * 1024
CAPS = "sync,events,control"
WARM, ROUNDS = 2, 3
"""A process grows with the traffic it has seen first, and its heap now and then by itself: the least of three counts."""

PROMPT_SECONDS = 2.0 * SCALE
pytestmark = pytest.mark.timeout(300 * SCALE)


def silent_app(url: str) -> Line:
    """A device that opens its socket and reads nothing, with little room in its own kernel."""
    where = urlsplit(url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(20 * SCALE)
    sock.connect(("127.0.0.1", where.port))
    line = Line(sock)
    line.upgrade(f"{where.path}?{where.query}")
    assert line.status == 101
    return line


def memory(server: Server) -> int:
    """Bytes of memory that a process uses now."""
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def piece(number: int) -> str:
    """70 characters: seven megabytes in all, more than the kernel keeps on the way to a peer that does not read."""
    return f"piece {number} of many, ".ljust(70, ".")


async def has_read(app: App, number: int) -> bool:
    """Whether an App has come as far as this piece: the devices that do read shall be able to."""
    last = app.seen[-1]
    return number <= 0 or (
        last["type"] == "stream" and int(last["data"]["text"].rsplit("piece ")[-1].split()[0]) >= number
    )


async def flood(gateway: Gateway, person: Person, app: App) -> str:
    """An agent streams 100,000 pieces; the text as an App has got it, which is checked."""
    async with await gateway.agent(person, caps="control") as agent:
        await agent.expect(type="ready")
        await agent.start("S1")
        reading = asyncio.create_task(app.until(120 * SCALE, type="stream_end"))
        for number in range(PIECES):
            await agent.piece(piece(number), "S1")
            if number % WINDOW == 0:
                await eventually(partial(has_read, app, number - WINDOW), 60 * SCALE)
        await agent.end("S1")
        frames = await reading
    text = "".join(frame["data"]["text"] for frame in frames if frame["type"] == "stream")
    assert text == "".join(piece(number) for number in range(PIECES))
    return text


async def talk(gateway: Gateway, person: Person, over: asyncio.Event) -> list[float]:
    """Round trips of somebody else meanwhile, in seconds."""
    loop, took = asyncio.get_running_loop(), []
    async with await gateway.app(person) as app, await gateway.agent(person) as agent:
        while not over.is_set():
            begun = loop.time()
            question = await app.say("quick", "S1")
            assert await agent.next() == question
            assert await agent.answer("yes", "S1", question["id"]) == await app.next()
            took.append(loop.time() - begun)
            await asyncio.sleep(0.05)
    return took


async def ignored(gateway: Gateway, person: Person) -> int:
    """
    A flood that one device reads and another does not: the reader has it whole, the other is told 4013.

    Returns the bytes of memory that the process has more when all was sent, with the silent device still there.
    """
    async with await gateway.app(person, caps="sync") as app:
        await app.expect(type="ready")
        with silent_app(gateway.app_url(person, caps="sync", since="0")) as silent:
            base = memory(gateway.app_server)
            text = await flood(gateway, person, app)
            more = memory(gateway.app_server) - base
            opcode, payload = silent.frame()
            while opcode != CLOSE:
                opcode, payload = silent.frame()
            assert int.from_bytes(payload[:2], "big") == 4013
    async with await gateway.app(person, caps="sync", since="0") as back:
        await back.expect(type="ready")
        await back.expect(type="text", text=text)
    return more


async def test_a_device_that_never_reads_is_let_go(
    make_gateway: Callable[..., Gateway], backend: str
) -> None:
    """100,000 pieces: at most a mebibyte more, 4013, everybody else served; when it comes back it has it all."""
    gateway = make_gateway(backend, {"HERMES_CLOSE_SECONDS": "120"})
    for _ in range(WARM):
        alice = gateway.person("alice")
        async with await gateway.app(alice, caps="sync") as app:
            await app.expect(type="ready")
            await flood(gateway, alice, app)
    over = asyncio.Event()
    others = asyncio.create_task(talk(gateway, gateway.person("carol"), over))
    more = []
    while len(more) < ROUNDS and (not more or min(more) > MIB):
        more.append(await ignored(gateway, gateway.person("bob")))
    assert min(more) <= MIB, f"{[round(one / MIB, 2) for one in more]} MiB more"
    over.set()
    took = await others
    assert max(took) < PROMPT_SECONDS, sorted(took)[-5:]
