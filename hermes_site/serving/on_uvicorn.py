"""The same application on uvicorn, with the same drain: to compare, and because nothing of ours needs daphne."""

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from hermes_site.serving.ending import last_resort
from hermes_site.serving.lifeline import Lifeline
from hermes_site.serving.options import Options
from hermes_site.serving.server import Hook


class Server(uvicorn.Server):
    """uvicorn's server, which says goodbye before it closes its connections."""

    def __init__(
        self,
        application: Any,
        sock: socket.socket,
        *,
        options: Options,
        drain: Hook,
        listening: Callable[[], None],
        lifeline: Lifeline | None = None,
    ) -> None:
        """
        Args:
            application: An ASGI 3 application that knows `lifespan`.
            sock: Bound.
            drain: Called after a signal, while all connections are open.
            listening: Called once connections are accepted.
        """
        super().__init__(
            uvicorn.Config(
                application,
                loop="none",  # the policy has been chosen already
                lifespan="on",
                ws="websockets-sansio",
                ws_max_size=options.max_frame_bytes,
                ws_per_message_deflate=False,
                ws_ping_interval=options.ping_seconds or None,
                ws_ping_timeout=None,
                timeout_keep_alive=int(options.idle_seconds),
                timeout_graceful_shutdown=1,
                proxy_headers=False,  # the application judges them itself
                server_header=False,
                log_config=None,
                log_level="info",
            )
        )
        self.sock = sock
        self.options = options
        self.drain = drain
        self.listening = listening
        self.lifeline = lifeline
        self.signals: set[int] = set()

    def start_and_run(self) -> bool:
        """Serve until a signal ends it; whether it was served at all."""
        self.run(sockets=[self.sock])
        return self.started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        if self.lifeline is not None:
            self.lifeline.watch(asyncio.get_running_loop(), lambda: self.handle_exit(signal.SIGTERM, None))
        await super().startup(sockets)
        if self.started:
            self.listening()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """The first signal drains; the same again does not wait."""
        if sig in self.signals:
            self.force_exit = True
        if not self.should_exit:
            self.should_exit = True
            last_resort(self.options.exit_seconds)
        self.signals.add(sig)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say goodbye, then close."""
        if not self.force_exit:
            await self.drain()
        await super().shutdown(sockets)
