"""The limits against exhaustion, reached from outside: what is refused, what is said, and that all else goes on."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.rig.clerk import Person
from tests.rig.gateway import STEADY, Gateway
from tests.rig.pool import Pool
from tests.rig.sockets import App, new_id, refusal
from tests.rig.timing import SCALE, eventually

TIGHT = STEADY | {
    "HERMES_STREAM_BYTES": "1000",
    "HERMES_OPEN_STREAMS": "3",
    "HERMES_SESSIONS": "6",
    "HERMES_NEW_SESSIONS_PER_MINUTE": "4",
    "HERMES_REPLAY_LIMIT": "10",
    "HERMES_REPLAY_BYTES": "4000",
    "HERMES_APP_SOCKETS": "3",
    "HERMES_APP_FRAMES_BURST": "20",
    "HERMES_APP_FRAMES_PER_SECOND": "1",
    "HERMES_AGENT_FRAMES_BURST": "40",
    "HERMES_AGENT_FRAMES_PER_SECOND": "1",
    "HERMES_AGENT_BYTES_PER_MINUTE": "60000",
}
LIMIT = {name: float(value) for name, value in TIGHT.items()}


@pytest.fixture(params=["embedded", "shared"])
def gateway(request: pytest.FixtureRequest, pool: Pool) -> Iterator[Gateway]:
    """A gateway with little room, shared by these tests; each has users of its own."""
    running = pool.get(request.param, TIGHT)
    with running.clean_log():
        yield running


async def test_a_stream_may_be_only_so_long(gateway: Gateway, alice: Person) -> None:
    """Past its bytes: the error, the end, the text so far kept and marked; the rest is refused once, then dropped."""
    session, piece = new_id(), "é" * 100  # 200 bytes
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        question = await app.say("tell me everything", session)
        assert await agent.next() == question
        await agent.start(session, question["id"])
        for _ in range(9):
            await agent.piece(piece, session)
            await agent.alive()
        frames = await app.until(type="stream_end", session=session)
        error = frames[-2]
        assert (error["type"], error["data"]["code"], error["reply_to"]) == (
            "error",
            "unsupported",
            question["id"],
        )
        await agent.end(session)
        short = await agent.stream(["short"], session)
        assert (await app.read_stream(session)).start == short
        await agent.alive()
        refused = [frame for frame in agent.seen if frame["type"] == "error"]
        assert [frame["data"]["code"] for frame in refused] == ["unsupported"]
    rows = [row for row in gateway.clerk.messages(alice, session) if row["side"] == "agent"]
    assert rows[0]["data"]["interrupted"] is True
    text = rows[0]["data"]["text"]
    assert text == piece * 5 and len(text.encode()) == LIMIT["HERMES_STREAM_BYTES"]
    assert [row["data"] for row in rows[1:]] == [{"text": "short"}]


async def test_an_agent_opens_only_so_many_streams(gateway: Gateway, alice: Person) -> None:
    """One more is refused and opens nothing; when one has ended there is room again; none of the others suffers."""
    sessions = [new_id() for _ in range(int(LIMIT["HERMES_OPEN_STREAMS"]) + 1)]
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        for session in sessions[:-1]:
            start = await agent.start(session)
            assert await app.next() == start
        refused = await agent.start(sessions[-1])
        await agent.expect(type="error", code="unsupported", reply_to=refused["id"])
        await agent.piece("of the refused one", sessions[-1])
        await agent.piece("whole", sessions[0])
        await agent.end(sessions[0])
        await app.until(type="stream_end", session=sessions[0])
        again = await agent.start(sessions[-1])
        assert await app.next() == again
        for session in sessions[1:]:
            await agent.piece(f"of {session}", session)
            await agent.end(session)
        for session in sessions[1:]:
            await eventually(lambda session=session: is_kept(gateway, alice, session, f"of {session}"))
        await agent.quiet()
    assert await is_kept(gateway, alice, sessions[0], "whole")


async def is_kept(gateway: Gateway, person: Person, session: str, text: str) -> bool:
    """Whether a session holds this one text of the agent, unmarked."""
    return [frame["data"] for frame in await gateway.history(person, session)] == [{"text": text}]


async def test_a_user_begins_only_so_many_sessions(gateway: Gateway, alice: Person, bob: Person) -> None:
    """A few a minute, and a number in all: `rate_limited` with a time to wait, nothing stored, the id free."""
    a_minute, in_all = (int(LIMIT[f"HERMES_{name}"]) for name in ("NEW_SESSIONS_PER_MINUTE", "SESSIONS"))
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        for number in range(a_minute):
            question = await app.say("begin", f"S{number}")
            assert await agent.next() == question
        late = await app.say("one too many", "S-late")
        error = await app.expect(type="error", code="rate_limited", reply_to=late["id"])
        assert error["data"]["retry_after"] >= 1
        assert gateway.clerk.messages(alice, "S-late") == []
        question = await app.say("in an old one", "S0")
        assert await agent.next() == question
        time_passes(gateway, alice)
        await app.send(late)
        assert await agent.next() == late
        question = await app.say("the last", "S-last")
        assert await agent.next() == question
        time_passes(gateway, alice)
        more = await app.say("more than there may be", "S-more")
        error = await app.expect(type="error", code="rate_limited", reply_to=more["id"])
        assert str(in_all) in error["data"]["text"]
        async with gateway.http(alice) as http:
            made = await http.post("/api/hermes/api/sessions", json={"id": "S-more"})
            assert made.status_code == 429, made.text
            await agent.answer("then go", "S1")

            async def gone() -> bool:
                return (await http.delete("/api/hermes/api/sessions/S1")).status_code < 300

            await eventually(gone, what="the turn has ended and its session is deleted")
        await app.send(more)
        assert (await agent.until(type="text"))[-1] == more
    async with await gateway.app(bob) as other:
        question = await other.say("I may", "S-more")
        await other.expect(type="error", code="offline", reply_to=question["id"])


def time_passes(gateway: Gateway, person: Person) -> None:
    """All sessions of a person were begun long ago."""
    gateway.clerk.ask("age_sessions", name=person.name, seconds=3600)


@pytest.mark.parametrize(("count", "size"), [(25, 10), (9, 1000)], ids=["messages", "bytes"])
async def test_a_replay_is_only_so_long(gateway: Gateway, alice: Person, count: int, size: int) -> None:
    """By messages or bytes: `truncated`, the newest ones without a gap, and the rest by `GET /api/frames`."""
    async with await gateway.agent(alice) as agent:
        sent = [await agent.answer(str(number).ljust(size, "."), "S1") for number in range(count)]
        await agent.alive()

        async def all_stored() -> bool:
            return len(gateway.clerk.messages(alice, "S1")) == count

        await eventually(all_stored, what="all is stored")
    port = gateway.agent_server.port
    async with await gateway.app(alice, port=port, caps="sync", since="0") as app:
        ready = (await app.expect(type="ready"))["data"]
        assert (ready["truncated"], ready["cursor"]) == (True, count)
        replayed = await app.alive()
    cursors = [frame.pop("cursor") for frame in replayed]
    assert cursors == list(range(count - len(cursors) + 1, count + 1))
    assert [frame["id"] for frame in replayed] == [frame["id"] for frame in sent[-len(cursors) :]]
    data = sum(len(frame["data"]["text"]) for frame in replayed)
    room = LIMIT["HERMES_REPLAY_BYTES"] - data
    assert len(cursors) == LIMIT["HERMES_REPLAY_LIMIT"] or 0 <= room < size + 100
    async with gateway.http(alice) as http:
        rest = await http.get("/api/frames", params={"session": "S1", "before": cursors[0], "limit": 500})
    older = rest.json()["data"]
    assert [frame["id"] for frame in older] == [frame["id"] for frame in sent[: -len(cursors)]]
    async with await gateway.app(alice, caps="sync", since=str(cursors[0] - 1)) as app:
        assert (await app.expect(type="ready"))["data"]["truncated"] is False
        assert [frame["cursor"] for frame in await app.alive()] == cursors


async def test_a_user_says_only_so_much_on_all_devices_together(
    gateway: Gateway, alice: Person, bob: Person
) -> None:
    """`rate_limited` with the id and a time after which it is taken; pings are answered, another user is not touched."""
    async with (
        await gateway.app(alice) as phone,
        await gateway.app(alice) as desk,
        await gateway.app(bob) as other,
        await gateway.agent(alice) as agent,
    ):
        devices: list[App] = [phone, desk]
        said = [await devices[number % 2].say(f"m{number}", "S1") for number in range(30)]
        refused: list[dict[str, Any]] = []
        for device in devices:
            refused += [frame for frame in await device.alive() if frame["type"] == "error"]
        assert refused and {frame["data"]["code"] for frame in refused} == {"rate_limited"}
        assert all(frame["data"]["retry_after"] >= 1 for frame in refused)
        names = {frame["reply_to"] for frame in refused}
        taken = [frame for frame in said if frame["id"] not in names]
        assert len(taken) >= LIMIT["HERMES_APP_FRAMES_BURST"]
        got = [await agent.next() for _ in taken]
        assert sorted(frame["id"] for frame in got) == sorted(frame["id"] for frame in taken)
        assert len(gateway.clerk.messages(alice, "S1")) == len(taken)
        question = await other.say("not I", "S1")
        await other.expect(type="error", code="offline", reply_to=question["id"])
        await asyncio.sleep(refused[-1]["data"]["retry_after"])
        again = next(frame for frame in said if frame["id"] == refused[-1]["reply_to"])
        await phone.send(again)
        await phone.quiet()
        assert await agent.next() == again


async def test_an_agent_says_only_so_much_but_streams_freely(gateway: Gateway, alice: Person) -> None:
    """Past its frames `rate_limited`; pieces of a stream are not counted."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        await agent.start("S1")
        for _ in range(200):
            await agent.piece(".", "S1")
        await agent.end("S1")
        assert (await app.read_stream("S1")).text == "." * 200
        sent = [await agent.answer(str(number), "S1") for number in range(50)]
        refused = await agent.alive()
        assert refused and {(frame["type"], frame["data"]["code"]) for frame in refused} == {
            ("error", "rate_limited")
        }
        assert all(frame["data"]["retry_after"] >= 1 for frame in refused)
        names = {frame["reply_to"] for frame in refused}
        taken = [frame for frame in sent if frame["id"] not in names]
        assert [await app.next() for _ in taken] == taken
        await app.quiet()


