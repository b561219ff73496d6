"""Who listens in this process, and what other processes are told. A hint may get lost; numbers tell that."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Protocol

from chat.telling import Told


class Listener(Protocol):
    """A reader of one user."""

    user_id: int
    is_app: bool

    def tell(self, told: Told) -> None:
        """Take one committed thing; never waits."""

    def position(self, cursor: int, runs: dict[int, int]) -> None:
        """Another process says how far it has told."""


class Hub:
    """Readers by user. `beyond` carries what is told to other processes, where there are any."""

    def __init__(self) -> None:
        self._readers: dict[int, set[Listener]] = defaultdict(set)
        self.beyond: Beyond | None = None

    def join(self, reader: Listener) -> None:
        """From now on this reader is told."""
        readers = self._readers[reader.user_id]
        readers.add(reader)
        if len(readers) == 1 and self.beyond is not None:
            self.beyond.here(reader.user_id)

    async def joined(self, user_id: int) -> None:
        """Wait until other processes' words for this user reach this one."""
        if self.beyond is not None:
            await self.beyond.joined(user_id)

    def leave(self, reader: Listener) -> None:
        """This reader is told no more."""
        readers = self._readers.get(reader.user_id)
        if readers is None:
            return
        readers.discard(reader)
        if not readers:
            del self._readers[reader.user_id]
            if self.beyond is not None:
                self.beyond.gone(reader.user_id)

    def users(self) -> list[int]:
        """Users that have readers here."""
        return list(self._readers)

    def has_apps(self, user_id: int) -> bool:
        """Whether an App of this user is told here. Called from the writer's thread too."""
        return any(reader.is_app for reader in tuple(self._readers.get(user_id, ())))

    def readers(self, user_id: int) -> list[Listener]:
        """The readers of a user here."""
        return list(self._readers.get(user_id, ()))

    def publish(self, told: list[Told]) -> None:
        """Tell what this process has committed: here directly, elsewhere by hints."""
        self.tell(told)
        if self.beyond is not None:
            self.beyond.publish(told)

    def tell(self, told: list[Told]) -> None:
        """Tell the readers here."""
        for one in told:
            readers = self._readers.get(one.user_id)
            if readers:
                for reader in tuple(readers):
                    reader.tell(one)


class Beyond(Protocol):
    """The way to other processes."""

    def here(self, user_id: int) -> None:
        """This process has readers of a user."""

    def gone(self, user_id: int) -> None:
        """It has none any more."""

    async def joined(self, user_id: int) -> None:
        """Wait until what others tell of a user reaches this process."""

    def publish(self, told: list[Told]) -> None:
        """Send hints of what was committed here."""

    def say(self, word: dict[str, Any]) -> None:
        """Say something to all processes."""

    async def stop(self) -> None:
        """End."""
