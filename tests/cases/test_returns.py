"""
C06 an App that is away for a part of an answer with a file; C32, C04 who is told at once that an agent has gone, and
of what waits for it.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, App, Frame, new_id, without_null_reply
from tests.rig.timing import PROMPT, SCALE, TIMEOUT, eventually
from tests.second_door.client import Door

CONTENT = b"what was asked for"


async def uploaded(gateway: Gateway, person: Person) -> str:
    """The id of a file that the person's agent has uploaded."""
    files, key = {"file": ("report.txt", CONTENT, "text/plain")}, {"Authorization": f"Bearer {person.key}"}
    async with gateway.http() as http:
        answer = await http.post("/api/media/upload", files=files, headers=key)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["media_id"])


@dataclass
class Screen:
    """What a device shows: bubbles by id, kept over the ends of its sockets, as an App's author is told to."""

    session: str
    bubbles: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    cursor: int = 0
    streaming: str = ""

    def show(self, frame: Frame) -> None:
        """Draw one frame; a stream that starts again starts its bubble anew."""
        if frame.get("session") != self.session or frame["from"] != "hermes":
            return
        self.cursor = max(self.cursor, frame.get("cursor", 0))
        match frame["type"]:
            case "stream_start":
                self.streaming = frame["id"]
                self.bubbles[self.streaming] = ""
            case "stream":
                self.bubbles[self.streaming] += frame["data"]["text"]
            case "stream_end":
                self.finished.add(self.streaming)
            case "text":
                self.bubbles[frame["id"]] = frame["data"]["text"]
                self.finished.add(frame["id"])
            case "file":
                self.files.append(frame["data"]["media"]["id"])

    async def watch(self, app: App, until: Any) -> None:
        """Draw what comes until something is true of the screen."""
        while not until(self):
            self.show(await app.next())


@asynccontextmanager
async def device(gateway: Gateway, person: Person, caps: str, screen: Screen) -> AsyncIterator[App]:
    """The device connects, with its cursor where it has one, and is cut off without a word at the end."""
    query = {"caps": caps, "since": str(screen.cursor)} if caps else {}
    app = await gateway.app(person, **query)
    if caps:
        await app.expect(type="ready")
    yield app
    app.abort()
    await app.close()


@pytest.mark.parametrize("caps", ["", "sync,events"], ids=["v3", "sync"])
@pytest.mark.parametrize("back", ["in mid-stream", "after the file"])
async def test_c06_an_answer_with_a_file_is_whole_once_for_a_device_that_was_away(
    gateway: Gateway, alice: Person, caps: str, back: str
) -> None:
    """A, B shown; C, D said to nobody; E, the end and the file on its return, or before it: `ABCDE` once, the file once."""
    session = new_id()
    screen = Screen(session)
    media = await uploaded(gateway, alice)
    async with await gateway.agent(alice) as agent:

        async def ends(question: str) -> None:
            await agent.piece("E", session)
            await agent.end(session)
            await agent.send(
                agent.envelope("file", session, reply_to=question, data={"media": {"id": media}})
            )

        async with device(gateway, alice, caps, screen) as first:
            question = (await first.say("m1", session))["id"]
            await agent.until(type="text", id=question)
            await agent.start(session, question, id="str_1")
            for piece in "AB":
                await agent.piece(piece, session)
            await screen.watch(first, lambda screen: screen.bubbles.get("str_1") == "AB")
        await gateway.until_gone(alice, "app")
        for piece in "CD":
            await agent.piece(piece, session)
        if back == "after the file":
            await ends(question)
            await eventually(lambda: is_finished(gateway, alice, session), TIMEOUT, "the turn has ended")
        async with device(gateway, alice, caps, screen) as again:
            if back == "in mid-stream":
                await screen.watch(again, lambda screen: screen.bubbles["str_1"] == "ABCD")
                await ends(question)
            await screen.watch(again, lambda screen: screen.files)
            for frame in await again.alive():
                screen.show(frame)
        assert (screen.bubbles, screen.finished, screen.files) == ({"str_1": "ABCDE"}, {"str_1"}, [media])
        async with device(gateway, alice, caps, screen) as once_more:
            for frame in await once_more.alive():
                screen.show(frame)
        assert (screen.bubbles, screen.files) == ({"str_1": "ABCDE"}, [media]), "shown a second time"
    await eventually(lambda: is_finished(gateway, alice, session), TIMEOUT, "the turn has ended")
    stored = await gateway.history(alice, session)
    assert [(frame["type"], frame["id"]) for frame in stored[:2]] == [("text", question), ("text", "str_1")]
    assert stored[1]["data"] == {"text": "ABCDE"}
    assert [frame["data"]["media"]["id"] for frame in stored[2:]] == [media]
    async with gateway.http(alice) as http:
        assert (await http.get(f"/media/{media}")).content == CONTENT


