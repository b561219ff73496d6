"""Turns and the grammar of streams, as docs/protocol.md says them, seen by an App and in the tables."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, App, new_id
from tests.rig.timing import SCALE, eventually


async def asked(app: App, agent: Agent, session: str, text: str = "q") -> dict[str, Any]:
    """A question that has reached the agent."""
    question = await app.say(text, session)
    assert await agent.next() == question
    return question


async def turns_end(gateway: Gateway, person: Person, session: str, *expected: dict[str, Any]) -> None:
    """Wait until the session's turns are exactly these."""
    runs: list[dict[str, Any]] = []

    async def as_expected() -> bool:
        runs[:] = gateway.clerk.runs(person, session)
        return runs == list(expected)

    try:
        await eventually(as_expected)
    except TimeoutError:
        assert runs == list(expected)


def turn(question: str | None, status: str, *answers: str) -> dict[str, Any]:
    """A turn as the tables have it."""
    return {"question": question, "status": status, "answers": list(answers)}


async def test_a_text_during_a_stream_is_relayed_and_does_not_end_it(gateway: Gateway, alice: Person) -> None:
    """Both belong to the turn, which ends a moment after the last of them."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        q = await asked(app, agent, "S1")
        start = await agent.start("S1", q["id"])
        await agent.piece("a", "S1")
        note = await agent.answer("still at it", "S1", q["id"])
        await agent.piece("b", "S1")
        await agent.end("S1")
        frames = await app.until(type="stream_end")
        assert note in frames
        assert "".join(frame["data"]["text"] for frame in frames if frame["type"] == "stream") == "ab"
        await turns_end(gateway, alice, "S1", turn(q["id"], "completed", note["id"], start["id"]))


async def test_a_second_start_on_the_same_line_is_a_new_bubble_of_the_turn(
    gateway: Gateway, alice: Person
) -> None:
    """The open stream is ended first."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        q = await asked(app, agent, "S1")
        first = await agent.start("S1", q["id"])
        await agent.piece("one", "S1")
        second = await agent.start("S1", q["id"])
        await agent.piece("two", "S1")
        await agent.end("S1")
        streams = [await app.read_stream("S1"), await app.read_stream("S1")]
        assert [(stream.start, stream.text) for stream in streams] == [(first, "one"), (second, "two")]
        await turns_end(gateway, alice, "S1", turn(q["id"], "completed", first["id"], second["id"]))


async def test_pieces_without_a_stream_are_refused(gateway: Gateway, alice: Person) -> None:
    """`stream` and `stream_end` where nothing is open: `unsupported`, seen by nobody else."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        await agent.piece("x", "S1")
        await agent.expect(type="error", code="unsupported", session="S1")
        await agent.end("S2")
        await agent.expect(type="error", code="unsupported", session="S2")
        await agent.start("S1")
        await agent.piece("x", "S2")
        await agent.expect(type="error", code="unsupported", session="S2")
        await agent.end("S1")
        assert (await app.read_stream("S1")).text == ""


@pytest.mark.parametrize("named", [True, False], ids=["with reply_to", "without"])
async def test_an_error_of_the_agent_ends_its_open_stream(
    gateway: Gateway, alice: Person, named: bool
) -> None:
    """The App gets the error, then `stream_end`; the text so far is kept; a later piece is refused."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        q = await asked(app, agent, "S1")
        start = await agent.start("S1", q["id"])
        await agent.piece("half", "S1")
        error = agent.envelope(
            "error", "S1", reply_to=q["id"] if named else None, data={"code": "internal", "text": "e"}
        )
        await agent.send(error)
        frames = await app.until(type="stream_end")
        assert frames[-2] == error
        await agent.piece("more", "S1")
        await agent.expect(type="error", code="unsupported", session="S1")
        await turns_end(gateway, alice, "S1", turn(q["id"], "failed", start["id"]))
        rows = [row for row in gateway.clerk.messages(alice, "S1") if row["side"] == "agent"]
        assert rows[0]["data"]["text"] == "half"


