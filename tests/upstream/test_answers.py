"""Users without a key are answered by real Hermes 0.19, on sockets and over HTTP."""

import asyncio
import base64
import struct
import zlib
from collections.abc import Iterator

import pytest

from tests.hermes.launcher import HermesServer
from tests.hermes.llm import ScriptedLLM
from tests.rig.gateway import Gateway
from tests.rig.pool import Pool
from tests.rig.sockets import new_id
from tests.upstream.rig import (
    RUNS,
    SESSIONS,
    TURN_SECONDS,
    answer_of,
    ask,
    begin,
    following,
    guest,
    names_of,
    settings_for,
    text_of,
)

pytestmark = pytest.mark.timeout(300)  # the first test may install Hermes


@pytest.fixture
def gateway(pool: Pool, hermes_server: HermesServer) -> Iterator[Gateway]:
    """A gateway that asks Hermes, whose log stays clean and never holds the key."""
    running = pool.get("embedded", settings_for(hermes_server))
    with running.clean_log():
        yield running
    assert hermes_server.key not in running.log()


async def test_an_app_is_answered_without_any_bridge(gateway: Gateway):
    """By a stream under its question; the next answer knows it, a replaced question is forgotten; never `offline`."""
    alice, session = guest(gateway, "alice"), new_id()
    async with await gateway.app(alice, caps="sync,events,control") as app:
        ready = await app.expect(type="ready")
        assert ready["data"]["agents"] == [{"name": "hermes", "online": True}]
        question = await app.say("@slow 12 20", session)
        reply_to, text = await answer_of(app)
        assert (reply_to, text) == (question["id"], " ".join(f"word{number}" for number in range(1, 13)))
        await app.say("@recall", session)
        assert (await answer_of(app))[1] == "@slow 12 20"
        await app.say("@recall", session, replace_from=question["id"])
        assert (await answer_of(app))[1] == "nothing"
        assert not [frame for frame in app.seen if frame["type"] == "error"]
        presence = [frame for frame in app.seen if "agent." in str((frame.get("data") or {}).get("event"))]
        assert not presence, "the upstream is always there"


async def test_a_plain_app_is_answered(gateway: Gateway):
    """An App without capabilities sees v3 and nothing else."""
    alice, session = guest(gateway, "alice"), new_id()
    async with await gateway.app(alice) as app:
        question = await app.say("@say hello", session)
        stream = await app.read_stream(session, TURN_SECONDS)
        assert (stream.start["reply_to"], stream.text) == (question["id"], "hello")
        await app.quiet()


async def test_http_is_answered_with_events_and_history(gateway: Gateway):
    """All events of a run with a tool; the history holds the same; resumed anywhere, the rest follows."""
    alice = guest(gateway, "alice")
    async with gateway.http(alice) as http:
        me = (await http.get("/api/me")).json()
        assert me["agents"] == [{"name": "hermes", "online": True}]
        session = await begin(http)
        events = await ask(http, session, '@before I look\n@tool terminal {"command": "echo hi"}')
        assert names_of(events) == [
            *("run.started", "message.started", "assistant.delta"),
            *("tool.started", "tool.completed", "assistant.delta"),
            *("assistant.completed", "run.completed", "done"),
        ]
        assert text_of(events).startswith("I look\n\nTool result:")
        run = events[0]["run_id"]
        assert [event async for event in following(http, run, after=3)] == events[3:]
        history = (await http.get(f"{SESSIONS}/{session}/messages")).json()
        rows = history["data"]
        assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"]
        told = "".join(row["content"] for row in rows if row["role"] == "assistant")
        assert told == text_of(events)
        assert [(one["run_id"], one["status"]) for one in history["runs"]] == [(run, "completed")]