async def is_finished(gateway: Gateway, person: Person, session: str) -> bool:
    """Whether history has the question, one answer that is whole with its file, and no turn that goes on."""
    async with Door(gateway, person) as door:
        page = await door.history(session)
    if [run["status"] for run in page["runs"]] != ["completed"]:
        return False
    question, answer = page["data"]
    assert (question["role"], question["content"], answer["role"]) == ("user", "m1", "assistant")
    assert answer["content"].startswith("ABCDE") and answer["content"].count("report.txt") == 1
    return True


@pytest.mark.parametrize("end", ["cut", "closed"])
async def test_c32_apps_with_events_are_told_at_once_that_the_agent_has_gone(
    gateway: Gateway, alice: Person, end: str
) -> None:
    """(a), (c): `agent.offline` long before the grace time is over; then the error, then the end; others see only these."""
    session = new_id()
    async with (
        await gateway.app(alice, caps="sync,events") as app,
        await gateway.app(alice) as plain,
        gateway.http(alice) as http,
    ):
        await app.expect(type="ready")
        agent: Agent = await gateway.agent(alice)
        assert (await app.next())["data"] == {"event": "agent.online", "agent": "hermes"}
        question = await app.say("m1", session)
        await agent.next()
        await agent.start(session, question["id"])
        await agent.piece("half", session)
        await app.until(type="stream")
        if end == "cut":
            agent.abort()
        else:
            await agent.socket.close()
        offline = await app.expect(PROMPT, type="event")
        assert offline["data"] == {"event": "agent.offline", "agent": "hermes"}
        me = (await http.get("/api/me")).json()
        assert [one["online"] for one in me["agents"]] == [False]
        frames = [frame for frame in await app.until(type="stream_end") if frame["type"] != "event"]
        error, last = frames
        assert (error["type"], error["data"]["code"], error["reply_to"]) == (
            "error",
            "offline",
            question["id"],
        )
        assert last["type"] == "stream_end" and last["cursor"] == 2
        shown = await plain.until(type="stream_end")
        assert [frame["type"] for frame in shown] == ["stream_start", "stream", "error", "stream_end"]
        assert without_null_reply(shown[2]) | {"id": ""} == without_null_reply(error) | {"id": ""}
        await agent.close()


@pytest.mark.timeout(180 * SCALE)
async def test_c04_what_is_said_while_nobody_knows_that_the_agent_s_process_is_dead_is_told_and_delivered_once(
    make_gateway: Callable[..., Gateway],
) -> None:
    """kill -9 of the process that holds the agent: an App of the other one hears of each text that it waits."""
    lease = {"HERMES_PROCESS_BEAT_SECONDS": "1", "HERMES_PROCESS_LEASE_SECONDS": "4"}
    gateway = make_gateway("shared", lease)
    alice, session = gateway.person(), new_id()
    async with await gateway.app(alice) as app:
        agent = await gateway.agent(alice)
        question = await app.say("before", session)
        assert await agent.next() == question
        assert await agent.answer("yes", session, question["id"]) == await app.next()
        gateway.agent_server.kill()
        await agent.ended()
        await agent.close()
        said = [await app.say(text, session) for text in ("into the dark", "and again")]
        for frame in said:
            error = await app.expect(30 * SCALE, type="error", code="offline", reply_to=frame["id"])
            assert error["data"]["queued"] is True
        async with await gateway.agent(alice, port=gateway.app_server.port) as back:
            assert [await back.next() for _ in said] == said
            answer = await back.answer("here", session, said[0]["id"])
            assert await app.next() == answer
            await back.quiet()
    gateway.agent_server.start()
