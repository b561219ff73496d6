"""Runs as Server-Sent Events: join, read the journal after a number, follow what is told."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable

import msgspec
from django.conf import settings

from accounts.auth import Principal
from chat import queries
from chat.events import Event, public
from chat.gateway import Gateway
from chat.telling import RunRef, Told

WAITING = 256  # told things that may wait for a slow reader; past them it reads the journal instead
ENDED_RUNS = 1024  # whose end is remembered, so that a late repeat is known as one
UNREAD_ENDS = 256  # ends heard of by being told, before the place in the session is read anew
PIECE_BYTES = 64 * 1024  # rendered at once
KEEPALIVE = b": keepalive\n\n"

_encode = msgspec.json.Encoder().encode


def render(ref: RunRef, event: Event, *, shared: bool = False) -> bytes:
    """One event as a frame; `shared`: several runs are on this stream, and the SSE id names the run too."""
    seq = event["seq"]
    data = {
        "event": event["event"],
        "event_id": str(seq),
        "seq": seq,
        "session_id": ref.session,
        "run_id": ref.public_id,
        **public(event),
    }
    number = f"{ref.public_id}:{seq}" if shared else str(seq)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (number.encode(), event["event"].encode(), _encode(data))


def unnumbered(ref: RunRef, name: str, **fields: str) -> bytes:
    """A word of this stream alone, which is not in the journal."""
    data = {"event": name, "session_id": ref.session, "run_id": ref.public_id, **fields}
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(data))


def joined(pieces: Iterable[bytes]) -> Iterable[bytes]:
    """The same bytes in fewer pieces."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


