"""Replay equals live: after every cursor and every number, read anywhere, exactly what a live reader saw."""

import json
import re
from collections import defaultdict
from functools import partial
from typing import Any

import pytest

from tests.rig.clerk import Person
from tests.rig.files import png
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, App, new_id, open_socket
from tests.rig.timing import SCALE, TIMEOUT, eventually
from tests.second_door.agents import connect, full_turn
from tests.second_door.client import Door

TURNS = 7
ENDS = ("run.completed", "run.failed", "run.cancelled")
CAPS = "sync,events,control"
RUN = re.compile(r'"run":\{[^}]*\}')
pytestmark = pytest.mark.timeout(180 * SCALE)


def with_run_of(text: str, other: str) -> str:
    """A frame with the `run` of another: the state of a turn is told as it is at that moment, all else as it was."""
    found = RUN.search(other)
    return RUN.sub(lambda _: found[0], text) if found else text


async def replayed(gateway: Gateway, person: Person, port: int, since: int) -> list[str]:
    """The stored frames that a sync App gets after a cursor, as the bytes that came."""
    url = gateway.app_url(person, port=port, caps="sync", since=str(since))
    async with await open_socket(url) as socket:
        ready = json.loads(await socket.recv())
        assert ready["type"] == "ready" and ready["data"]["truncated"] is False
        texts: list[str] = []
        while since < ready["data"]["cursor"]:
            texts.append(str(await socket.recv()))
            since = json.loads(texts[-1])["cursor"]
        await socket.send('{"type":"ping"}')
        assert await socket.recv() == '{"type":"pong"}'
        return texts


async def many_turns(gateway: Gateway, person: Person, app: App, agent: Agent) -> None:
    """Turns of every kind: texts, files both ways, streams, tools, a stop, an error, a second bubble, no question."""

    async def ask(text: str, session: str) -> str:
        question = await app.say(text, session)
        await agent.until(type="text", id=question["id"])
        return str(question["id"])

    async with gateway.http(person) as http:
        files = {"file": ("a.png", png(3, 2), "image/png")}
        media = (await http.post("/api/media/upload", files=files)).json()["media_id"]
    mine = app.envelope("image", "S1", data={"media": {"id": media}, "text": "eine Ansicht 日本 😀"})
    await app.send(mine)
    await agent.until(type="image")
    await agent.answer("I see it", "S1", mine["id"])
    q = await ask("quick", "S1")
    await agent.stream(["a", "é", "\u2028 line", "😀", '"quoted" \\'], "S1", q)
    q = await ask("with tools", "S2")
    await agent.start("S2", q)
    await agent.piece("let me look. ", "S2")
    tool = {
        "tool_name": "search",
        "preview": "x < y & z",
        "args": {"deep": [1, 2.5, None]},
        "tool_call_id": "c1",
    }
    await agent.send(agent.envelope("event", "S2", reply_to=q, data={"event": "tool.started"} | tool))
    done = {"event": "tool.completed", "tool_name": "search", "tool_call_id": "c1", "duration": 0.25}
    await agent.send(agent.envelope("event", "S2", reply_to=q, data=done))
    await agent.piece("found.", "S2")
    await agent.start("S2", q)
    await agent.piece("a second bubble", "S2")
    await agent.end("S2", data={"media": 1})
    await agent.send(agent.envelope("file", "S2", reply_to=q, data={"media": {"id": media}}))
    q = await ask("to be stopped", "S1")
    await agent.start("S1", q)
    await agent.piece("half of", "S1")
    await app.send(app.envelope("stop", "S1", reply_to=q))
    await agent.until(type="stop")
    await agent.end("S1", data={"status": "cancelled"})
    q = await ask("to fail", "S3")
    await agent.start("S3", q)
    await agent.piece("not even", "S3")
    await agent.send(agent.envelope("error", "S3", reply_to=q, data={"code": "internal", "text": "it broke"}))
    await agent.stream(["by ", "itself"], "S3")
    await agent.answer("good morning", "S4")

    async def all_ended() -> bool:
        turns = [turn for number in range(1, 5) for turn in gateway.clerk.runs(person, f"S{number}")]
        return len(turns) == TURNS and not any(turn["status"] in ("queued", "running") for turn in turns)

    await eventually(all_ended, TIMEOUT, "every turn has ended")


