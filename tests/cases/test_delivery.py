"""
C01 bursts, C03 order within one second, C04 an absent agent.

History is read in the tables, by `GET /api/frames`, and by `GET /api/sessions/{id}/messages` of the second door.
"""

import asyncio
import re
import signal
from typing import Any

import pytest

from tests.rig.agent_program import AgentProgram
from tests.rig.clerk import Person
from tests.rig.gateway import BRISK, Gateway
from tests.rig.sockets import TS, new_id
from tests.rig.timing import SCALE, TIMEOUT, eventually
from tests.second_door.client import Door, error_of

BURST = [f"{number} " for number in range(1000)]
ROUNDS = 20


async def stored_once(gateway: Gateway, person: Person, session: str, text: str) -> None:
    """The session holds one agent message, with exactly this text, in the database and over HTTP."""
    rows = [row for row in gateway.clerk.messages(person, session) if row["side"] == "agent"]
    assert [(row["type"], row["data"]["text"]) for row in rows] == [("text", text)]
    frames = await gateway.history(person, session)
    assert [frame["data"]["text"] for frame in frames if frame["from"] == "hermes"] == [text]
    async with Door(gateway, person) as door:
        page = await door.history(session)
    assert [row["content"] for row in page["data"] if row["role"] == "assistant"] == [text]


@pytest.mark.timeout(120 * SCALE)
async def test_c01_a_burst_of_1000_pieces_arrives_whole_and_in_order_20_times(
    gateway: Gateway, alice: Person
) -> None:
    """Agent and App are on two processes where there are two."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        for _ in range(ROUNDS):
            session = new_id()
            start = await agent.stream(BURST, session)
            stream = await app.read_stream(session)
            assert stream.start["id"] == start["id"]
            assert stream.text == "".join(BURST)
        await stored_once(gateway, alice, session, "".join(BURST))


@pytest.mark.parametrize("read_pause_seconds", [0, 0.02])
async def test_c01_a_burst_is_whole_on_one_process_and_for_a_slow_reader(
    gateway: Gateway, alice: Person, read_pause_seconds: float
) -> None:
    """App and agent on the same process; again with an App that reads a frame every 20 ms."""
    port = gateway.agent_server.port
    async with (
        await gateway.app(alice, port=port, read_pause_seconds=read_pause_seconds) as app,
        await gateway.agent(alice) as agent,
    ):
        session = new_id()
        await agent.stream(BURST, session)
        stream = await app.read_stream(session, 60 * SCALE)
        assert stream.text == "".join(BURST)
        await stored_once(gateway, alice, session, "".join(BURST))


async def test_a_paced_stream_is_shown_while_it_is_sent(gateway: Gateway, alice: Person) -> None:
    """A piece each millisecond: the first is shown before the last is sent, and in at least 50 frames."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        session = new_id()
        await agent.start(session)
        for piece in BURST:
            await agent.piece(piece, session)
            await asyncio.sleep(0.001)
        shown_before_the_end = [frame for frame in app.seen if frame["type"] == "stream"]
        await agent.end(session)
        stream = await app.read_stream(session)
        assert shown_before_the_end
        assert len(stream.pieces) >= 50
        assert stream.text == "".join(BURST)


@pytest.fixture
async def same_second(gateway: Gateway, alice: Person) -> tuple[str, list[str]]:
    """A session of six questions of one second and six answers dated before them; its ids in order of acceptance."""
    session = new_id()
    accepted = []
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        for number in range(6):
            question = await app.say(f"m{number + 1}", session)
            assert await agent.next() == question
            answer = await agent.answer(f"to m{number + 1}", session, question["id"], ts=TS - 1)
            assert await app.next() == answer
            accepted += [question["id"], answer["id"]]
    return session, accepted


