"""One process of daphne: listens when the application has started, drains and ends when told to."""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import daphne.server
from daphne.access import AccessLogGenerator
from daphne.http_protocol import HTTPFactory
from daphne.ws_protocol import WebSocketFactory
from twisted.internet import reactor
from twisted.logger import globalLogBeginner

from hermes_site.serving.options import Options

logger = logging.getLogger(__name__)

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
        access_log: Any = None,
        listening: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            sockets: Bound and listening.
            access_log: A text stream for one line per request; None for no access log.
            listening: Called once the first connection can be accepted.
        """
        super().__init__(
            application,
            endpoints=["sockets"],
            action_logger=AccessLogGenerator(access_log) if access_log else None,
            websocket_max_message_size=options.max_frame_bytes,
            websocket_max_frame_size=options.max_frame_bytes,
            server_name="",
        )
        self.sockets = sockets
        self.options = options
        self.hooks = hooks
        self.listening = listening
        self.draining = False
        self.failed = False

    def run(self) -> None:
        """Serve until a signal ends it."""
        self.connections: dict[Any, dict[str, Any]] = {}
        self.http_factory = HTTPFactory(self)
        self.ws_factory = WebSocketFactory(self, server=self.server_name)
        self.ws_factory.setProtocolOptions(
            autoPingTimeout=self.ping_timeout,
            allowNullOrigin=True,
            openHandshakeTimeout=self.websocket_handshake_timeout,
            maxMessagePayloadSize=self.websocket_max_message_size,
            maxFramePayloadSize=self.websocket_max_frame_size,
        )
        globalLogBeginner.beginLoggingTo([lambda _: None], redirectStandardIO=False, discardBuffer=True)
        self.loop = reactor._asyncioEventloop
        asyncio.set_event_loop(self.loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.end, number)
        self.main = self.loop.create_task(self.begin())
        reactor.callLater(1, self.application_checker)
        reactor.callLater(2, self.timeout_checker)
        reactor.addSystemEventTrigger("before", "shutdown", self.kill_all_applications)
        reactor.run(installSignalHandlers=False)

    async def begin(self) -> None:
        """Start the application, then accept connections."""
        try:
            await self.hooks.startup()
        except Exception:
            logger.exception("the application did not start")
            self.failed = True
            self.stop()
            return
        for sock in self.sockets:
            reactor.adoptStreamPort(sock.fileno(), sock.family, self.http_factory)
        self.listening()

    def end(self, number: int) -> None:
        """First signal: drain, then leave within the set time. Second: leave at once."""
        if self.draining:
            os._exit(128 + number)
        self.draining = True
        last_resort = threading.Timer(self.options.exit_seconds, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()
        self.main = self.loop.create_task(self.leave())

    async def leave(self) -> None:
        """Let the application say goodbye, then stop."""
        logger.info("draining for at most %s s", self.options.drain_seconds)
        try:
            async with asyncio.timeout(self.options.drain_seconds):
                await self.hooks.drain()
        except TimeoutError:
            logger.warning("the drain took longer than %s s", self.options.drain_seconds)
        except Exception:
            logger.exception("the drain failed")
        try:
            await self.hooks.shutdown()
        except Exception:
            logger.exception("the shutdown failed")
        self.stop()
