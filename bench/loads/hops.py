"""
Whole texts: an App asks, its agent answers, and the App asks again. Each direction is one hop.

A pair keeps `window` questions on the way, in as many sessions. Agent and App each check that they get every text once
and in order. With `pause_seconds` an App waits that long after an answer: a low load, to time single round trips.
"""

import asyncio
import time
from collections import deque
from typing import Any, Self

import msgspec

from bench.cpu import Meter
from bench.loads.lines import Line, all_at_once, open_line
from bench.loads.orders import carry_out, say_begun

DRAIN_SECONDS = 10.0
_decode = msgspec.json.Decoder().decode


class Pair:
    """What the two sockets of a pair share; `spec` as `bench.systems` makes it."""

    agent: Line
    app: Line

    def __init__(self, spec: dict[str, str], window: int, pause_seconds: float) -> None:
        self.spec = spec
        self.window = window
        self.pause_seconds = pause_seconds
        self.ask_frame = _template(spec["ask"])
        self.answer_frame = _template(spec["answer"])
        self.asked = 0
        self.heard = 0
        self.answered = 0
        self.going = True
        self.on_the_way: deque[float] = deque()
        self.trips: list[float] = []
        self.faults: list[str] = []

    @property
    def hops(self) -> int:
        """Texts that have come, either way."""
        return self.heard + self.answered

    async def open(self) -> Self:
        """Connect both sockets."""
        self.app = await open_line(self.spec["app"], "the App", self.take_answer, self.faults)
        self.agent = await open_line(self.spec["agent"], "the agent", self.take_question, self.faults)
        return self

    def ask(self) -> None:
        """Ask the next question."""
        if self.going:
            self.on_the_way.append(time.monotonic())
            self.app.send(self._fill(self.ask_frame, self.asked))
            self.asked += 1

    def take_question(self, payload: bytes) -> None:
        """The agent answers at once."""
        if self._expect(payload, f"{self.spec['lead']}-q-{self.heard:08}"):
            self.agent.send(self._fill(self.answer_frame, self.heard))
            self.heard += 1

    def take_answer(self, payload: bytes) -> None:
        """The App asks anew, at once or after its pause."""
        if self._expect(payload, f"{self.spec['lead']}-a-{self.answered:08}"):
            self.trips.append(time.monotonic() - self.on_the_way.popleft())
            self.answered += 1
            if self.pause_seconds:
                asyncio.get_running_loop().call_later(self.pause_seconds, self.ask)
            else:
                self.ask()

    def _expect(self, payload: bytes, name: str) -> bool:
        frame = _decode(payload)
        if frame["type"] == "text" and frame["id"] == name:
            return True
        self.faults.append(f"expected {name}, got {payload[:300]!r}")
        return False

    def _fill(self, frame: list[bytes], number: int) -> bytes:
        digits, lane = b"%08d" % number, b"%d" % (number % self.window)
        return b"".join(digits if part == b"NUMBER" else lane if part == b"LANE" else part for part in frame)


def _template(text: str) -> list[bytes]:
    """The parts of a frame between the places that are filled in, and these."""
    parts: list[bytes] = []
    for piece in text.replace("NUMBER", "\0NUMBER\0").replace("LANE", "\0LANE\0").split("\0"):
        parts.append(piece.encode())
    return parts


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order; returns hops and the seconds of each round trip in the measured time."""
    window, pause = order["window"], order.get("pause_seconds", 0.0)
    pairs = await all_at_once(Pair(spec, window, pause).open() for spec in order["pairs"])
    for pair in pairs:
        for _ in range(window):
            pair.ask()
    await asyncio.sleep(order["warm_seconds"])
    say_begun()
    meter, before = Meter(order["pids"]), [(pair.hops, len(pair.trips)) for pair in pairs]
    await asyncio.sleep(order["seconds"])
    used = meter.used()
    hops = sum(pair.hops for pair in pairs) - sum(count for count, _ in before)
    trips = [trip for pair, (_, first) in zip(pairs, before, strict=True) for trip in pair.trips[first:]]
    return used | {"hops": hops, "trips": trips, "faults": await _finish(pairs)}


async def _finish(pairs: list[Pair]) -> list[str]:
    for pair in pairs:
        pair.going = False
    deadline = time.monotonic() + DRAIN_SECONDS
    for pair in pairs:
        while pair.on_the_way and time.monotonic() < deadline:  # noqa: ASYNC110  (an event would cost)
            await asyncio.sleep(0.01)
        if pair.on_the_way:
            pair.faults.append(f"{len(pair.on_the_way)} answers never came")
        pair.agent.leave()
        pair.app.leave()
    return [fault for pair in pairs for fault in pair.faults][:5]


if __name__ == "__main__":
    carry_out(run)
