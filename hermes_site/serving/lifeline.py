"""The line between a parent process and a child: the child says that it is ready, and notices when its parent dies."""

import asyncio
import os
from collections.abc import Callable

READY = b"r"


class Lifeline:
    """A child's end."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is inherited from the parent, which holds the other end as long as it lives."""
        self._descriptor = descriptor

    def ready(self) -> None:
        """Connections are accepted."""
        os.write(self._descriptor, READY)

    def watch(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        """Call `ended` once when the parent is gone."""

        def look() -> None:
            if not os.read(self._descriptor, 1):
                loop.remove_reader(self._descriptor)
                ended()

        loop.add_reader(self._descriptor, look)
