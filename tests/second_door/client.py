"""A caller of the second door in Python: requests by name, event streams read as they come."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.timing import TIMEOUT

BASE = "/api/hermes"
ENDS = ("run.completed", "run.failed", "run.cancelled", "run.interrupted")
Event = dict[str, Any]


@dataclass
class Block:
    """One block of an event stream."""

    id: str | None
    name: str | None
    data: Any
    comment: str | None = None


def read_block(text: str) -> Block:
    """A block as a browser reads it."""
    block = Block(None, None, None)
    for line in text.split("\n"):
        if line.startswith(":"):
            block.comment = line[1:].strip()
            continue
        name, _, value = line.partition(": ")
        if name == "id":
            block.id = value
        elif name == "event":
            block.name = value
        elif name == "data":
            block.data = json.loads(value)
        else:
            raise AssertionError(f"a line that is no field: {line!r}")
    return block


@dataclass
class Stream:
    """One open event stream."""

    response: httpx.Response
    comments: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    ended: bool = False

    def __post_init__(self) -> None:
        self._blocks = self._read()

    async def _read(self) -> AsyncIterator[Block]:
        waiting = ""
        async for text in self.response.aiter_text():
            waiting += text
            while "\n\n" in waiting:
                block, waiting = waiting.split("\n\n", 1)
                yield read_block(block)
        assert waiting == "", f"cut in the middle of a block: {waiting!r}"

    async def next(self, timeout_seconds: float = TIMEOUT) -> Block | None:
        """The next event; None at the end of the stream."""
        async with asyncio.timeout(timeout_seconds):
            async for block in self._blocks:
                if block.data is None:
                    self.comments.append(block.comment or "")
                    continue
                self.blocks.append(block)
                return block
        self.ended = True
        return None

    async def next_comment(self, timeout_seconds: float = TIMEOUT) -> str:
        """The next block, which must be a comment."""
        async with asyncio.timeout(timeout_seconds):
            block = await anext(self._blocks)
        assert block.data is None, f"an event came: {block}"
        return block.comment or ""

    async def until(self, name: str, timeout_seconds: float = TIMEOUT) -> Event:
        """Read on until an event of this name."""
        while (block := await self.next(timeout_seconds)) is not None:
            if block.name == name:
                return dict(block.data)
        raise AssertionError(f"the stream ended without {name}: {self.names}")

    async def rest(self, timeout_seconds: float = TIMEOUT) -> list[Event]:
        """Everything up to the end of the stream, what was read before included."""
        while await self.next(timeout_seconds) is not None:
            pass
        return self.events

    @property
    def events(self) -> list[Event]:
        """The data of all events so far."""
        return [block.data for block in self.blocks]

    @property
    def names(self) -> list[str]:
        """The names of all events so far."""
        return [str(block.name) for block in self.blocks]

    @property
    def run(self) -> str:
        """The id of the run, by the header."""
        return self.response.headers["X-Hermes-Run-Id"]


def text_of(events: list[Event]) -> str:
    """The joined deltas."""
    return "".join(event["delta"] for event in events if event["event"] == "assistant.delta")


class Door:
    """A person at the second door of one process."""

    def __init__(self, gateway: Gateway, person: Person, port: int = 0, **options: Any) -> None:
        headers = {"Authorization": f"Bearer {person.token}"} | options.pop("headers", {})
        self.person = person
        self.http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port or gateway.app_server.port}",
            headers=headers,
            trust_env=False,
            timeout=httpx.Timeout(TIMEOUT, read=None),
            **options,
        )

    async def __aenter__(self) -> "Door":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.http.aclose()

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request, below the base path."""
        return await self.http.request(method, BASE + path, **options)

    async def create(self, session: str, **fields: Any) -> httpx.Response:
        """Make a session by its id."""
        return await self.request("POST", "/api/sessions", json={"id": session, **fields})

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, path: str, *, status: int = 200, **options: Any
    ) -> AsyncIterator[Stream]:
        """A request whose answer is an event stream."""
        async with self.http.stream(method, BASE + path, **options) as response:
            if response.status_code != status:
                raise AssertionError(f"{response.status_code}: {(await response.aread()).decode()}")
            yield Stream(response)

    def run(
        self, session: str, said: Any = "hello", query: str = "", **fields: Any
    ) -> contextlib.AbstractAsyncContextManager[Stream]:
        """Say something and follow the run."""
        headers = fields.pop("headers", {})
        body = {"input": said, **fields} if said is not None else fields
        path = f"/api/sessions/{quote(session, safe='')}/chat/stream{query}"
        return self.stream("POST", path, json=body, headers=headers)

    async def refused(self, session: str, said: Any = "hello", **fields: Any) -> httpx.Response:
        """The same where an error is expected."""
        headers = fields.pop("headers", {})
        body = {"input": said, **fields} if said is not None else fields
        path = f"/api/sessions/{quote(session, safe='')}/chat/stream"
        answer = await self.request("POST", path, json=body, headers=headers)
        assert answer.status_code >= 400, answer.text
        return answer

    def resume(
        self, run: str, after: int | str | None = None
    ) -> contextlib.AbstractAsyncContextManager[Stream]:
        """Follow a run from a number on."""
        query = "" if after is None else f"?after={after}"
        return self.stream("GET", f"/v1/runs/{run}/events{query}")

    async def events_after(self, run: str, after: int | str | None = None) -> list[Event]:
        """The events of an ended run after a number."""
        async with self.resume(run, after) as stream:
            return await stream.rest()

    async def stop(self, run: str) -> httpx.Response:
        """Ask for the end of a run."""
        return await self.request("POST", f"/v1/runs/{run}/stop", json={})

    async def steer(self, run: str, said: Any) -> httpx.Response:
        """Add a remark."""
        return await self.request("POST", f"/v1/runs/{run}/steer", json={"input": said})

    async def status(self, run: str) -> Any:
        """How a run stands."""
        answer = await self.request("GET", f"/v1/runs/{run}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def history(self, session: str, query: str = "order=latest&limit=500") -> Any:
        """A page of a conversation."""
        answer = await self.request("GET", f"/api/sessions/{quote(session, safe='')}/messages?{query}")
        assert answer.status_code == 200, answer.text
        return answer.json()


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, code and type of an error; the body must have the one shape."""
    body = answer.json()
    assert set(body) == {"error"}, body
    error = body["error"]
    assert {"code", "type", "message"} <= set(error), error
    return answer.status_code, error["code"], error["type"]


def check_order(events: list[Event]) -> None:
    """The promises about the order of the events of a whole run."""
    names = [event["event"] for event in events]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert all(event["event_id"] == str(event["seq"]) for event in events)
    assert names[0] == "run.started" and names[-1] == "done"
    assert sum(name in ENDS for name in names) == 1 and names[-2] in ENDS, names
    completed = [event for event in events if event["event"] == "assistant.completed"]
    assert len(completed) == names.count("message.started") <= 1
    if completed:
        assert completed[0]["content"] == text_of(events)
    assert list(_open_tools(events)) == []


def _open_tools(events: list[Event]) -> Iterator[Event]:
    """What is left open when tools are paired first in, first out by name."""
    waiting: dict[str, list[Event]] = {}
    for event in events:
        if event["event"] == "tool.started":
            waiting.setdefault(event["tool_name"], []).append(event)
        elif event["event"] in ("tool.completed", "tool.failed"):
            start = waiting[event["tool_name"]].pop(0)
            assert start["tool_call_id"] == event["tool_call_id"], (start, event)
    for left in waiting.values():
        yield from left
