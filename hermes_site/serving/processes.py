"""
Several processes on one port: a parent that starts them, restarts those that die, and ends with them.

Each child listens on a socket of its own with SO_REUSEPORT, so that the kernel spreads connections evenly (with one
shared socket the idlest child would take nearly all), and a child that died gets none while it is away. The parent
serves nothing. Children are new processes, not forks: event loops, threads and database connections do not survive one.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable

logger = logging.getLogger(__name__)

SOUND_SECONDS = 10.0  # a child that lived this long is restarted at once
FIRST_PAUSE_SECONDS = 0.5  # before a child that died young is started again; doubled each time
LONGEST_PAUSE_SECONDS = 30.0


class Parent:
    """Keeps a number of children running until a signal ends them all."""

    def __init__(
        self,
        count: int,
        command: Callable[[int], list[str]],
        *,
        exit_seconds: float,
        ready: Callable[[], None],
    ) -> None:
        """
        Args:
            count: How many children.
            command: The command line of a child, given the descriptor of its lifeline.
            exit_seconds: A child still there this long after a signal is killed.
            ready: Called once, when all children have accepted connections for the first time.
        """
        self._count = count
        self._command = command
        self._exit_seconds = exit_seconds
        self._ready = ready
        self._running: set[asyncio.subprocess.Process] = set()
        self._ready_once: set[int] = set()
        self._stopping = asyncio.Event()
        self._signals: set[int] = set()
        self._failed = False

    async def run(self) -> int:
        """Start the children and wait until all have ended; the exit status for this process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, number)
        async with asyncio.TaskGroup() as group:
            for place in range(self._count):
                group.create_task(self._keep(place))
        return 1 if self._failed else 0

    def _end(self, number: int) -> None:
        """End all children: they drain at the first signal and leave at once when the same one comes again."""
        if number in self._signals or not self._stopping.is_set():
            self._tell_all()
        self._signals.add(number)

    def _tell_all(self) -> None:
        self._stopping.set()
        for child in self._running:
            child.send_signal(signal.SIGTERM)

    async def _keep(self, place: int) -> None:
        """One child after another in one place."""
        pause_seconds = FIRST_PAUSE_SECONDS
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            begun = loop.time()
            status = await self._run_one(place)
            if self._stopping.is_set():
                return
            if place not in self._ready_once:
                logger.error("process %d did not start (status %d)", place, status)
                self._failed = True
                self._tell_all()
                return
            if loop.time() - begun >= SOUND_SECONDS:
                pause_seconds = FIRST_PAUSE_SECONDS
            logger.error(
                "process %d died (status %d); the next starts in %.1f s", place, status, pause_seconds
            )
            try:
                async with asyncio.timeout(pause_seconds):
                    await self._stopping.wait()
            except TimeoutError:
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)

    async def _run_one(self, place: int) -> int:
        """One child from its start to its end; its exit status."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                child = await asyncio.create_subprocess_exec(
                    *self._command(theirs.fileno()), pass_fds=[theirs.fileno()]
                )
            self._running.add(child)
            if self._stopping.is_set():  # the signal came while it was being started
                child.send_signal(signal.SIGTERM)
            ours.setblocking(False)
            listening = asyncio.create_task(self._hear(place, ours))
            ended = asyncio.create_task(child.wait())
            stopping = asyncio.create_task(self._stopping.wait())
            try:
                await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    await asyncio.wait({ended}, timeout=self._exit_seconds)
                if not ended.done():
                    logger.error("process %d did not end in time: killed", place)
                    child.kill()
                return await ended
            finally:
                listening.cancel()
                stopping.cancel()
                self._running.discard(child)

    async def _hear(self, place: int, line: socket.socket) -> None:
        """Wait for a child's word that it is ready."""
        if await asyncio.get_running_loop().sock_recv(line, 1) and place not in self._ready_once:
            self._ready_once.add(place)
            if len(self._ready_once) == self._count:
                self._ready()
