"""Hermes away, the gateway killed, the database locked, more questions than turns: never an answer that is none."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.hermes.launcher import HermesServer
from tests.hermes.llm import ScriptedLLM
from tests.rig.backends import Templates
from tests.rig.gateway import Gateway
from tests.rig.sockets import new_id
from tests.rig.timing import eventually
from tests.upstream.rig import (
    RUNS,
    SESSIONS,
    TURN_SECONDS,
    ask,
    begin,
    guest,
    names_of,
    settings_for,
    text_of,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def breakable(templates: Templates, hermes_server: HermesServer) -> Iterator[Gateway]:
    """A gateway for these tests, which asks one question at a time and waits for its database a moment only."""
    settings = settings_for(hermes_server, HERMES_UPSTREAM_TURNS="1", HERMES_DATABASE_WAIT_SECONDS="0.2")
    made = Gateway(templates.make("embedded"), settings)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def gateway(breakable: Gateway, hermes_server: HermesServer) -> Iterator[Gateway]:
    """The same; each test but the last leaves it running."""
    yield breakable
    assert hermes_server.key not in breakable.log()


async def test_a_hermes_that_dies_is_an_error_and_works_again_when_it_is_back(
    gateway: Gateway, hermes_server: HermesServer, scripted_llm: ScriptedLLM
):
    """Killed in mid-answer and before a question: `error` and `run.failed`; afterwards everything works, asked once."""
    alice, session = guest(gateway, "alice"), new_id()
    async with await gateway.app(alice) as app, gateway.http(alice) as http:
        broken = await app.say(f"@slow 400 50\n{session}", session)
        await app.until(TURN_SECONDS, type="stream")
        hermes_server.kill()
        try:
            frames = await app.until(TURN_SECONDS, type="stream_end")
            errors = [frame for frame in frames if frame["type"] == "error"]
            assert [error["reply_to"] for error in errors] == [broken["id"]]
            events = await ask(http, session, "@say nobody is there")
            assert names_of(events) == ["run.started", "run.failed", "done"]
            assert events[1]["code"] == "offline" and events[1]["error"]
        finally:
            hermes_server.start()
        assert text_of(await ask(http, session, "@say back again")) == "back again"
        history = (await http.get(f"{SESSIONS}/{session}/messages")).json()
        assert [run["status"] for run in history["runs"]] == ["failed", "failed", "completed"]
    assert scripted_llm.times_asked(session) == 1


async def test_a_gateway_killed_under_a_run_never_asks_again_and_stops_what_it_left(
    gateway: Gateway, hermes_server: HermesServer, scripted_llm: ScriptedLLM
):
    """After the restart: interrupted with its text, stopped at Hermes; the question behind it is answered."""
    alice, session = guest(gateway, "alice"), new_id()
    async with await gateway.app(alice, caps="sync") as app:
        question = await app.say(f"@slow 600 100\n{session}", session)
        await app.until(TURN_SECONDS, type="stream")
        await app.say("@say the next one", session)
        await app.until(type="text")
        asked = gateway.clerk.ask("sql", statement="SELECT payload FROM chat_command WHERE kind = 'upstream'")
        gateway.app_server.kill()
    gateway.app_server.start()
    gateway.app_server.wait_ready()
    hermes_run = asked[0][0].split('"')[3]

    async with await gateway.app(alice, caps="sync", since="0") as app:
        frames = await app.until(TURN_SECONDS, type="stream_end")
        assert "the next one" in "".join(f["data"]["text"] for f in frames if f["type"] == "stream")
    runs = gateway.clerk.runs(alice, session)
    assert [run["status"] for run in runs] == ["interrupted", "completed"]
    assert runs[0]["question"] == question["id"]
    rows = gateway.clerk.messages(alice, session)
    first = next(row for row in rows if row["reply_to"] == question["id"])
    assert first["data"]["text"].startswith("word1") and first["data"]["interrupted"] is True
    await eventually(lambda: _stopped(hermes_server, hermes_run), what="Hermes has stopped the run")
    assert scripted_llm.times_asked(session) == 1
    left = gateway.clerk.ask("sql", statement="SELECT count(*) FROM chat_command WHERE kind = 'upstream'")
    assert left == [["0"]]


async def test_a_key_that_hermes_refuses_is_named_nowhere(
    make_gateway: Callable[..., Gateway], hermes_server: HermesServer
):
    """The run has failed and says why; neither the answer nor the log holds the key."""
    wrong = "a-wrong-key-0123456789"
    gateway = make_gateway("embedded", settings_for(hermes_server, HERMES_UPSTREAM_KEY=wrong))
    async with gateway.http(guest(gateway, "alice")) as http:
        events = await ask(http, await begin(http), "hello")
    assert names_of(events) == ["run.started", "run.failed", "done"]
    assert events[1]["error"] == "The agent's server does not accept our key."
    assert wrong not in str(events) + gateway.log()
    assert "Traceback" not in gateway.log()


async def test_questions_beyond_the_cap_wait_in_order(gateway: Gateway):
    """One turn at a time over all users: the others are queued, may be stopped while they wait, and begin in order."""
    people = [guest(gateway, name) for name in ("alice", "bob", "carol")]
    clients = [gateway.http(person) for person in people]
    sessions = [await begin(http) for http in clients]
    asking = []
    for number, (http, session) in enumerate(zip(clients, sessions, strict=True)):
        text = "@slow 60 50" if number == 0 else f"@say {number}"
        asking.append(asyncio.create_task(ask(http, session, text)))
        await eventually(lambda http=http, session=session: _begun(http, session), what="its run is there")
    statuses = [await _status(http, session) for http, session in zip(clients, sessions, strict=True)]
    assert statuses == ["running", "queued", "queued"]
    run = (await _runs(clients[1], sessions[1]))[0]["run_id"]
    assert (await clients[1].post(f"{RUNS}/{run}/stop")).json()["status"] == "cancelled"
    assert text_of(await asking[0]).endswith("word60")
    assert names_of(await asking[1]) == ["run.started", "run.cancelled", "done"]
    assert text_of(await asking[2]) == "2"
    for http in clients:
        await http.aclose()


async def test_an_answer_is_whole_although_the_database_was_away(gateway: Gateway):
    """Locked for some seconds in mid-answer: no piece is missing, and the run is completed."""
    alice, session = guest(gateway, "alice"), new_id()
    async with await gateway.app(alice) as app:
        await app.say("@slow 100 50", session)
        await app.until(TURN_SECONDS, type="stream")
        with sqlite3.connect(_database(gateway), timeout=20, isolation_level=None) as lock:
            lock.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(3)  # longer than the writer tries
            lock.execute("ROLLBACK")
        lock.close()

    async def over() -> bool:
        return gateway.clerk.runs(alice, session)[0]["status"] not in ("running", "stopping")

    await eventually(over, TURN_SECONDS, "the run has ended")
    assert gateway.clerk.runs(alice, session)[0]["status"] == "completed"
    assert "could not be written" in gateway.log(), "the lock was not felt"
    answer = gateway.clerk.messages(alice, session)[1]["data"]
    assert answer == {"text": " ".join(f"word{number}" for number in range(1, 101))}


async def test_an_answer_with_a_hole_ends_as_interrupted(
    gateway: Gateway, hermes_server: HermesServer, scripted_llm: ScriptedLLM
):
    """A piece is gone from the journal when the database is back: never called completed, stopped at Hermes, asked once."""
    alice, session = guest(gateway, "alice"), new_id()
    async with await gateway.app(alice) as app, gateway.http(alice) as http:
        await app.say(f"@slow 600 50\n{session}", session)
        for _ in range(5):
            await app.until(TURN_SECONDS, type="stream")
        asked = gateway.clerk.ask("sql", statement="SELECT payload FROM chat_command WHERE kind = 'upstream'")
        before = gateway.log().count("could not be written")
        with sqlite3.connect(_database(gateway), timeout=20, isolation_level=None) as lock:
            lock.execute("BEGIN IMMEDIATE")
            await eventually(lambda: _has_failed_again(gateway, before), what="a piece could not be written")
            changed = lock.execute(
                "UPDATE chat_journalrow SET events = replace(events, 'word2 ', '') WHERE run_id = "
                "(SELECT r.id FROM chat_run r JOIN chat_chatsession s ON s.id = r.session_id WHERE s.public_id = ?)",
                [session],
            ).rowcount
            lock.execute("COMMIT")
        lock.close()
        assert changed
        await app.until(TURN_SECONDS, type="stream_end")
        history = (await http.get(f"{SESSIONS}/{session}/messages")).json()
        assert [run["status"] for run in history["runs"]] == ["interrupted"]
        await eventually(
            lambda: _stopped(hermes_server, asked[0][0].split('"')[3]), what="Hermes has stopped the run"
        )
        assert text_of(await ask(http, session, "@say whole again")) == "whole again"
    assert scripted_llm.times_asked(session) == 1


async def test_a_gateway_that_stops_interrupts_what_is_under_way(
    gateway: Gateway, hermes_server: HermesServer
):
    """After SIGTERM, without a restart: the run has ended. (The last test of this gateway: it stays stopped.)"""
    alice, session = guest(gateway, "alice"), new_id()
    async with await gateway.app(alice) as app:
        await app.say("@hang 600", session)
        await eventually(lambda: _asked(gateway), TURN_SECONDS, "Hermes was asked")
        gateway.begin_to_stop()
        gateway.app_server.wait_stopped()
    assert [run["status"] for run in gateway.clerk.runs(alice, session)] == ["interrupted"]


def _database(gateway: Gateway) -> Path:
    return Path(gateway.environment["HERMES_DATA_DIR"]) / "db.sqlite3"


async def _has_failed_again(gateway: Gateway, before: int) -> bool:
    return gateway.log().count("could not be written") > before


async def _stopped(hermes: HermesServer, run: str) -> bool:
    headers = {"Authorization": f"Bearer {hermes.key}"}
    async with httpx.AsyncClient(base_url=hermes.base_url, headers=headers, trust_env=False) as http:
        return bool((await http.get(f"/v1/runs/{run}")).json()["status"] == "cancelled")


async def _asked(gateway: Gateway) -> bool:
    rows = gateway.clerk.ask("sql", statement="SELECT payload FROM chat_command WHERE kind = 'upstream'")
    return bool(rows) and "run_id" in rows[0][0]


async def _runs(http: httpx.AsyncClient, session: str) -> list[dict[str, str]]:
    return list((await http.get(f"{SESSIONS}/{session}/messages")).json()["runs"])


async def _begun(http: httpx.AsyncClient, session: str) -> bool:
    return bool(await _runs(http, session))


async def _status(http: httpx.AsyncClient, session: str) -> str:
    return (await _runs(http, session))[0]["status"]
