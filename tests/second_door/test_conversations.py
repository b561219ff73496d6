"""Whole conversations: regenerate, edit, fork, the directory, pages of history, and both doors at once."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from tests.media.samples import png
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.second_door.agents import connect, echo, end_tool, playing, start_tool
from tests.second_door.client import Door, check_order, error_of, text_of

BAD = "invalid_request_error"
CONFLICT = "conflict_error"


async def said(door: Door, session: str, text: str, **fields: Any) -> str:
    """A whole run; returns its id."""
    async with door.run(session, text, **fields) as stream:
        check_order(await stream.rest())
    return stream.run


async def contents(door: Door, session: str) -> list[str]:
    """What history shows."""
    return [row["content"] for row in (await door.history(session))["data"]]


async def test_the_first_of_three_runs_is_replaced(gateway: Gateway, alice: Person) -> None:
    """Everything from it on is gone, everywhere; the agent gets what came before; other devices are told."""
    app = await gateway.app(alice, caps="sync,events")
    async with app, await connect(gateway, alice) as agent, Door(gateway, alice) as door:
        await app.expect(type="ready")
        await door.create("s")
        runs = []
        for number in range(4):
            async with door.run("s", f"question {number}") as stream:
                ask = await agent.expect(type="text")
                await agent.stream([f"answer {number}"], "s", ask["id"])
                await stream.rest()
            runs.append(stream.run)
        async with door.run("s", "edited", replace_from=runs[1]) as stream:
            ask = await agent.expect(type="text")
            assert [(row["role"], row["content"]) for row in ask["data"]["history"]] == [
                ("user", "question 0"), ("assistant", "answer 0"),
            ]  # fmt: skip
            busy = await door.refused("s", "x", replace_from=runs[0])
            assert error_of(busy) == (409, "run_already_active", CONFLICT)
            await agent.stream(["new answer"], "s", ask["id"])
            check_order(await stream.rest())
        assert await contents(door, "s") == ["question 0", "answer 0", "edited", "new answer"]
        while (await app.until(type="event"))[-1]["data"]["event"] != "message.replaced":
            pass
        for gone in runs[1:]:
            assert error_of(await door.refused("s", "x", replace_from=gone)) == (
                409,
                "run_replaced",
                CONFLICT,
            )
            for path in (f"/v1/runs/{gone}", f"/v1/runs/{gone}/events?after=1"):
                assert error_of(await door.request("GET", path)) == (410, "run_replaced", BAD)
        async with door.run("s", None, replace_from=runs[0]) as stream:  # regenerate, the old words again
            ask = await agent.expect(type="text")
            assert (ask["data"]["text"], ask["data"]["history"]) == ("question 0", [])
            await agent.stream(["again"], "s", ask["id"])
            await stream.rest()
        assert await contents(door, "s") == ["question 0", "again"]


async def test_what_cannot_replace(gateway: Gateway, alice: Person) -> None:
    """An agent that is away, or without `control`; nothing is lost then."""
    async with Door(gateway, alice) as door:
        await door.create("s")
        async with playing(gateway, alice, echo):
            run = await said(door, "s", "one")
        await gateway.until_gone(alice, "agent")
        assert error_of(await door.refused("s", "x", replace_from=run)) == (503, "offline", "server_error")
        async with await gateway.agent(alice) as plain:
            refused = await door.refused("s", "x", replace_from=run)
            assert error_of(refused) == (422, "replace_unsupported", BAD)
            await plain.quiet()
        assert await contents(door, "s") == ["one", "one"]


async def test_the_same_idempotency_key_twice(gateway: Gateway, alice: Person) -> None:
    """While it runs, after its end, for a replacement too: one run, its stream from the start; another body: 409."""
    async with await connect(gateway, alice) as agent, Door(gateway, alice) as door:
        await door.create("s")
        key = {"Idempotency-Key": "key-1"}
        async with door.run("s", "once", headers=key) as stream:
            ask = await agent.expect(type="text")
            async with door.run("s", "once", headers=key) as again:
                assert again.response.headers["Idempotency-Replayed"] == "true" and again.run == stream.run
                await agent.stream(["yes"], "s", ask["id"])
                events = await stream.rest()
                assert await again.rest() == events
        async with door.run("s", "once", headers=key) as late:
            assert await late.rest() == events
        other = await door.refused("s", "other", headers=key)
        assert error_of(other) == (409, "idempotency_key_conflict", CONFLICT)
        key = {"Idempotency-Key": "key-2"}
        for number in range(2):
            async with door.run("s", None, replace_from=stream.run, headers=key) as replaced:
                if number == 0:
                    ask = await agent.expect(type="text")
                    await agent.stream(["anew"], "s", ask["id"])
                check_order(await replaced.rest())
                assert ("Idempotency-Replayed" in replaced.response.headers) is (number == 1)
        await agent.quiet()
        assert await contents(door, "s") == ["once", "anew"]


async def test_a_client_names_its_run(gateway: Gateway, alice: Person) -> None:
    """Its own id, the message's id and ours mean the same run; taken twice is a conflict."""
    async with playing(gateway, alice, echo), Door(gateway, alice) as door:
        await door.create("s")
        run = await said(door, "s", "hi", run_id="mine-1")
        message = (await door.history("s"))["data"][0]["id"]
        assert len({str(await door.status(name)) for name in (run, "mine-1", message)}) == 1
        assert error_of(await door.refused("s", "x", run_id="mine-1")) == (409, "run_id_conflict", CONFLICT)


