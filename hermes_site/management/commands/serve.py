"""`manage.py serve`: the production server."""

import socket
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand


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
        from hermes_site.serving.options import Options
        from hermes_site.serving.server import Hooks, Server

        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, port), family=family, backlog=1024)
        address = f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}"
        server = Server(
            application,
            [sock],
            options=Options(max_frame_bytes=settings.HERMES_MAX_FRAME_BYTES),
            hooks=Hooks(startup=lifecycle.startup, shutdown=lifecycle.shutdown),
            listening=lambda: self.say(f"Listening on {address}"),
        )
        server.run()
        if server.failed:
            sys.exit(1)

    def say(self, text: str) -> None:
        """One line that a waiting parent can read at once."""
        self.stdout.write(text)
        self.stdout.flush()
