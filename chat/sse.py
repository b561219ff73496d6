"""A run as Server-Sent Events: join, read the journal after a number, follow until `done`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator

import msgspec
from django.conf import settings

from accounts.auth import Principal
from chat import queries
from chat.events import Event, public
from chat.gateway import Gateway
from chat.telling import RunRef, Told

WAITING = 256  # told things that may wait for a slow reader; past them it reads the journal instead
KEEPALIVE = b": keepalive\n\n"
UNNUMBERED_DONE = b'event: done\ndata: {"event":"done"}\n\n'

_encode = msgspec.json.Encoder().encode


def render(ref: RunRef, event: Event, *, number: str | None = None) -> bytes:
    """One event as a frame; `number` takes the place of its SSE id where several runs share a stream."""
    seq = event["seq"]
    data = {
        "event": event["event"],
        "event_id": str(seq),
        "seq": seq,
        "session_id": ref.session,
        "run_id": ref.public_id,
        **public(event),
    }
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (
        (number or str(seq)).encode(),
        event["event"].encode(),
        _encode(data),
    )


class RunStream:
    """
    One reader of one run's events with number > `after`.

    `close` ends it without an end of the run: the reader resumes, if it still may.
    """

    is_app = False

    def __init__(self, gateway: Gateway, principal: Principal, ref: RunRef, after: int) -> None:
        self.user_id = principal.user_id
        self.principal = principal
        self.ref = ref
        self._gateway = gateway
        self._seen = after
        self._waiting: deque[Event] = deque()
        self._behind = True  # the journal has to be read
        self._closed = False
        self._awake = asyncio.Event()

    def tell(self, told: Told) -> None:
        """Take what was told of this run."""
        if told.run is None or told.run.key != self.ref.key or not told.events:
            return
        if self._behind or len(self._waiting) >= WAITING:
            self._behind = True
            self._waiting.clear()
        else:
            self._waiting.extend(told.events)
        self._awake.set()

    def position(self, cursor: int, runs: dict[int, int]) -> None:
        """Another process is further."""
        if runs.get(self.ref.key, 0) > self._seen:
            self._behind = True
            self._awake.set()

    def close(self, code: int = 0) -> None:
        """End the stream."""
        self._closed = True
        self._awake.set()

    def __enter__(self) -> RunStream:
        self._gateway.hub.join(self)
        self._gateway.streams.add(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._gateway.streams.discard(self)
        self._gateway.hub.leave(self)

    async def frames(self) -> AsyncIterator[bytes]:
        """The events as frames, with comments while nothing happens; ends after `done`, or when closed."""
        await self._gateway.hub.joined(self.user_id)
        begun = time.monotonic()
        queued = False
        while not self._closed:
            for event in await self._next():
                if event["seq"] <= self._seen:
                    continue
                self._seen = event["seq"]
                yield render(self.ref, event)
                queued = event["event"] == "run.queued"
                if event["event"] == "done":
                    return
            if self._behind or self._waiting:
                continue
            if queued and time.monotonic() - begun >= settings.HERMES_QUEUED_STREAM_SECONDS:
                yield UNNUMBERED_DONE
                return
            if not await self._wait(queued, begun):
                yield KEEPALIVE

    async def _next(self) -> list[Event]:
        """What is new: from the journal when something was missed, else what was told."""
        if not self._behind and self._waiting and self._waiting[0]["seq"] > self._seen + 1:
            self._behind = True
        if not self._behind:
            told = list(self._waiting)
            self._waiting.clear()
            return told
        self._behind = False
        self._waiting.clear()
        return await queries.pool.read(queries.events_after, self.ref.key, self._seen)

    async def _wait(self, queued: bool, begun: float) -> bool:
        """Wait for something new; False when a comment is due instead."""
        self._awake.clear()
        if self._behind or self._waiting or self._closed:
            return True
        patience = settings.HERMES_KEEPALIVE_SECONDS
        shared = self._gateway.hub.beyond is not None
        if shared:
            patience = min(patience, settings.HERMES_POSITION_SECONDS)
        if queued:
            left = settings.HERMES_QUEUED_STREAM_SECONDS - (time.monotonic() - begun)
            patience = min(patience, max(0.05, left))
        try:
            async with asyncio.timeout(patience):
                await self._awake.wait()
        except TimeoutError:
            if shared:
                self._behind = True  # a hint may have been lost
            return False
        return True
