"""The agent's socket: how it connects, waits, and stops."""

import asyncio
import dataclasses
import logging

import pytest

from bridge.gateway import Closed, Gateway, Link, Stopped, Times
from tests.bridge.fakes import FakeGateway, running, until

QUICK = Times(
    backoff=(0.02, 0.04, 0.08, 0.16, 0.6),
    long_wait=0.5,
    rate_limited=0.5,
    ready=0.3,
    ping=0.05,
    silence=0.3,
    close=0.2,
)
ALL = frozenset({"sync", "events", "control"})


def bridge(
    gateway: FakeGateway, caps: frozenset[str] = ALL, times: Times = QUICK
) -> tuple[Gateway, list[Link]]:
    links: list[Link] = []
    made = Gateway(gateway.url, "hk_abc_secret", caps, times)
    return made, links


async def listen(links: list[Link], link: Link) -> None:
    links.append(link)
    async for _ in link.frames():
        pass


def work(made: Gateway, links: list[Link], since: int = 0):
    async def serve(link: Link) -> None:
        await listen(links, link)

    return made.run(serve, lambda: since)


def gaps(gateway: FakeGateway) -> list[float]:
    return [later - earlier for earlier, later in zip(gateway.attempts, gateway.attempts[1:], strict=False)]


def test_the_defaults_are_those_of_the_protocol():
    """Back off 1, 2, 4, 8, 30; five minutes after 4008 and 4409; ping every 30 s, 90 s of silence are the end."""
    times = Times()
    assert times.backoff == (1, 2, 4, 8, 30)
    assert (times.long_wait, times.ping, times.silence) == (300, 30, 90)


async def test_it_asks_for_capabilities_with_the_key_in_the_header():
    """The key is never in the address, and no Origin is sent; what is granted is known before it is used."""
    async with FakeGateway("sync,control") as gateway:
        made, links = bridge(gateway)
        async with running(work(made, links, since=7)):
            connection = await gateway.connection()
            assert connection.query == {"caps": "control,events,sync", "since": "7"}
            assert connection.headers["Authorization"] == "Bearer hk_abc_secret"
            assert "Origin" not in connection.headers
            await until(lambda: links)
            assert links[0].caps == {"sync", "control"}
            assert links[0].ready["user"] == "alice"


async def test_a_plain_v3_gateway_is_met_as_one():
    """When the first frame is not `ready`, there are no capabilities, and that frame is not lost."""
    async with FakeGateway(None) as gateway:
        made, links = bridge(gateway)
        async with running(work(made, links)):
            await until(lambda: links and links[0].pongs)
            assert links[0].caps == frozenset()


async def test_a_silent_gateway_is_taken_for_a_plain_one_after_a_while():
    """Without any frame at all the link opens without capabilities."""
    async with FakeGateway(None) as gateway:
        gateway.answers_pings = False
        made, links = bridge(gateway, times=dataclasses.replace(QUICK, silence=5))
        async with running(work(made, links)):
            await until(lambda: links)
            assert links[0].caps == frozenset()


async def test_it_backs_off_and_starts_over_after_a_success():
    """Waits grow from attempt to attempt, and begin anew once a connection was made."""
    async with FakeGateway("sync") as gateway:
        gateway.refusal = (503, {})
        made, links = bridge(gateway)
        async with running(work(made, links)):
            await until(lambda: len(gateway.attempts) >= 5)
            grown = gaps(gateway)[:4]
            for gap, expected in zip(grown, QUICK.backoff, strict=False):
                assert expected <= gap
            assert grown[3] > grown[0]
            gateway.refusal = None
            first = await gateway.connection(1)
            await until(lambda: links)
            await first.socket.close(4001)
            await gateway.connection(2)
            assert gaps(gateway)[-1] < QUICK.backoff[2]


