"""C09 half-open sockets: lines behind which nobody answers, found out although the server keeps sending."""

import asyncio
import time

from tests.rig.gateway import Gateway
from tests.rig.proxy import Proxy
from tests.rig.sockets import Agent, App, Frame, new_id
from tests.rig.timing import SCALE, eventually

HEARTBEAT_SECONDS = 3
LATE_SECONDS = 3 * SCALE
CLOSE_SECONDS = 1
"""How long the gateway waits for an answer to its close frame before it drops the line."""


async def gone_after(line: Proxy, heard: float) -> float:
    """Seconds from the last word, at ``heard``, until the gateway gives the line up."""
    await line.abandoned()
    return time.monotonic() - heard


async def test_c09_a_half_open_app_is_found_out_while_the_server_keeps_sending(
    brisk_gateway: Gateway,
) -> None:
    """A delta every 0.2 s goes out to it; it is gone after the heartbeat, and the text waits for its return."""
    gateway = brisk_gateway
    alice = gateway.person()
    session = new_id()
    async with Proxy(gateway.app_server.port) as line, await gateway.agent(alice) as agent:
        app = await gateway.app(alice, port=line.port)
        heard = time.monotonic()
        await app.alive()
        line.freeze()
        await agent.start(session)
        sent = ["0 "]
        await agent.piece("0 ", session)
        gone = asyncio.create_task(gone_after(line, heard))
        while not gone.done():
            sent.append(f"{len(sent)} ")
            await agent.piece(sent[-1], session)
            await asyncio.sleep(0.2)
        assert HEARTBEAT_SECONDS <= await gone <= HEARTBEAT_SECONDS + CLOSE_SECONDS + LATE_SECONDS
        await agent.end(session)
        late = await agent.answer("after the silence", session)
        async with await gateway.app(alice) as back:
            first, second = await back.next(), await back.next()
            assert first["data"]["text"] == "".join(sent)
            assert second == late
        texts = [frame["data"]["text"] for frame in await gateway.history(alice, session)]
        assert texts == ["".join(sent), late["data"]["text"]]
        app.abort()
        await app.close()


async def test_c09_a_half_open_agent_is_found_out_and_the_app_told(brisk_gateway: Gateway) -> None:
    """After the heartbeat a text gets `offline`, queued; the agent is not shown as online."""
    gateway = brisk_gateway
    alice = gateway.person()
    session = new_id()
    async with Proxy(gateway.agent_server.port) as line, await gateway.app(alice) as app:
        agent = await gateway.agent(alice, port=line.port)
        heard = time.monotonic()
        await agent.alive()
        line.freeze()
        gone = asyncio.create_task(gateway.until_gone(alice, "agent"))
        await asyncio.gather(gone, pinging(app, HEARTBEAT_SECONDS + 1))
        assert (
            HEARTBEAT_SECONDS <= time.monotonic() - heard <= HEARTBEAT_SECONDS + CLOSE_SECONDS + LATE_SECONDS
        )
        question = await app.say("are you there", session)
        error = (await app.until(type="error", reply_to=question["id"]))[-1]
        assert (error["data"]["code"], error["data"]["queued"]) == ("offline", True)
        async with gateway.http(alice) as http:
            me = (await http.get("/api/me")).json()
        assert [agent["online"] for agent in me["agents"]] == [False]
        async with await gateway.agent(alice) as back:
            assert await back.next() == question
        agent.abort()
        await agent.close()


async def test_c09_a_half_open_agent_is_found_out_while_the_server_keeps_sending(
    brisk_gateway: Gateway,
) -> None:
    """A text every 0.2 s goes out to it: no reason to believe in it longer; each text is told of, and none lost."""
    gateway = brisk_gateway
    alice = gateway.person()
    session = new_id()
    async with Proxy(gateway.agent_server.port) as line, await gateway.app(alice) as app:
        agent = await gateway.agent(alice, port=line.port)
        heard = time.monotonic()
        await agent.alive()
        line.freeze()
        gone = asyncio.create_task(gone_after(line, heard))
        written: list[Frame] = []

        def errors() -> list[Frame]:
            return [frame for frame in app.seen if frame["type"] == "error"]

        while not errors():  # the first that finds the agent gone
            written.append(await app.say(f"{len(written)}", session))
            await asyncio.sleep(0.2)
        assert HEARTBEAT_SECONDS <= await gone <= HEARTBEAT_SECONDS + CLOSE_SECONDS + LATE_SECONDS
        await gateway.until_gone(alice, "agent")
        waits = await app.say("after the silence", session)

        async def all_told() -> bool:
            await app.alive()
            return {frame["reply_to"] for frame in errors()} == {frame["id"] for frame in (*written, waits)}

        await eventually(all_told, what="an error about each text")
        told = {frame["reply_to"]: frame["data"]["queued"] for frame in errors()}
        assert len(told) == len(errors()), "told twice"
        assert {frame["data"]["code"] for frame in errors()} == {"offline"}
        queued = [frame for frame in (*written, waits) if told[frame["id"]]]
        assert written[0] not in queued and waits in queued
        async with await gateway.agent(alice) as back:
            assert [await back.next() for _ in queued] == queued
            await back.quiet()
        assert await gateway.history(alice, session) == [*written, waits]
        agent.abort()
        await agent.close()


async def pinging(app: App, seconds: float) -> None:
    """Ping as an App does, for a time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await app.alive()
        await asyncio.sleep(0.2)


async def test_c09_a_silent_app_is_closed_with_4408_and_one_that_pings_is_not(brisk_gateway: Gateway) -> None:
    """An answer to the gateway's own pings is no sign of life of an App; of an agent it is."""
    gateway = brisk_gateway
    alice = gateway.person()
    began = time.monotonic()
    async with (
        await gateway.app(alice) as silent,
        await gateway.app(alice) as lively,
        await gateway.agent(alice) as agent,
    ):
        code, _ = await asyncio.gather(silent.ended(), pinging(lively, HEARTBEAT_SECONDS + 2))
        assert code == 4408
        assert time.monotonic() - began >= HEARTBEAT_SECONDS
        await both_live(lively, agent)


async def both_live(app: App, agent: Agent) -> None:
    """A text still goes from one to the other."""
    question = await app.say("still here", new_id())
    assert await agent.next() == question
