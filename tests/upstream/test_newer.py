"""The upstream in the dialect of 0.22, under a name of its own: Hermes' own record of a session, stop and steer."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from tests.hermes.launcher import HermesServer
from tests.rig.gateway import Gateway
from tests.rig.pool import Pool
from tests.rig.sockets import new_id
from tests.upstream.rig import (
    RUNS,
    SESSIONS,
    TURN_SECONDS,
    Event,
    answer_of,
    ask,
    begin,
    events_of,
    guest,
    names_of,
    settings_for,
    text_of,
)

pytestmark = pytest.mark.timeout(600)  # the first test may install Hermes


@pytest.fixture
def gateway(pool: Pool, newer_hermes_server: HermesServer) -> Iterator[Gateway]:
    """A gateway that asks it, for users who write to `cloud`, or to `hermes` and have no agent of their own."""
    running = pool.get("embedded", settings_for(newer_hermes_server, HERMES_UPSTREAM_AGENT="cloud"))
    with running.clean_log():
        yield running
    assert newer_hermes_server.key not in running.log()


async def test_a_conversation_with_a_new_beginning(gateway: Gateway):
    """It goes on by Hermes' own record; with its first turn replaced it knows nothing of the old one, ever."""
    alice = guest(gateway, "alice")
    async with gateway.http(alice) as http, await gateway.app(alice, caps="sync,events,control") as app:
        session = await begin(http)
        first = await ask(http, session, "I am Alice")
        assert text_of(await ask(http, session, "@recall")) == "I am Alice"
        again = await ask(http, session, "I am Bob", replace_from=first[0]["run_id"])
        assert text_of(again) == "You said: I am Bob"
        assert text_of(await ask(http, session, "@recall")) == "I am Bob"
        for _ in range(4):
            text = (await answer_of(app))[1]
        assert text == "I am Bob"
        await app.say("@recall", session)
        assert (await answer_of(app))[1] == "I am Bob | @recall"


async def test_a_replaced_middle_is_forgotten_and_a_copy_knows_what_was_copied(gateway: Gateway):
    """Regenerated, the second of three answers knows the first question only, and the next knows the new past."""
    alice = guest(gateway, "alice")
    async with gateway.http(alice) as http:
        session = await begin(http)
        await ask(http, session, "one")
        second = await ask(http, session, "@recall")
        await ask(http, session, "three")
        again = await ask(http, session, None, replace_from=second[0]["run_id"])
        assert text_of(again) == "one"
        assert text_of(await ask(http, session, "@recall")) == "one | @recall"
        fork = (await http.post(f"{SESSIONS}/{session}/fork", json={"run_id": again[0]["run_id"]})).json()
        copy = fork["session"]["id"]
        await ask(http, copy, "only here")
        assert text_of(await ask(http, copy, "@recall")) == "one | @recall | only here"


async def test_stop_and_steer(gateway: Gateway):
    """Stopped from an App: cancelled. A remark over HTTP is taken while the run streams, and not afterwards."""
    alice, session = guest(gateway, "alice"), new_id()
    async with gateway.http(alice) as http, await gateway.app(alice, caps="sync,events,control") as app:
        question = await app.say("@slow 400 50", session)
        await app.until(TURN_SECONDS, type="stream")
        taken = await http.post(f"{RUNS}/{question['id']}/steer", json={"input": "a remark"})
        assert taken.json()["accepted"] is True
        await app.send(app.envelope("stop", session, reply_to=question["id"]))
        end = (await app.until(TURN_SECONDS, type="stream_end"))[-1]
        assert end["data"]["status"] == "cancelled"
        assert not [frame for frame in app.seen if frame["type"] == "error"]
        late = await http.post(f"{RUNS}/{question['id']}/steer", json={"input": "too late"})
        assert late.status_code == 409
        asking = asyncio.create_task(ask(http, session, "@slow 400 50"))
        start = (await app.until(TURN_SECONDS, type="stream_start"))[-1]
        assert (await http.post(f"{RUNS}/{start['reply_to']}/stop")).status_code == 200
        assert names_of(await asking)[-2:] == ["run.cancelled", "done"]


async def test_a_remark_that_came_too_late_for_the_model_is_not_lost(gateway: Gateway):
    """Taken in the middle of a tool it is part of the turn; taken with nothing to come it rides on the run's end."""
    async with gateway.http(guest(gateway, "alice")) as http:
        session = await begin(http)
        in_time = await _steered(http, session, '@tool terminal {"command": "sleep 2"}', "tool.started")
        assert "in French" in text_of(in_time) and "pending_steer" not in in_time[-2]
        too_late = await _steered(http, session, "@slow 40 50", "assistant.delta")
        assert text_of(too_late).endswith("word40") and too_late[-2]["pending_steer"] == "in French"
    assert {events[-2]["event"] for events in (in_time, too_late)} == {"run.completed"}


async def _steered(http: httpx.AsyncClient, session: str, said: str, when: str) -> list[Event]:
    """The events of a run that gets one remark at the first event of this name."""
    events: list[Event] = []
    body = {"input": said}
    async with http.stream(
        "POST", f"{SESSIONS}/{session}/chat/stream", json=body, timeout=TURN_SECONDS
    ) as answer:
        async for event in events_of(answer):
            if event["event"] == when and when not in names_of(events):
                taken = await http.post(f"{RUNS}/{event['run_id']}/steer", json={"input": "in French"})
                assert taken.json()["accepted"] is True
            events.append(event)
    return events


async def test_it_stands_beside_an_agent_of_the_users_own(gateway: Gateway):
    """`hermes` stays that agent, and is away; `cloud` answers, in sessions of its own."""
    alice, own, other = gateway.person("alice"), new_id(), new_id()
    async with await gateway.app(alice, caps="events") as app:
        ready = await app.expect(type="ready")
        assert ready["data"]["agents"] == [
            {"name": "hermes", "online": False},
            {"name": "cloud", "online": True},
        ]
        await app.say("are you there?", own)
        await app.until(type="error", code="offline")
        question = await app.say("@say from the cloud", other, to="cloud")
        start = (await app.until(TURN_SECONDS, type="stream_start"))[-1]
        assert (start["from"], start["reply_to"]) == ("cloud", question["id"])
        await app.until(TURN_SECONDS, type="stream_end")
        wrong = await app.say("and in that one?", own, to="cloud")
        await app.until(type="error", code="unsupported", reply_to=wrong["id"])
    assert [run["status"] for run in gateway.clerk.runs(alice, own)] == ["queued"]