async def test_pages_of_history_do_not_cut_runs(gateway: Gateway, alice: Person) -> None:
    """Neither from the newest backwards nor from the oldest on, unless one run is longer than a page."""

    async def tooled(agent: Any, frame: Any) -> None:
        if frame["type"] != "text":
            return
        await agent.start("s", frame["id"])
        await agent.piece("look", "s")
        await start_tool(agent, frame, "t", "c")
        await end_tool(agent, frame, "t", "c", "found")
        await agent.piece("said", "s")
        await agent.end("s")

    async with playing(gateway, alice, tooled), Door(gateway, alice) as door:
        await door.create("s")
        runs = [await said(door, "s", str(number)) for number in range(4)]
        whole = (await door.history("s"))["data"]
        assert [row["role"] for row in whole] == ["user", "assistant", "tool", "assistant"] * 4
        assert len({row["id"] for row in whole}) == 16
        for order in ("latest", "oldest"):
            for limit in (4, 5, 7, 9, 16):
                pages, offset = [], 0
                while True:
                    page = await door.history("s", f"order={order}&limit={limit}&offset={offset}")
                    if not page["data"]:
                        break
                    assert page["data"][0]["role"] == "user", (order, limit, offset)
                    assert [run["run_id"] for run in page["runs"]] == list(
                        dict.fromkeys(row["run_id"] for row in page["data"])
                    )
                    assert page["pagination"]["returned"] == len(page["data"]) <= limit
                    offset += len(page["data"])
                    pages.append(page["data"])
                rows = [row for page in (reversed(pages) if order == "latest" else pages) for row in page]
                assert rows == whole, (order, limit)
        assert len((await door.history("s", "limit=3"))["data"]) == 3
        assert [run["run_id"] for run in (await door.history("s"))["runs"]] == runs


async def test_the_directory(gateway: Gateway, alice: Person) -> None:
    """Created, listed by activity, changed, paged, and told to other devices."""
    app = await gateway.app(alice, caps="events")
    async with app, playing(gateway, alice, echo), Door(gateway, alice) as door:
        await app.expect(type="ready")
        for name in ("a", "b", "c"):
            await door.create(name)
        await said(door, "a", "hello there")
        listed = (await door.request("GET", "/api/sessions")).json()["data"]
        assert [row["id"] for row in listed] == ["a", "c", "b"]
        row = listed[0]
        assert (row["title"], row["preview"], row["message_count"]) == ("hello there", "hello there", 2)
        assert row["active_run"] is None and row["parent_session_id"] is None
        page = (await door.request("GET", "/api/sessions?limit=2&offset=1")).json()
        assert [row["id"] for row in page["data"]] == ["c", "b"] and page["has_more"] is False
        changed = await door.request(
            "PATCH", "/api/sessions/a", json={"title": "T", "pinned": True, "unknown": 1}
        )
        assert changed.json()["session"] | {"title": "T", "pinned": True} == changed.json()["session"]
        event = (await app.until(type="event"))[-1]
        while event["data"]["event"] != "session.updated":
            event = (await app.until(type="event"))[-1]
        assert event["session"] == "a" and event["data"]["title"] == "T"
        for body in ({"pinned": 1}, {"archived": "x"}, {"title": ""}):
            assert (await door.request("PATCH", "/api/sessions/a", json=body)).status_code == 400


