"""
The load: pairs of an agent that streams numbered pieces and an App that counts them, each pair with a window.

A pair keeps `window` pieces on the way: as many as its App has seen, its agent sends anew. Pieces have one length, so an
App counts them in whatever way they come joined, and each is checked to follow the one before. Run as a program: one
JSON order on standard input; on standard output a line when the measured time begins, then one JSON answer.
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import uvloop
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from bench.cpu import cpu_seconds

PIECE_CHARS = 20
"""Of each piece: nineteen digits and a bar."""

CONNECT_AT_ONCE = 20
HANDSHAKE_SECONDS = 60.0
DRAIN_SECONDS = 10.0
BEGUN = "begun"
"""The line that is printed when all pairs run and the measured time begins."""


@dataclass
class Pair:
    """What the two sockets of a pair share."""

    window: int
    frame: tuple[bytes, bytes]  # a `stream` frame, before and after its text
    end: bytes  # the frame that ends the stream, if there is one
    session: bytes  # what tells its pieces from what was left of an earlier run
    seen: int = 0
    sent: int = 0
    agent: WSTransport | None = None
    app: WSTransport | None = None
    going: bool = True
    faults: list[str] = field(default_factory=list)

    def fill(self) -> None:
        """Send until the window is full."""
        assert self.agent is not None
        before, after = self.frame
        while self.going and self.sent - self.seen < self.window:
            self.agent.send(WSMsgType.TEXT, b"%b%019d|%b" % (before, self.sent, after))
            self.sent += 1


class Agent(WSListener):
    """The sending side; what comes to it is of no interest but for errors."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Only a refusal or a close comes here."""
        if frame.msg_type in (WSMsgType.TEXT, WSMsgType.CLOSE):
            self.pair.faults.append(f"to the agent: {frame.get_payload_as_bytes()[:200]!r}")


class App(WSListener):
    """The receiving side: counts, checks the order, lets the agent go on."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Count the pieces of one frame."""
        if frame.msg_type == WSMsgType.CLOSE:
            self.pair.faults.append(f"the App was closed: {frame.get_payload_as_bytes()[:100]!r}")
        if frame.msg_type != WSMsgType.TEXT:
            return
        pair, payload = self.pair, frame.get_payload_as_bytes()
        if b'"type":"stream"' not in payload or pair.session not in payload:
            if b'"type":"error"' in payload:
                pair.faults.append(f"to the App: {payload[:200]!r}")
            return
        pieces = payload.count(b"|")
        at = payload.index(b"|") - PIECE_CHARS + 1
        if int(payload[at : at + PIECE_CHARS - 1]) != pair.seen:
            pair.faults.append(f"expected piece {pair.seen}, got {payload[at : at + 40]!r}")
        pair.seen += pieces
        pair.fill()


async def connect(order: dict[str, Any]) -> list[Pair]:
    """Open all pairs and begin their streams."""
    gate = asyncio.Semaphore(CONNECT_AT_ONCE)
    pairs = []

    async def one(spec: dict[str, str]) -> None:
        before, after = spec["piece"].split("TEXT")
        frame = (before.encode(), after.encode())
        pair = Pair(order["window"], frame, spec.get("end", "").encode(), spec["session"].encode())
        async with gate:
            pair.app, _ = await ws_connect(
                lambda: App(pair), spec["app"], websocket_handshake_timeout=HANDSHAKE_SECONDS
            )
            pair.agent, _ = await ws_connect(
                lambda: Agent(pair), spec["agent"], websocket_handshake_timeout=HANDSHAKE_SECONDS
            )
        if spec.get("start"):
            pair.agent.send(WSMsgType.TEXT, spec["start"].encode())
        pairs.append(pair)

    async with asyncio.TaskGroup() as group:
        for spec in order["pairs"]:
            group.create_task(one(spec))
    return pairs


async def finish(pairs: list[Pair]) -> None:
    """Let what is on the way arrive, end the streams, close the sockets."""
    for pair in pairs:
        pair.going = False
    deadline = time.monotonic() + DRAIN_SECONDS
    for pair in pairs:
        while pair.seen < pair.sent and time.monotonic() < deadline:  # noqa: ASYNC110  (an event would cost)
            await asyncio.sleep(0.01)
        if pair.seen < pair.sent:
            pair.faults.append(f"{pair.sent - pair.seen} pieces never came")
    for pair in pairs:
        assert pair.agent is not None and pair.app is not None
        if pair.end:
            pair.agent.send(WSMsgType.TEXT, pair.end)
        for line in (pair.agent, pair.app):
            line.send_close(WSCloseCode.OK)
            line.disconnect()


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order; returns counts of the measured time."""
    pairs = await connect(order)
    for pair in pairs:
        pair.fill()
    await asyncio.sleep(order["warm_seconds"])
    print(BEGUN, flush=True)
    pids = order["pids"]
    began, cpu, own = time.monotonic(), cpu_seconds(pids), time.process_time()
    seen = sum(pair.seen for pair in pairs)
    await asyncio.sleep(order["seconds"])
    seconds, cpu, own = time.monotonic() - began, cpu_seconds(pids) - cpu, time.process_time() - own
    pieces = sum(pair.seen for pair in pairs) - seen
    await finish(pairs)
    return {
        "pieces": pieces,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "load_share": own / seconds,
        "faults": [fault for pair in pairs for fault in pair.faults][:5],
    }


def main() -> None:
    """Read the order, print the answer."""
    order = json.load(sys.stdin)
    print(json.dumps(uvloop.run(run(order))))


if __name__ == "__main__":
    main()
