"""`manage.py serve`: the production server."""

import argparse
import asyncio
import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from hermes_site.serving import listening
from hermes_site.serving.lifeline import Lifeline
from hermes_site.serving.options import Options
from hermes_site.serving.processes import Parent

PARENT_SECONDS = 0.5  # what the parent of several processes waits longer than they do


def options() -> Options:
    """The server's limits and times as the settings have them."""
    return Options(
        max_frame_bytes=settings.HERMES_MAX_FRAME_BYTES,
        unread_frames=settings.HERMES_UNREAD_FRAMES,
        unread_bytes=settings.HERMES_UNREAD_BYTES,
        send_buffer_bytes=settings.HERMES_SEND_BUFFER_BYTES,
        body_window_bytes=settings.HERMES_BODY_WINDOW_BYTES,
        accept_seconds=settings.HERMES_ACCEPT_SECONDS,
        ping_seconds=min(settings.HERMES_PING_SECONDS, settings.HERMES_HEARTBEAT_SECONDS / 3),
        close_seconds=settings.HERMES_CLOSE_SECONDS,
        idle_seconds=settings.HERMES_IDLE_SECONDS,
        exit_seconds=settings.HERMES_EXIT_SECONDS,
    )


class Command(BaseCommand):
    """Serves the site with daphne, made safe for production."""

    help = "Serve the site (daphne with uvloop, bounded bodies, back-pressure and drain)."
    requires_system_checks: list[str] = []  # they are run when the number of processes is known

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to listen, and what with."""
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
        parser.add_argument(
            "--port", type=int, default=8000, help="port to listen on (8000); 0: any free one"
        )
        parser.add_argument("--processes", type=int, help="processes that share the port (HERMES_PROCESSES)")
        parser.add_argument(
            "--server", choices=["daphne", "uvicorn"], default="daphne", help="server software (daphne)"
        )
        parser.add_argument("--lifeline", type=int, help=argparse.SUPPRESS)  # set by a parent of several

    def handle(
        self, *, host: str, port: int, processes: int | None, server: str, lifeline: int | None, **_: Any
    ) -> None:
        """Serve until a signal ends it."""
        if processes is not None:
            settings.HERMES_PROCESSES = processes
            os.environ["HERMES_PROCESSES"] = str(processes)
        if settings.HERMES_PROCESSES < 1:
            raise CommandError("at least one process has to serve")
        self.check()
        try:
            if lifeline is not None:
                self.serve(host, port, server, Lifeline(lifeline))
            elif settings.HERMES_PROCESSES > 1:
                self.serve_together(host, port, server)
            else:
                self.serve(host, port, server, None)
        except OSError as problem:
            raise CommandError(f"cannot listen on {host}:{port}: {problem.strerror}") from problem

    def serve_together(self, host: str, port: int, server: str) -> None:
        """Be the parent of several processes."""
        reserved = listening.reserve(host, port)
        port = reserved.getsockname()[1]
        command = [
            sys.executable,
            sys.argv[0],
            "serve",
            "--host",
            host,
            "--port",
            str(port),
            "--server",
            server,
        ]
        parent = Parent(
            settings.HERMES_PROCESSES,
            lambda descriptor: [*command, "--lifeline", str(descriptor)],
            exit_seconds=settings.HERMES_EXIT_SECONDS + PARENT_SECONDS,
            ready=lambda: self.say(listening.address(host, port)),
        )
        with reserved:
            sys.exit(asyncio.run(parent.run()))

    def serve(self, host: str, port: int, server: str, lifeline: Lifeline | None) -> None:
        """Be the one process, or one of several."""
        sock = listening.bind(host, port, shared=lifeline is not None)
        address = listening.address(host, sock.getsockname()[1])
        ready = lifeline.ready if lifeline is not None else lambda: self.say(address)
        serve = serve_daphne if server == "daphne" else serve_uvicorn
        if not serve(sock, ready, lifeline):
            sys.exit(1)

    def say(self, address: str) -> None:
        """One line that whoever waits can read at once."""
        self.stdout.write(f"Listening on {address}")
        self.stdout.flush()


def serve_daphne(sock: Any, ready: Any, lifeline: Lifeline | None) -> bool:
    """Serve with daphne; whether the application started."""
    from hermes_site import lifecycle
    from hermes_site.asgi import application
    from hermes_site.serving.server import Hooks, Server

    hooks = Hooks(startup=lifecycle.startup, drain=lifecycle.drain, shutdown=lifecycle.shutdown)
    server = Server(application, [sock], options=options(), hooks=hooks, listening=ready, lifeline=lifeline)
    server.run()
    return not server.failed


def serve_uvicorn(sock: Any, ready: Any, lifeline: Lifeline | None) -> bool:
    """Serve with uvicorn; whether the application started."""
    from hermes_site import lifecycle
    from hermes_site.asgi import application

    try:
        from hermes_site.serving.on_uvicorn import Server
    except ImportError as problem:
        raise CommandError("uvicorn is not installed") from problem
    server = Server(
        application, sock, options=options(), drain=lifecycle.drain, listening=ready, lifeline=lifeline
    )
    return server.start_and_run()
