"""People without keys, and the second door as a client sees it."""

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.hermes.launcher import HermesServer
from tests.rig.clerk import Person
from tests.rig.gateway import STEADY, Gateway
from tests.rig.sockets import App
from tests.rig.timing import SCALE

Event = dict[str, Any]

TURN_SECONDS = 40 * SCALE
"""For one answer; a Hermes that has just started needs some seconds for its first."""

SESSIONS = "/api/hermes/api/sessions"
RUNS = "/api/hermes/v1/runs"


def settings_for(hermes: HermesServer, **more: str) -> dict[str, str]:
    """The settings of a gateway that asks this Hermes."""
    return STEADY | {
        "HERMES_UPSTREAM_URL": hermes.base_url,
        "HERMES_UPSTREAM_KEY": hermes.key,
        "HERMES_UPSTREAM_WAIT_SECONDS": "1",
        **more,
    }


def guest(gateway: Gateway, name: str) -> Person:
    """A new user who has no key, and so no agent of their own."""
    unique = f"{name}-{uuid.uuid4().hex[:6]}"
    gateway.clerk.ask("create_user", name=unique)
    return Person(unique, gateway.clerk.token(unique), "")


async def begin(http: httpx.AsyncClient, session: str | None = None) -> str:
    """A new session over HTTP; returns its id."""
    answer = await http.post(SESSIONS, json={"id": session} if session else {})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["session"]["id"])


async def ask(http: httpx.AsyncClient, session: str, text: str | None, **body: Any) -> list[Event]:
    """Say something and read the stream to its end."""
    said = ({"input": text} if text is not None else {}) | body
    request = http.stream("POST", f"{SESSIONS}/{session}/chat/stream", json=said, timeout=TURN_SECONDS)
    async with request as answer:
        assert answer.status_code == 200, await answer.aread()
        return [event async for event in events_of(answer)]


async def following(http: httpx.AsyncClient, run: str, after: int) -> AsyncIterator[Event]:
    """The events of a run after a number."""
    request = http.stream("GET", f"{RUNS}/{run}/events", params={"after": after}, timeout=TURN_SECONDS)
    async with request as answer:
        assert answer.status_code == 200, await answer.aread()
        async for event in events_of(answer):
            yield event


async def answer_of(app: App) -> tuple[str, str]:
    """The next streamed answer that an App sees: what it replies to, and its text."""
    frames = await app.until(TURN_SECONDS, type="stream_end")
    start = next(frame for frame in frames if frame["type"] == "stream_start")
    return start["reply_to"], "".join(frame["data"]["text"] for frame in frames if frame["type"] == "stream")


async def events_of(answer: httpx.Response) -> AsyncIterator[Event]:
    """The events of a stream, each with its name."""
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            event = value
        elif name == "data":
            yield {"event": event} | json.loads(value)


def text_of(events: list[Event]) -> str:
    """What was streamed."""
    return "".join(event["delta"] for event in events if event["event"] == "assistant.delta")


def names_of(events: list[Event]) -> list[str]:
    """The names of the events in order, without repeats of deltas."""
    names = [event["event"] for event in events]
    return [name for place, name in enumerate(names) if name != "assistant.delta" or name != names[place - 1]]
