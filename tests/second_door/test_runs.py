"""Runs over HTTP: started, followed, refused."""

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.second_door.agents import echo, playing
from tests.second_door.client import Door, check_order, error_of, text_of


async def test_a_run_is_followed_to_its_end(gateway: Gateway, alice: Person) -> None:
    """The stream of a run has all its events in order and ends after `done`."""
    async with playing(gateway, alice, echo), Door(gateway, alice) as door:
        unknown = await door.refused("s/1 é", "hello")
        assert error_of(unknown) == (404, "session_not_found", "invalid_request_error")
        assert (await door.create("s/1 é")).status_code == 201
        async with door.run("s/1 é", "one two three") as stream:
            events = await stream.rest()
        check_order(events)
        assert text_of(events) == "one two three"
        assert stream.response.headers["X-Hermes-Session-Id"] == "s%2F1%20%C3%A9"
        assert await door.events_after(stream.run) == events
        assert (await door.status(stream.run))["output"] == "one two three"
        page = await door.history("s/1 é")
        assert [row["content"] for row in page["data"]] == ["one two three", "one two three"]
        assert page["runs"][0]["last_event_id"] == str(events[-1]["seq"])


async def test_only_who_takes_nothing_but_json_is_answered_with_json(gateway: Gateway, alice: Person) -> None:
    """Libraries that say they prefer it, and take anything, get the stream."""
    async with playing(gateway, alice, echo), Door(gateway, alice) as door:
        await door.create("s")
        for accept in ("*/*", "application/json, text/plain, */*", "text/event-stream, application/json", ""):
            async with door.run("s", "x", headers={"Accept": accept}) as stream:
                check_order(await stream.rest())
        answer = await door.request(
            "POST", "/api/sessions/s/chat/stream", json={"input": "x"}, headers={"Accept": "application/json"}
        )
        assert answer.status_code == 202 and set(answer.json()) == {"run_id", "status"}
        assert answer.headers["X-Hermes-Run-Id"] == answer.json()["run_id"]
