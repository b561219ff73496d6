"""Resuming: whatever was cut, wherever, the same events arrive, once."""

import asyncio

import pytest

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, Frame
from tests.second_door.agents import connect, end_tool, full_turn, playing, start_tool, tell
from tests.second_door.client import Door, check_order, error_of, text_of


async def test_cut_after_every_event_and_resumed_the_run_is_the_same(gateway: Gateway, alice: Person) -> None:
    """In both ways of naming the cursor, after the end and, for each place, on a new connection."""
    async with playing(gateway, alice, full_turn), Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            whole = await stream.rest()
        check_order(whole)
        assert text_of(whole) == "First, I look. Then I say é 日本 😀."
        ends = [event["preview"] for event in whole if event["event"] == "tool.completed"]
        assert ends == ["text of a", "text of b"], "ends of one name in the order of their starts"
        for event in whole:
            assert await door.events_after(stream.run, event["seq"]) == whole[event["seq"] :]
        assert await door.events_after(stream.run) == await door.events_after(stream.run, 0) == whole
        path = f"/v1/runs/{stream.run}/events"
        for headers, query in (
            ({"Last-Event-ID": "3"}, ""),
            ({}, "?last_seq=3"),
            ({"Last-Event-ID": "9"}, "?after=3"),
        ):
            async with door.stream("GET", path + query, headers=headers) as resumed:
                assert await resumed.rest() == whole[3:]


async def test_cut_while_it_streams_and_resumed_nothing_is_lost_or_doubled(
    gateway: Gateway, alice: Person
) -> None:
    """The line breaks after each event in turn, while the agent goes on."""
    agent = await connect(gateway, alice)
    async with agent, Door(gateway, alice) as door:
        await door.create("s")
        seen = []
        async with door.run("s") as stream:
            ask = await agent.expect(type="text")
            seen.append((await stream.next()).data)  # type: ignore[union-attr]
            run = stream.run
        await agent.start("s", ask["id"])
        for number in range(12):
            await agent.piece(f"{number} ", "s")
            async with door.resume(run, seen[-1]["seq"]) as stream:
                seen.append((await stream.next()).data)  # type: ignore[union-attr]
        await agent.end("s")
        async with door.resume(run, seen[-1]["seq"]) as stream:
            seen += await stream.rest()
        check_order(seen)
        assert seen == await door.events_after(run)
        assert text_of(seen) == "".join(f"{number} " for number in range(12))


async def test_of_two_readers_the_slow_one_holds_up_nobody(gateway: Gateway, alice: Person) -> None:
    """And it gets everything when it reads at last."""
    agent = await connect(gateway, alice)
    async with agent, Door(gateway, alice) as door, Door(gateway, alice) as other:
        await door.create("s")
        async with door.run("s") as quick:
            ask = await agent.expect(type="text")
            async with other.resume(quick.run) as slow:
                assert (await slow.next()).name == "run.started"  # type: ignore[union-attr]
                await agent.start("s", ask["id"])
                pieces = [f"{number:04} " + "x" * 2000 for number in range(600)]
                for piece in pieces:
                    await agent.piece(piece, "s")
                await agent.end("s")
                events = await quick.rest(timeout_seconds=30)
                assert text_of(events) == "".join(pieces)
                assert await slow.rest(timeout_seconds=30) == events


async def test_every_kind_of_cursor(gateway: Gateway, alice: Person) -> None:
    """Zero, the last one, one past it, texts, other runs' cursors, and numbers without end."""
    async with playing(gateway, alice, full_turn), Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            whole = await stream.rest()
        run, last = stream.run, whole[-1]["seq"]
        async with door.resume(run, last) as resumed:
            assert await resumed.rest() == [] and resumed.run == run
        assert await door.events_after(run, f"{run}:{last - 1}") == whole[-1:]

        async def refused(after: str) -> tuple[int, str, str]:
            return error_of(await door.request("GET", f"/v1/runs/{run}/events?after={after}"))

        for ahead in (str(last + 1), "9" * 18, "9" * 400):
            assert await refused(ahead) == (410, "cursor_expired", "invalid_request_error")
        for bad in ("", "x", "-1", "1.0", "1e3", "٣", "%20 1", "run_x:1", ":1", "%00", "0x1", "null"):
            assert await refused(bad) == (400, "invalid_cursor", "invalid_request_error"), bad
        unknown = await door.request("GET", "/v1/runs/run_unknown/events?after=0")
        assert error_of(unknown) == (404, "run_not_found", "invalid_request_error")