async def test_both_doors_show_the_same_conversation(gateway: Gateway):
    """What is asked over HTTP streams on the App, under the same ids."""
    alice = guest(gateway, "alice")
    async with gateway.http(alice) as http, await gateway.app(alice, caps="sync,events") as app:
        session = await begin(http)
        events = await ask(http, session, "@say hello")
        reply_to, text = await answer_of(app)
        started = next(event for event in events if event["event"] == "run.started")
        assert (reply_to, text) == (started["user_message"]["id"], "hello")


async def test_two_users_with_the_same_session_id_share_nothing(gateway: Gateway, scripted_llm: ScriptedLLM):
    """Neither history nor a name at Hermes."""
    session = new_id()
    people = [guest(gateway, "alice"), guest(gateway, "bob")]
    for person in people:
        async with gateway.http(person) as http:
            await begin(http, session)
            await ask(http, session, f"I am {person.name}")
            assert text_of(await ask(http, session, "@recall")) == f"I am {person.name}"
    rows = gateway.clerk.ask(
        "sql",
        statement=f"SELECT upstream_id, agent FROM chat_chatsession WHERE public_id = '{session}'",  # noqa: S608
    )
    assert len({upstream_id for upstream_id, _ in rows}) == 2
    assert not any(session in upstream_id for upstream_id, _ in rows)


