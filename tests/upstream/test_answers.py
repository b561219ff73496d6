"""Users without a key are answered by real Hermes 0.19, on sockets and over HTTP."""

from collections.abc import Iterator

import pytest

from tests.hermes.launcher import HermesServer
from tests.rig.gateway import Gateway
from tests.rig.pool import Pool
from tests.rig.sockets import new_id
from tests.upstream.rig import TURN_SECONDS, ask, begin, guest, names_of, settings_for, text_of

pytestmark = pytest.mark.timeout(300)  # the first test may install Hermes


@pytest.fixture
def gateway(pool: Pool, hermes_server: HermesServer) -> Iterator[Gateway]:
    """A gateway that asks Hermes, whose log stays clean and never holds the key."""
    running = pool.get("embedded", settings_for(hermes_server))
    with running.clean_log():
        yield running
    assert hermes_server.key not in running.log()


async def test_an_app_is_answered_without_any_bridge(gateway: Gateway):
    """By a stream; the next answer knows the question before, and no `offline` comes."""
    alice, session = guest(gateway, "alice"), new_id()
    async with await gateway.app(alice, caps="sync,events,control") as app:
        ready = await app.expect(type="ready")
        assert ready["data"]["agents"] == [{"name": "hermes", "online": True}]
        question = await app.say("@slow 12 20", session)
        frames = await app.until(TURN_SECONDS, type="stream_end")
        texts = [frame["data"]["text"] for frame in frames if frame["type"] == "stream"]
        assert "".join(texts) == " ".join(f"word{number}" for number in range(1, 13))
        assert not [frame for frame in frames if frame["type"] == "error"]
        start = next(frame for frame in frames if frame["type"] == "stream_start")
        assert start["reply_to"] == question["id"]


async def test_http_is_answered_with_events_and_history(gateway: Gateway):
    """All events of a run with a tool, then the same in the history, and by resuming from any event."""
    alice = guest(gateway, "alice")
    async with gateway.http(alice) as http:
        session = await begin(http)
        events = await ask(http, session, '@before I look\n@tool terminal {"command": "echo hi"}')
        print(events)
        assert names_of(events)[0] == "run.started"
        assert names_of(events)[-2:] == ["run.completed", "done"]
        assert text_of(events).startswith("I look")