async def test_a_pruned_journal_is_an_error_and_history_stays(gateway: Gateway, alice: Person) -> None:
    """Purged, a cursor has expired; history and status say the same as before."""
    async with playing(gateway, alice, full_turn), Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s", "first") as stream:
            whole = await stream.rest()
        before = await door.history("s"), await door.status(stream.run)
        past = "UPDATE chat_run SET ended_at = '2020-01-01 00:00:00' WHERE public_id = '{}'"
        gateway.clerk.ask("sql", statement=past.format(stream.run))
        ended = before[0]["runs"][0].pop("ended_at")
        printed = gateway.clerk.command("purge")
        assert "events: " in printed and "events: 0" not in printed
        after = await door.history("s"), await door.status(stream.run)
        assert after[0]["runs"][0].pop("ended_at") != ended
        assert before[1].pop("updated_at") != after[1].pop("updated_at")
        assert after == before
        expired = await door.request("GET", f"/v1/runs/{stream.run}/events?after=2")
        assert error_of(expired) == (410, "cursor_expired", "invalid_request_error")
        async with door.resume(stream.run, whole[-1]["seq"]) as resumed:
            assert await resumed.rest() == []


async def test_history_during_a_tool_and_the_rest_by_resume(gateway: Gateway, alice: Person) -> None:
    """The rows show what is settled; resumed from their number, starts meet their ends and nothing is doubled."""
    agent = await connect(gateway, alice)
    async with agent, Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            ask = await agent.expect(type="text")
            await start_tool(agent, ask, "early", "c0")
            await stream.until("tool.started")
            page = await door.history("s")
            assert [row["role"] for row in page["data"]] == ["user"], "its message has no id yet"
            await end_tool(agent, ask, "early", "c0", "done")
            await agent.start("s", ask["id"], id="answer-1")
            await tell(agent, "s", ask["id"], "tool.progress", tool_name="_thinking", delta="hm")
            await agent.piece("Looking.", "s")
            await stream.until("assistant.delta")
            page = await door.history("s")
            [entry] = page["runs"]
            assert entry["status"] == "running" and entry["last_event_id"] == str(stream.events[-1]["seq"])
            assert [(row["id"], row["content"]) for row in page["data"][1:]] == [
                ("answer-1", ""), ("answer-1.c0", "done"), ("answer-1.2", "Looking."),
            ]  # fmt: skip
            assert page["data"][-1]["reasoning"] == "hm"
            await start_tool(agent, ask, "read", "c1", path="x")
            await agent.piece(" While it runs.", "s")
            await stream.until("assistant.delta")
            page = await door.history("s")
            settled = int(page["runs"][0]["last_event_id"])
            assert page["data"][-1]["content"] == "Looking."
            await end_tool(agent, ask, "read", "c1", "found")
            await agent.end("s")
            whole = await stream.rest()
        check_order(whole)
        resumed = await door.events_after(stream.run, settled)
        assert resumed == whole[settled:] and resumed[0]["event"] == "tool.started"
        page = await door.history("s")
        assistant = [row for row in page["data"] if row["role"] == "assistant"]
        assert "".join(row["content"] for row in assistant) == text_of(whole) == "Looking. While it runs."
        assert (
            assistant[0]["id"] == "answer-1" and assistant[0]["tool_calls"][0]["function"]["name"] == "early"
        )


async def interrupted_turn(agent: Agent, frame: Frame) -> None:
    """Begin, say something, and never end."""
    await agent.start(frame["session"], frame["id"])
    await agent.piece("half of ", frame["session"])


@pytest.mark.parametrize("backend", ["embedded", "shared"])
async def test_a_gateway_killed_in_mid_stream_goes_on_with_its_numbers(
    make_gateway: "object", backend: str
) -> None:
    """The run is ended as interrupted with the numbers that follow, and its text kept."""
    gateway: Gateway = make_gateway(
        backend, {"HERMES_PROCESS_LEASE_SECONDS": "3", "HERMES_PROCESS_BEAT_SECONDS": "1"}
    )  # type: ignore[operator]
    person = gateway.person("alice")
    async with playing(gateway, person, interrupted_turn), Door(gateway, person) as door:
        await door.create("s")
        async with door.run("s") as stream:
            await stream.until("assistant.delta")
            seen = stream.events
        for server in gateway.servers:
            server.kill()
    for server in gateway.servers:
        server.start()
    for server in gateway.servers:
        server.wait_ready()
    async with Door(gateway, person) as door:
        async with door.resume(stream.run, seen[-1]["seq"]) as resumed:
            rest = await resumed.rest(timeout_seconds=20)
        check_order(seen + rest)
        assert [event["event"] for event in rest] == ["assistant.completed", "run.interrupted", "done"]
        page = await door.history("s")
        assert page["runs"][0]["status"] == "interrupted" and page["runs"][0]["error"]["code"]
        assert page["data"][-1]["content"] == "half of "


