"""
A connection leaves Twisted: its socket goes on as a transport of the event loop itself.

The loop (uvloop above all) reads and writes it in C; through Twisted each read and each write costs a turn in Python.
"""

import asyncio
import logging
import socket
from typing import Any

from hermes_site.serving import scopes
from hermes_site.serving.sockets import Socket

logger = logging.getLogger(__name__)


def begin(request: Any) -> None:
    """Take the connection of a request for a WebSocket as soon as Twisted has put its bytes aside."""
    request.channel.transport.stopReading()
    request.server.loop.call_soon(_take, request)


def _take(request: Any) -> None:
    """Detach the socket; Twisted keeps an empty shell that is registered nowhere."""
    channel, server = request.channel, request.server
    if channel is None or channel.transport.disconnected:
        return
    transport = channel.transport
    transport.unregisterProducer()
    transport.stopReading()
    transport.stopWriting()
    unsent = b"".join((transport.dataBuffer[transport.offset :], *transport._tempDataBuffer))
    early = b"".join(channel._dataBuffer)
    sock = socket.socket(fileno=transport.socket.detach())
    channel.requests.clear()
    request.channel = request.transport = channel.transport = transport.protocol = (
        None  # no cycles left behind
    )
    server.protocol_disconnected(request)
    websocket = Socket(server, scopes.websocket(request), scopes.handshake(request), unsent, early)
    server.keep(server.loop.create_task(_adopt(server.loop, sock, websocket)))


async def _adopt(loop: asyncio.AbstractEventLoop, sock: socket.socket, websocket: Socket) -> None:
    """Let the loop have the socket."""
    try:
        await loop.connect_accepted_socket(lambda: websocket, sock)
    except OSError as problem:
        logger.info("a peer left before its WebSocket was open: %s", problem)
        sock.close()
        websocket.connection_lost(problem)
