"""A TCP line that can be spoiled: frozen, slowed, delayed or reset while both ends believe in it."""

import asyncio
import contextlib
import socket
import struct
from typing import Self

from tests.rig.timing import eventually

CHUNK_BYTES = 16 * 1024
ESTABLISHED = 1
"""The state of a TCP connection that neither end has closed, as Linux numbers them."""


class Proxy:
    """Forwards one local port to another until told otherwise; use as an async context manager."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.delay_seconds = 0.0
        self.bytes_per_second = 0
        self.held_bytes = 0  # read from one end and not yet written to the other
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._far: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._open.set()
        for task in list(self._lines):
            task.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)
        for writer in list(self._writers):
            writer.transport.abort()

    def freeze(self) -> None:
        """Forward nothing more in either direction; both connections stay open, as behind a dead router."""
        self._open.clear()

    def thaw(self) -> None:
        """Forward again, beginning with what waited."""
        self._open.set()

    def reset(self) -> None:
        """End every connection through here with a TCP reset; bytes on the way are lost."""
        for writer in list(self._writers):
            line = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def abandoned(self) -> None:
        """
        Wait until the far end has closed a connection of this line, also while it is frozen.

        Raises:
            TimeoutError: If it keeps them all.
        """

        async def closed() -> bool:
            return any(
                writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
                != ESTABLISHED
                for writer in self._far
            )

        await eventually(closed, what="the far end closes the line")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(far_writer)
        self._far.add(far_writer)
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._lines.add(task)
            task.add_done_callback(self._lines.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                self.held_bytes += len(data)
                await self._open.wait()
                self.held_bytes -= len(data)
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                if self.bytes_per_second:
                    await asyncio.sleep(len(data) / self.bytes_per_second)
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            if self._open.is_set():  # a frozen line tells nobody that the other end has gone
                self._writers.discard(sink)
                sink.close()
