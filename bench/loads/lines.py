"""Sockets of a load generator: opened a few at a time, what is wrong with them kept as faults."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

CONNECT_AT_ONCE = 20
HANDSHAKE_SECONDS = 60.0
MOST_BYTES = 64 * 1024 * 1024
Took = Callable[[bytes], None]


class Line(WSListener):
    """One socket: each text goes to `took`; an end that was not asked for is a fault."""

    def __init__(self, name: str, took: Took, faults: list[str]) -> None:
        self.transport: WSTransport | None = None
        self.closed_with: int | None = None
        self._name = name
        self._took = took
        self._faults = faults
        self._leaving = False

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Keep what sends."""
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Pass a text on; note a close."""
        if frame.msg_type == WSMsgType.TEXT:
            self._took(frame.get_payload_as_bytes())
        elif frame.msg_type == WSMsgType.CLOSE:
            self.closed_with = int(frame.get_close_code())

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """An end that was not asked for."""
        if not self._leaving:
            self._faults.append(f"{self._name} was closed with {self.closed_with}")

    def pause_writing(self) -> None:
        """What is sent waits in this process: that is the load's own memory."""

    def resume_writing(self) -> None:
        """The same."""

    def send(self, text: bytes) -> None:
        """Send one frame."""
        assert self.transport is not None
        self.transport.send(WSMsgType.TEXT, text)

    def leave(self) -> None:
        """Close it."""
        assert self.transport is not None
        self._leaving = True
        self.transport.send_close(WSCloseCode.OK)
        self.transport.disconnect()


async def open_line(url: str, name: str, took: Took, faults: list[str]) -> Line:
    """Connect one socket."""
    _, line = await ws_connect(
        lambda: Line(name, took, faults),
        url,
        websocket_handshake_timeout=HANDSHAKE_SECONDS,
        max_frame_size=MOST_BYTES,
    )
    assert isinstance(line, Line)
    return line


async def all_at_once(openings: Iterable[Any]) -> list[Any]:
    """Await them all, `CONNECT_AT_ONCE` at a time; results in order."""
    gate = asyncio.Semaphore(CONNECT_AT_ONCE)

    async def one(opening: Any) -> Any:
        async with gate:
            return await opening

    return list(await asyncio.gather(*(one(opening) for opening in openings)))