@pytest.mark.parametrize("code", ["upload_failed", "file_too_large", "rate_limited"])
async def test_an_error_about_a_file_or_a_rate_ends_no_stream(
    gateway: Gateway, alice: Person, code: str
) -> None:
    """It is shown, and the stream goes on."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        q = await asked(app, agent, "S1")
        start = await agent.start("S1", q["id"])
        error = agent.envelope("error", "S1", reply_to=q["id"], data={"code": code, "text": "e"})
        await agent.send(error)
        await agent.piece("whole", "S1")
        await agent.end("S1")
        frames = await app.until(type="stream_end")
        assert [frame["type"] for frame in frames] == ["stream_start", "error", "stream", "stream_end"]
        await turns_end(gateway, alice, "S1", turn(q["id"], "completed", start["id"]))


@pytest.mark.parametrize("code", ["internal", "upload_failed"])
async def test_an_error_without_a_stream_ends_the_turn_it_names(
    gateway: Gateway, alice: Person, code: str
) -> None:
    """As failed, whatever its code."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        q = await asked(app, agent, "S1")
        error = agent.envelope("error", "S1", reply_to=q["id"], data={"code": code, "text": "cannot"})
        await agent.send(error)
        assert await app.next() == error
        await turns_end(gateway, alice, "S1", turn(q["id"], "failed"))


async def test_which_turn_a_frame_answers(gateway: Gateway, alice: Person) -> None:
    """A named live turn; without a name the oldest live one; anything else is a turn of its own."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        q1 = await asked(app, agent, "S1", "first")
        q2 = await asked(app, agent, "S1", "second")
        unnamed = await agent.answer("to the oldest", "S1")
        await turns_end(
            gateway, alice, "S1", turn(q1["id"], "completed", unnamed["id"]), turn(q2["id"], "running")
        )
        named = await agent.answer("to the second", "S1", q2["id"])
        ended = [turn(q1["id"], "completed", unnamed["id"]), turn(q2["id"], "completed", named["id"])]
        await turns_end(gateway, alice, "S1", *ended)
        late = await agent.answer("to one that has ended", "S1", q1["id"])
        await turns_end(gateway, alice, "S1", *ended, turn(None, "completed", late["id"]))
        proactive = await agent.answer("out of the blue", "S2")
        await turns_end(gateway, alice, "S2", turn(None, "completed", proactive["id"]))
        assert [await app.next() for _ in range(4)] == [unnamed, named, late, proactive]


async def test_a_turn_waits_a_moment_for_what_belongs_to_it(gateway: Gateway, alice: Person) -> None:
    """An "I'm on it", then a stream, then a remark: one turn."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        q = await asked(app, agent, "S1")
        on_it = await agent.answer("on it", "S1", q["id"])
        start = await agent.stream(["done"], "S1", q["id"])
        remark = await agent.answer("and a remark", "S1")
        await turns_end(
            gateway, alice, "S1", turn(q["id"], "completed", on_it["id"], start["id"], remark["id"])
        )
        assert (await app.until(id=remark["id"]))[-1] == remark


async def test_what_was_written_to_an_agent_that_went_is_told_and_not_repeated(
    gateway: Gateway, alice: Person
) -> None:
    """At most once: after the grace time `offline`, not queued; the turn is over; the next connection does not get it."""
    async with await gateway.app(alice) as app:
        agent = await gateway.agent(alice)
        q = await asked(app, agent, "S1")
        agent.abort()
        await agent.close()
        error = await app.expect(type="error", code="offline", reply_to=q["id"])
        assert error["data"]["queued"] is False
        (run,) = gateway.clerk.runs(alice, "S1")
        assert run["status"] in ("failed", "interrupted") and run["answers"] == []
        async with await gateway.agent(alice) as again:
            await asked(app, again, "S1", "another")