async def test_c03_messages_of_one_second_keep_the_order_of_their_acceptance(
    gateway: Gateway, alice: Person, same_second: tuple[str, list[str]]
) -> None:
    """Oldest to newest, whatever their `ts` and ids; `ts` comes back unchanged; `limit=3` gives the newest three."""
    session, accepted = same_second
    frames = await gateway.history(alice, session, limit=500)
    assert [frame["id"] for frame in frames] == accepted
    assert [frame["ts"] for frame in frames] == [TS, TS - 1] * 6
    assert [frame["id"] for frame in await gateway.history(alice, session, limit=3)] == accepted[-3:]
    assert [row["id"] for row in gateway.clerk.messages(alice, session)] == accepted


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "-1"},
        {"limit": "abc"},
        {"limit": "99999999"},
        {"limit": ""},
        {"before": "abc"},
    ],
)
async def test_c03_a_bad_limit_is_refused_or_clamped(
    gateway: Gateway, alice: Person, same_second: tuple[str, list[str]], query: dict[str, str]
) -> None:
    """Never a 500, never more than the cap."""
    session, accepted = same_second
    async with gateway.http(alice) as http:
        answer = await http.get("/api/frames", params={"session": session} | query)
    if answer.status_code == 200:
        frames = answer.json()["data"]
        assert frames and [frame["id"] for frame in frames] == accepted[-len(frames) :]
    else:
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_request"


async def test_c03_an_unknown_order_changes_nothing(
    gateway: Gateway, alice: Person, same_second: tuple[str, list[str]]
) -> None:
    """`order=sideways`: this door has one order; the name is not known to it, refused or ignored."""
    session, accepted = same_second
    async with gateway.http(alice) as http:
        answer = await http.get("/api/frames", params={"session": session, "order": "sideways"})
    assert answer.status_code in (200, 400)
    if answer.status_code == 200:
        assert [frame["id"] for frame in answer.json()["data"]] == accepted


async def test_c03_the_pages_of_a_conversation_keep_the_order_too(
    gateway: Gateway, alice: Person, same_second: tuple[str, list[str]]
) -> None:
    """`GET /api/sessions/{id}/messages`: newest page, oldest first; a bad limit or order is one refusal."""
    session, _ = same_second
    said = [text for number in range(1, 7) for text in (f"m{number}", f"to m{number}")]
    async with Door(gateway, alice) as door:
        page = await door.history(session, "order=latest&limit=500")
        assert [row["content"] for row in page["data"]] == said
        for limit in (3, 4):
            newest = await door.history(session, f"order=latest&limit={limit}")
            count = len(newest["data"])
            assert limit - 1 <= count <= limit, "a question stays with its answer"
            assert newest["data"] == page["data"][-count:]
        for query in ("limit=0", "limit=-1", "limit=abc", "limit=99999999", "order=sideways"):
            answer = await door.request("GET", f"/api/sessions/{session}/messages?{query}")
            assert error_of(answer)[:2] == (400, "invalid_pagination"), query


async def test_c03_six_messages_at_once_reach_the_agent_in_order(gateway: Gateway, alice: Person) -> None:
    """Sent without waiting, answered in one go: stored as accepted."""
    session = new_id()
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        questions = [await app.say(f"m{number}", session) for number in range(1, 7)]
        assert [await agent.next() for _ in questions] == questions
        answers = [
            await agent.answer(f"to {q['data']['text']}", session, q["id"], ts=TS - 1) for q in questions
        ]
        assert [await app.next() for _ in answers] == answers
    ids = [frame["id"] for frame in await gateway.history(alice, session)]
    assert ids == [frame["id"] for frame in questions + answers]


def image_of(gateway: Gateway, person: Person) -> dict[str, Any]:
    """The media object of a picture that the person has."""
    fields = {"name": "a.png", "type": "image/png", "size": 70, "width": 1, "height": 1}
    media_id = f"med_{new_id()}"
    row = {
        "public_id": media_id,
        "kind": "image",
        "sha256": new_id().replace("-", "") * 2,
        "storage_name": media_id,
    }
    gateway.clerk.ask("media", owner=person.name, **row, **fields)
    return {"id": media_id} | fields


