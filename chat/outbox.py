"""What waits for one socket: bounded, with adjoining pieces of a stream joined while they wait."""

from __future__ import annotations

import asyncio
from collections import deque

from chat.telling import Out, piece_frame

PIECES = 256  # that wait as they came; more are made one, for each costs ten times its text


class Outbox:
    """
    A queue of frames for one socket.

    Past `max_items` frames or `max_bytes` characters it is `over`: its owner closes the socket.
    """

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self.over = False
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._waiting: deque[str | tuple[str, list[str]]] = deque()
        self._size = 0
        self._awake: asyncio.Future[None] | None = None

    def put(self, out: Out) -> None:
        """Add one frame; a piece that follows a waiting piece of its stream is joined to it."""
        if self.over:
            return
        if out.joins is None:
            self._waiting.append(out.text)
            self._size += len(out.text)
        else:
            last = self._waiting[-1] if self._waiting else None
            if last is not None and not isinstance(last, str) and last[0] == out.joins:
                last[1].append(out.piece)
                self._size += len(out.piece)
                if len(last[1]) > PIECES:
                    last[1][:] = ["".join(last[1])]
            else:
                self._waiting.append((out.joins, [out.piece]))
                self._size += len(out.joins) + len(out.piece)
        alone = len(self._waiting) == 1 and isinstance(
            self._waiting[0], str
        )  # one frame may be as large as any
        if len(self._waiting) > self._max_items or (self._size > self._max_bytes and not alone):
            self.over = True
            self._waiting.clear()
        self.wake()

    def put_text(self, text: str) -> None:
        """Add one frame that is never joined."""
        self.put(Out(text))

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    def wake(self) -> None:
        """Let whoever waits in `ready` look again."""
        if self._awake is not None and not self._awake.done():
            self._awake.set_result(None)

    async def ready(self) -> None:
        """Wait until something waits, or the outbox is over."""
        if self._waiting or self.over:
            return
        self._awake = asyncio.get_running_loop().create_future()
        try:
            await self._awake
        finally:
            self._awake = None

    def take(self) -> str | None:
        """The next frame's text."""
        if not self._waiting:
            return None
        one = self._waiting.popleft()
        if isinstance(one, str):
            self._size -= len(one)
            return one
        head, pieces = one
        text = "".join(pieces)
        self._size -= len(head) + len(text)
        return piece_frame(head, text)