async def test_stop_ends_the_turn_at_hermes_too(gateway: Gateway):
    """From an App and over HTTP: cancelled when Hermes has confirmed it, and the next question is answered."""
    alice = guest(gateway, "alice")
    async with gateway.http(alice) as http, await gateway.app(alice, caps="sync,events,control") as app:
        session = await begin(http)
        question = await app.say("@slow 400 50", session)
        await app.until(TURN_SECONDS, type="stream")
        refused = await http.post(f"{RUNS}/{question['id']}/steer", json={"input": "this Hermes takes none"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_not_accepting_steer")
        await app.send(app.envelope("stop", session, reply_to=question["id"]))
        end = (await app.until(TURN_SECONDS, type="stream_end"))[-1]
        assert end["data"]["status"] == "cancelled"
        asking = asyncio.create_task(ask(http, session, "@slow 400 50"))
        start = (await app.until(TURN_SECONDS, type="stream_start"))[-1]
        answer = await http.post(f"{RUNS}/{start['reply_to']}/stop")
        assert answer.json()["status"] == "stopping"
        events = await asking
        assert names_of(events)[-2:] == ["run.cancelled", "done"]
        await app.say("@say still here", session)
        await app.until(TURN_SECONDS, type="stream_start")
        await app.until(TURN_SECONDS, type="stream_end")


async def test_regenerate_asks_anew_with_the_conversation_before(gateway: Gateway):
    """The second answer is replaced by one that knows the first question only."""
    alice = guest(gateway, "alice")
    async with gateway.http(alice) as http:
        session = await begin(http)
        await ask(http, session, "I am Alice")
        run = (await ask(http, session, "@recall"))[0]["run_id"]
        again = await ask(http, session, None, replace_from=run)
        assert text_of(again) == "I am Alice"
        assert text_of(await ask(http, session, "@recall")) == "I am Alice | @recall"


async def test_a_dangerous_command_waits_for_the_person(gateway: Gateway):
    """The request reaches the App; denied, the command does not run and the turn goes on."""
    alice, session = guest(gateway, "alice"), new_id()
    async with await gateway.app(alice, caps="sync,events,control") as app:
        await app.say('@tool terminal {"command": "rm -rf $HOME/nothing/x"}', session)
        while (request := await app.next(TURN_SECONDS)).get("data", {}).get("event") != "approval.request":
            pass
        assert "rm -rf" in request["data"]["command"]
        choice = {
            "event": "approval.response",
            "request_id": request["data"]["request_id"],
            "choice": "deny",
        }
        await app.send(app.envelope("event", session, reply_to=request["reply_to"], data=choice))
        frames = await app.until(TURN_SECONDS, type="stream_end")
        happened = [frame["data"]["event"] for frame in frames if frame["type"] == "event"]
        assert "approval.resolved" in happened and "tool.failed" in happened


async def test_a_picture_reaches_the_model(gateway: Gateway, scripted_llm: ScriptedLLM):
    """Its bytes, from the gateway's own store; nobody has to fetch them."""
    alice = guest(gateway, "alice")
    url = f"data:image/png;base64,{base64.b64encode(_png()).decode()}"
    parts = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    async with gateway.http(alice) as http:
        session = await begin(http)
        assert "[picture]" in text_of(await ask(http, session, None, input=parts))
    assert url in str(scripted_llm.requests[-1]["messages"][-1]["content"])


async def test_a_voice_message_is_refused_with_a_reason(gateway: Gateway):
    """As an `error` under the message: the agent takes text and pictures."""
    alice, session = guest(gateway, "alice"), new_id()
    gateway.clerk.ask(
        "media",
        owner=alice.name,
        public_id=(media_id := f"med_{new_id()}"),
        name="a.ogg",
        kind="voice",
        type="audio/ogg",
        size=3,
        duration=1.0,
        sha256="0" * 64,
        storage_name="none",
    )
    async with await gateway.app(alice) as app:
        frame = app.envelope("voice", session, data={"media": {"id": media_id}})
        await app.send(frame)
        error = await app.expect(TURN_SECONDS, type="error", code="unsupported")
        assert error["reply_to"] == frame["id"]


async def test_a_user_with_a_key_is_never_answered_by_the_upstream(
    gateway: Gateway, scripted_llm: ScriptedLLM
):
    """The message waits for the bridge, the agent counts as away; a key made later ends the upstream's answering."""
    alice, bob, session = gateway.person("alice"), guest(gateway, "bob"), new_id()
    async with await gateway.app(alice) as app:
        question = await app.say(f"@say for my own agent {session}", session)
        error = await app.expect(type="error", code="offline", reply_to=question["id"])
        assert error["data"]["queued"] is True
        async with gateway.http(alice) as http:
            assert (await http.get("/api/me")).json()["agents"] == [{"name": "hermes", "online": False}]
        async with await gateway.agent(alice, caps="sync,events,control") as agent:
            await agent.until(type="text", id=question["id"])
    async with await gateway.app(bob) as app:
        await app.say("@say by the upstream", session)
        await app.read_stream(session, TURN_SECONDS)
        key = gateway.clerk.key(bob.name)
        question = await app.say(f"@say for my own agent {session}", session)
        await app.expect(type="error", code="offline", reply_to=question["id"])
        async with await gateway.agent(bob, key=key) as agent:
            handed = (await agent.until(type="text"))[-1]
            assert handed["id"] == question["id"]
            await agent.stream(["mine"], session, question["id"])
            assert (await app.read_stream(session)).text == "mine"
    assert scripted_llm.times_asked(f"for my own agent {session}") == 0


async def test_an_agent_that_connects_takes_over_and_the_upstream_stops(gateway: Gateway):
    """A key made in mid-answer: the answer ends interrupted, its text is kept, the next question is the agent's."""
    bob, session = guest(gateway, "bob"), new_id()
    async with await gateway.app(bob) as app:
        await app.say("@slow 400 50", session)
        await app.until(TURN_SECONDS, type="stream")
        async with await gateway.agent(bob, key=gateway.clerk.key(bob.name), caps="events,control") as agent:
            await app.until(TURN_SECONDS, type="stream_end")
            question = await app.say("and now you", session)
            assert (await agent.until(type="text"))[-1]["id"] == question["id"]
            await agent.stream(["mine"], session, question["id"])
            assert (await app.read_stream(session)).text == "mine"
            assert not [frame for frame in agent.seen if frame["type"] == "error"]
    assert [run["status"] for run in gateway.clerk.runs(bob, session)] == ["interrupted", "completed"]


def _png() -> bytes:
    """A picture of one point."""

    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", head)
        + part(b"IDAT", zlib.compress(b"\0\xff\0\0"))
        + part(b"IEND", b"")
    )