async def test_a_deleted_session_is_gone(gateway: Gateway, alice: Person) -> None:
    """Not while it runs; then everywhere, its stream ended, its text purged."""
    async with await connect(gateway, alice) as agent, Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s", "a secret word") as stream:
            ask = await agent.expect(type="text")
            active = await door.request("DELETE", "/api/sessions/s")
            assert error_of(active) == (409, "session_active_turn", CONFLICT)
            await agent.stream(["whispered"], "s", ask["id"])
            await stream.rest()
        async with door.stream("GET", "/api/sessions/s/events") as live:
            reading = asyncio.create_task(live.rest())
            assert (await door.request("DELETE", "/api/sessions/s")).status_code == 200
            assert await reading == []
        for path in ("/api/sessions/s", "/api/sessions/s/messages"):
            assert error_of(await door.request("GET", path)) == (404, "session_not_found", BAD)
        assert error_of(await door.request("GET", f"/v1/runs/{stream.run}")) == (404, "run_not_found", BAD)
        gateway.clerk.command("purge")
        tables = (
            "SELECT data FROM chat_message",
            "SELECT events FROM chat_journalrow",
            "SELECT transcript FROM chat_run",
        )
        for table in tables:
            kept = str(gateway.clerk.ask("sql", statement=table))
            assert "a secret word" not in kept and "whispered" not in kept


async def test_a_fork_goes_on_by_itself(gateway: Gateway, alice: Person) -> None:
    """Copied up to a run under new ids; the source stays; the agent is told what came before, once."""
    async with await connect(gateway, alice) as agent, Door(gateway, alice) as door:
        await door.create("s")
        runs = []
        for number in range(3):
            async with door.run("s", f"question {number}") as stream:
                ask = await agent.expect(type="text")
                await agent.stream([f"answer {number}"], "s", ask["id"])
                await stream.rest()
            runs.append(stream.run)
        before = await door.history("s")
        made = await door.request(
            "POST", "/api/sessions/s/fork", json={"id": "f", "title": "F", "run_id": runs[1]}
        )
        assert made.status_code == 201, made.text
        row = made.json()["session"]
        assert (row["id"], row["title"], row["parent_session_id"], row["message_count"]) == ("f", "F", "s", 4)
        copy = await door.history("f")
        assert [(row["role"], row["content"]) for row in copy["data"]] == [
            (row["role"], row["content"]) for row in before["data"][:4]
        ]
        assert not {row["id"] for row in copy["data"]} & {row["id"] for row in before["data"]}
        assert [run["status"] for run in copy["runs"]] == ["completed"] * 2
        for number in range(2):
            async with door.run("f", f"elsewhere {number}") as stream:
                ask = await agent.expect(type="text", session="f")
                told = [row["content"] for row in ask["data"].get("history", [])]
                assert told == ["question 0", "answer 0", "question 1", "answer 1"] * (1 - number)
                await agent.stream(["there"], "f", ask["id"])
                await stream.rest()
        assert await door.history("s") == before
        taken = await door.request("POST", "/api/sessions/s/fork", json={"id": "f"})
        assert error_of(taken) == (409, "session_exists", CONFLICT)
        strange = await door.request("POST", "/api/sessions/s/fork", json={"run_id": "run_x"})
        assert error_of(strange) == (404, "run_not_found", BAD)
        whole = (await door.request("POST", "/api/sessions/s/fork")).json()["session"]
        assert whole["message_count"] == 6 and whole["title"] == "question 0"


async def test_a_conversation_is_the_same_by_both_doors(gateway: Gateway, alice: Person) -> None:
    """Begun by HTTP it is live on a socket, and the other way round, under the same ids."""
    app = await gateway.app(alice, caps="sync,events")
    async with app, playing(gateway, alice, echo), Door(gateway, alice) as door:
        await app.expect(type="ready")
        await door.create("s")
        async with door.run("s", "by http") as stream:
            events = await stream.rest()
        echoed = (await app.until(type="text"))[-1]
        assert echoed["data"]["text"] == "by http" and echoed["id"] == events[0]["user_message"]["id"]
        assert echoed["run"]["id"] == stream.run
        start = (await app.until(type="stream_start"))[-1]
        assert (
            start["id"]
            == next(event for event in events if event["event"] == "message.started")["message"]["id"]
        )
        pieces = [
            frame["data"]["text"] for frame in await app.until(type="stream_end") if frame["type"] == "stream"
        ]
        assert "".join(pieces) == text_of(events) == "by http"

        async with door.stream("GET", "/api/sessions/s/events") as live:
            await live.next_comment()
            frame = await app.say("by socket", "s")
            run = (await live.until("run.started"))["run_id"]
            await live.until("done")
        assert live.events[0]["user_message"] == {"id": frame["id"], "role": "user", "content": "by socket"}
        assert await door.events_after(run) == live.events
        assert await contents(door, "s") == ["by http", "by http", "by socket", "by socket"]
        rows = (await door.history("s"))["data"]
        assert [row["id"] for row in rows] == [one["id"] for one in await gateway.history(alice, "s")]


