"""HTTP requests over Twisted: the body flows to the application in bounded pieces, the answer waits for its reader."""

import asyncio
import json
import time
from collections import deque
from typing import Any

from daphne.http_protocol import HTTPFactory, WebRequest
from twisted.internet import reactor
from twisted.protocols.basic import LineReceiver
from twisted.web import http

from hermes_site import errors
from hermes_site.serving import handover, scopes
from hermes_site.serving.frames import Message


class Request(WebRequest):
    """One request, which the application sees when its head is there; a WebSocket is handed over at its end."""

    def __init__(self, channel: "Channel", queued: object = None) -> None:
        """`queued` is Twisted's, and without a meaning for many years."""
        super().__init__(channel)
        self._arrived: deque[bytes] = deque()
        self._arrived_bytes = 0
        self.complete = False  # the body has ended
        self._taken = False  # and the application has its last piece
        self._gone = False  # nobody is there to answer, or all is answered
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._continue = False  # the peer waits for leave to send its body
        self.holding = False  # we do not read, for the application has not taken what is here
        self._refusal: errors.GatewayError | None = None
        self._websocket = False

    # --- from the channel -----------------------------------------------------------------------------------------

    def begin(self, method: bytes, uri: bytes, version: bytes) -> None:
        """The head is complete."""
        self.request_start = time.time()
        self.method, self.uri, self.clientproto = method, uri, version
        self.path, _, self.query_string = uri.partition(b"?")
        self.client_addr = [str(self.client.host), self.client.port]
        self.server_addr = [str(self.host.host), self.host.port]
        self.client_scheme = "https" if self.isSecure() else "http"
        upgrade = self.requestHeaders.getRawHeaders(b"Upgrade", [b""])[0]
        expect = self.requestHeaders.getRawHeaders(b"Expect", [b""])[0]
        self._continue = expect.lower() == b"100-continue" and version == b"HTTP/1.1"
        fault = scopes.fault(self)
        if fault is not None:
            self._refusal = errors.InvalidRequest(fault)
        elif self.server.draining:
            self._refusal = errors.Draining("shutting down", retry_after=1)
        elif upgrade.lower() == b"websocket":
            self._websocket = True
        else:
            self.channel.registerProducer(self, True)
            self.server.create_application(self, scopes.http(self))
        if self._refusal is not None and self.channel.length != 0:
            self.answer(self._refusal)

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802  (Twisted's name)
        """A piece of the body."""
        if self._gone or self._websocket:
            return
        self._arrived.append(data)
        self._arrived_bytes += len(data)
        if self._arrived_bytes > self.server.options.body_window_bytes and not self.holding:
            self.holding = True
            self.channel.hold()
        self._wake()

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:  # noqa: N802
        """The body is complete."""
        self.complete = True
        self._wake()
        if self._websocket:
            handover.begin(self)
        elif self._refusal is not None:
            self.answer(self._refusal)

    def connectionLost(self, reason: Any) -> None:  # noqa: N802
        """The peer has gone."""
        self._end()
        http.Request.connectionLost(self, reason)
        self.server.protocol_disconnected(self)

    def pauseProducing(self) -> None:  # noqa: N802
        """The peer reads more slowly than the application answers."""
        if self._writable is None:
            self._writable = self.server.loop.create_future()

    def resumeProducing(self) -> None:  # noqa: N802
        """It has caught up."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def stopProducing(self) -> None:  # noqa: N802
        """The connection ends; `connectionLost` says so too."""

    # --- from the application -------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """The next piece of the body; at last, the peer's leaving or the end of the answer."""
        if self._continue and not self._gone:
            self._continue = False
            self.channel.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self._arrived or self._gone or (self.complete and not self._taken)):
            self._waiter = self.server.loop.create_future()
            await self._waiter
        if self._gone:
            return {"type": "http.disconnect"}
        body = self._arrived.popleft() if self._arrived else b""
        self._arrived_bytes -= len(body)
        if self.holding and self._arrived_bytes * 2 <= self.server.options.body_window_bytes:
            self.holding = False
            self.channel.release()
        self._taken = self.complete and not self._arrived
        return {"type": "http.request", "body": body, "more_body": not self._taken}

    async def writable(self) -> None:
        """Wait until the peer has read most of what was sent to it, or has gone."""
        if self._writable is not None:
            await asyncio.shield(self._writable)

    def handle_reply(self, message: Message) -> None:
        """Write a part of the answer; one that comes before the end of the body ends the connection."""
        if message["type"] == "http.response.start" and not self.complete and not self._gone:
            self.close_after()
        super().handle_reply(message)

    def finish(self) -> None:
        """The answer is complete."""
        self._end()
        self.channel.unregisterProducer()
        http.Request.finish(self)
        self.server.protocol_disconnected(self)

    def handle_exception(self, exception: errors.GatewayError) -> None:
        """The application ended without an answer: say so; an answer that has begun is cut, not rounded off."""
        if self._gone:
            return
        if self._response_started:
            self.channel.loseConnection()
        else:
            self.answer(exception)

    # --- within ---------------------------------------------------------------------------------------------------

    def answer(self, error: errors.GatewayError) -> None:
        """Answer without the application, and end the connection."""
        self.close_after()
        body = json.dumps(errors.body(error)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if error.retry_after is not None:
            headers.append((b"retry-after", b"%d" % error.retry_after))
        self.handle_reply({"type": "http.response.start", "status": error.status, "headers": headers})
        self.handle_reply({"type": "http.response.body", "body": body})

    def close_after(self) -> None:
        """This answer is the last one on its connection."""
        self.channel.persistent = False
        self.responseHeaders.setRawHeaders(b"Connection", [b"close"])

    def _end(self) -> None:
        """Nothing more will be received or sent; whoever waits goes on."""
        self._gone = True
        self._arrived.clear()
        self._wake()
        self.resumeProducing()

    def _wake(self) -> None:
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
            self._waiter = None


class Channel(http.HTTPChannel):
    """Twisted's HTTP connection, changed where it would wait for a whole body or drop what a peer still sends."""

    requestFactory = Request  # noqa: N815
    _lingering = False

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        """Bytes of the peer; those of a head do not prolong the time that a head may take."""
        if self._lingering:
            return
        if self._transferDecoder is not None:
            self.resetTimeout()
        LineReceiver.dataReceived(self, data)

    def rawDataReceived(self, data: bytes) -> None:  # noqa: N802
        """Bytes that are no lines: of a body, or of the next request."""
        if not self._lingering:
            super().rawDataReceived(data)

    def lineLengthExceeded(self, line: bytes) -> None:  # noqa: N802
        """A line of a head is too long."""
        self._respondToBadRequestAndDisconnect()

    def allHeadersReceived(self) -> None:  # noqa: N802
        """The request begins before its body."""
        request = self.requests[-1]
        self.persistent = self.checkPersistence(request, self._version)
        request.begin(self._command, self._path, self._version)

    def hold(self) -> None:
        """Do not read; the time this takes is not the peer's."""
        self.setTimeout(None)
        self._networkProducer.pauseProducing()

    def release(self) -> None:
        """Read again."""
        if not self._handlingRequest:
            self.setTimeout(self.timeOut)
        self._networkProducer.resumeProducing()

    def resumeProducing(self) -> None:  # noqa: N802
        """The peer has read what was sent to it; a body that must wait still does."""
        super().resumeProducing()
        if self.requests and self.requests[0].holding:
            self._networkProducer.pauseProducing()

    def requestDone(self, request: Request) -> None:  # noqa: N802
        """An answer is complete; what comes of a body that nobody wants is thrown away for a while."""
        if request.complete:
            self._savedTimeOut = self.timeOut
            super().requestDone(request)
            return
        self.requests.remove(request)
        self._lingering = True
        self.setTimeout(None)
        self._networkProducer.resumeProducing()
        self._networkProducer.unregisterProducer()
        self.transport.loseWriteConnection()
        self._abortingCall = self.callLater(request.server.options.close_seconds, self.forceAbortClient)


class Factory(HTTPFactory):
    """Makes our channels."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.timeOut = server.options.idle_seconds

    def buildProtocol(self, addr: Any) -> Channel:  # noqa: N802
        """A channel for a new connection."""
        channel = Channel()
        channel.factory = self
        channel.timeOut = self.timeOut
        channel.callLater = reactor.callLater
        return channel
