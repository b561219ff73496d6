"""What ends a stream from outside, and how much may be open at once."""

import asyncio
import signal
from typing import Any

import pytest

from tests.rig.gateway import Gateway
from tests.rig.timing import eventually
from tests.second_door.agents import connect, echo, playing
from tests.second_door.client import Door, check_order, error_of, text_of

BUSY = (429, "rate_limit_exceeded", "rate_limit_error")
TIGHT = {
    "HERMES_READERS_PER_RUN": "2",
    "HERMES_READERS_PER_USER": "3",
    "HERMES_IDEMPOTENCY_KEYS": "2",
    "HERMES_APP_FRAMES_BURST": "12",
    "HERMES_APP_FRAMES_PER_SECOND": "1",
    "HERMES_CREDENTIAL_CHECK_SECONDS": "0.2",
    "HERMES_JOURNAL_SECONDS": "1",
    "HERMES_PURGE_SECONDS": "0.5",
}


@pytest.mark.parametrize("backend", ["embedded", "shared"])
async def test_limits_and_ends_from_outside(make_gateway: Any, backend: str) -> None:
    """Too many readers, keys and messages are 429; a revoked credential ends its streams; journals go by themselves."""
    gateway: Gateway = make_gateway(backend, TIGHT)
    person = gateway.person("alice")
    key = gateway.clerk.key(person.name, scopes="chat")
    async with await connect(gateway, person) as agent, Door(gateway, person) as door:
        await door.create("s")
        async with door.run("s", headers={"Idempotency-Key": "1"}) as stream:
            ask = await agent.expect(type="text")
            await agent.start("s", ask["id"])
            async with Door(gateway, person, headers={"Authorization": f"Bearer {key}"}) as program:
                async with program.resume(stream.run) as second:
                    await second.until("message.started")
                    third = await door.request("GET", f"/v1/runs/{stream.run}/events")
                    assert error_of(third) == BUSY and third.headers["Retry-After"] == "5"
                    async with door.stream("GET", "/api/sessions/s/events") as other:
                        await other.next_comment()
                        await door.create("t")
                        assert error_of(await door.refused("t")) == BUSY
                        assert (await door.history("t"))["data"] == []
                    gateway.clerk.command("revoke_key", key.split("_")[1])
                    assert "done" not in [event["event"] for event in await second.rest(timeout_seconds=6)]
                refused = await program.request("GET", f"/v1/runs/{stream.run}/events")
                assert error_of(refused) == (401, "unauthorized", "authentication_error")
            await agent.piece("to the end", "s")
            await agent.end("s")
            check_order(await stream.rest())

        async def purged() -> bool:
            return (await door.request("GET", f"/v1/runs/{stream.run}/events?after=1")).status_code == 410

        await eventually(purged, timeout_seconds=8)
        assert (await door.history("s"))["data"][1]["content"] == "to the end"
    async with playing(gateway, person, echo), Door(gateway, person) as door:
        async with door.run("s", "two", headers={"Idempotency-Key": "2"}) as stream:
            assert text_of(await stream.rest()) == "two"
        assert error_of(await door.refused("s", "three", headers={"Idempotency-Key": "3"})) == BUSY
        answers = [
            await door.request("POST", "/api/sessions/none/chat/stream", json={"input": "x"})
            for _ in range(20)
        ]
        assert {answer.status_code for answer in answers} == {404}, "what cannot be started costs nothing"
        waiting = [asyncio.create_task(door.request("POST", "/api/sessions/s/chat/stream", json={"input": "x"},
                   headers={"Accept": "application/json"})) for _ in range(20)]  # fmt: skip
        codes = {(await answer).status_code for answer in waiting}
        assert 429 in codes and codes <= {202, 409, 429}


async def test_a_reader_whose_journal_is_purged_under_it_is_told_so(make_gateway: Any) -> None:
    """Its process slept while the run ended and its events went: `error`, then `done`, and the history has the text."""
    gateway: Gateway = make_gateway(
        "shared",
        {"HERMES_JOURNAL_SECONDS": "0.1", "HERMES_PURGE_SECONDS": "3600", "HERMES_HINT_BYTES": "1024"},
    )
    person, answer = gateway.person("alice"), "x" * 10_000
    async with await connect(gateway, person) as agent, Door(gateway, person) as door:
        await door.create("s")
        async with door.run("s") as stream:
            ask = await agent.expect(type="text")
            await agent.start("s", ask["id"])
            await agent.piece("before ", "s")
            await stream.until("assistant.delta")
            gateway.app_server.process.send_signal(signal.SIGSTOP)
            try:
                await agent.piece(answer, "s")  # too much for a hint: it says where to read
                await agent.end("s")
                async with Door(gateway, person, gateway.agent_server.port) as other:

                    async def ended() -> bool:
                        return bool((await other.status(stream.run))["status"] == "completed")

                    await eventually(ended)
                    await asyncio.sleep(0.2)
                    assert "events: 0" not in gateway.clerk.command("purge").splitlines()
            finally:
                gateway.app_server.process.send_signal(signal.SIGCONT)
            error = await stream.until("error")
            assert (error["code"], error["run_id"]) == ("journal_expired", stream.run)
            last = await stream.next()
            assert last is not None and (last.id, last.name) == (None, "done")
            assert await stream.next() is None
        expired = await door.request("GET", f"/v1/runs/{stream.run}/events?after={stream.blocks[-3].id}")
        assert error_of(expired)[:2] == (410, "cursor_expired")
        assert (await door.history("s"))["data"][1]["content"] == f"before {answer}"