async def test_files_that_were_announced_come_before_the_end(gateway: Gateway, alice: Person) -> None:
    """As links on the stream and in history; one that failed counts; the run ends with the last."""
    async with await connect(gateway, alice) as agent, Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            ask = await agent.expect(type="text")
            await agent.start("s", ask["id"])
            await agent.piece("here", "s")
            await agent.end("s", data={"media": 2})
            async with httpx.AsyncClient(base_url=gateway.origin, trust_env=False) as http:
                answer = await http.post(
                    "/api/media/upload", files={"file": ("a [b].png", png(4, 4))},
                    headers={"Authorization": f"Bearer {alice.key}"},
                )  # fmt: skip
            media = answer.json()["media_id"]
            await stream.until("assistant.delta")
            await agent.send(agent.envelope("image", "s", reply_to=ask["id"], data={"media": {"id": media}}))
            link = await stream.until("assistant.delta")
            assert link["delta"] == f"\n\n![a \\[b\\].png](/media/{media})"
            failed = {"code": "upload_failed", "text": "the second one is lost"}
            await agent.send(agent.envelope("error", "s", reply_to=ask["id"], data=failed))
            events = await stream.rest(timeout_seconds=3)
        check_order(events)
        assert events[-2]["event"] == "run.completed"
        assert (await contents(door, "s"))[-1] == text_of(events)


@pytest.mark.parametrize("server", ["serve", "daphne", "uvicorn"])
async def test_c48_every_delta_comes_at_once_and_silence_is_filled(make_gateway: Any, server: str) -> None:
    """C48: one delta a second is one arrival a second; a silent tool is filled by comments; 50 at once beside uploads."""
    gateway: Gateway = make_gateway("embedded", {"HERMES_KEEPALIVE_SECONDS": "0.5"}, server)
    person = gateway.person("alice")
    async with await connect(gateway, person) as agent, Door(gateway, person) as door:
        await door.create("s")
        begun = time.monotonic()
        async with door.run("s", headers={"Accept-Encoding": "gzip"}) as stream:
            assert (await stream.next()).name == "run.started"  # type: ignore[union-attr]
            assert time.monotonic() - begun < 1.5
            headers = stream.response.headers
            assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert (
                headers["Cache-Control"] == "no-cache, no-transform" and headers["X-Accel-Buffering"] == "no"
            )
            assert "Content-Encoding" not in headers
            ask = await agent.expect(type="text")
            await agent.start("s", ask["id"])
            for number in range(3):
                await agent.piece(f"{number}", "s")
                assert (await stream.until("assistant.delta", timeout_seconds=1.5))["delta"] == f"{number}"
            await start_tool(agent, ask, "slow", "c")
            await stream.until("tool.started")
            for _ in range(4):
                assert await stream.next_comment() == "keepalive"
            await end_tool(agent, ask, "slow", "c", "done")
            await agent.end("s")
            check_order(await stream.rest())
    async with playing(gateway, person, echo), Door(gateway, person) as door:
        names = [f"many-{number}" for number in range(50)]
        for name in names:
            await door.create(name)

        async def whole(name: str) -> str:
            async with door.run(name, f"{name} one two") as stream:
                return text_of(await stream.rest(timeout_seconds=30))

        async def upload(number: int) -> int:
            file = ("x.bin", bytes([number]) * 300_000)
            return (await door.http.post("/api/media/upload", files={"file": file})).status_code

        door.http.timeout = httpx.Timeout(30)
        found = await asyncio.gather(*map(whole, names), *map(upload, range(10)))
        assert found == [f"{name} one two" for name in names] + [201] * 10
    assert "synchronous iterators" not in gateway.log()
