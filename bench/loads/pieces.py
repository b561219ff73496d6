"""
Streamed pieces: pairs of an agent that streams numbered pieces and an App that counts them, each pair with a window.

A pair keeps `window` pieces on the way: as many as its App has seen, its agent sends anew. Pieces have one length, so an
App counts them in whatever way they come joined, and each is checked to follow the one before.
"""

import asyncio
import time
from typing import Any, Self

from bench.cpu import Meter
from bench.loads.lines import Line, all_at_once, open_line
from bench.loads.orders import carry_out, say_begun

PIECE_CHARS = 20
"""Of each piece: nineteen digits and a bar."""

DRAIN_SECONDS = 10.0


class Pair:
    """What the two sockets of a pair share; `spec` as `bench.systems` makes it."""

    agent: Line
    app: Line

    def __init__(self, spec: dict[str, str], window: int) -> None:
        self.spec = spec
        self.window = window
        self.before, self.after = (part.encode() for part in spec["piece"].split("TEXT"))
        self.session = spec["session"].encode()  # what tells its pieces from what was left of an earlier run
        self.seen = 0
        self.sent = 0
        self.going = True
        self.faults: list[str] = []

    async def open(self) -> Self:
        """Connect both sockets and begin the stream."""
        self.app = await open_line(self.spec["app"], "the App", self.take, self.faults)
        self.agent = await open_line(self.spec["agent"], "the agent", self.complain, self.faults)
        if self.spec.get("start"):
            self.agent.send(self.spec["start"].encode())
        return self

    def complain(self, payload: bytes) -> None:
        """What comes to the agent is an error."""
        self.faults.append(f"to the agent: {payload[:200]!r}")

    def take(self, payload: bytes) -> None:
        """Count the pieces of one frame that came to the App."""
        if b'"type":"stream"' not in payload or self.session not in payload:
            if b'"type":"error"' in payload:
                self.faults.append(f"to the App: {payload[:200]!r}")
            return
        at = payload.index(b"|") - PIECE_CHARS + 1
        if int(payload[at : at + PIECE_CHARS - 1]) != self.seen:
            self.faults.append(f"expected piece {self.seen}, got {payload[at : at + 40]!r}")
        self.count(payload.count(b"|"))

    def count(self, pieces: int) -> None:
        """So many more have come: send on."""
        self.seen += pieces
        self.fill()

    def fill(self) -> None:
        """Send until the window is full."""
        while self.going and self.sent - self.seen < self.window:
            self.send_piece()

    def send_piece(self) -> None:
        """Send the next piece."""
        self.agent.send(b"%b%019d|%b" % (self.before, self.sent, self.after))
        self.sent += 1

    def leave(self) -> None:
        """End the stream and close both sockets."""
        if self.spec.get("end"):
            self.agent.send(self.spec["end"].encode())
        self.agent.leave()
        self.app.leave()


async def finish(pairs: list[Any]) -> list[str]:
    """Let what is on the way arrive, end the streams, close the sockets; returns the faults."""
    for pair in pairs:
        pair.going = False
    deadline = time.monotonic() + DRAIN_SECONDS
    for pair in pairs:
        while pair.seen < pair.sent and time.monotonic() < deadline:  # noqa: ASYNC110  (an event would cost)
            await asyncio.sleep(0.01)
        if pair.seen < pair.sent:
            pair.faults.append(f"{pair.sent - pair.seen} pieces never came")
    for pair in pairs:
        pair.leave()
    return [fault for pair in pairs for fault in pair.faults][:5]


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order; returns counts of the measured time."""
    pairs = await all_at_once(Pair(spec, order["window"]).open() for spec in order["pairs"])
    for pair in pairs:
        pair.fill()
    await asyncio.sleep(order["warm_seconds"])
    say_begun()
    meter, seen = Meter(order["pids"]), sum(pair.seen for pair in pairs)
    await asyncio.sleep(order["seconds"])
    used, pieces = meter.used(), sum(pair.seen for pair in pairs) - seen
    return used | {"pieces": pieces, "faults": await finish(pairs)}


if __name__ == "__main__":
    carry_out(run)