async def test_after_every_cursor_the_same_frames_come_as_live(gateway: Gateway, alice: Person) -> None:
    """Whole frames byte for byte; of a stream what its pieces were; over both processes, and by `GET /api/frames`."""
    ports = [gateway.app_server.port, gateway.agent_server.port]
    async with (
        await gateway.app(alice, caps=CAPS) as app,
        await gateway.app(alice, port=ports[1], caps=CAPS) as second,
        await gateway.agent(alice, caps=CAPS) as agent,
        await open_socket(gateway.app_url(alice, caps="sync", since="0")) as tape,
    ):
        await many_turns(gateway, alice, app, agent)
        lived: list[str] = []
        while not lived or '"good morning"' not in lived[-1]:
            lived.append(str(await tape.recv()))
        await second.until(type="text", text="good morning")
    seen = assembled(lived)
    cursors = sorted(seen)
    assert cursors == list(range(1, cursors[-1] + 1))
    whole = await replayed(gateway, alice, ports[0], 0)
    for cursor, text in zip(cursors, whole, strict=True):
        live = seen[cursor]
        if isinstance(live, str):
            assert text == with_run_of(live, text)
        else:
            assert json.loads(text)["data"]["text"] == live.pop("joined")
            assert {name: json.loads(text).get(name) for name in live} == live
    for since in range(cursors[-1] + 1):
        for port in ports:
            assert await replayed(gateway, alice, port, since) == whole[since:]
    async with gateway.http(alice) as http:
        page = (await http.get("/api/frames", params={"limit": 500})).json()
    assert page == {"data": [json.loads(text) for text in whole], "has_more": False}


def assembled(lived: list[str]) -> dict[int, str | dict[str, Any]]:
    """What a live reader has of each cursor: the frame itself, or the text that the pieces of its stream make."""
    seen: dict[int, str | dict[str, Any]] = {}
    starts: dict[str, dict[str, Any]] = {}
    pieces: dict[str, list[str]] = defaultdict(list)
    for text in lived:
        frame = json.loads(text)
        session = frame.get("session", "")
        match frame["type"]:
            case "stream_start":
                starts[session], pieces[session] = frame, []
            case "stream":
                pieces[session].append(frame["data"]["text"])
            case "stream_end":
                start = starts.pop(session)
                seen[frame["cursor"]] = {
                    name: start.get(name) for name in ("id", "from", "to", "session", "reply_to", "ts")
                } | {"type": "text", "cursor": frame["cursor"]}
                assert frame["id"] == start["id"]
                seen[-frame["cursor"]] = "".join(pieces[session])
            case _ if "cursor" in frame:
                assert frame["cursor"] not in seen, "shown twice"
                seen[frame["cursor"]] = text
    for cursor in [cursor for cursor in seen if cursor < 0]:
        joined, live = seen.pop(cursor), seen[-cursor]
        assert isinstance(live, dict)
        live["joined"] = joined
    return seen


