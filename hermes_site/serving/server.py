"""One process of daphne: listens when the application has started, drains and ends when told to."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import daphne.server
from twisted.internet import reactor
from twisted.logger import (
    FilteringLogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    STDLibLogObserver,
    globalLogBeginner,
)

from hermes_site import errors
from hermes_site.errors import CloseCode
from hermes_site.serving.ending import last_resort
from hermes_site.serving.frames import Message
from hermes_site.serving.lifeline import Lifeline
from hermes_site.serving.listening import BACKLOG
from hermes_site.serving.options import Options
from hermes_site.serving.requests import Factory, Request
from hermes_site.serving.sockets import Socket

logger = logging.getLogger(__name__)
access = logging.getLogger("hermes_site.access")

ANSWER_SECONDS = 2.0  # for answers that are on their way when everything has been said
GOODBYE_SECONDS = 1.0  # for close frames to be answered, and for cancelled tasks to end
LOOK_SECONDS = 0.02

Hook = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """A hook that does nothing."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the application does at the turning points of a process."""

    startup: Hook = nothing  # before the first socket is accepted
    drain: Hook = nothing  # after SIGTERM: let streams end, close peers
    shutdown: Hook = nothing  # last, when nothing is served any more


class Server(daphne.server.Server):
    """Daphne's server, told to listen on sockets that are open already."""

    def __init__(
        self,
        application: Any,
        sockets: list[socket.socket],
        *,
        options: Options,
        hooks: Hooks,
        listening: Callable[[], None] = lambda: None,
        lifeline: Lifeline | None = None,
    ) -> None:
        """
        Args:
            application: An ASGI 3 application; it never sees a `lifespan`.
            sockets: Bound.
            listening: Called once connections are accepted.
            lifeline: To the parent process, whose death ends this one.
        """
        super().__init__(application, endpoints=["sockets"], server_name="")
        self.sockets = sockets
        self.options = options
        self.hooks = hooks
        self.listening = listening
        self.lifeline = lifeline
        self.connections: dict[Request, dict[str, Any]] = {}
        self.sockets_open: set[Socket] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.signals: set[int] = set()
        self.started = False
        self.draining = False
        self.failed = False

    def run(self) -> None:
        """Serve until a signal ends it."""
        serious = LogLevelFilterPredicate(defaultLogLevel=LogLevel.warn)
        observer = FilteringLogObserver(STDLibLogObserver(__name__), [serious])
        globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False, discardBuffer=True)
        self.loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop
        asyncio.set_event_loop(self.loop)
        self.factory = Factory(self)
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.end, number)
        if self.lifeline is not None:
            self.lifeline.watch(self.loop, lambda: self.end(signal.SIGTERM))
        self.keep(self.loop.create_task(self.begin()))
        reactor.run(installSignalHandlers=False)

    def keep(self, task: "asyncio.Task[None]") -> None:
        """Hold a task until it is done."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # --- requests -------------------------------------------------------------------------------------------------

    def create_application(self, request: Request, scope: dict[str, Any]) -> None:
        """Let the application answer a request."""
        task = self.loop.create_task(
            self.application(scope, request.receive, partial(self.handle_reply, request))
        )
        self.connections[request]["application_instance"] = task
        self.keep(task)
        task.add_done_callback(partial(self.application_ended, request))

    async def handle_reply(self, request: Request, message: Message) -> None:
        """Carry out one ASGI message of an answer; waits while the peer reads too slowly."""
        self.check_headers_type(message)
        request.handle_reply(message)
        await request.writable()

    def application_ended(self, request: Request, task: "asyncio.Task[None]") -> None:
        """An application has returned, or failed."""
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            logger.error("the application failed on %s", request.path.decode("ascii"), exc_info=problem)
            request.handle_exception(errors.Internal("internal error"))
        elif task.cancelled():
            request.handle_exception(errors.Draining("shutting down", retry_after=1))
        self.connections.pop(request, None)

    def protocol_disconnected(self, request: Request) -> None:
        """A request is over; its application gets a while to end."""
        task = self.connections.get(request, {}).get("application_instance")
        if task is None or task.done():
            self.connections.pop(request, None)
        else:
            timer = self.loop.call_later(self.application_close_timeout, task.cancel)
            task.add_done_callback(lambda _: timer.cancel())

    # --- the access log -------------------------------------------------------------------------------------------

    def log_action(self, protocol: str, action: str, details: dict[str, Any]) -> None:
        """One line for an answer; without the query, where credentials may be."""
        path = details["path"].partition("?")[0]
        access.info(
            "%s %s %s %s %s", details["client"], details["method"], path, details["status"], details["size"]
        )

    def log_socket(self, websocket: Socket, event: str, status: int | None = None) -> None:
        """One line for each turn in the life of a WebSocket."""
        host, port = websocket.client
        access.info("%s:%s WEBSOCKET %s %s", host, port, websocket.path, status or event)

    # --- beginning and end ----------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start the application, then accept connections."""
        try:
            await self.hooks.startup()
        except Exception:
            logger.exception("the application did not start")
            self.failed = True
            self.stop()
            return
        self.started = True
        for sock in self.sockets:
            sock.setblocking(False)
            sock.listen(BACKLOG)
            reactor.adoptStreamPort(sock.fileno(), sock.family, self.factory)
            sock.close()  # Twisted has made a copy
        self.listening()

    def end(self, number: int) -> None:
        """
        First signal: drain, then leave within the set time. The same signal again: leave at once.

        Ctrl-C reaches a whole group of processes, whose parent may also send SIGTERM: that is one wish, not two.
        """
        if number in self.signals:
            os._exit(128 + number)
        self.signals.add(number)
        if self.draining:
            return
        self.draining = True
        last_resort(self.options.exit_seconds)
        self.leaving = self.loop.create_task(self.leave())

    async def leave(self) -> None:
        """Let the application say goodbye, let answers be finished, end what is left, stop."""
        logger.info("draining: nothing new is taken")
        if self.started:
            await self.call("drain", self.hooks.drain)
            await self.until(lambda: not self.connections, ANSWER_SECONDS)
        for websocket in list(self.sockets_open):
            websocket.close(CloseCode.GOING_AWAY)
        await self.until(lambda: not self.sockets_open, GOODBYE_SECONDS)
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=GOODBYE_SECONDS)
        if self.started:
            await self.call("shutdown", self.hooks.shutdown)
        logger.info("stopped")
        self.stop()

    async def call(self, name: str, hook: Hook) -> None:
        """Call a hook; whatever it does, the end goes on."""
        try:
            await hook()
        except Exception:
            logger.exception("the application's %s failed", name)

    async def until(self, true: Callable[[], bool], most_seconds: float) -> None:
        """Wait until something is true, but not for ever."""
        deadline = self.loop.time() + most_seconds
        while not true() and self.loop.time() < deadline:  # noqa: ASYNC110  (rare, and short)
            await asyncio.sleep(LOOK_SECONDS)
