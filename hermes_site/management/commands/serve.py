"""`manage.py serve`: the production server."""

import socket
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from hermes_site.serving.options import Options


def options() -> Options:
    """The server's limits and times as the settings have them."""
    return Options(
        max_frame_bytes=settings.HERMES_MAX_FRAME_BYTES,
        unread_frames=settings.HERMES_UNREAD_FRAMES,
        unread_bytes=settings.HERMES_UNREAD_BYTES,
        send_buffer_bytes=settings.HERMES_SEND_BUFFER_BYTES,
        body_window_bytes=settings.HERMES_BODY_WINDOW_BYTES,
        accept_seconds=settings.HERMES_ACCEPT_SECONDS,
        ping_seconds=settings.HERMES_PING_SECONDS,
        close_seconds=settings.HERMES_CLOSE_SECONDS,
        idle_seconds=settings.HERMES_IDLE_SECONDS,
        exit_seconds=settings.HERMES_EXIT_SECONDS,
    )


class Command(BaseCommand):
    """Serves the site with daphne, made safe for production."""

    help = "Serve the site (daphne with uvloop, bounded bodies, back-pressure and drain)."
    requires_system_checks = "__all__"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to listen."""
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
        parser.add_argument(
            "--port", type=int, default=8000, help="port to listen on (8000); 0: any free one"
        )

    def handle(self, *, host: str, port: int, **_: Any) -> None:
        """Serve until a signal ends it."""
        from hermes_site import lifecycle
        from hermes_site.asgi import application
        from hermes_site.serving.server import Hooks, Server

        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, port), family=family, backlog=1024)
        address = f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}"
        server = Server(
            application,
            [sock],
            options=options(),
            hooks=Hooks(startup=lifecycle.startup, drain=lifecycle.drain, shutdown=lifecycle.shutdown),
            listening=lambda: self.say(f"Listening on {address}"),
        )
        server.run()
        if server.failed:
            sys.exit(1)

    def say(self, text: str) -> None:
        """One line that a waiting parent can read at once."""
        self.stdout.write(text)
        self.stdout.flush()