class EventStream:
    """
    A reader over HTTP of one run or one session, `key` being its row.

    `close` ends it without an end of the run: the reader resumes, if it still may.
    """

    is_app = False

    def __init__(self, gateway: Gateway, principal: Principal, key: int) -> None:
        self.user_id = principal.user_id
        self.principal = principal
        self.key = key
        self.closed = False
        self._gateway = gateway
        self._waiting: deque[Told] = deque()
        self._behind = True  # the journal has to be read
        self._awake = asyncio.Event()

    def concerns(self, told: Told) -> bool:
        """Whether this reader is to be told of it."""
        raise NotImplementedError

    def tell(self, told: Told) -> None:
        """Take what was told."""
        if not self.concerns(told):
            return
        if self._behind or len(self._waiting) >= WAITING:
            self._behind = True
            self._waiting.clear()
        else:
            self._waiting.append(told)
        self._awake.set()

    def position(self, cursor: int, runs: dict[int, int]) -> None:
        """Another process says how far it is; whether that is further than here decides `is_behind`."""
        if self.is_behind(runs):
            self._behind = True
            self._awake.set()

    def is_behind(self, runs: dict[int, int]) -> bool:
        """Whether these last numbers are ahead of what was passed on."""
        raise NotImplementedError

    def close(self, code: int = 0) -> None:
        """End the stream."""
        self.closed = True
        self._awake.set()

    def __enter__(self) -> EventStream:
        self._gateway.hub.join(self)
        self._gateway.streams.add(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._gateway.streams.discard(self)
        self._gateway.hub.leave(self)

    def frames(self) -> AsyncIterator[bytes]:
        """The events as frames, with comments while nothing happens."""
        raise NotImplementedError

    async def _wait(self, patience: float) -> bool:
        """Wait so many seconds at most for something new; False when a comment is due instead."""
        self._awake.clear()
        if self._behind or self._waiting or self.closed:
            return True
        shared = self._gateway.hub.beyond is not None
        if shared:
            patience = min(patience, settings.HERMES_POSITION_SECONDS)
        try:
            async with asyncio.timeout(patience):
                await self._awake.wait()
        except TimeoutError:
            if shared:
                self._behind = True  # a hint may have been lost
            return False
        return True


class RunStream(EventStream):
    """One run's events with number > `after`, until `done`; `queued`: it waits for an agent that is away."""

    def __init__(
        self, gateway: Gateway, principal: Principal, ref: RunRef, after: int, *, queued: bool = False
    ) -> None:
        super().__init__(gateway, principal, ref.key)
        self.ref = ref
        self._seen = after
        self._queued = queued

    def concerns(self, told: Told) -> bool:
        """Events of this run."""
        return told.run is not None and told.run.key == self.key and bool(told.events)

    def is_behind(self, runs: dict[int, int]) -> bool:
        """Whether the run is further."""
        return runs.get(self.key, 0) > self._seen

    async def frames(self) -> AsyncIterator[bytes]:
        """The events as frames, with comments while nothing happens; ends after `done`, or when closed."""
        await self._gateway.hub.joined(self.user_id)
        begun = time.monotonic()
        while not self.closed:
            events, ended = await self._next()
            for piece in joined(render(self.ref, event) for event in events):
                yield piece
            if events:
                self._seen = events[-1]["seq"]
                self._queued = events[-1]["event"] == "run.queued"
                if events[-1]["event"] == "done":
                    return
            elif ended:
                text = "this run has ended, and its events are kept no more: the history has its text"
                yield unnumbered(self.ref, "error", code="journal_expired", message=text)
                yield unnumbered(self.ref, "done")
                return
            if self._behind or self._waiting:
                continue
            patience = settings.HERMES_KEEPALIVE_SECONDS
            if self._queued:
                left = settings.HERMES_QUEUED_STREAM_SECONDS - (time.monotonic() - begun)
                if left <= 0:
                    yield unnumbered(self.ref, "done")
                    return
                patience = min(patience, left)
            if not await self._wait(patience):
                yield KEEPALIVE

    async def _next(self) -> tuple[list[Event], bool]:
        """What is new, from the journal when something was missed; and whether nothing more can come."""
        if not self._behind:
            events: list[Event] = []
            while self._waiting:
                told = self._waiting.popleft()
                seen = events[-1]["seq"] if events else self._seen
                if told.first > seen + 1:
                    self._behind = True
                    break
                events.extend(event for event in told.events or () if event["seq"] > seen)
            if events or not self._behind:
                return events, False
        self._behind = False
        self._waiting.clear()
        return await queries.pool.read(queries.rest_of_run, self.key, self._seen)


class SessionStream(EventStream):
    """
    The events of all runs of a session.

    `after` names a run by key and a number in it: what follows is the rest of that run and all later runs.
    Without it: the runs that are live at the beginning, from their first event, and all later ones.
    """

    def __init__(
        self,
        gateway: Gateway,
        principal: Principal,
        session: int,
        name: str,
        after: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(gateway, principal, session)
        self._name = name
        self._floor: int | None = None  # runs up to this ordinal are known: live ones in `_seen`, or ended
        self._seen: dict[int, int] = dict([after] if after else [])
        self._from = after[0] if after else None
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._unread_ends = 0

    def concerns(self, told: Told) -> bool:
        """Events of its runs; its deletion ends the stream."""
        notice = told.notice
        if notice is not None and notice["session"] == self._name and _is_deletion(notice):
            self.close()
        return told.run is not None and told.run.session == self._name and bool(told.events)

    def is_behind(self, runs: dict[int, int]) -> bool:
        """Whether a run is further; runs that are not known may be this session's."""
        return any(seq > self._seen.get(key, 0) for key, seq in runs.items() if key not in self._ended)

    async def frames(self) -> AsyncIterator[bytes]:
        """The events as frames, with comments while nothing happens; ends when closed."""
        await self._gateway.hub.joined(self.user_id)
        yield KEEPALIVE
        while not self.closed:
            for ref, events in await self._next():
                for piece in joined(render(ref, event, shared=True) for event in events):
                    yield piece
                self._seen[ref.key] = events[-1]["seq"]
                if events[-1]["event"] == "done":
                    self._note_end(ref.key)
            if not await self._wait(settings.HERMES_KEEPALIVE_SECONDS):
                yield KEEPALIVE

    def _note_end(self, key: int) -> None:
        del self._seen[key]
        self._ended[key] = None
        self._unread_ends += 1
        if len(self._ended) > ENDED_RUNS:
            self._ended.popitem(last=False)
        if self._unread_ends > UNREAD_ENDS:
            self._behind = True

    async def _next(self) -> list[tuple[RunRef, list[Event]]]:
        """What is new of each run, from the journal when something was missed."""
        if not self._behind:
            told = self._waiting.popleft() if self._waiting else None
            if told is None or told.run is None or told.run.key in self._ended:
                return []
            seen = self._seen.get(told.run.key, 0)
            if told.first <= seen + 1:
                fresh = [event for event in told.events or () if event["seq"] > seen]
                return [(told.run, fresh)] if fresh else []
        self._behind = False
        self._waiting.clear()
        self._unread_ends = 0
        self._floor, found = await queries.pool.read(
            queries.rest_of_session, self.key, self._floor, dict(self._seen), self._from
        )
        return [(ref, events) for ref, events in found if ref.key not in self._ended]


def _is_deletion(notice: dict[str, object]) -> bool:
    data = notice.get("data")
    return isinstance(data, dict) and data.get("event") == "session.deleted"
