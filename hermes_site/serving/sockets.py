"""One WebSocket as an ASGI connection: the application's `receive` and `send` over the frames of an asyncio transport."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from hermes_site.errors import CloseCode
from hermes_site.serving.frames import Frames, Message
from hermes_site.serving.refusals import refusal

if TYPE_CHECKING:
    from hermes_site.serving.server import Server

logger = logging.getLogger(__name__)

Headers = Iterable[tuple[bytes, bytes]]

GONE = 1006  # what the application is told when a connection ended without a close frame


class Socket(asyncio.Protocol):
    """
    A WebSocket from the request to its end.

    It is also what the application finds at `scope["extensions"]["hermes.transport"]`. Public there:
    `last_heard` (`loop.time()` of the last bytes from the peer, a pong included), `paused` (whether `send` would
    wait), `buffered` (unsent bytes), `on_resume` (called when `paused` ends), `send_text`, `abort`.
    """

    __slots__ = (
        "_early",
        "_frames",
        "_handshake",
        "_loop",
        "_over",
        "_reading",
        "_refusal",
        "_scope",
        "_server",
        "_task",
        "_timer",
        "_told",
        "_transport",
        "_unread",
        "_unread_bytes",
        "_unsent",
        "_waiter",
        "_writable",
        "_writer",
        "client",
        "last_heard",
        "on_resume",
        "path",
        "paused",
    )

    def __init__(
        self, server: "Server", scope: dict[str, Any], request: Request, unsent: bytes, early: bytes
    ) -> None:
        """
        Args:
            scope: Without `extensions`, which are added.
            request: The same request for `websockets`, which judges the handshake.
            unsent: What the peer must still get of earlier answers on this connection.
            early: What it sent behind the request, without waiting for the answer.
        """
        self._server = server
        self._loop = server.loop
        self._transport: asyncio.Transport | None = None
        self._writer: asyncio.Transport | None = None  # the same, while messages may be sent
        self._frames = Frames(server.options.max_frame_bytes)
        self._handshake: Response | None = ServerProtocol().accept(request)  # until it is sent
        self._refusal: tuple[int, Headers, bytes] | None = None
        self._unsent = unsent
        self._early = early
        self._unread: deque[Message] = deque()
        self._unread_bytes = 0  # at most; counted anew when none is left
        self._reading = True
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = False  # nothing will be sent or read any more
        self._told = False  # the application knows of the end
        self.last_heard = self._loop.time()
        self.paused = False
        self.on_resume: Callable[[], None] | None = None
        self.path = scope["path"]
        self.client = scope["client"]
        self._scope = scope

    # --- what the application uses --------------------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """Bytes that wait to be sent to the peer."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def abort(self) -> None:
        """Cut the connection now, whatever waits to be sent."""
        if self._transport is not None:
            self._writer = None
            self._transport.abort()

    def send_text(self, text: str) -> None:
        """Send one text without waiting, paused or not; dropped, like that of `send`, when the socket is closed."""
        if self._writer is not None:
            self._writer.write(self._frames.text(text))

    async def receive(self) -> Message:
        """The next ASGI message; no task switch while some are waiting."""
        while not self._unread:
            self._waiter = self._loop.create_future()
            await self._waiter
        message = self._unread.popleft()
        if not self._unread:
            self._unread_bytes = 0
        if not self._reading:
            self._read_on()
        return message

    async def send(self, message: Message) -> None:
        """
        Carry out one ASGI message; waits while the peer reads too slowly.

        Raises:
            ValueError: If the message does not fit the state of the connection.
        """
        kind = message["type"]
        if kind == "websocket.send":
            if self._handshake is not None:
                raise ValueError("the WebSocket is not accepted yet")
            if self._writer is None:
                return
            text = message.get("text")
            self._writer.write(
                self._frames.text(text) if text is not None else self._frames.binary(message["bytes"])
            )
            if self.paused:
                await self._resumed()
        elif kind == "websocket.close":
            if self._handshake is None:
                self.close(message.get("code") or 1000, message.get("reason") or "")
            else:
                self._refuse(403)
        elif kind == "websocket.accept":
            self._accept(message.get("subprotocol"), message.get("headers") or ())
        elif kind == "websocket.http.response.start":
            self._refusal = (message["status"], message.get("headers") or (), b"")
        elif kind == "websocket.http.response.body":
            if self._refusal is None:
                raise ValueError("the response is not started")
            status, headers, body = self._refusal
            self._refusal = (status, headers, body + message.get("body", b""))
            if not message.get("more_body"):
                self._refuse(*self._refusal)
        else:
            raise ValueError(f"{kind} is not a message of a WebSocket")

    def close(self, code: int, reason: str = "") -> None:
        """
        Begin the closing handshake; a peer that does not follow is cut off.

        Raises:
            ValueError: If the code may not be sent.
        """
        if self._writer is None:
            return
        self._frames.close(code, reason)
        self._writer = None
        self._write_pending()
        self._set_timer(self._server.options.close_seconds, self.abort)
        self._read_all()

    # --- opening --------------------------------------------------------------------------------------------------

    def _accept(self, subprotocol: str | None, headers: Headers) -> None:
        """Finish the handshake."""
        response = self._take_handshake()
        if subprotocol is not None:
            response.headers["Sec-WebSocket-Protocol"] = subprotocol
        for name, value in headers:
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
        if self._transport is None:
            return
        self._writer = self._transport
        self._writer.write(response.serialize())
        self._server.log_socket(self, "connected")
        self._set_timer(self._server.options.ping_seconds, self._ping)
        early, self._early = self._early, b""
        if early:
            self._take(early)
        self._read_on()

    def _refuse(self, status: int, headers: Headers = (), body: bytes = b"") -> None:
        """Answer the request by something else than a WebSocket."""
        self._take_handshake()
        self._reject(refusal(status, headers, body))

    def _reject(self, response: Response) -> None:
        """Send an answer that is not 101 and end the connection."""
        self._server.log_socket(self, "rejected", response.status_code)
        if self._transport is not None:
            self._transport.write(response.serialize())
            self._finish()

    def _take_handshake(self) -> Response:
        """The answer to the request, to be given once."""
        if self._handshake is None:
            raise ValueError("the WebSocket is already accepted or refused")
        response, self._handshake = self._handshake, None
        return response

    def _not_answered(self) -> None:
        """The application neither took nor refused the WebSocket in time."""
        logger.warning("the application did not answer a WebSocket on %s in time", self.path)
        self._refuse(503)

    # --- the transport --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is ours now."""
        self._transport = cast(asyncio.Transport, transport)
        high = self._server.options.send_buffer_bytes
        self._transport.set_write_buffer_limits(high=high, low=high // 4)
        if self._unsent:
            self._transport.write(self._unsent)
        self._server.sockets_open.add(self)
        self._server.log_socket(self, "connecting")
        scope, self._scope = self._scope, {}
        if self._handshake is None or self._handshake.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._reject(self._take_handshake())
            return
        scope["extensions"] = {"websocket.http.response": {}, "hermes.transport": self}
        self._unread.append({"type": "websocket.connect"})
        self._task = self._loop.create_task(self._server.application(scope, self.receive, self.send))
        self._task.add_done_callback(self._application_ended)
        self._server.keep(self._task)
        self._set_timer(self._server.options.accept_seconds, self._not_answered)

    def data_received(self, data: bytes) -> None:
        """Bytes from the peer."""
        self.last_heard = self._loop.time()
        if self._over:
            return
        if self._handshake is None:
            self._take(data)
            return
        self._early += data
        if len(self._early) > self._server.options.send_buffer_bytes:
            self._stop_reading()

    def _take(self, data: bytes) -> None:
        """Read frames; all the messages they complete go to the application at once."""
        was_open = self._writer is not None
        options = self._server.options
        messages = self._frames.receive(data, options.unread_frames + 1 - len(self._unread))
        if messages and was_open:
            self._unread.extend(messages)
            self._unread_bytes += len(data) + _size(messages[0])  # the others came whole with this data
            if len(self._unread) > options.unread_frames or self._unread_bytes > options.unread_bytes:
                self._stop_reading()
            self._wake()
        if self._frames.protocol.writes:
            self._write_pending()

    def eof_received(self) -> bool:
        """The peer sends no more; nothing is worth keeping the connection for."""
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        """The end: the application is told, and must end too."""
        self._transport = self._writer = None
        self._server.sockets_open.discard(self)
        self._set_timer(0, self.abort)
        self.resume_writing()
        self._tell()
        self._server.log_socket(self, "disconnected")
        if self._task is not None and not self._task.done():
            self._set_timer(self._server.application_close_timeout, self._task.cancel)

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write."""
        self.paused = True

    def resume_writing(self) -> None:
        """It has caught up, or gone."""
        was_paused, self.paused = self.paused, False
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        if was_paused and self.on_resume is not None:
            self.on_resume()

    # --- within ---------------------------------------------------------------------------------------------------

    def _write_pending(self) -> None:
        """Send what the protocol has to say; after its last word wait for the peer to go."""
        if self._transport is None:
            return
        data, last = self._frames.pending()
        self._transport.write(data)
        if last:
            self._finish()

    def _finish(self) -> None:
        """The last word is said: wait for the peer to go; to close at once would reset one that is still sending."""
        self._over = True
        self._writer = None
        self._tell()
        if self._transport is not None:
            self._transport.write_eof()
            self._read_all()
        self._set_timer(self._server.options.close_seconds, self.abort)

    def _stop_reading(self) -> None:
        """Let the peer wait."""
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """The application has made room: first for the bytes that wait, then for new ones."""
        options = self._server.options
        if len(self._unread) * 2 > options.unread_frames or self._unread_bytes > options.unread_bytes:
            return
        if self._frames.left:
            self._take(b"")
        if len(self._unread) <= options.unread_frames and self._unread_bytes <= options.unread_bytes:
            self._read_all()

    def _read_all(self) -> None:
        """Read again, whatever waits."""
        if not self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    def _ping(self) -> None:
        """Ask a silent peer for a sign of life."""
        every = self._server.options.ping_seconds
        silence = self._loop.time() - self.last_heard
        if silence >= every and self._writer is not None and not self.paused:
            self._frames.ping()
            self._write_pending()
        self._set_timer(every - silence if silence < every else every, self._ping)

    def _tell(self) -> None:
        """Put the end behind the last message."""
        if not self._told:
            self._told = True
            code, reason = self._frames.closed() or (GONE, "")
            self._unread.append({"type": "websocket.disconnect", "code": code, "reason": reason})
            self._wake()

    def _wake(self) -> None:
        """Let `receive` go on."""
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
            self._waiter = None

    async def _resumed(self) -> None:
        """Wait until the peer has caught up, or gone."""
        if self._writable is None:
            self._writable = self._loop.create_future()
        await asyncio.shield(self._writable)

    def _set_timer(self, after_seconds: float, action: Callable[[], object]) -> None:
        """The one timer of this socket: what it was set for before is over; 0 sets none."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(after_seconds, action) if after_seconds else None

    def _application_ended(self, task: "asyncio.Task[None]") -> None:
        """An application that returns leaves its socket; one that failed is logged."""
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            logger.error("the application failed on %s", self.path, exc_info=problem)
        if self._transport is None:
            self._set_timer(0, self.abort)
        elif self._handshake is not None:
            self._refuse(500)
        elif task.cancelled():
            self.close(CloseCode.GOING_AWAY)
        else:
            self.close(CloseCode.NORMAL if problem is None else CloseCode.INTERNAL)


def _size(message: Message) -> int:
    """About the bytes an unread message holds."""
    text = message.get("text")
    return len(text) if text is not None else len(message.get("bytes", b""))
