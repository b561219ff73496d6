"""
C30 streams of two sessions, C32 an agent that dies in mid-stream; with them C06, what a late App sees of a stream.

The web page of C30 (switching sessions, two tabs) is tested in a browser with the page itself; here two Apps stand
for the two tabs.
"""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.rig.agent_program import AgentProgram
from tests.rig.clerk import Person
from tests.rig.gateway import BRISK, Gateway
from tests.rig.sockets import App, new_id
from tests.rig.timing import SCALE, eventually

PARTIAL = "one two three "


async def test_c30_streams_of_two_sessions_interleave_and_do_not_mix(gateway: Gateway, alice: Person) -> None:
    """Each App sees both streams, each piece in its own session; history has the two texts, ids and replies."""
    s1, s2 = new_id(), new_id()
    async with (
        await gateway.app(alice) as app,
        await gateway.app(alice) as tab,
        await gateway.agent(alice) as agent,
    ):
        m1 = await app.say("m1", s1)
        m2 = await app.say("m2", s2)
        assert [await agent.next(), await agent.next()] == [m1, m2]
        await agent.start(s1, m1["id"], id="str_a")
        await agent.start(s2, m2["id"], id="str_b")
        for session, piece in ((s1, "1"), (s2, "x"), (s1, "2"), (s2, "y")):
            await agent.piece(piece, session)
        await agent.end(s1)
        await agent.piece("z", s2)
        await agent.end(s2)
        for peer in (app, tab):
            frames = await peer.until(type="stream_end", session=s2)
            for session, stream_id, reply_to, text in (
                (s1, "str_a", m1["id"], "12"),
                (s2, "str_b", m2["id"], "xyz"),
            ):
                own = [frame for frame in frames if frame["session"] == session]
                assert [own[0]["id"], own[0]["reply_to"]] == [stream_id, reply_to]
                assert own[0]["type"] == "stream_start" and own[-1]["type"] == "stream_end"
                assert "".join(frame["data"]["text"] for frame in own[1:-1]) == text
    for session, stream_id, reply_to, text in ((s1, "str_a", m1["id"], "12"), (s2, "str_b", m2["id"], "xyz")):
        last = (await gateway.history(alice, session))[-1]
        assert (last["type"], last["id"], last["reply_to"], last["data"]["text"]) == (
            "text",
            stream_id,
            reply_to,
            text,
        )


async def test_c06_an_app_that_returns_in_mid_stream_ends_with_the_whole_text_once(
    gateway: Gateway, alice: Person
) -> None:
    """Without `sync`: the same id again, all the text so far in one piece, then live, then the file once."""
    session = new_id()
    async with await gateway.agent(alice) as agent:
        first = await gateway.app(alice)
        question = await first.say("m1", session)
        await agent.next()
        start = await agent.start(session, question["id"], id="str_1")
        await agent.piece("A", session)
        await agent.piece("B", session)
        await first.expect(type="stream_start")
        async with asyncio.timeout(5 * SCALE):
            shown = ""
            while shown != "AB":
                shown += (await first.expect(type="stream"))["data"]["text"]
        first.abort()
        await agent.piece("C", session)
        await agent.piece("D", session)
        async with await gateway.app(alice) as again:
            assert await again.next() == start
            sofar = await again.expect(type="stream", session=session)
            await agent.piece("E", session)
            await agent.end(session)
            text = "".join(
                frame["data"]["text"] for frame in [sofar, *await again.until(type="stream_end")][:-1]
            )
            assert text == "ABCDE"
            closing = await agent.answer("and a remark", session, question["id"])
            assert await again.next() == closing
        await first.close()
    assert [row["data"]["text"] for row in gateway.clerk.messages(alice, session)] == [
        "m1",
        "ABCDE",
        "and a remark",
    ]


async def test_c06_an_app_that_returns_after_the_end_gets_the_stream_as_one_text(
    gateway: Gateway, alice: Person
) -> None:
    """Once, under the stream's id; a second App that connects later gets nothing of it."""
    session = new_id()
    async with await gateway.agent(alice) as agent:
        start = await agent.stream(["A", "B", "C"], session)

        async def ended() -> bool:
            return any(row["cursor"] for row in gateway.clerk.messages(alice, session))

        await eventually(ended, what="the stream is stored whole")
        async with await gateway.app(alice) as app:
            text = await app.next()
            assert (text["type"], text["id"], text["data"]) == ("text", start["id"], {"text": "ABC"})
            assert set(text) - {"reply_to"} == {"id", "type", "from", "to", "session", "ts", "data"}
            async with await gateway.app(alice) as later:
                live = await agent.answer("live", session)
                assert await app.next() == live
                assert await later.next() == live


