"""Stop and steer (CASES C53)."""

import asyncio
import json
from typing import Any

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, Frame
from tests.second_door.agents import QUIET_CAPS, connect
from tests.second_door.client import Door, check_order, error_of, text_of


async def confirm(agent: Agent) -> Frame:
    """Wait for a stop and confirm it."""
    asked = await agent.expect(type="stop")
    await agent.end(asked["session"], reply_to=asked["reply_to"], data={"status": "cancelled"})
    return asked


async def test_stopped_before_the_first_delta(gateway: Gateway, alice: Person) -> None:
    """The agent ends a turn that had not begun to stream: cancelled."""
    async with await connect(gateway, alice) as agent, Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            await stream.until("run.started")
            ask = await agent.expect(type="text")
            answer = await door.stop(stream.run)
            assert (answer.status_code, answer.json()["status"]) == (200, "stopping")
            assert (await confirm(agent))["reply_to"] == ask["id"]
            events = await stream.rest()
        check_order(events)
        assert (
            events[-2]["event"] == "run.cancelled" and events[-2]["turn_exit_reason"] == "interrupted_by_user"
        )


async def test_stopped_while_it_streams_output_goes_on_until_the_agent_confirms(
    gateway: Gateway, alice: Person
) -> None:
    """Twice asked is once stopped; a second question meanwhile is refused."""
    async with await connect(gateway, alice) as agent, Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            ask = await agent.expect(type="text")
            await agent.start("s", ask["id"])
            await agent.piece("one", "s")
            await stream.until("assistant.delta")
            for _ in range(2):
                assert (await door.stop(stream.run)).json() == {"run_id": stream.run, "status": "stopping"}
            await agent.piece(" two", "s")
            busy = await door.refused("s", "again")
            assert error_of(busy) == (409, "run_already_active", "conflict_error")
            assert busy.json()["error"]["run_id"] == stream.run
            steered = await door.steer(stream.run, "no")
            assert error_of(steered) == (409, "run_not_accepting_steer", "conflict_error")
            await confirm(agent)
            events = await stream.rest()
            await agent.quiet()
        check_order(events)
        assert events[-2]["event"] == "run.cancelled" and text_of(events) == "one two"
        assert (await door.stop(stream.run)).json()["status"] == "cancelled"
        page = await door.history("s")
        assert page["runs"][0]["status"] == "cancelled" and page["runs"][0]["error"] is None


async def test_a_run_that_finishes_first_is_completed(gateway: Gateway, alice: Person) -> None:
    """Asking is not having stopped; and after the end a stop is told how it ended."""
    async with await connect(gateway, alice) as agent, Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            ask = await agent.expect(type="text")
            await agent.start("s", ask["id"])
            assert (await door.stop(stream.run)).json()["status"] == "stopping"
            await agent.expect(type="stop")
            await agent.piece("too late", "s")
            await agent.end("s")
            events = await stream.rest()
        assert events[-2]["event"] == "run.completed"
        assert (await door.stop(stream.run)).json()["status"] == "completed"


async def test_a_stop_that_nobody_confirms(make_gateway: Any) -> None:
    """The run is interrupted when the time is over, what still comes is dropped; so at once without `control`."""
    gateway: Gateway = make_gateway("shared", {"HERMES_STOP_CONFIRM_SECONDS": "1"})
    person = gateway.person("alice")
    async with Door(gateway, person) as door:
        for session, caps in (("s", QUIET_CAPS), ("t", "")):
            agent = await connect(gateway, person, caps) if caps else await gateway.agent(person)
            async with agent:
                await door.create(session)
                async with door.run(session) as stream:
                    ask = await agent.expect(type="text")
                    await agent.start(session, ask["id"])
                    await agent.piece("half", session)
                    await stream.until("assistant.delta")
                    assert (await door.stop(stream.run)).status_code == 200
                    events = await stream.rest()
                    await agent.piece(" and more", session)
                check_order(events)
                assert events[-2]["event"] == "run.interrupted" and events[-2]["reason"] == "stop_unconfirmed"
                assert text_of(await door.events_after(stream.run)) == "half"


async def test_a_queued_run_is_cancelled_at_once(gateway: Gateway, alice: Person) -> None:
    """Its agent never hears of it."""
    async with Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            await stream.until("run.queued")
            assert (await door.stop(stream.run)).json()["status"] == "cancelled"
            check_order(await stream.rest())
        async with await connect(gateway, alice) as agent:
            await agent.quiet()


async def test_c53_steer(gateway: Gateway, alice: Person, bob: Person) -> None:
    """C53: running, stopping, finished, unknown, somebody else's; bad inputs; twenty at once; a leftover."""
    async with (
        await connect(gateway, alice) as agent,
        Door(gateway, alice) as door,
        Door(gateway, bob) as other,
    ):
        await door.create("s")
        async with door.run("s") as stream:
            ask = await agent.expect(type="text")
            await agent.start("s", ask["id"])
            await agent.piece("x", "s")
            await stream.until("assistant.delta")
            for bad in ("", " ", None, 5, [], "x" * 1_000_000, "\x00", "a\ud800"):
                answer = await door.request(
                    "POST", f"/v1/runs/{stream.run}/steer", content=json.dumps({"input": bad}),
                    headers={"Content-Type": "application/json"},
                )  # fmt: skip
                assert error_of(answer) == (400, "invalid_steer_input", "invalid_request_error"), bad
            missing = await door.request("POST", f"/v1/runs/{stream.run}/steer", json={})
            assert error_of(missing)[1] == "invalid_steer_input"
            unknown = (404, "run_not_found", "invalid_request_error")
            assert error_of(await door.steer("run_unknown", "x")) == unknown
            assert error_of(await other.steer(stream.run, "x")) == unknown
            answers = await asyncio.gather(
                *(door.steer(stream.run, f"remark {number}") for number in range(20))
            )
            assert {answer.status_code for answer in answers} == {200}
            assert answers[0].json() == {"object": "hermes.run.steer", "run_id": stream.run, "accepted": True}
            remarks = [(await agent.expect(type="steer"))["data"]["text"] for _ in range(20)]
            assert sorted(remarks) == sorted(f"remark {number}" for number in range(20))
            assert (await door.stop(stream.run)).status_code == 200
            refused = (409, "run_not_accepting_steer", "conflict_error")
            assert error_of(await door.steer(stream.run, "x")) == refused
            await agent.expect(type="stop")
            await agent.end("s", data={"pending_steer": "remark 19"})
            events = await stream.rest()
        assert events[-2]["pending_steer"] == "remark 19"
        assert [event["event"] for event in events].count("run.steered") == 20
        assert error_of(await door.steer(stream.run, "x")) == refused


async def test_an_agent_without_control_takes_no_remark(gateway: Gateway, alice: Person) -> None:
    """It is not accepted, whatever the run does."""
    async with await gateway.agent(alice) as agent, Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            ask = await agent.expect(type="text")
            await agent.start("s", ask["id"])
            assert error_of(await door.steer(stream.run, "x"))[:2] == (409, "run_not_accepting_steer")
            await agent.end("s")
            await stream.rest()
