"""
Hints between processes, over the channel layer. Any of them may get lost; each carries numbers that tell.

This process has one channel. It joins the group of a user (`user.<pk>`) while it has readers of that user,
and says so to all (`here`, repeated; `gone`), so that hints are sent only where somebody listens. Positions
are repeated while a run lives, and a numbered probe to the own channel tells whether the layer carries.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from django.conf import settings

from chat.hub import Hub
from chat.telling import Told

logger = logging.getLogger(__name__)

ALL = "processes"
SEND_SECONDS = 2
PROBE_SECONDS = 1
PROBES_LOST = 3
HERE_USERS = 1000  # users named in one word
STILL_SECONDS = 60  # a run that has not moved for so long is another process' by now, or all have heard of it


class Position:
    """How far this process has told a user: last cursor, last number of each run, and when."""

    def __init__(self) -> None:
        self.cursor = 0
        self.runs: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.moved_at = 0.0
        self._run_moved_at: dict[int, float] = {}

    def note(self, told: Told, now: float) -> None:
        """One more thing was told."""
        self.moved_at = now
        if told.cursor is not None:
            self.cursor = max(self.cursor, told.cursor)
        if told.run is not None and told.first:
            key = told.run.key
            self.runs[key], self._run_moved_at[key] = told.last, now
            if told.events and told.events[-1]["event"] == "done":
                del self._run_moved_at[key]
                self.ended[key] = self.runs.pop(key)

    def leave_still(self, before: float) -> None:
        """Speak no more of live runs that have not moved since."""
        for key, moved_at in list(self._run_moved_at.items()):
            if moved_at < before:
                del self.runs[key], self._run_moved_at[key]

    def words(self) -> dict[str, Any]:
        """As it is sent."""
        runs = {str(key): seq for key, seq in {**self.runs, **self.ended}.items()}
        return {"cursor": self.cursor, "runs": runs}


class Beyond:
    """The way to the other processes. `lost` is called when the layer has been away too long."""

    def __init__(
        self,
        layer: Any,
        process: str,
        hub: Hub,
        on_command: Callable[[dict[str, Any]], None],
        lost: Callable[[], None],
    ) -> None:
        self._layer = layer
        self._process = process
        self._hub = hub
        self._on_command = on_command
        self._lost = lost
        self._channel = ""
        self._remote: dict[int, dict[str, float]] = defaultdict(dict)  # user -> process -> when last said
        self._positions: dict[int, Position] = defaultdict(Position)
        self._pending: dict[int, list[Told]] = defaultdict(list)
        self._joining: dict[int, asyncio.Future[None]] = {}
        self._words: list[dict[str, Any]] = []
        self._leaving: set[int] = set()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._probe_sent = 0
        self._probe_seen = 0
        self._down_since: float | None = None

    async def start(self) -> None:
        """Take a channel and begin to listen and to send."""
        self._channel = await self._layer.new_channel("process")
        await self._layer.group_add(ALL, self._channel)
        for work in (self._listen(), self._send(), self._repeat(), self._probe()):
            self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def stop(self) -> None:
        """Send what waits, then end."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send_all()
        except Exception:
            logger.info("the last hints could not be sent")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._layer.close_pools() if hasattr(
                    self._layer, "close_pools"
                ) else await self._layer.flush()
        except Exception:
            logger.info("the channel layer could not be closed")

    # What the hub says

    def here(self, user_id: int) -> None:
        """This process has readers of a user."""
        self._leaving.discard(user_id)
        if user_id not in self._joining:
            self._joining[user_id] = asyncio.get_running_loop().create_future()
        self._wake.set()

    def gone(self, user_id: int) -> None:
        """It has none any more."""
        self._leaving.add(user_id)
        self._wake.set()

    async def joined(self, user_id: int) -> None:
        """Wait until this process is in the user's group; not longer than a moment when the layer is away."""
        future = self._joining.get(user_id)
        if future is not None:
            await asyncio.wait([future], timeout=SEND_SECONDS)

    def publish(self, told: list[Told]) -> None:
        """Send hints of what was committed here."""
        now = time.monotonic()
        for one in told:
            self._positions[one.user_id].note(one, now)
            if self._remote.get(one.user_id):
                self._pending[one.user_id].append(one)
                self._wake.set()

    def say(self, word: dict[str, Any]) -> None:
        """Say something to all processes: a slot was taken, a command waits."""
        self._words.append({**word, "process": self._process})
        self._wake.set()

    # Sending

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._send_all()
            except Exception as problem:
                logger.warning("hints could not be sent: %s", type(problem).__name__)
                await asyncio.sleep(PROBE_SECONDS)
                self._wake.set()  # whoever waits to be joined is not forgotten

    async def _send_all(self) -> None:
        pending, self._pending = self._pending, defaultdict(list)
        words, self._words = self._words, []
        for user_id in [user_id for user_id, future in self._joining.items() if not future.done()]:
            async with asyncio.timeout(SEND_SECONDS):
                await self._layer.group_add(_group(user_id), self._channel)
                await self._say({"kind": "here", "users": [user_id]})
            if not self._joining[user_id].done():
                self._joining[user_id].set_result(None)
        for user_id in list(self._leaving):
            self._leaving.discard(user_id)
            self._joining.pop(user_id, None)
            async with asyncio.timeout(SEND_SECONDS):
                await self._layer.group_discard(_group(user_id), self._channel)
                await self._say({"kind": "gone", "users": [user_id]})
        for word in words:
            await self._say(word)
        for user_id, told in pending.items():
            await self._hint(user_id, told)

    async def _say(self, word: dict[str, Any]) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await self._layer.group_send(ALL, {"type": "word", "process": self._process, "word": _text(word)})

    async def _hint(self, user_id: int, told: list[Told]) -> None:
        body = _text({"kind": "items", "items": [one.pack() for one in told]})
        if len(body) > settings.HERMES_HINT_BYTES:
            body = _text({"kind": "position", "user": user_id, **self._positions[user_id].words()})
        async with asyncio.timeout(SEND_SECONDS):
            await self._layer.group_send(
                _group(user_id), {"type": "hint", "process": self._process, "word": body}
            )

    async def _repeat(self) -> None:
        """Positions of what moves, and who is here."""
        last_here = 0.0
        while True:
            await asyncio.sleep(settings.HERMES_POSITION_SECONDS)
            now = time.monotonic()
            try:
                if now - last_here >= settings.HERMES_HERE_SECONDS:
                    last_here = now
                    await self._say_here()
                    self._forget_silent(now)
                await self._repeat_positions(now)
            except Exception as problem:
                logger.warning("positions could not be sent: %s", type(problem).__name__)

    async def _say_here(self) -> None:
        users = self._hub.users()
        for start in range(0, len(users), HERE_USERS):
            await self._say({"kind": "here", "users": users[start : start + HERE_USERS]})

    def _forget_silent(self, now: float) -> None:
        patience = settings.HERMES_HERE_SECONDS * 3
        for user_id, processes in list(self._remote.items()):
            for process, said in list(processes.items()):
                if now - said > patience:
                    del processes[process]
            if not processes:
                del self._remote[user_id]

    async def _repeat_positions(self, now: float) -> None:
        quiet = settings.HERMES_POSITION_SECONDS * 2
        for user_id, position in list(self._positions.items()):
            if self._remote.get(user_id):
                body = _text({"kind": "position", "user": user_id, **position.words()})
                async with asyncio.timeout(SEND_SECONDS):
                    await self._layer.group_send(
                        _group(user_id), {"type": "hint", "process": self._process, "word": body}
                    )
            position.leave_still(now - STILL_SECONDS)
            if now - position.moved_at > quiet:
                position.ended.clear()
                if not position.runs:
                    del self._positions[user_id]

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            self._probe_sent += 1
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await self._layer.send(self._channel, {"type": "probe", "number": self._probe_sent})
            except Exception as problem:
                logger.warning("the channel layer does not take a probe: %s", type(problem).__name__)
            self._judge_layer()

    def _judge_layer(self) -> None:
        now = time.monotonic()
        if self._probe_sent - self._probe_seen <= PROBES_LOST:
            return
        if self._down_since is None:
            self._down_since = now
            logger.error("the channel layer does not carry: this process hears nothing of others")
        elif now - self._down_since > settings.HERMES_LAYER_LOST_SECONDS:
            self._lost()

    async def _back(self) -> None:
        """The layer carries again: join again, and have every reader look for what it missed."""
        logger.info("the channel layer carries again")
        await self._layer.group_add(ALL, self._channel)
        for user_id in self._hub.users():
            await self._layer.group_add(_group(user_id), self._channel)
        await self._say_here()
        for user_id in self._hub.users():
            for reader in self._hub.readers(user_id):
                reader.position(2**62, {})

    # Listening

    async def _listen(self) -> None:
        while True:
            try:
                message = await self._layer.receive(self._channel)
            except asyncio.CancelledError:
                raise
            except Exception as problem:
                logger.warning("the channel layer could not be read: %s", type(problem).__name__)
                await asyncio.sleep(PROBE_SECONDS)
                continue
            try:
                if message["type"] == "probe":
                    self._probed(message["number"])
                elif message["process"] != self._process:
                    self._take(message["process"], msgspec.json.decode(message["word"]))
            except Exception:
                logger.exception("a hint could not be taken")

    def _probed(self, number: int) -> None:
        self._probe_seen = number
        if self._down_since is not None:
            self._down_since = None
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tasks.append(asyncio.get_running_loop().create_task(self._guarded(self._back())))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as problem:
            logger.warning("joining again failed: %s", type(problem).__name__)

    def _take(self, process: str, word: dict[str, Any]) -> None:
        kind = word["kind"]
        if kind == "items":
            self._hub.tell([Told.unpack(item) for item in word["items"]])
        elif kind == "position":
            runs = {int(key): seq for key, seq in word["runs"].items()}
            for reader in self._hub.readers(word["user"]):
                reader.position(word["cursor"], runs)
        elif kind == "here":
            now = time.monotonic()
            for user_id in word["users"]:
                new = process not in self._remote[user_id]
                self._remote[user_id][process] = now
                if new and user_id in self._positions:
                    self._words.append(
                        {"kind": "position", "user": user_id, **self._positions[user_id].words()}
                    )
                    self._wake.set()
        elif kind == "gone":
            for user_id in word["users"]:
                self._remote.get(user_id, {}).pop(process, None)
        else:
            self._on_command(word)


def _group(user_id: int) -> str:
    return f"user.{user_id}"


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
