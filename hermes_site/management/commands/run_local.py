"""What `make run` does: everything ready, then the server and a demo agent until a signal stops both."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from accounts import demo

HOST = "127.0.0.1"
START_SECONDS = 60
STOP_SECONDS = 15
LOOK_SECONDS = 0.2
PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>


class Command(BaseCommand):
    """Development on one machine: migrations, demo data, server and demo agent in the foreground."""

    help = "Run everything on this machine (the command behind `make run`)."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM, Ctrl-C, or the server's end."""
        port = int(os.environ.get("PORT") or 8000)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        call_command("migrate", verbosity=0, interactive=False)
        found = demo.make()
        connections.close_all()
        children = Children(port, found.api_key)
        try:
            server = children.start_server()
            if self._wait_until_open(port, server, stop):
                if os.environ.get("DEMO_AGENT", "1") != "0":
                    children.start_agent()
                self._tell(port, found)
                while not stop.wait(LOOK_SECONDS) and server.poll() is None:
                    pass
        finally:
            children.stop()
        if not stop.is_set():
            raise CommandError(f"the server ended by itself (exit {server.returncode})")

    def _wait_until_open(self, port: int, server: subprocess.Popen[bytes], stop: threading.Event) -> bool:
        """Whether the port answers; False when something ended the wait before."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and server.poll() is None:
            try:
                socket.create_connection((HOST, port), timeout=1).close()
                return True
            except OSError:
                if stop.wait(LOOK_SECONDS):
                    return False
        return False

    def _tell(self, port: int, found: demo.Demo) -> None:
        base = settings.HERMES_PUBLIC_URL or f"http://{HOST}:{port}"
        password = found.password or "(the one you gave it)"
        self.stdout.write(
            f"\nHermes Chat is at {base}/\n"
            f"  log in as   {found.user}   password   {password}\n"
            f"  your own agent instead of the demo one (DEMO_AGENT=0 leaves that out):\n"
            f"    HERMES_CHAT_KEY={found.api_key} \\\n"
            f"    {sys.executable} -m bridge --gateway ws://{HOST}:{port}/ws/agent --hermes http://127.0.0.1:8642\n"
            f"  the admin is at {base}/admin/ (python manage.py createsuperuser)\n"
            f"Ctrl-C stops everything.\n"
        )
        self.stdout.flush()


class Children:
    """The programs that this one starts, and their end."""

    def __init__(self, port: int, key: str) -> None:
        """`key` is the demo agent's."""
        self._port = port
        self._key = key
        self._running: list[subprocess.Popen[bytes]] = []
        log = os.environ.get("HERMES_LOG_FILE") or str(Path(settings.HERMES_DATA_DIR) / "hermes.log")
        self._environment = {**os.environ, "HERMES_LOG_FILE": log, "DEBUG": str(int(settings.DEBUG))}

    def start_server(self) -> subprocess.Popen[bytes]:
        """`manage.py serve`."""
        return self._start("manage.py", "serve", "--host", HOST, "--port", str(self._port))

    def start_agent(self) -> subprocess.Popen[bytes]:
        """The demo agent; its key goes by the environment, where other users cannot read it."""
        self._environment["HERMES_CHAT_KEY"] = self._key
        return self._start("-m", "bridge", "--demo", "--gateway", f"ws://{HOST}:{self._port}/ws/agent")

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, *words],
            cwd=settings.BASE_DIR,
            env=self._environment,
            preexec_fn=_end_with_parent,
        )
        self._running.append(child)
        return child

    def stop(self) -> None:
        """Ask all to end, and make those end that do not."""
        for child in reversed(self._running):
            if child.poll() is None:
                child.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for child in self._running:
            try:
                child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _end_with_parent() -> None:
    """In the child: should this program be killed without a chance to stop it, the system does (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
