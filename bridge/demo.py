"""An agent without Hermes: says back what it was told, word by word, and media with the same media."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from bridge import events
from bridge.events import Order


@dataclass(slots=True)
class _Turn:
    order: Order
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    remarks: list[str] = field(default_factory=list)


class Demo:
    """The demo agent; `delay_seconds` passes between two words."""

    takes_media = True

    def __init__(self, delay_seconds: float) -> None:
        self._delay = delay_seconds
        self._turns: dict[str, _Turn] = {}

    async def repeatable(self) -> bool:
        """No: a turn started twice would be said twice."""
        return False

    async def rereadable(self) -> bool:
        """No: a turn ends with its bridge."""
        return False

    async def start(self, order: Order) -> str:
        """Begin a turn and return its run id."""
        run_id = f"run_{uuid.uuid4().hex}"
        self._turns[run_id] = _Turn(order)
        return run_id

    async def follow(self, run_id: str, *, resumed: bool = False) -> AsyncGenerator[events.Event, None]:
        """The events of a turn, its end last."""
        turn = self._turns.get(run_id)
        if turn is None:
            yield events.Failed(
                "The demo agent was restarted in the middle of this turn.", reason="restarted"
            )
            return
        try:
            words = re.findall(r"\s*\S+\s*", _answer(turn.order))
            while words or turn.remarks:
                if turn.remarks:
                    words += re.findall(r"\s*\S+\s*", " " + turn.remarks.pop(0))
                yield events.Delta(words.pop(0))
                if await self._stopped(turn):
                    yield events.Cancelled()
                    return
            if turn.order.media is not None:
                yield events.Attachment(turn.order.kind, turn.order.media)
            yield events.Completed()
        finally:
            del self._turns[run_id]

    async def stop(self, run_id: str) -> None:
        """End a turn before its next word."""
        if turn := self._turns.get(run_id):
            turn.stopped.set()

    async def steer(self, run_id: str, text: str) -> bool:
        """Say the remark, too, at the end; False when the turn is over."""
        if turn := self._turns.get(run_id):
            turn.remarks.append(text)
        return run_id in self._turns

    async def approve(self, run_id: str, request_id: str, choice: str) -> None:
        """Nothing: the demo agent never asks."""

    async def close(self) -> None:
        """Nothing: the demo agent holds nothing."""

    async def _stopped(self, turn: _Turn) -> bool:
        try:
            async with asyncio.timeout(self._delay):
                await turn.stopped.wait()
        except TimeoutError:
            pass
        return turn.stopped.is_set()


def _answer(order: Order) -> str:
    if order.media is None:
        return order.text
    named = f"I got your {order.kind} {order.media.get('name') or order.media.get('id')}."
    return f"{named} {order.text}".strip()