async def stalled(app: App, session: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ask the agent program for an answer that stops half-way, and see its three pieces; returns question, start."""
    question = await app.say("stall", session)
    start = await app.expect(type="stream_start", reply_to=question["id"])
    shown = ""
    while shown != PARTIAL:
        shown += (await app.expect(type="stream"))["data"]["text"]
    return question, start


async def interrupted_end(app: App, question: dict[str, Any], timeout_seconds: float) -> None:
    """The end of a stream whose agent is gone: the error, then `stream_end`; pings go on meanwhile."""

    async def ended() -> bool:
        await app.alive()
        return any(frame["type"] == "stream_end" for frame in app.seen)

    await eventually(ended, timeout_seconds, "the end of the stream")
    error, end = [frame for frame in app.seen if frame["type"] in ("error", "stream_end")]
    assert (error["type"], error["data"]["code"], error["reply_to"]) == ("error", "offline", question["id"])
    assert end == {"type": "stream_end", "from": "hermes", "to": app.user, "session": question["session"]}


async def partial_is_kept(gateway: Gateway, person: Person, session: str) -> None:
    """What had streamed is one message, marked interrupted, with a cursor."""
    rows = [row for row in gateway.clerk.messages(person, session) if row["side"] == "agent"]
    assert [row["data"] for row in rows] == [{"text": PARTIAL, "interrupted": True}]
    assert rows[0]["cursor"]
    last = (await gateway.history(person, session))[-1]
    assert last["data"] == {"text": PARTIAL, "interrupted": True}


@pytest.mark.parametrize("death", ["kill", "freeze"])
async def test_c32_a_dead_or_frozen_agent_ends_its_stream(brisk_gateway: Gateway, death: str) -> None:
    """(a) kill -9, (b) SIGSTOP: within heartbeat and grace the App gets the error and the end; the text is kept."""
    gateway = brisk_gateway
    alice = gateway.person()
    session = new_id()
    async with await gateway.app(alice) as app, AgentProgram(gateway.agent_url(alice)) as program:
        question, _ = await stalled(app, session)
        if death == "kill":
            program.kill()
        else:
            program.signal(signal.SIGSTOP)
        await interrupted_end(app, question, 12 * SCALE)
    await partial_is_kept(gateway, alice, session)


async def test_c32_an_agent_that_closes_cleanly_ends_its_stream_too(gateway: Gateway, alice: Person) -> None:
    """(c): after the grace time the same; a later frame of that stream is refused once, then dropped."""
    session = new_id()
    async with await gateway.app(alice) as app:
        agent = await gateway.agent(alice)
        question = await app.say("m1", session)
        await agent.next()
        await agent.start(session, question["id"])
        for piece in ("one ", "two ", "three "):
            await agent.piece(piece, session)
        await app.until(type="stream")
        await agent.close()
        await interrupted_end(app, question, 6 * SCALE)
        await partial_is_kept(gateway, alice, session)
        async with await gateway.agent(alice) as late:
            await late.piece("four", session)
            await late.piece("five", session)
            await late.end(session)
            await late.expect(type="error", code="unsupported", session=session)
            fresh = await late.answer("a new word", session)
            assert await app.next() == fresh
            await late.quiet()
    await partial_or_more(gateway, alice, session, ["a new word"])


async def partial_or_more(gateway: Gateway, person: Person, session: str, later: list[str]) -> None:
    """The partial text, then these."""
    texts = [row["data"]["text"] for row in gateway.clerk.messages(person, session) if row["side"] == "agent"]
    assert texts == [PARTIAL, *later]


async def test_c32_an_agent_that_returns_goes_on(gateway: Gateway, alice: Person) -> None:
    """(e): back within the grace time with more pieces and the end: one answer; marked, for pieces may be missing."""
    session = new_id()
    async with await gateway.app(alice) as app:
        agent = await gateway.agent(alice)
        question = await app.say("m1", session)
        await agent.next()
        start = await agent.start(session, question["id"])
        await agent.piece("one ", session)
        await app.until(type="stream")
        agent.abort()
        async with await gateway.agent(alice) as again:
            await again.piece("two", session)
            await again.end(session)
            await app.until(type="stream_end")
            await again.alive()
            assert again.seen == [{"type": "pong"}], "m1 was handed out twice"
        assert [frame["type"] for frame in app.seen] == ["stream_start", "stream", "stream", "stream_end"]
        await agent.close()
    rows = [row for row in gateway.clerk.messages(alice, session) if row["side"] == "agent"]
    assert [(row["id"], row["data"]) for row in rows] == [
        (start["id"], {"text": "one two", "interrupted": True})
    ]


async def test_c32_an_agent_that_begins_anew_gives_one_answer(gateway: Gateway, alice: Person) -> None:
    """(f): a new `stream_start` for the same message: Apps get the first id again, the partial is dropped."""
    session = new_id()
    async with await gateway.app(alice) as app:
        agent = await gateway.agent(alice)
        question = await app.say("m1", session)
        await agent.next()
        start = await agent.start(session, question["id"])
        await agent.piece("one ", session)
        await app.until(type="stream")
        agent.abort()
        async with await gateway.agent(alice) as again:
            await again.stream(["all ", "of it"], session, question["id"])
            stream = await app.read_stream(session)
            assert stream.start["id"] == start["id"]
            assert stream.text == "all of it"
        await agent.close()
    rows = [row for row in gateway.clerk.messages(alice, session) if row["side"] == "agent"]
    assert [(row["id"], row["data"]) for row in rows] == [(start["id"], {"text": "all of it"})]


@pytest.mark.timeout(180 * SCALE)
async def test_c32_the_gateway_process_that_holds_the_agent_dies(
    make_gateway: Callable[..., Gateway], backend: str
) -> None:
    """(d): the surviving process, or the next start, ends the stream with its text kept and marked."""
    gateway = make_gateway(
        backend, BRISK | {"HERMES_PROCESS_BEAT_SECONDS": "1", "HERMES_PROCESS_LEASE_SECONDS": "4"}
    )
    alice = gateway.person()
    session = new_id()
    agent = await gateway.agent(alice)
    app = await gateway.app(alice)
    question = await app.say("m1", session)
    await agent.next()
    await agent.start(session, question["id"])
    for piece in ("one ", "two ", "three "):
        await agent.piece(piece, session)
    shown = ""
    while shown != PARTIAL:
        frame = await app.next()
        shown += frame["data"]["text"] if frame["type"] == "stream" else ""
    gateway.agent_server.kill()
    await agent.ended()
    if gateway.backend.processes == 1:
        await app.ended()
        gateway.agent_server.start()
        gateway.agent_server.wait_ready()
    else:
        await interrupted_end(app, question, 30 * SCALE)

    async def marked() -> bool:
        frames = await gateway.history(alice, session)
        return frames[-1]["data"] == {"text": PARTIAL, "interrupted": True}

    await eventually(marked, 30 * SCALE, "the partial text, marked")
    await partial_is_kept(gateway, alice, session)
    await app.close()
    await agent.close()
    if gateway.backend.processes == 2:
        gateway.agent_server.start()
        gateway.agent_server.wait_ready()
    async with await gateway.app(alice) as back, await gateway.agent(alice) as fresh:
        again = await back.say("and now", session)
        assert (await fresh.until(type="text", id=again["id"]))[-1] == again
        await fresh.stream(["fine"], session, again["id"])
        assert (await back.until(type="stream_end"))[-2]["data"]["text"] == "fine"


@pytest.mark.timeout(180 * SCALE)
async def test_c32_after_a_crash_an_app_is_told_of_what_was_not_begun(
    make_gateway: Callable[..., Gateway],
) -> None:
    """(d) with a second turn: it ends too, and an App that comes in the grace time hears of it, once."""
    gateway = make_gateway("embedded", BRISK)
    alice = gateway.person()
    session = new_id()
    async with await gateway.agent(alice) as agent, await gateway.app(alice) as app:
        first = await app.say("begun", session)
        second = await app.say("handed out", session)
        await agent.until(type="text", id=second["id"])
        await agent.start(session, first["id"])
        await agent.piece("partial", session)
        await app.until(type="stream")
        gateway.agent_server.kill()
        await app.ended()
    gateway.agent_server.start()
    gateway.agent_server.wait_ready()
    async with await gateway.app(alice) as back:
        seen = await back.until(30 * SCALE, type="error", reply_to=second["id"])
        assert seen[-1]["data"]["code"] == "offline"
        assert seen[-1]["data"]["queued"] is False
        await back.alive()
        told = [frame["reply_to"] for frame in back.seen if frame["type"] == "error"]
        assert sorted(told) == sorted({first["id"], second["id"]})
