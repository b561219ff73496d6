"""Two gateway processes over PostgreSQL and Redis, and one Hermes: who asks, who shows, who stops, who dies."""

import asyncio
import json
import signal
from collections.abc import Callable

import httpx
import pytest

from tests.hermes.launcher import HermesServer
from tests.hermes.llm import ScriptedLLM
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway, Server
from tests.rig.sockets import new_id
from tests.rig.timing import eventually
from tests.upstream.rig import (
    RUNS,
    SESSIONS,
    TURN_SECONDS,
    ask,
    begin,
    following,
    guest,
    names_of,
    settings_for,
    text_of,
)

pytestmark = pytest.mark.timeout(300)

ASKED = "SELECT payload FROM chat_command WHERE kind = 'upstream'"
"""What Hermes was asked and has not ended yet."""


def door(gateway: Gateway, number: int, person: Person) -> httpx.AsyncClient:
    """The second door of one of the processes."""
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{gateway.servers[number].port}",
        headers={"Authorization": f"Bearer {person.token}"},
        trust_env=False,
        timeout=TURN_SECONDS,
    )


async def test_processes_share_one_upstream(
    make_gateway: Callable[..., Gateway], hermes_server: HermesServer, scripted_llm: ScriptedLLM
):
    """
    Asked at one process, seen and stopped at the other; one turn at a time over both; and when the process that asks
    is killed, the other ends its run, stops it at Hermes, and answers what waits. Nothing is asked twice.
    """
    settings = settings_for(
        hermes_server,
        HERMES_UPSTREAM_TURNS="1",
        HERMES_PROCESS_BEAT_SECONDS="0.5",
        HERMES_PROCESS_LEASE_SECONDS="2",
    )
    gateway = make_gateway("shared", settings)
    alice, bob, session = guest(gateway, "alice"), guest(gateway, "bob"), new_id()
    here, there, bobs = door(gateway, 0, alice), door(gateway, 1, alice), door(gateway, 1, bob)
    async with here, there, bobs, await gateway.app(alice, caps="sync,events,control") as app:
        question = await app.say("@slow 400 50", session)
        await app.until(TURN_SECONDS, type="stream")
        watching = asyncio.create_task(_read(there, question["id"]))
        second = await begin(bobs)
        waiting = asyncio.create_task(ask(bobs, second, "@say after you"))
        await eventually(lambda: _status_is(bobs, second, "queued"), what="the other user waits")
        assert (await there.post(f"{RUNS}/{question['id']}/stop")).json()["status"] == "stopping"
        end = (await app.until(TURN_SECONDS, type="stream_end"))[-1]
        assert end["data"]["status"] == "cancelled"
        assert names_of(await watching)[-2:] == ["run.cancelled", "done"]
        assert text_of(await waiting) == "after you"

        asked_at = _answering(gateway, alice)
        survivor = door(gateway, 1 - asked_at, alice)
        other = door(gateway, 1 - asked_at, bob)
        async with survivor, other:
            broken = await begin(survivor)
            asking = asyncio.create_task(ask(survivor, broken, f"@slow 600 100\n{broken}"))
            await eventually(lambda: _status_is(survivor, broken, "running"), TURN_SECONDS)
            await eventually(lambda: _is_streaming(gateway, alice, broken), TURN_SECONDS)
            third = await begin(other)
            waiting = asyncio.create_task(ask(other, third, "@say nobody is lost"))
            await eventually(lambda: _status_is(other, third, "queued"), what="the other user waits")
            gateway.servers[asked_at].kill()
            assert text_of(await waiting) == "nobody is lost"
            assert names_of(await asking)[-2:] == ["run.interrupted", "done"]
    assert scripted_llm.times_asked(broken) == 1