async def test_no_sign_of_life_is_told_and_a_late_answer_still_relayed(
    make_gateway: Callable[..., Gateway], backend: str
) -> None:
    """`timeout` for a question without an answer and for an open stream, which stays open."""
    gateway = make_gateway(backend, {"HERMES_ANSWER_SECONDS": "2"})
    alice = gateway.person()
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        q1 = await asked(app, agent, "S1")
        q2 = await asked(app, agent, "S2")
        start = await agent.start("S2", q2["id"])

        async def both_told() -> bool:
            await app.alive()
            return sum(frame["type"] == "error" for frame in app.seen) == 2

        await eventually(both_told, 10 * SCALE, "two notices")
        notices = [frame for frame in app.seen if frame["type"] == "error"]
        assert {(frame["data"]["code"], frame["reply_to"]) for frame in notices} == {
            ("timeout", q1["id"]),
            ("timeout", q2["id"]),
        }
        late = await agent.answer("late", "S1", q1["id"])
        await agent.piece("late too", "S2")
        await agent.end("S2")
        frames = await app.until(type="stream_end")
        assert late in frames
        assert [frame["data"]["text"] for frame in frames if frame["type"] == "stream"] == ["late too"]
        await turns_end(gateway, alice, "S2", turn(q2["id"], "completed", start["id"]))


async def test_a_later_turn_of_a_session_waits_for_the_one_before(gateway: Gateway, alice: Person) -> None:
    """Both are delivered; the second runs when the first has ended, and an answer to it may come before."""
    session = new_id()
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        q1 = await asked(app, agent, session, "first")
        q2 = await asked(app, agent, session, "second")
        await turns_end(gateway, alice, session, turn(q1["id"], "running"), turn(q2["id"], "queued"))
        early = await agent.answer("to the second", session, q2["id"])
        assert await app.next() == early
        last = await agent.answer("to the first", session, q1["id"])
        assert await app.next() == last
        await turns_end(
            gateway,
            alice,
            session,
            turn(q1["id"], "completed", last["id"]),
            turn(q2["id"], "completed", early["id"]),
        )


async def test_a_start_that_is_repeated_or_refused_leaves_the_open_stream_alone(
    gateway: Gateway, alice: Person
) -> None:
    """Said twice it is one stream; with an id that is taken it is refused, and the open one goes on."""
    session = new_id()
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        earlier = await agent.answer("earlier", session)
        assert await app.next() == earlier
        start = await agent.start(session)
        await agent.piece("one ", session)
        await agent.send(start)
        await agent.piece("two ", session)
        await agent.send(start | {"id": earlier["id"]})
        error = await agent.expect(type="error", reply_to=earlier["id"], code="unsupported")
        assert "id" in error["data"]["text"]
        await agent.piece("three", session)
        await agent.end(session)
        stream = await app.read_stream(session)
        assert (stream.start["id"], stream.text) == (start["id"], "one two three")


async def test_an_agent_does_not_speak_in_another_agent_s_session(gateway: Gateway, alice: Person) -> None:
    """A session belongs to the agent of its first message, whoever of the user's agents tries."""
    session = new_id()
    other = gateway.clerk.key(alice.name, agent="coder")
    async with (
        await gateway.app(alice) as app,
        await gateway.agent(alice) as agent,
        await gateway.agent(alice, key=other) as coder,
    ):
        coder.name = "coder"
        question = await app.say("for hermes", session)
        assert await agent.next() == question
        for frame in (
            coder.envelope("text", session, data={"text": "mine now"}),
            coder.envelope("stream_start", session, reply_to=question["id"]),
        ):
            await coder.send(frame)
            error = await coder.expect(type="error", reply_to=frame["id"], code="unsupported")
            assert "session" in error["data"]["text"]
        answer = await agent.answer("still mine", session, question["id"])
        assert await app.next() == answer
