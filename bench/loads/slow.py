"""
A reader that never reads: an agent sends it many pieces at a rate that is no strain, while other pairs go on as ever.

Order: `victim` and `others` (pairs as `bench.systems` makes them), `reads` (whether the reader does read, to compare).
"""

import asyncio
import base64
import os
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from bench.cpu import resident_kib
from bench.loads.lines import Line, all_at_once, open_line
from bench.loads.orders import carry_out, say_begun
from bench.loads.paced import Timed, pace
from bench.loads.pieces import finish
from bench.tables import percentile

PIECE_CHARS = 200
RECEIVE_BYTES = 4096  # of the reader's own buffer
PIECES_PER_SECOND = 10_000
EACH_PER_SECOND = 20
CALM_SECONDS = 3.0
LOOK_SECONDS = 0.05
CLOSED_SECONDS = 15.0


class Deaf:
    """An App's socket that is accepted and then not read."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._socket.settimeout(30)
        self._socket.connect((parts.hostname, parts.port))
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self._socket.recv(1)
        if b" 101 " not in answer.split(b"\r\n")[0]:
            raise SystemExit(f"refused: {answer[:100]!r}")

    def how_it_ended(self) -> str:
        """Read what there is, at last: the close code it came to, or that it was cut off."""
        held, closed = b"", "cut off"
        self._socket.settimeout(CLOSED_SECONDS)
        try:
            while more := self._socket.recv(2**16):
                held += more
                frames, held = _frames(held)
                for opcode, payload in frames:
                    if opcode == 8:
                        closed = str(int.from_bytes(payload[:2], "big"))
        except TimeoutError:
            return "still open"
        except ConnectionError:
            pass
        finally:
            self._socket.close()
        return closed


def _frames(held: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The whole frames of a server at the beginning of some bytes, and the rest."""
    found = []
    while len(held) >= 2:
        size, at = held[1] & 127, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(held[2 : 2 + width], "big"), 2 + width
        if len(held) < at + size:
            break
        found.append((held[0] & 15, held[at : at + size]))
        held = held[at + size :]
    return found, held


async def send_all(agent: Line, spec: dict[str, str], pieces: int, streams: int) -> None:
    """So many numbered pieces in so many streams, at a set rate."""
    before, after = (part.encode() for part in spec["piece"].split("TEXT"))
    filling, began, sent = b"." * (PIECE_CHARS - 9), time.monotonic(), 0
    while sent < pieces:
        due = min(pieces, int((time.monotonic() - began) * PIECES_PER_SECOND))
        for number in range(sent, due):
            if number % (pieces // streams) == 0:
                if number:
                    agent.send(spec["end"].encode())
                agent.send(spec["start"].replace("STREAM", str(number)).encode())
            agent.send(b"%b%08d|%b%b" % (before, number, filling, after))
        sent = max(sent, due)
        await asyncio.sleep(0.001)
    agent.send(spec["end"].encode())


async def watch(pids: list[int], seen: list[int]) -> None:
    """Keep looking how much memory the processes hold, until cancelled."""
    while True:
        seen.append(resident_kib(pids))
        await asyncio.sleep(LOOK_SECONDS)


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order; returns memory in KiB, the others' delays in seconds, how the reader ended."""
    victim, pids = order["victim"], order["pids"]
    others = await all_at_once(Timed(spec).open() for spec in order["others"])
    faults: list[str] = []
    ends: list[bytes] = []
    deaf = reader = None
    if order["reads"]:

        def took(payload: bytes) -> None:
            if b'"type":"stream_end"' in payload:
                ends.append(payload)

        reader = await open_line(victim["app"], "the reader", took, faults)
    else:
        deaf = await asyncio.to_thread(Deaf, victim["app"])
    agent = await open_line(victim["agent"], "its agent", lambda _: None, faults)
    pacing = asyncio.create_task(pace(others, EACH_PER_SECOND * len(others)))
    await asyncio.sleep(CALM_SECONDS)
    before, calm = resident_kib(pids), [delay for pair in others for delay in pair.delays]
    for pair in others:
        pair.delays.clear()
    say_begun()
    seen: list[int] = []
    watching, began = asyncio.create_task(watch(pids, seen)), time.monotonic()
    await send_all(agent, victim, order["pieces"], order["streams"])
    busy = [delay for pair in others for delay in pair.delays]
    if reader is not None:
        while len(ends) < order["streams"] and time.monotonic() - began < 120:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        if len(ends) < order["streams"]:
            faults.append(f"{len(ends)} of {order['streams']} streams came to their end")
    ended = await asyncio.to_thread(deaf.how_it_ended) if deaf is not None else "reads all"
    await asyncio.sleep(1)
    watching.cancel()
    pacing.cancel()
    after = resident_kib(pids)
    agent.leave()
    if reader is not None:
        reader.leave()
    faults += await finish(others)
    return {
        "before": before,
        "peak": max(seen),
        "after": after,
        "calm_p99": percentile(calm, 0.99),
        "busy_p99": percentile(busy, 0.99),
        "ended": ended,
        "faults": faults,
    }


if __name__ == "__main__":
    carry_out(run)
