"""
Event streams over HTTP: agents that stream at a set rate, each run followed by one reader of its events.

Each reader checks that every piece comes once and in order, that its run completes once, and that `done` comes last.
"""

import asyncio
import json
import time
from collections import deque
from typing import Any, Self

from bench.cpu import Meter, resident_kib
from bench.loads.lines import Line, all_at_once, open_line
from bench.loads.orders import carry_out, say_begun

PIECE = b"%019d|"
RUN_SECONDS = 60.0


class EventStream(asyncio.Protocol):
    """One HTTP answer that is an event stream, in chunks; each block goes to `take`."""

    def __init__(self, request: bytes, take: Any) -> None:
        self.first_byte: float | None = None  # of its body
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = b""
        self._request = request
        self._take = take
        self._raw = b""
        self._left = 0
        self._text = b""

    def connection_made(self, transport: Any) -> None:
        """Ask."""
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Cut chunks into blocks."""
        self._raw += data
        if not self.status:
            head, found, rest = self._raw.partition(b"\r\n\r\n")
            if not found:
                return
            self.status, self._raw = head.split(b"\r\n")[0], rest
            if b" 200 " not in self.status:
                raise SystemExit(f"an event stream was refused: {self.status!r} {rest!r}")
        while True:
            size, found, rest = self._raw.partition(b"\r\n")
            if not found or len(rest) < int(size, 16) + 2:
                break
            length = int(size, 16)
            if length and self.first_byte is None:
                self.first_byte = time.monotonic()
            self._text, self._raw = self._text + rest[:length], rest[length + 2 :]
        *blocks, self._text = self._text.split(b"\n\n")
        for block in blocks:
            self._take(block)

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        if not self.ended.done():
            self.ended.set_result(None)


def request(method: str, url: str, path: str, token: str, accept: str, body: bytes = b"") -> bytes:
    """A request's bytes."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {url}\r\nAuthorization: Bearer {token}\r\nAccept: {accept}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


class Talk:
    """One user: an agent on a socket, and a reader of its run. `spec` names addresses and frames."""

    agent: Line
    stream: EventStream

    def __init__(self, spec: dict[str, str]) -> None:
        self.spec = spec
        self.faults: list[str] = []
        self.question: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.run = ""
        self.sent = 0
        self.seen = 0
        self.blocks = 0
        self.first_delta: float | None = None
        self.ends: list[bytes] = []
        self.on_the_way: deque[float] = deque()
        self.delays: list[float] = []

    async def open(self) -> Self:
        """Connect the agent, make the session."""
        self.agent = await open_line(self.spec["agent"], "an agent", self.take_frame, self.faults)
        body = json.dumps({"id": self.spec["session"]}).encode()
        await self._answer(self._post("/api/hermes/api/sessions", "application/json", body), b" 201 ")
        return self

    def take_frame(self, payload: bytes) -> None:
        """The agent's question; the greeting before it is of no interest."""
        frame = json.loads(payload)
        if frame["type"] == "text":
            self.question.set_result(frame["id"])
        elif frame["type"] == "error":
            self.faults.append(f"to the agent: {frame}")

    async def begin(self) -> Self:
        """Have a run accepted, and begin its stream."""
        answer = await self._answer(self._start("application/json"), b" 202 ")
        self.run = answer["run_id"]
        await self.start_stream()
        return self

    async def start_stream(self) -> None:
        """The agent begins to answer."""
        async with asyncio.timeout(RUN_SECONDS):
            question = await self.question
        self.agent.send(self.spec["start"].replace("QUESTION", question).encode())

    async def follow(self) -> Self:
        """Read the run's events from the first on."""
        path = f"/api/hermes/v1/runs/{self.run}/events?after=0"
        return await self._ask(
            request("GET", self.spec["host"], path, self.spec["token"], "text/event-stream")
        )

    async def begin_and_follow(self) -> Self:
        """Begin a run by the request that follows it."""
        return await self._ask(self._start("text/event-stream"))

    def _start(self, accept: str) -> bytes:
        path = f"/api/hermes/api/sessions/{self.spec['session']}/chat/stream"
        return self._post(path, accept, json.dumps({"input": "go"}).encode())

    def _post(self, path: str, accept: str, body: bytes) -> bytes:
        return request("POST", self.spec["host"], path, self.spec["token"], accept, body)

    async def _answer(self, asked: bytes, status: bytes) -> Any:
        host, port = self.spec["host"].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(asked)
        answer = await reader.read()
        writer.close()
        if status not in answer.split(b"\r\n")[0]:
            raise SystemExit(f"refused: {answer[:1000]!r}")
        return json.loads(answer[answer.index(b"{") : answer.rindex(b"}") + 1])

    async def _ask(self, asked: bytes) -> Self:
        host, port = self.spec["host"].split(":")
        _, self.stream = await asyncio.get_running_loop().create_connection(
            lambda: EventStream(asked, self.take_block), host, int(port)
        )
        return self

    def send_piece(self) -> None:
        """The agent says the next piece."""
        before, _, after = self.spec["piece"].partition("TEXT")
        self.on_the_way.append(time.monotonic())
        self.agent.send(before.encode() + PIECE % self.sent + after.encode())
        self.sent += 1

    def end(self) -> None:
        """The agent has said all."""
        self.agent.send(self.spec["end"].encode())

    def take_block(self, block: bytes) -> None:
        """One event."""
        self.blocks += 1
        if b"event: assistant.delta" in block:
            now = time.monotonic()
            self.first_delta = self.first_delta or now
            text = json.loads(block[block.index(b"data: ") + 6 :])["delta"]
            for number in text.split("|")[:-1]:
                if int(number) != self.seen:
                    self.faults.append(f"expected piece {self.seen}, got {text[:60]}")
                self.seen += 1
                self.delays.append(now - self.on_the_way.popleft())
        elif self.ends or b"event: run.completed" in block or b"event: done" in block:
            self.ends.append(block)

    def judge(self) -> None:
        """Was it whole?"""
        names = [line for block in self.ends for line in block.split(b"\n") if line.startswith(b"event: ")]
        if names != [b"event: run.completed", b"event: done"] or self.seen != self.sent:
            self.faults.append(f"{self.stream.status!r}: {self.seen} of {self.sent} pieces, then {names}")


