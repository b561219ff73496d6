"""
Streamed pieces at a set rate: how long each takes from its agent's send to its App's receipt.

Both ends are in this process, so one clock serves. Pairs take turns; the clock of the event loop wakes once a
millisecond, so at high rates a few pairs send together.
"""

import asyncio
import time
from collections import deque
from typing import Any

from bench.cpu import Meter
from bench.loads.lines import all_at_once
from bench.loads.orders import carry_out, say_begun
from bench.loads.pieces import Pair, finish


class Timed(Pair):
    """A pair that is told when to send, and remembers when it did."""

    def __init__(self, spec: dict[str, str]) -> None:
        super().__init__(spec, 0)
        self.on_the_way: deque[float] = deque()
        self.delays: list[float] = []

    def send_piece(self) -> None:
        """Note the time, then send."""
        self.on_the_way.append(time.monotonic())
        super().send_piece()

    def count(self, pieces: int) -> None:
        """Note how long each took."""
        now = time.monotonic()
        self.seen += pieces
        self.delays += [now - self.on_the_way.popleft() for _ in range(min(pieces, len(self.on_the_way)))]


async def pace(pairs: list[Timed], rate: float) -> None:
    """Send so many pieces a second in all, each pair in its turn, until cancelled."""
    begun, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - begun) * rate)
        for number in range(sent, due):
            pairs[number % len(pairs)].send_piece()
        sent = max(sent, due)
        await asyncio.sleep(0.001)


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order; returns the seconds that each piece of the measured time took."""
    pairs = await all_at_once(Timed(spec).open() for spec in order["pairs"])
    pacing = asyncio.create_task(pace(pairs, order["rate"]))
    await asyncio.sleep(order["warm_seconds"])
    say_begun()
    meter = Meter(order["pids"])
    for pair in pairs:
        pair.delays.clear()
    await asyncio.sleep(order["seconds"])
    used, delays = meter.used(), [delay for pair in pairs for delay in pair.delays]
    pacing.cancel()
    return used | {"pieces": len(delays), "delays": delays, "faults": await finish(pairs)}


if __name__ == "__main__":
    carry_out(run)