async def test_after_every_number_the_same_events_come_as_live(gateway: Gateway, alice: Person) -> None:
    """What Apps saw live of each run is what its journal holds after every number; both processes read the same."""
    ports = [gateway.app_server.port, gateway.agent_server.port]
    async with (
        await gateway.app(alice, caps=CAPS) as app,
        await gateway.app(alice, port=ports[1], caps=CAPS) as second,
        await gateway.agent(alice, caps=CAPS) as agent,
    ):
        await many_turns(gateway, alice, app, agent)
        for peer in (app, second):
            await eventually(partial(has_all_ends, peer), TIMEOUT, "every end was told")
    live = by_run(app)
    assert by_run(second) == live
    for run, frames in live.items():
        stored = gateway.clerk.ask("events", run=run, after=0)
        for after in range(len(stored) + 1):
            kept = gateway.clerk.ask("events", run=run, after=after)
            assert [event["seq"] for event in kept] == list(range(after + 1, len(stored) + 1))
            silent = ("message.", "assistant.", "done")  # v3 frames say these
            told = [event for event in kept if not event["event"].startswith(silent)]
            assert [frame["data"] for frame in frames if frame["data"]["seq"] > after] == [
                {name: value for name, value in event.items() if name not in ("v3", "ts")} | {"run_id": run}
                for event in told
            ]
            ids = [frame["id"] for frame in frames if frame["data"]["seq"] > after]
            assert ids == [f"{run}:{event['seq']}" for event in told]
        read = []
        for port in ports:
            async with Door(gateway, alice, port) as door:
                whole = await door.events_after(run)
                assert [await door.events_after(run, n) for n in range(len(whole))] == [
                    whole[n:] for n in range(len(whole))
                ]
                read.append(whole)
        assert read[0] == read[1]
        assert [(event["seq"], event["event"]) for event in read[0]] == [
            (e["seq"], e["event"]) for e in stored
        ]


async def test_an_event_stream_is_the_same_live_and_again_on_both_processes(
    gateway: Gateway, alice: Person
) -> None:
    """Two live readers, and a reader after every number: the same ids, names and payloads, whichever process reads."""
    ports = [gateway.app_server.port, gateway.agent_server.port]
    async with (
        Door(gateway, alice, ports[0]) as door,
        Door(gateway, alice, ports[1]) as other,
        await connect(gateway, alice) as agent,
    ):
        await door.create("S1")
        async with door.run("S1") as live:
            question = await agent.expect(type="text")
            async with other.resume(live.run) as second:
                assert (await second.next()).name == "run.started"  # type: ignore[union-attr]  # None would fail too
                await full_turn(agent, question)
                await live.rest()
                await second.rest()
        told = [(block.id, block.name, block.data) for block in live.blocks]
        assert [(block.id, block.name, block.data) for block in second.blocks] == told
        assert told[-1][1] == "done" and len(told) > 10
        for reader in (door, other):
            for after in range(len(told)):
                async with reader.resume(live.run, after) as again:
                    await again.rest()
                assert [(block.id, block.name, block.data) for block in again.blocks] == told[after:]


async def has_all_ends(app: App) -> bool:
    """Whether an App was told how every turn ended."""
    return sum(frame["data"]["event"] in ENDS for frame in events_of(app)) == TURNS


def events_of(app: App) -> list[dict[str, Any]]:
    """The frames of numbered events that an App has seen."""
    return [frame for frame in app.seen if frame["type"] == "event" and "seq" in frame["data"]]


def by_run(app: App) -> dict[str, list[dict[str, Any]]]:
    """The same, by run."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for frame in events_of(app):
        found[frame["data"]["run_id"]].append(frame)
    return dict(found)


async def test_a_stream_is_the_same_for_whoever_comes_at_any_piece(gateway: Gateway, alice: Person) -> None:
    """An App joins after each piece, on either process: start again, the text so far, the rest, the same end."""
    ports = [gateway.app_server.port, gateway.agent_server.port]
    session = new_id()
    async with await gateway.app(alice, caps=CAPS) as app, await gateway.agent(alice, caps=CAPS) as agent:
        await app.expect(type="ready")
        question = await app.say("go", session)
        start = await agent.start(session, question["id"])
        joined: list[App] = []
        for number in range(12):
            await agent.piece(f"{number} ", session)
            await app.until(type="stream")
            late = await gateway.app(alice, port=ports[number % 2], caps="sync")
            await late.expect(type="ready")  # it has its place: the stream is open for it
            joined.append(late)
        await agent.end(session)
        (end,) = (frame for frame in await app.until(type="stream_end") if frame["type"] == "stream_end")
        for late in joined:
            stream = await late.read_stream(session)
            assert stream.start | {"ts": 0} == start | {"ts": 0}
            assert stream.text == "".join(f"{number} " for number in range(12))
            assert stream.end == end
            await late.close()