async def finish(talks: list[Talk]) -> list[str]:
    """End all runs, wait for the end of each stream, judge."""
    for talk in talks:
        talk.end()
    await asyncio.wait([talk.stream.ended for talk in talks], timeout=RUN_SECONDS)
    for talk in talks:
        talk.judge()
        talk.agent.leave()
    return [fault for talk in talks for fault in talk.faults][:5]


async def pace(talks: list[Talk], each_per_second: float) -> None:
    """Have each send so many pieces a second, taking turns, until cancelled."""
    begun, sent, rate = time.monotonic(), 0, each_per_second * len(talks)
    while True:
        due = int((time.monotonic() - begun) * rate)
        for number in range(sent, due):
            talks[number % len(talks)].send_piece()
        sent = max(sent, due)
        await asyncio.sleep(0.001)


async def time_starts(specs: list[dict[str, str]]) -> tuple[list[tuple[float, float]], list[str]]:
    """One run after the other: seconds from the request to the first byte of the stream, and to the first piece."""
    found, faults = [], []
    for spec in specs:
        talk = await Talk(spec).open()
        began = time.monotonic()
        await talk.begin_and_follow()
        await talk.start_stream()
        talk.send_piece()
        faults += await finish([talk])
        if talk.stream.first_byte is None or talk.first_delta is None:
            raise SystemExit(f"nothing came: {talk.stream.status!r}")
        found.append((talk.stream.first_byte - began, talk.first_delta - began))
    return found, faults


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order; returns counts and delays of the measured time, memory, and the times of starts."""
    pids = order["pids"]
    starts, faults = await time_starts(order["starts"])
    talks = await all_at_once(Talk(spec).open() for spec in order["talks"])
    await all_at_once(talk.begin() for talk in talks)
    await asyncio.sleep(order["settle_seconds"])
    before = resident_kib(pids)
    await all_at_once(talk.follow() for talk in talks)
    await asyncio.sleep(order["settle_seconds"])
    after = resident_kib(pids)
    pacing = asyncio.create_task(pace(talks, order["each_per_second"]))
    await asyncio.sleep(order["warm_seconds"])
    for talk in talks:
        talk.delays.clear()
    say_begun()
    meter, blocks = Meter(pids), sum(talk.blocks for talk in talks)
    await asyncio.sleep(order["seconds"])
    used, blocks = meter.used(), sum(talk.blocks for talk in talks) - blocks
    delays = [delay for talk in talks for delay in talk.delays]
    pacing.cancel()
    return used | {
        "events": blocks,
        "pieces": len(delays),
        "delays": delays,
        "kib_a_reader": (after - before) / len(talks),
        "starts": starts,
        "faults": faults + await finish(talks),
    }


if __name__ == "__main__":
    carry_out(run)
