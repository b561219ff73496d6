"""A device of a person, written after "For the author of an App" of the protocol: since, outbox, bubbles."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.rig.sockets import TS, Frame, open_socket, strict
from tests.rig.timing import SCALE

BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0)
"""Shorter than the protocol's 1, 2, 4, 8, 30, so that a run of many faults ends in time."""

PONG_SECONDS = 15.0 * SCALE
"""Silence after which a line counts as dead."""

RETRIES = 3
"""How often a message that was answered with `internal` is sent again on one connection."""


@dataclass
class Shown:
    """A message as the device shows it."""

    cursor: int
    id: str
    side: str
    session: str
    reply_to: str | None
    text: str
    data: dict[str, Any]


@dataclass
class Bubble:
    """A stream that has not ended."""

    id: str
    reply_to: str | None
    text: str = ""


@dataclass
class Device:
    """
    One device; use as an async context manager. What the protocol forbids it to see is kept in `complaints`.

    `url` gives the address of the next connection, from the cursor that it shall ask for.
    """

    name: str
    user: str
    url: Callable[[int], str]
    since: int = 0
    shown: list[Shown] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    errors: list[Frame] = field(default_factory=list)
    outbox: dict[str, Frame] = field(default_factory=dict)
    open: dict[tuple[str, str], Bubble] = field(default_factory=dict)
    status: dict[str, dict[str, Any]] = field(default_factory=dict)
    closes: list[int] = field(default_factory=list)
    settled: set[str] = field(default_factory=set)  # questions that were answered, or whose failure was told

    def __post_init__(self) -> None:
        self._socket: ClientConnection | None = None
        self._target = -1  # the cursor up to which the present connection replays
        self._told: set[str] = set()  # ids sent on the present connection
        self._sent: set[str] = set()  # ids sent on any
        self._tries: dict[str, int] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._work = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (self._work, *self._later):
            task.cancel()
        await asyncio.gather(self._work, *self._later, return_exceptions=True)

    async def say(self, id: str, text: str, session: str, to: str = "hermes") -> None:
        """Put a text into the outbox; it leaves when the line is there."""
        frame = {"id": id, "type": "text", "from": self.user, "to": to, "session": session, "ts": TS}
        self.outbox[id] = frame | {"data": {"text": text}}
        await self._empty_outbox()

    async def until(self, look: Callable[[], bool], timeout_seconds: float, what: str) -> None:
        """
        Wait until something is true of this device.

        Raises:
            AssertionError: If it is not in time.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while not look():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            seen = [(one.cursor, one.side, one.text[:60]) for one in self.shown[-5:]]
            raise AssertionError(f"{self.name}: not in {timeout_seconds} s: {what}; shown: {seen}") from None

    @property
    def connected(self) -> bool:
        """Whether the replay of the present connection is over."""
        return self._socket is not None and 0 <= self._target <= self.since

    # The line

    async def _run(self) -> None:
        failures = itertools.count()
        while True:
            with contextlib.suppress(OSError, TimeoutError, InvalidHandshake, ConnectionClosed):
                async with await open_socket(self.url(self.since), open_timeout=5 * SCALE) as socket:
                    await self._read(socket)
                    failures = itertools.count()
            await asyncio.sleep(BACKOFF_SECONDS[min(next(failures), len(BACKOFF_SECONDS) - 1)])

    async def _read(self, socket: ClientConnection) -> None:
        self._target, self._told, self._tries = -1, set(), {}
        self._socket = socket
        pings = asyncio.create_task(self._ping(socket))
        try:
            while True:
                async with asyncio.timeout(PONG_SECONDS):
                    text = await socket.recv()
                self._take(strict(text))
                self._moved.set()
                if self._target >= 0:
                    await self._empty_outbox()
        finally:
            pings.cancel()
            self._socket = None
            self.closes.append(socket.close_code or 1006)

    async def _ping(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(PONG_SECONDS / 3)
                await socket.send('{"type":"ping"}')

    async def _empty_outbox(self) -> None:
        if not self.connected:
            return
        for id, frame in list(self.outbox.items()):
            if id in self._told:
                continue
            self._told.add(id)
            self._sent.add(id)
            await self._send(frame)

    async def _send(self, frame: Frame) -> None:
        if self._socket is not None:
            with contextlib.suppress(ConnectionClosed):  # the reader hears of it too
                await self._socket.send(json.dumps(frame))

    # What comes

    def _take(self, frame: Frame) -> None:
        place = (frame.get("session", ""), frame.get("from", ""))
        kind = frame["type"]
        if kind == "ready":
            self._target = frame["data"]["cursor"]
            if frame["data"]["truncated"]:
                self._complain("truncated", frame)
        elif "cursor" in frame:
            self._store(frame, place)
        elif kind == "stream_start":
            bubble = self.open.get(place)
            if bubble is not None and bubble.id != frame["id"]:
                self._complain("a stream began while another was open", frame)
            self.open[place] = Bubble(frame["id"], frame.get("reply_to"))
        elif kind == "stream":
            if place not in self.open:
                self._complain("a piece of no stream", frame)
            else:
                self.open[place].text += frame["data"]["text"]
        elif kind == "error":
            self._error(frame)
        elif kind not in ("pong", "event"):
            self._complain("a frame without a cursor", frame)

    def _store(self, frame: Frame, place: tuple[str, str]) -> None:
        cursor, data = frame["cursor"], frame.get("data") or {}
        own = frame["from"] == self.user
        if own:
            self.outbox.pop(frame["id"], None)
            self.status[frame["id"]] = frame["run"]
        if cursor <= self.since:
            if not (own and frame["id"] in self._sent):
                self._complain(f"shown twice (cursor {self.since} was reached)", frame)
            return
        if cursor != self.since + 1:
            self._complain(f"a hole after cursor {self.since}", frame)
        self.since = cursor
        text, reply_to = data.get("text", ""), frame.get("reply_to")
        bubble = self.open.get(place)
        if frame["type"] == "stream_end":
            if bubble is None or bubble.id != frame["id"]:
                self._complain("an end of no stream", frame)
            else:
                text, reply_to = bubble.text, bubble.reply_to
        if bubble is not None and bubble.id == frame["id"]:
            del self.open[place]
        side = "app" if own else "agent"
        if not own and reply_to is not None:
            self.settled.add(reply_to)
        self.shown.append(Shown(cursor, frame["id"], side, frame["session"], reply_to, text, data))

    def _error(self, frame: Frame) -> None:
        id, data = frame.get("reply_to"), frame["data"]
        self.errors.append(frame)
        if id in self.outbox and data["code"] in ("internal", "rate_limited"):
            self._tries[id] = self._tries.get(id, 0) + 1
            if self._tries[id] <= RETRIES:
                self._spawn(self._again(id, data.get("retry_after", self._tries[id] * 0.5)))
        elif id in self.outbox and data["code"] == "unsupported":
            self._complain("a message was refused", frame)
        elif id not in self.outbox and not data.get("queued"):
            self.settled.add(id)

    async def _again(self, id: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if id in self.outbox and self.connected:
            await self._send(self.outbox[id])

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _complain(self, what: str, frame: Frame) -> None:
        self.complaints.append(f"{self.name}: {what}: {str(frame)[:300]}")