async def test_a_process_that_was_held_for_dead_begins_anew_and_after_it_a_restarted_one(
    make_gateway: Callable[..., Gateway], hermes_server: HermesServer, scripted_llm: ScriptedLLM
):
    """
    Stalled past its lease under a run: the other process ends the run and stops it at Hermes; back again, it adds
    nothing to it, and answers. Killed and started again it does, too. Nothing is asked twice, nothing is left over.
    """
    settings = settings_for(
        hermes_server, HERMES_PROCESS_BEAT_SECONDS="0.5", HERMES_PROCESS_LEASE_SECONDS="2"
    )
    gateway = make_gateway("shared", settings)
    alice, session = guest(gateway, "alice"), new_id()
    async with await gateway.app(alice) as app:
        await app.say(f"@slow 600 50\n{session}", session)
        await app.until(TURN_SECONDS, type="stream")
        run = await eventually(lambda: _run_at_hermes(gateway), what="the run at Hermes is known")
        stalled = gateway.servers[_answering(gateway, alice)]
        other = door(gateway, 1 - gateway.servers.index(stalled), alice)
        async with other:
            stalled.process.send_signal(signal.SIGSTOP)
            try:
                await eventually(lambda: _status_is(other, session, "interrupted"), what="its run is ended")
            finally:
                stalled.process.send_signal(signal.SIGCONT)
            await eventually(lambda: _is_stopped(hermes_server, run), what="Hermes has stopped the run")
            ended = (await other.get(f"{SESSIONS}/{session}/messages")).json()
            await eventually(lambda: _has_logged(stalled, "it begins anew"), what="the stalled process knows")
            assert text_of(await ask(other, session, "@say after the stall")) == "after the stall"
            async with door(gateway, gateway.servers.index(stalled), alice) as here:
                assert text_of(await ask(here, session, "@say from here")) == "from here"
            stalled.kill()
            stalled.start()
            stalled.wait_ready()
            async with door(gateway, gateway.servers.index(stalled), alice) as here:
                assert text_of(await ask(here, session, "@say after the restart")) == "after the restart"
            now = (await other.get(f"{SESSIONS}/{session}/messages")).json()
    assert now["data"][: len(ended["data"])] == ended["data"] and now["runs"][0] == ended["runs"][0]
    assert ended["data"][1]["content"].startswith("word1")
    assert [run["status"] for run in now["runs"]] == ["interrupted"] + ["completed"] * 3
    assert scripted_llm.times_asked(session) == 1
    assert gateway.clerk.ask("sql", statement=ASKED) == []


async def _run_at_hermes(gateway: Gateway) -> str:
    rows = gateway.clerk.ask("sql", statement=ASKED)
    return str(json.loads(rows[0][0]).get("run_id", "")) if rows else ""


async def _is_stopped(hermes: HermesServer, run: str) -> bool:
    headers = {"Authorization": f"Bearer {hermes.key}"}
    async with httpx.AsyncClient(base_url=hermes.base_url, headers=headers, trust_env=False) as http:
        return bool((await http.get(f"/v1/runs/{run}")).json()["status"] == "cancelled")


async def _has_logged(server: Server, text: str) -> bool:
    return text in server.log()


async def _read(http: httpx.AsyncClient, run: str) -> list[dict[str, object]]:
    return [event async for event in following(http, run, after=0)]


async def _status_is(http: httpx.AsyncClient, session: str, status: str) -> bool:
    runs = (await http.get(f"{SESSIONS}/{session}/messages")).json()["runs"]
    return bool(runs) and runs[-1]["status"] == status


async def _is_streaming(gateway: Gateway, person: Person, session: str) -> bool:
    return len(gateway.clerk.messages(person, session)) == 2


def _answering(gateway: Gateway, person: Person) -> int:
    """The number of the process that took this person's place last."""
    statement = f"SELECT id FROM accounts_user WHERE username = '{person.name}'"  # noqa: S608
    line = f"the upstream answers user {gateway.clerk.ask('sql', statement=statement)[0][0]} from here"
    return 0 if line in gateway.servers[0].log() else 1
