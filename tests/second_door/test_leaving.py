"""Viewers that leave, and what the gateway does with their runs (CASES C50)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rig import census
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, App, Frame
from tests.rig.timing import SCALE, eventually
from tests.second_door.agents import connect, echo, playing
from tests.second_door.client import ENDS, Door, check_order, text_of
from tests.second_door.killed import Killed

AT_ONCE = 10
RUNS = 100


class Patient:
    """An agent that says half of an answer, and the rest of it when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._waiting: dict[str, str] = {}

    async def play(self, agent: Agent, frame: Frame) -> None:
        """Say the first half."""
        assert frame["type"] != "stop", "nobody asked for a stop"
        self.asked.append(frame["id"])
        await agent.start(frame["session"], frame["id"])
        await agent.piece("before ", frame["session"])

    async def go_on(self, agent: Agent, session: str) -> None:
        """Say the rest."""
        await agent.piece("after", session)
        await agent.end(session)


@pytest.mark.parametrize("backend", ["embedded", "shared"])
@pytest.mark.timeout(180 * SCALE)
async def test_c50_a_hundred_viewers_are_killed_and_nothing_leaks(
    make_gateway: Callable[..., Gateway], backend: str, tmp_path: Path
) -> None:
    """
    C50: another viewer and the App see each run to its end, and it is resumed from its start; the agent is never told
    to stop; tasks, threads, connections to the database and sockets are as many as before.
    """
    gateway = make_gateway(backend, {"COUNTED": str(tmp_path)}, "counted")
    alice, agent_plays = gateway.person("alice"), Patient()
    app = await gateway.app(alice, caps="sync")
    async with playing(gateway, alice, agent_plays.play) as agent, app, Door(gateway, alice) as door:
        for lane in range(AT_ONCE):
            await door.create(f"s{lane}")

        async def one(session: str) -> None:
            killed = Killed(gateway, alice)
            run = await killed.run(session)
            async with door.resume(run) as viewer:
                await viewer.until("assistant.delta")
                killed.die()
                await agent_plays.go_on(agent, session)
                events = await viewer.rest()
            check_order(events)
            assert text_of(events) == "before after" and events[-2]["event"] == "run.completed"
            assert await door.events_after(run) == events

        async def some(count: int) -> None:
            async def lane(number: int) -> None:
                for _ in range(count // AT_ONCE):
                    await one(f"s{number}")

            await asyncio.gather(*map(lane, range(AT_ONCE)))

        await some(3 * AT_ONCE)  # what is made on first use is there
        await asyncio.sleep(1)
        before = census.take(gateway)
        await some(RUNS)
        await census.nothing_more(lambda: census.take(gateway), before)
        assert len(agent_plays.asked) == len(set(agent_plays.asked)) == RUNS + 3 * AT_ONCE
        assert await told(app) == ["before after"] * (RUNS + 3 * AT_ONCE)
    assert "Traceback" not in gateway.log()


async def told(app: App) -> list[str]:
    """The texts of all streams that an App was shown so far."""
    await app.alive()
    texts: dict[str, str] = {}
    whole = []
    for frame in app.seen:
        if frame["type"] == "stream_start":
            texts[frame["session"]] = ""
        elif frame["type"] == "stream":
            texts[frame["session"]] += frame["data"]["text"]
        elif frame["type"] == "stream_end":
            whole.append(texts.pop(frame["session"]))
    return whole


async def test_c50_a_viewer_leaves_and_the_run_goes_on(gateway: Gateway, alice: Person) -> None:
    """C50: 100 viewers leave; the other viewer and the App see the whole run, it is resumed, and nothing leaks."""
    agent = await connect(gateway, alice)
    app = await gateway.app(alice, caps="sync")
    async with agent, app, Door(gateway, alice) as door, Door(gateway, alice) as other:
        await app.expect(type="ready")
        await door.create("s")
        async with door.run("s") as first:
            ask = await agent.expect(type="text")
            await agent.start("s", ask["id"])
            await agent.piece("before ", "s")
            await first.until("assistant.delta")
        async with other.resume(first.run) as viewer:
            for _ in range(100):
                async with door.resume(first.run) as leaver:
                    await leaver.until("assistant.delta")
            await agent.quiet()  # no stop has come
            await agent.piece("after", "s")
            await agent.end("s")
            events = await viewer.rest()
        check_order(events)
        assert text_of(events) == "before after" and events[-2]["event"] == "run.completed"
        assert await door.events_after(first.run) == events
        await app.expect(type="text")
        assert (await app.read_stream("s")).text == "before after"

        async def room() -> bool:
            opened = [door.resume(first.run, 0) for _ in range(16)]
            streams = [await one.__aenter__() for one in opened]
            for one in opened:
                await one.__aexit__(None, None, None)
            return len(streams) == 16

        assert await room(), "every leaver has given its place back"


async def test_c50_the_other_policy(gateway: Gateway, alice: Person) -> None:
    """C50: asked for, a viewer's leaving stops the run; not when another one looks, or the server closed."""
    async with (
        playing(gateway, alice, stoppable),
        Door(gateway, alice) as door,
        Door(gateway, alice) as other,
    ):
        await door.create("s")
        async with door.run("s", "slow", query="?on_disconnect=stop") as stream:
            await stream.until("assistant.delta")
            run = stream.run
        async with other.resume(run) as viewer:
            events = await viewer.rest()
        assert events[-2]["event"] == "run.cancelled"
        async with door.run("s", "slow", query="?on_disconnect=stop") as stream:
            await stream.until("assistant.delta")
            run = stream.run
            looking = other.resume(run)
            viewer = await looking.__aenter__()
            await viewer.until("assistant.delta")
        assert (await other.status(run))["status"] == "running"
        await other.stop(run)
        assert (await viewer.until("run.cancelled"))["run_id"] == run
        await looking.__aexit__(None, None, None)

        async def settled() -> bool:
            return (await other.status(run))["status"] in [name.partition(".")[2] for name in ENDS]

        await eventually(settled)


async def stoppable(agent: Agent, frame: Frame) -> None:
    """Begin to answer; end when stopped."""
    if frame["type"] == "stop":
        await echo(agent, frame)
        return
    await agent.start(frame["session"], frame["id"])
    await agent.piece("going on", frame["session"])