async def test_redis_away_during_a_stream(make_gateway: "object") -> None:
    """The reader in the other process gets the rest from the journal."""
    gateway: Gateway = make_gateway("shared")  # type: ignore[operator]
    person = gateway.person("alice")
    agent = await connect(gateway, person)
    async with agent, Door(gateway, person) as door:
        await door.create("s")
        async with door.run("s") as stream:
            ask = await agent.expect(type="text")
            await agent.start("s", ask["id"])
            await agent.piece("before ", "s")
            await stream.until("assistant.delta")
            gateway.backend.redis_server.kill()  # type: ignore[attr-defined]
            await agent.piece("while ", "s")
            await stream.until("assistant.delta", timeout_seconds=15)
            gateway.backend.redis_server.start()  # type: ignore[attr-defined]
            await agent.piece("after", "s")
            await agent.end("s")
            whole = await stream.rest(timeout_seconds=15)
        check_order(whole)
        assert text_of(whole) == "before while after"


async def test_a_session_is_subscribed_to(gateway: Gateway, alice: Person) -> None:
    """All runs on one stream, ids that name the run, and going on after one of them."""
    async with (
        playing(gateway, alice, full_turn),
        Door(gateway, alice) as door,
        Door(gateway, alice) as other,
    ):
        await door.create("s")
        runs = []
        async with door.stream("GET", "/api/sessions/s/events") as live:
            for number in range(3):
                answer = await other.request(
                    "POST", "/api/sessions/s/chat/stream", json={"input": f"{number}"},
                    headers={"Accept": "application/json"},
                )  # fmt: skip
                assert answer.status_code == 202 and answer.json()["status"] in ("running", "queued")
                runs.append(answer.json()["run_id"])
                await live.until("done")
        assert [block.id for block in live.blocks] == [f"{one['run_id']}:{one['seq']}" for one in live.events]
        for run in runs:
            mine = [event for event in live.events if event["run_id"] == run]
            assert mine == await door.events_after(run)
        for place in (0, 5, len(live.blocks) - 3):
            async with door.stream("GET", f"/api/sessions/s/events?after={live.blocks[place].id}") as again:
                rest = []
                while len(rest) < len(live.blocks) - place - 1:
                    rest.append((await again.next()).data)  # type: ignore[union-attr]
            assert rest == live.events[place + 1 :]
        for bad, status in (("5", 400), ("x:y", 400), ("run_x:5", 410), (f"{runs[0]}:99999", 410)):
            answer = await door.request("GET", f"/api/sessions/s/events?after={bad}")
            assert answer.status_code == status, bad


async def test_a_queued_run_is_told_so_and_goes_on_later(make_gateway: "object") -> None:
    """The stream of a run whose agent is away ends with an unnumbered `done`; the run is resumed when it comes."""
    gateway: Gateway = make_gateway(
        "embedded", {"HERMES_QUEUED_STREAM_SECONDS": "0.5", "HERMES_KEEPALIVE_SECONDS": "0.2"}
    )  # type: ignore[operator]
    person = gateway.person("alice")
    async with Door(gateway, person) as door:
        await door.create("s")
        async with door.run("s") as stream:
            events = await stream.rest()
        assert stream.names == ["run.started", "run.queued", "done"] and stream.comments
        assert "seq" not in events[-1] and stream.blocks[-1].id is None
        page = await door.history("s")
        assert page["runs"][0]["status"] == "queued" and page["runs"][0]["last_event_id"] == "2"
        async with door.resume(stream.run, 2) as resumed:
            assert [event["event"] for event in await resumed.rest()] == ["done"]
        async with (
            asyncio.timeout(20),
            door.resume(stream.run, 2) as resumed,
            playing(gateway, person, full_turn),
        ):
            rest = await resumed.rest()
        check_order(events[:2] + rest)
