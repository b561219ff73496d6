"""From a person's App to a real Hermes Agent and back: gateway, bridge and agent as processes of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hermes.launcher import HermesServer
from tests.rig.bridge import Bridge
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import App, address, new_id
from tests.rig.timing import SCALE, TIMEOUT, eventually

FIRST_TURN_SECONDS = 30 * SCALE
"""A Hermes that has just started needs some seconds for its first turn."""


@pytest.fixture
def bridge(gateway: Gateway, alice: Person, hermes_server: HermesServer, tmp_path: Path) -> Iterator[Bridge]:
    """A bridge of alice's between the gateway and Hermes."""
    url = address(gateway.agent_server.port, "/ws/agent")
    hermes = {"HERMES_API_URL": hermes_server.base_url, "HERMES_API_KEY": hermes_server.key}
    with Bridge(url, alice.key, tmp_path / "bridge", HERMES_CHAT_WAIT_SECONDS="1", **hermes) as running:
        yield running
        assert "Traceback" not in running.log(), running.log()[-4000:]


async def agent_online(gateway: Gateway, person: Person, online: bool = True) -> None:
    """Wait until the gateway shows the person's agent as it should be."""

    async def as_it_should() -> bool:
        async with gateway.http(person) as http:
            agents = (await http.get("/api/me")).json()["agents"]
        return [agent["online"] for agent in agents] == [online]

    await eventually(as_it_should, 2 * TIMEOUT, f"the agent is {'online' if online else 'offline'}")


def streams_of(frames: list[dict[str, Any]], session: str) -> list[tuple[str, str]]:
    """The streamed answers of a session in order: the id they reply to, and their text."""
    answers: list[tuple[str, str]] = []
    open_now = False
    for frame in frames:
        if frame.get("session") != session:
            continue
        if frame["type"] == "stream_start":
            assert not open_now
            open_now = True
            answers.append((frame["reply_to"], ""))
        elif frame["type"] == "stream":
            answers[-1] = (answers[-1][0], answers[-1][1] + frame["data"]["text"])
        else:
            assert frame["type"] == "stream_end", frame
            open_now = False
    assert not open_now
    return answers


async def until_ends(app: App, count: int) -> list[dict[str, Any]]:
    """All frames until so many streams have ended."""
    frames: list[dict[str, Any]] = []
    for _ in range(count):
        frames += await app.until(FIRST_TURN_SECONDS, type="stream_end")
    return frames


@pytest.mark.timeout(180 * SCALE)
async def test_three_questions_in_two_sessions_are_answered_by_hermes(
    gateway: Gateway, alice: Person, bridge: Bridge
) -> None:
    """All asked at once: each answer streams under the right question, and is found in the database."""
    s1, s2 = new_id(), new_id()
    words = " ".join(f"word{number}" for number in range(1, 31))
    async with await gateway.app(alice) as app:
        await agent_online(gateway, alice)
        long = await app.say("@slow 30 60", s1)
        other = await app.say("How are you?", s2)
        after = await app.say("@say the second of the first session", s1)
        frames = await until_ends(app, 3)
        assert streams_of(frames, s1) == [
            (long["id"], words),
            (after["id"], "the second of the first session"),
        ]
        assert streams_of(frames, s2) == [(other["id"], "You said: How are you?")]
        shown = [frame["type"] for frame in frames if frame.get("session") == s1]
        assert shown[: shown.index("stream_end")].count("stream") >= 3, "the long answer came in one go"
        await app.quiet()
    for session, questions, answers in (
        (s1, [long, after], [words, "the second of the first session"]),
        (s2, [other], ["You said: How are you?"]),
    ):
        rows = gateway.clerk.messages(alice, session)
        assert [row["id"] for row in rows if row["side"] == "app"] == [
            question["id"] for question in questions
        ]
        stored = [(row["reply_to"], row["data"]) for row in rows if row["side"] == "agent"]
        expected = zip(questions, answers, strict=True)
        assert stored == [(question["id"], {"text": answer}) for question, answer in expected]


@pytest.mark.timeout(180 * SCALE)
async def test_a_question_asked_while_the_bridge_is_away_is_answered_once_after_its_return(
    gateway: Gateway, alice: Person, bridge: Bridge
) -> None:
    """Killed: `offline`, queued; started again: one answer, in the App and in the database, and Hermes asked once."""
    session = new_id()
    async with await gateway.app(alice) as app:
        await agent_online(gateway, alice)
        bridge.kill()
        await agent_online(gateway, alice, online=False)
        question = await app.say("@say once", session)
        error = await app.expect(type="error", code="offline", reply_to=question["id"])
        assert error["data"]["queued"] is True
        bridge.start()
        assert streams_of(await until_ends(app, 1), session) == [(question["id"], "once")]
        following = await app.say("@recall", session)
        answer = streams_of(await until_ends(app, 1), session)
        assert answer[0][0] == following["id"]
        assert answer[0][1].count("@say once") == 1, "Hermes was asked twice"
    rows = [row for row in gateway.clerk.messages(alice, session) if row["side"] == "agent"]
    assert [row["data"]["text"] for row in rows] == ["once", answer[0][1]]


@pytest.mark.timeout(180 * SCALE)
async def test_a_dead_hermes_is_an_error_and_the_next_question_works_after_its_return(
    gateway: Gateway, alice: Person, bridge: Bridge, hermes_server: HermesServer
) -> None:
    """Killed before a question and in the middle of an answer: an `error` frame each, never an answer."""
    session = new_id()
    async with await gateway.app(alice) as app:
        await agent_online(gateway, alice)
        broken = await app.say("@slow 400 50", session)
        await app.until(FIRST_TURN_SECONDS, type="stream")
        hermes_server.kill()
        try:
            frames = await app.until(FIRST_TURN_SECONDS, type="stream_end")
            errors = [frame for frame in frames if frame["type"] == "error"]
            assert [frame["reply_to"] for frame in errors] == [broken["id"]]
            lost = await app.say("@say nobody is there", session)
            error = await app.expect(FIRST_TURN_SECONDS, type="error", reply_to=lost["id"])
            assert error["data"]["text"] and error["from"] == "hermes"
        finally:
            hermes_server.start()
        question = await app.say("@say back again", session)
        assert streams_of(await until_ends(app, 1), session) == [(question["id"], "back again")]
    answers = [row for row in gateway.clerk.messages(alice, session) if row["side"] == "agent"]
    assert [row["reply_to"] for row in answers] == [broken["id"], question["id"]]
    assert answers[1]["data"] == {"text": "back again"}
