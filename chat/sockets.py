"""What both chat sockets share: opening, sending without waiting, heartbeat, bad frames, closing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from channels.consumer import AsyncConsumer
from django.conf import settings
from django.db import Error as DatabaseProblem

from accounts.auth import Principal
from accounts.middleware import refuse
from chat import frames, gateway, presence
from chat.answers import Ended
from chat.gateway import Gateway
from chat.keys import new_key
from chat.limits import Buckets
from chat.outbox import Outbox
from chat.telling import Out
from hermes_site.errors import CloseCode, Draining, GatewayError, InvalidRequest, RateLimited, Unavailable

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PONG = '{"type":"pong"}'
# A frame refused for one of these was wrong in itself; others were only out of place or out of time.
ADDRESSING = frozenset({"type", "from", "to"})
CAPS = frozenset({"sync", "events", "control"})


class LookAgain(Exception):
    """What this socket knows of its user may be out of date: the frame is taken again after `look_again`."""


class Paced(Exception):
    """A frame was one too many; the peer has been told."""


class ChatSocket(AsyncConsumer):
    """
    One chat socket.

    It has its own receive loop: Channels' makes a task and a thread hop of every message. Frames go out
    without waiting: directly where the server offers its transport, else by a task of the socket.
    """

    SIDE: frames.Side

    def __init__(self) -> None:
        super().__init__()
        self.gateway: Gateway = gateway.running()
        self.caps: frozenset[str] = frozenset()
        self.since: int | None = None
        self.last_frame = 0.0
        self.closing: int | None = None
        self.data_bytes = settings.HERMES_DATA_BYTES  # read once: settings are slow to ask
        self.paced = settings.HERMES_RATE_LIMIT
        self._open = False  # whether frames may go out
        self._bad = 0
        self._transport: Any = None
        self._outbox = Outbox(settings.HERMES_OUTBOX_ITEMS, settings.HERMES_OUTBOX_BYTES)
        self._pump: asyncio.Task[None] | None = None
        self._closer: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The whole life of the socket."""
        self.scope = scope
        self.principal: Principal = scope["principal"]
        self._receive, self._send = receive, send
        self._loop = asyncio.get_running_loop()
        self.last_frame = self._loop.time()
        self._transport = scope.get("extensions", {}).get("hermes.transport")
        try:
            self._read_query()
            if self.gateway.draining:
                raise Draining("this process is going away")
            await self.admit()
        except GatewayError as error:
            await refuse(scope, receive, send, error)
            return
        except DatabaseProblem:
            await refuse(scope, receive, send, Unavailable("the database does not answer", retry_after=1))
            return
        self.gateway.enter(self)
        key = self._note_connection()
        try:
            await receive()  # websocket.connect
            await send({"type": "websocket.accept"})
            if self._transport is None:
                self._pump = self._loop.create_task(self._pump_out())
            else:
                self._transport.on_resume = self._drain
            try:
                await self.opened()
            except (GatewayError, DatabaseProblem):
                self.close(CloseCode.INTERNAL)
            await self._listen()
        finally:
            self.gateway.leave(self)
            self.ended()
            self.gateway.journal.put(presence.Closed(key))
            for task in (self._pump, self._closer):
                if task is not None:
                    task.cancel()

    # What each kind of socket does

    async def admit(self) -> None:
        """
        Last checks before the upgrade.

        Raises:
            GatewayError: To refuse it.
        """

    async def opened(self) -> None:
        """The socket is accepted: greet, replay; ends with `self.let_out()`."""

    def take(self, text: str) -> None:
        """
        Take one frame.

        Raises:
            GatewayError: If it is refused at once.
        """
        raise NotImplementedError

    async def look_again(self) -> None:
        """Read anew what a frame was judged by."""

    def pause(self, text: str | None) -> float:
        """Seconds to wait, and ask again, before the next frame is read: how a fast writer is slowed."""
        return 0.0

    def ended(self) -> None:
        """The socket is gone."""

    # For them

    def put(self, out: Out) -> None:
        """Send a frame as soon as the peer reads; too much waiting closes the socket with 4013."""
        if self.closing is not None:
            return
        if self._open and self._transport is not None and not self._transport.paused and not self._outbox:
            self._transport.send_text(out.text)
            return
        self._outbox.put(out)
        if self._outbox.over:
            self.close(CloseCode.TOO_SLOW)

    def push(self, text: str) -> None:
        """Send one frame that is never joined to another."""
        self.put(Out(text))

    async def write(self, text: str) -> None:
        """Send one frame and wait while the peer reads slowly; for replays, before `let_out`."""
        if self.closing is None:
            await self._send({"type": "websocket.send", "text": text})

    def let_out(self) -> None:
        """From now on frames go out as they come."""
        self._open = True
        self._drain()
        self._outbox.wake()

    def error_frame(self, error: GatewayError, session: str | None, reply_to: str | None) -> dict[str, Any]:
        """The `error` frame that answers a frame of this peer."""
        frame: dict[str, Any] = {
            "id": frames.new_id(),
            "type": "error",
            "from": self.peer_from,
            "to": self.peer_to,
        }
        if session is not None:
            frame["session"] = session
        if reply_to is not None:
            frame["reply_to"] = reply_to
        data: dict[str, Any] = {"code": error.wire_code, "text": error.text}
        if error.retry_after is not None:
            data["retry_after"] = error.retry_after
        if error.wire_code == "offline":
            data["queued"] = False
        return {**frame, "ts": self.now(), "data": data}

    peer_from = ""  # whose name the gateway speaks in to this peer
    peer_to = ""  # what this peer is called

    def now(self) -> int:
        """Unix seconds, for frames the gateway makes."""
        return int(time.time())

    def refused(self, error: BaseException, session: str | None = None, reply_to: str | None = None) -> None:
        """A frame was refused, at once or by the writer: say so, and count it."""
        if not isinstance(error, GatewayError):
            return
        if isinstance(error, frames.BadFrame) or (error.field in ADDRESSING and not isinstance(error, Ended)):
            self._bad += 1
        if isinstance(error, frames.BadFrame):
            session, reply_to = error.session, error.frame_id
        self.push(frames.encode(self.error_frame(error, session, reply_to)))
        if self._bad >= settings.HERMES_BAD_FRAMES:
            self.close(CloseCode.BAD_FRAMES)

    def pace(self, buckets: Buckets, key: Hashable, frame: frames.Addressed) -> None:
        """
        Count a frame.

        Raises:
            RateLimited: If there were too many.
        """
        if not self.paced:
            return
        wait = buckets.take(key, 1, self.last_frame)
        if wait > 0:
            error = RateLimited("too many frames", retry_after=round(wait + 0.5))
            self.push(frames.encode(self.error_frame(error, frame.session, getattr(frame, "id", None))))
            raise Paced

    def good(self) -> None:
        """A good frame starts the count of bad ones anew."""
        self._bad = 0

    def close(self, code: int) -> None:
        """End the socket; what waits is not sent any more, but what was written is."""
        if self.closing is not None:
            return
        self.closing = int(code)
        self._closer = self._loop.create_task(self._send_close(int(code)))

    def silent_for(self, now: float) -> float:
        """Seconds, by the loop's clock, since the peer was last heard."""
        return now - self.last_frame

    # Inside

    async def _listen(self) -> None:
        receive, journal = self._receive, self.gateway.journal
        while True:
            message = await receive()
            if message["type"] != "websocket.receive":
                return
            self.last_frame = self._loop.time()
            if self.closing is not None:
                continue
            text = message.get("text")
            try:
                self._take(text)
            except LookAgain:
                await self.look_again()
                self._take(text)
            while (wait := self.pause(text)) > 0:  # what is waited for is time, or the writer
                await asyncio.sleep(wait)
                self.last_frame = self._loop.time()  # it could not be heard: that is no silence of the peer's
            if journal.full:
                await journal.room()

    def _note_connection(self) -> int:
        """Have operators see this socket; returns its row's key."""
        key = new_key()
        headers = dict(self.scope.get("headers", ()))
        client = self.scope.get("client") or ("",)
        self.gateway.journal.put(
            presence.Opened(
                id=key,
                user_id=self.principal.user_id,
                side=self.SIDE,
                agent=(self.principal.agent or "hermes") if self.SIDE == "agent" else "",
                caps=",".join(sorted(self.caps)),
                address=str(client[0])[:64],
                user_agent=headers.get(b"user-agent", b"").decode("latin-1").replace("\x00", "")[:200],
            )
        )
        return key

    def _take(self, text: str | None) -> None:
        try:
            if text is None:
                raise frames.BadFrame("frame", "is binary; frames are text")
            self.take(text)
        except LookAgain:
            raise
        except Paced:
            pass
        except GatewayError as error:
            self.refused(error)
        except Exception:
            logger.exception("a frame could not be taken")
            self.close(CloseCode.INTERNAL)

    def _drain(self) -> None:
        """Send what waits, while the transport takes it."""
        if self._transport is None or not self._open or self.closing is not None:
            return
        while not self._transport.paused and (text := self._outbox.take()) is not None:
            self._transport.send_text(text)

    async def _pump_out(self) -> None:
        while True:
            await self._outbox.ready()
            if not self._open:
                await asyncio.sleep(0.01)
                continue
            while (text := self._outbox.take()) is not None:
                await self._send({"type": "websocket.send", "text": text})
            if self._outbox.over:
                return

    async def _send_close(self, code: int) -> None:
        try:
            await self._send({"type": "websocket.close", "code": code})
        except Exception:
            logger.info("a socket was gone before it was closed")

    def _read_query(self) -> None:
        query = parse_qs(
            self.scope.get("query_string", b"").decode("ascii", "replace"), keep_blank_values=True
        )
        asked = {cap for value in query.get("caps", []) for cap in value.split(",") if cap}
        self.caps = frozenset(asked & CAPS)
        for value in query.get("since", []):
            if not (value.isascii() and value.isdigit() and len(value) < 19):
                raise InvalidRequest("since is not a number", field="since")
            self.since = int(value)
