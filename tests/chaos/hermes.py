"""A Hermes API server that says numbered words as it is told, and keeps record of each turn it ran."""

import asyncio
import contextlib
import json
import uuid
from dataclasses import dataclass, field
from typing import Any, Self

FEATURES = {"0.19": {}, "0.22": {"runs_idempotency": True}}
REASONS = {200: "OK", 202: "Accepted", 404: "Not Found"}


@dataclass
class Order:
    """What a question asks for: so many words, a pause after each, and whether it ends badly."""

    mark: str
    words: int
    pause_seconds: float
    fails: bool = False

    def question(self) -> str:
        """The text to send."""
        return f"{self.mark} {self.words} {self.pause_seconds} {int(self.fails)}"

    @classmethod
    def read(cls, text: str) -> Self:
        """The order in a question."""
        mark, words, pause_seconds, fails = text.split()
        return cls(mark, int(words), float(pause_seconds), fails == "1")


@dataclass
class Turn:
    """One turn as this server ran it."""

    order: Order
    id: str = field(default_factory=lambda: f"run_{uuid.uuid4().hex}")
    said: list[str] = field(default_factory=list)
    end: str | None = None
    read: bool = False
    stopped: bool = False
    moved: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def text(self) -> str:
        """All words said so far."""
        return "".join(self.said)

    async def run(self) -> None:
        """Say the words, then end."""
        for number in range(self.order.words):
            await asyncio.sleep(self.order.pause_seconds)
            if self.stopped:
                break
            async with self.moved:
                self.said.append(f"{self.order.mark}.{number} ")
                self.moved.notify_all()
        async with self.moved:
            self.end = "cancelled" if self.stopped else "failed" if self.order.fails else "completed"
            self.moved.notify_all()


class ScriptedHermes:
    """The server, in this very process: whatever else dies, its record stays. Use as an async context manager."""

    def __init__(self, version: str = "0.22") -> None:
        self.turns: list[Turn] = []
        self._features = FEATURES[version]
        self._keys: dict[str, Turn] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ran(self, mark: str) -> list[Turn]:
        """The turns that a question started."""
        return [turn for turn in self.turns if turn.order.mark == mark]

    def _start(self, body: dict[str, Any], key: str | None) -> Turn:
        if key is not None and key in self._keys:
            return self._keys[key]
        turn = Turn(Order.read(body["input"]))
        self.turns.append(turn)
        if key is not None and self._features:
            self._keys[key] = turn
        task = asyncio.create_task(turn.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            await self._answer(writer, method, path, headers, json.loads(body or b"{}"))
            await writer.drain()
        writer.close()
        self._tasks.discard(task)

    async def _answer(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        headers: dict[str, str],
        body: dict[str, Any],
    ) -> None:
        parts = path.split("/")[2:]
        if parts == ["capabilities"]:
            _json(writer, 200, {"features": self._features})
        elif method == "POST" and parts == ["runs"]:
            turn = self._start(body, headers.get("idempotency-key"))
            _json(writer, 202, {"run_id": turn.id, "status": "started"})
        elif (found := next((one for one in self.turns if one.id == parts[1]), None)) is None:
            _json(writer, 404, {"error": {"code": "not_found", "message": "no such run"}})
        elif parts[2:] == ["events"] and found.read and not self._features:
            _json(writer, 404, {"error": {"code": "not_found", "message": "its events were read"}})
        elif parts[2:] == ["events"]:
            found.read = True
            await self._tell(writer, found, int(headers.get("last-event-id", -1)) + 1)
        elif parts[2:] == ["stop"]:
            found.stopped = True
            _json(writer, 200, {"status": "stopping"})
        else:
            status = {
                "status": found.end or "running",
                "output": found.text if found.end == "completed" else "",
            }
            _json(writer, 200, {"run_id": found.id} | status)

    async def _tell(self, writer: asyncio.StreamWriter, turn: Turn, number: int) -> None:
        """The events of a turn from a number on, live up to its end."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        while True:
            async with turn.moved:
                while number >= len(turn.said) and turn.end is None:
                    await turn.moved.wait()
            for word in turn.said[number:]:
                writer.write(_event(number, {"event": "message.delta", "delta": word}))
                number += 1
            await writer.drain()
            if turn.end is not None and number == len(turn.said):
                last = {"output": turn.text} if turn.end == "completed" else {"error": "it was asked to fail"}
                writer.write(_event(number, {"event": f"run.{turn.end}"} | last))
                return


def _event(number: int, event: dict[str, Any]) -> bytes:
    return f"id: {number}\ndata: {json.dumps(event)}\n\n".encode()


def _json(writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content)