async def test_c04_a_message_to_an_absent_agent_is_answered_with_offline_and_delivered_once(
    gateway: Gateway, alice: Person, bob: Person
) -> None:
    """A text and an image without an agent: `offline`, queued, to the sender only; later both, in order, once."""
    session = new_id()
    async with (
        await gateway.app(alice) as app,
        await gateway.app(alice) as second,
        await gateway.app(bob) as stranger,
        await gateway.agent(bob) as strangers_agent,
    ):
        text = await app.say("m1", session)
        image = app.envelope("image", session, data={"media": image_of(gateway, alice)})
        await app.send(image)
        for frame in (text, image):
            error = await app.expect(
                2 * SCALE, type="error", code="offline", reply_to=frame["id"], session=session
            )
            assert error["data"]["queued"] is True
            assert re.search("queue|wait|kept|deliver|gets the message", error["data"]["text"])
            assert {"id", "type", "from", "to", "session", "reply_to", "ts", "data"} == set(error)
            assert (error["from"], error["to"]) == ("hermes", alice.name)
        assert len(gateway.clerk.messages(alice, session)) == 2
        async with await gateway.agent(alice) as agent:
            assert [await agent.next(), await agent.next()] == [text, image]
            marker = await agent.answer("here", session, text["id"])
            assert await app.next() == marker
            await agent.quiet()
        await gateway.until_gone(alice, "agent")
        async with await gateway.agent(alice) as again:
            following = await app.say("m3", session)
            assert await again.next() == following, "delivered a second time"
        # bob's own traffic comes after anything of alice's that could have strayed
        greeting = await strangers_agent.answer("hello", session)
        assert await stranger.next() == greeting
        await strangers_agent.quiet()
        assert (await second.until(type="text"))[-1] == marker
        assert all(frame["to"] == alice.name for frame in second.seen)


async def test_c04_a_frozen_agent_is_found_out_and_the_app_told(brisk_gateway: Gateway) -> None:
    """SIGSTOP: what was written to it ends with `offline`, not queued; what comes later waits for its return."""
    gateway = brisk_gateway
    alice = gateway.person()
    session = new_id()
    async with await gateway.app(alice) as app, AgentProgram(gateway.agent_url(alice)) as program:
        first = await app.say("hello", session)
        assert (await app.read_stream(session)).start["reply_to"] == first["id"]
        program.signal(signal.SIGSTOP)
        second = await app.say("into the frost", session)
        frames = await until_error(app, second["id"])
        assert [(frame["data"]["code"], frame["data"]["queued"]) for frame in frames] == [("offline", False)]
        third = await app.say("after the frost", session)
        error = await app.expect(type="error", reply_to=third["id"], code="offline")
        assert error["data"]["queued"] is True
        program.kill()
        async with AgentProgram(gateway.agent_url(alice)):
            stream = await app.read_stream(session)
            assert stream.start["reply_to"] == third["id"]
            assert stream.text == "after the frost"
        rows = gateway.clerk.messages(alice, session)
        assert [row["data"]["text"] for row in rows if row["side"] == "agent"] == ["hello", "after the frost"]


async def until_error(app: Any, reply_to: str) -> list[dict[str, Any]]:
    """Ping every second, as an App does, until an error about a message comes; returns the errors."""

    async def told() -> list[dict[str, Any]]:
        await app.alive()
        return [frame for frame in app.seen if frame["type"] == "error" and frame["reply_to"] == reply_to]

    errors = await eventually(told, 2 * TIMEOUT, "an error about the message")
    await app.alive()  # it may have come just behind the last pong: take it off the line
    return errors


async def test_the_queue_is_bounded_for_a_burst_too(brisk_gateway: Gateway) -> None:
    """What arrives in one burst counts like what arrives one by one: past the limit nothing is stored."""
    gateway, limit = brisk_gateway, int(BRISK["HERMES_QUEUE_LIMIT"])
    alice = gateway.person()
    session = new_id()
    async with await gateway.app(alice) as app:
        asked = [app.envelope("text", session, data={"text": f"q{number}"}) for number in range(limit + 3)]
        await asyncio.gather(*(app.send(frame) for frame in asked))
        errors = [await app.expect(type="error", code="offline") for _ in asked]
    queued = [error["reply_to"] for error in errors if error["data"]["queued"]]
    assert queued == [frame["id"] for frame in asked[:limit]]
    rows = gateway.clerk.messages(alice, session)
    assert [row["id"] for row in rows] == queued
