"""Viewers of runs that the gateway asks of Hermes itself, killed in mid-stream (CASES C50)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.hermes.launcher import HermesServer
from tests.rig import census
from tests.rig.gateway import Gateway
from tests.rig.timing import SCALE, eventually
from tests.second_door.killed import Killed
from tests.upstream.rig import RUNS, SESSIONS, TURN_SECONDS, begin, guest, settings_for

AT_ONCE = 5
CONTINUE, STOP = "", "?on_disconnect=stop"
ENDED = ("completed", "cancelled", "failed", "interrupted")
SAID = {CONTINUE: ("@slow 20 20", "completed"), STOP: ("@slow 600 50", "cancelled")}
"""By policy: what is asked, and how the run ends."""

CLOSED_SECONDS = 5.0
"""Within which nothing may lead to Hermes any more after a viewer left who wanted the run to end with that."""


@pytest.mark.timeout(300 + 120 * SCALE)
async def test_c50_a_hundred_viewers_of_the_upstream_are_killed_and_nothing_leaks(
    make_gateway: Callable[..., Gateway], hermes_server: HermesServer, tmp_path: Path
) -> None:
    """
    C50: by the usual policy each run goes on to its end and is resumed from its start; with `on_disconnect=stop` it
    ends as cancelled; no connection to Hermes stays, nor a task, a thread, a socket, a connection to the database.
    """
    settings = settings_for(hermes_server, COUNTED=str(tmp_path), HERMES_UPSTREAM_TURNS=str(AT_ONCE))
    gateway = make_gateway("embedded", settings, "counted")
    alice = guest(gateway, "alice")
    async with gateway.http(alice, limits=httpx.Limits(max_keepalive_connections=0)) as http:
        sessions = [await begin(http) for _ in range(AT_ONCE)]

        async def one(session: str, query: str) -> None:
            said, end = SAID[query]
            killed = Killed(gateway, alice, TURN_SECONDS)
            run = await killed.run(session, said, query)
            killed.die()

            async def over() -> bool:
                return (await http.get(f"{RUNS}/{run}")).json()["status"] in ENDED

            await eventually(over, CLOSED_SECONDS * SCALE if query == STOP else TURN_SECONDS)
            assert (await http.get(f"{RUNS}/{run}")).json()["status"] == end
            again = (await http.get(f"{RUNS}/{run}/events")).text
            assert again.count("event: run.") == 2 and again.endswith("\n\n") and f"event: run.{end}" in again

        async def some(count: int, query: str) -> None:
            async def lane(session: str) -> None:
                for _ in range(count // AT_ONCE):
                    await one(session, query)

            await asyncio.gather(*map(lane, sessions))

        for query in SAID:
            await some(2 * AT_ONCE, query)
        before = await settled(gateway, hermes_server)
        for query in SAID:
            await some(50, query)
            await census.nothing_more(
                lambda: census.take(gateway, hermes_server.port), before, CLOSED_SECONDS * SCALE
            )
        history = (await http.get(f"{SESSIONS}/{sessions[0]}/messages")).json()
        whole = " ".join(f"word{number}" for number in range(1, 21))
        texts = [row["content"] for row in history["data"] if row["role"] == "assistant"]
        assert texts.count(whole) == 12, texts
    assert "Traceback" not in gateway.log()


async def settled(gateway: Gateway, hermes: HermesServer) -> census.Census:
    """The census of a gateway that asks nothing now."""

    async def quiet() -> bool:
        return census.take(gateway, hermes.port).upstreams == 0

    await eventually(quiet)
    return census.take(gateway, hermes.port)