@pytest.mark.timeout(120 * SCALE)
async def test_an_agent_of_many_bytes_is_read_slower_and_loses_nothing(
    gateway: Gateway, alice: Person
) -> None:
    """After a minute's bytes at once the rest comes at the pace of a minute: whole, in order, the socket alive."""
    minute = LIMIT["HERMES_AGENT_BYTES_PER_MINUTE"]
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        began, sent = time.monotonic(), 0
        await agent.start("S1")
        for number in range(62):
            frame = json.dumps(agent.bare("stream", "S1", data={"text": f"{number} ", "more": "x" * 1000}))
            sent += len(frame)
            await agent.send(frame)
        await agent.end("S1")
        stream = await app.read_stream("S1", 60 * SCALE)
        took = time.monotonic() - began
        assert stream.text == "".join(f"{number} " for number in range(62))
        assert took >= (sent - minute) / (minute / 60) * 0.8, f"{sent} bytes in {took} s"
        question = await app.say("still there?", "S1")
        assert await agent.next(30 * SCALE) == question
        assert await agent.answer("yes", "S1", question["id"]) == await app.next(30 * SCALE)


async def test_a_user_opens_only_so_many_sockets(gateway: Gateway, alice: Person, bob: Person) -> None:
    """One more is refused with 429 before the upgrade; when one has gone there is room; another user is not touched."""
    apps = [await gateway.app(alice) for _ in range(int(LIMIT["HERMES_APP_SOCKETS"]))]
    assert await refusal(gateway.app_url(alice)) == 429
    async with await gateway.app(bob) as other:
        await other.alive()
    for app in apps:
        await app.quiet()
    await apps.pop().close()

    async def has_room() -> bool:
        with contextlib.suppress(InvalidStatus):
            apps.append(await gateway.app(alice))
            return True
        return False

    await eventually(has_room, what="there is room again")
    for app in apps:
        await app.quiet()
        await app.close()
