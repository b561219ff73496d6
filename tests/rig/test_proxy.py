"""The spoiled line does what the tests believe of it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.rig.proxy import Proxy
from tests.rig.sockets import Peer, address, open_socket, refusal
from tests.rig.timing import PROMPT

accepted: set[ServerConnection] = set()


async def echo(socket: ServerConnection) -> None:
    """Send back what comes."""
    accepted.add(socket)
    try:
        async for text in socket:
            await socket.send(text)
    except ConnectionClosed:
        pass
    finally:
        accepted.discard(socket)


@pytest.fixture
async def line() -> AsyncIterator[Proxy]:
    """A proxy before an echo."""
    async with serve(echo, "127.0.0.1", 0, ping_interval=None) as server:
        async with Proxy(next(iter(server.sockets)).getsockname()[1]) as proxy:
            yield proxy


async def test_a_frozen_line_loses_nothing_and_tells_nobody(line: Proxy) -> None:
    """While frozen nothing comes and nothing closes; thawed, everything arrives in order."""
    async with Peer(await open_socket(address(line.port, "/"))) as peer:
        await peer.send({"type": "one"})
        await peer.expect(type="one")
        line.freeze()
        await peer.send({"type": "two"})
        with pytest.raises(AssertionError, match="nothing came"):
            await peer.next(PROMPT / 5)
        line.thaw()
        await peer.expect(type="two")


async def test_a_reset_line_ends_without_a_close_frame(line: Proxy) -> None:
    """The peer sees 1006."""
    async with Peer(await open_socket(address(line.port, "/"))) as peer:
        await peer.send({"type": "one"})
        await peer.expect(type="one")
        line.reset()
        assert await peer.ended() == 1006


async def test_a_frozen_line_tells_when_the_far_end_gives_up(line: Proxy) -> None:
    """The server closes while nothing passes: seen by the line, not by the peer."""
    async with Peer(await open_socket(address(line.port, "/"))) as peer:
        await peer.send({"type": "one"})
        await peer.expect(type="one")
        line.freeze()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(PROMPT / 5):
                await line.abandoned()
        for socket in list(accepted):
            socket.transport.close()
        await line.abandoned()
        assert peer.socket.close_code is None


async def test_a_slow_line_delays(line: Proxy) -> None:
    """A delay is added each way."""
    async with Peer(await open_socket(address(line.port, "/"))) as peer:
        line.delay_seconds = 0.1
        began = asyncio.get_running_loop().time()
        await peer.send({"type": "one"})
        await peer.expect(type="one")
        assert asyncio.get_running_loop().time() - began >= 0.2


async def test_a_peer_tells_what_it_saw(line: Proxy) -> None:
    """A frame that is not the expected one fails the test and is named; strict JSON is demanded."""
    peer = Peer(await open_socket(address(line.port, "/")))
    await peer.send({"type": "one", "data": {"code": "offline"}})
    with pytest.raises(AssertionError, match="'offline'"):
        await peer.expect(type="one", code="timeout")
    await peer.send({"type": "two"})
    await peer.send({"type": "three"})
    assert [frame["type"] for frame in await peer.until(type="three")] == ["two", "three"]
    await peer.send("[NaN]")
    with pytest.raises(ValueError, match="NaN"):
        await peer.ended()
    with pytest.raises(ValueError, match="NaN"):
        await peer.close()


async def test_an_accepted_socket_is_no_refusal(line: Proxy) -> None:
    """`refusal` fails where the upgrade is accepted."""
    with pytest.raises(AssertionError, match="accepted"):
        await refusal(address(line.port, "/"))