async def test_a_dead_port_is_tried_again(caplog: pytest.LogCaptureFixture):
    """Nobody listening is no reason to stop; the log says why it waits."""
    caplog.set_level(logging.INFO)
    made = Gateway("ws://127.0.0.1:1/ws/agent", "hk_abc_secret", ALL, QUICK)
    async with running(work(made, [])) as task:
        await until(lambda: caplog.text.count("connecting again") >= 3)
        assert not task.done()
    assert "cannot reach the gateway" in caplog.text
    assert "secret" not in caplog.text


async def test_a_revoked_key_is_the_end():
    """4403 is not answered by coming back."""
    async with FakeGateway() as gateway:
        gateway.close_at_once = (4403, "")
        made, links = bridge(gateway)
        with pytest.raises(Stopped, match="revoked"):
            await asyncio.wait_for(work(made, links), 5)
        assert len(gateway.attempts) == 1


@pytest.mark.parametrize("status", [400, 401])
async def test_a_refused_key_is_the_end(status: int):
    """An answer that no repetition can change ends the bridge at once."""
    async with FakeGateway() as gateway:
        gateway.refusal = (status, {})
        made, links = bridge(gateway)
        with pytest.raises(Stopped, match=str(status)):
            await asyncio.wait_for(work(made, links), 5)
        assert len(gateway.attempts) == 1


async def test_a_403_is_believed_only_when_it_stays():
    """Some servers can refuse with 403 only; so it is tried a few times, then it is the end."""
    async with FakeGateway() as gateway:
        gateway.refusal = (403, {})
        made, links = bridge(gateway)
        with pytest.raises(Stopped, match="403"):
            await asyncio.wait_for(work(made, links), 5)
        assert len(gateway.attempts) == len(QUICK.backoff)


@pytest.mark.parametrize("code", [4008, 4409])
async def test_some_closes_ask_for_a_long_wait(code: int, caplog: pytest.LogCaptureFixture):
    """After being replaced, or after 20 bad frames, it comes back late, and says why."""
    caplog.set_level(logging.INFO)
    async with FakeGateway("sync") as gateway:
        gateway.close_at_once = (code, "")
        made, links = bridge(gateway)
        async with running(work(made, links)):
            await until(lambda: len(gateway.attempts) >= 2)
            assert gaps(gateway)[0] >= QUICK.long_wait
    assert ("took this agent's place" if code == 4409 else "invalid") in caplog.text


async def test_it_waits_as_long_as_a_429_says():
    """`Retry-After` decides; without it a minute passes."""
    async with FakeGateway() as gateway:
        gateway.refusal = (429, {"Retry-After": "1"})
        made, links = bridge(gateway)
        async with running(work(made, links)):
            await until(lambda: len(gateway.attempts) >= 2)
            assert gaps(gateway)[0] >= 1


async def test_it_pings_and_gives_a_silent_gateway_up():
    """Pings go out while it waits; when nothing at all has come for too long, it connects anew."""
    async with FakeGateway("sync") as gateway:
        made, links = bridge(gateway)
        async with running(work(made, links)):
            first = await gateway.connection(1)
            await until(lambda: first.pings >= 4)
            assert len(gateway.connections) == 1
            gateway.answers_pings = False
            await gateway.connection(2)


async def test_a_redirect_is_not_followed():
    """The key goes to the address it was given for and to no other."""
    async with FakeGateway("sync") as elsewhere, FakeGateway("sync") as gateway:
        gateway.refusal = (302, {"Location": elsewhere.url})
        made, links = bridge(gateway)
        async with running(work(made, links)):
            await until(lambda: len(gateway.attempts) >= 3)
        assert elsewhere.attempts == []


async def test_sending_on_a_dead_connection_says_closed():
    """Whoever writes learns that the connection has ended."""
    async with FakeGateway("sync") as gateway:
        made, links = bridge(gateway)
        async with running(work(made, links)):
            connection = await gateway.connection()
            await until(lambda: links)
            await connection.cut()
            with pytest.raises(Closed):
                while True:
                    await links[0].send({"type": "ping"})
                    await asyncio.sleep(0)
