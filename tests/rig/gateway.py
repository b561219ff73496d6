"""A gateway as an operator starts it: one or two server processes over one store, with a log to look into."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.rig.backends import Backend
from tests.rig.clerk import Clerk, Person
from tests.rig.paths import ROOT
from tests.rig.ports import free_port
from tests.rig.sockets import Agent, App, address, open_socket, without_null_reply
from tests.rig.staff import Staff
from tests.rig.timing import SCALE, eventually, wait_until

START_SECONDS = 30 * SCALE
STOP_SECONDS = 15.0
"""An operator's supervisor waits no longer than this."""

STEADY = {"HERMES_TURN_END_SECONDS": "0.3", "HERMES_STREAM_GRACE_SECONDS": "2"}
"""Shortened times for tests whose peers send no pings."""

BRISK = STEADY | {"HERMES_HEARTBEAT_SECONDS": "3", "HERMES_CLOSE_SECONDS": "1", "HERMES_QUEUE_LIMIT": "5"}
"""Shortened times for tests about silence."""

COMMANDS = {
    "serve": ["{python}", "manage.py", "serve", "--host", "127.0.0.1", "--port", "{port}"],
    "daphne": ["{python}", "-m", "daphne", "-b", "127.0.0.1", "-p", "{port}", "hermes_site.asgi:application"],
    "uvicorn": [
        *("{python}", "-m", "uvicorn", "--host", "127.0.0.1", "--port", "{port}"),
        *("--loop", "uvloop", "--ws", "websockets-sansio", "hermes_site.asgi:application"),
    ],
    "runserver": ["{python}", "manage.py", "runserver", "--noreload", "127.0.0.1:{port}"],
    "counted": ["{python}", "-m", "tests.rig.counted", "serve", "--host", "127.0.0.1", "--port", "{port}"],
    "mortal": ["{python}", "-m", "tests.chaos.mortal", "serve", "--host", "127.0.0.1", "--port", "{port}"],
}


def command(server: str, port: int) -> list[str]:
    """The command line that starts a server on a port."""
    return [word.format(python=sys.executable, port=port) for word in COMMANDS[server]]


class Server:
    """One server process, with everything it starts, and what it printed."""

    def __init__(self, environment: dict[str, str], log: Path, server: str = "serve", port: int = 0) -> None:
        self.port = port or free_port()
        self.server = server
        self.log_path = log
        self._environment = environment
        self.start()

    def start(self) -> None:
        """Start it on its port, without waiting for it to answer."""
        self._stopping = False
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command(self.server, self.port),
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until /readyz says 200."""

        def ready() -> bool:
            assert self.process.poll() is None, f"{self.server} ended at start:\n{self.log()[-4000:]}"
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5, trust_env=False)
                return answer.status_code == 200
            return False

        try:
            wait_until(ready, START_SECONDS, "the server is ready")
        except TimeoutError as late:
            raise AssertionError(f"{self.server} never ready:\n{self.log()[-4000:]}") from late

    def log(self) -> str:
        """What it has printed so far."""
        return self.log_path.read_text(errors="replace")

    def begin_to_stop(self) -> None:
        """SIGTERM, once, as a supervisor stops it."""
        if self.process.poll() is None and not self._stopping:
            self._stopping = True
            self.process.send_signal(signal.SIGTERM)

    def wait_stopped(self) -> int:
        """
        Wait until it has ended; returns the exit status.

        Raises:
            AssertionError: If it has not ended after 15 s.
        """
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.server} still runs {STOP_SECONDS} s after SIGTERM") from None

    def kill(self) -> None:
        """SIGKILL for it and all it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Gateway:
    """The whole product over one store; Apps and agents go to different processes when there are two."""

    backend: Backend
    settings: dict[str, str] = field(default_factory=lambda: dict(STEADY))
    server: str = "serve"
    servers: list[Server] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.environment = self.backend.environment | self.settings
        self.folder = Path(self.environment["HERMES_DATA_DIR"]).parent
        self._log = self.folder / f"gateway-{uuid.uuid4().hex[:8]}"
        self.clerk = Clerk(self.environment)

    def start(self) -> None:
        """Start all processes and wait for them."""
        for number in range(self.backend.processes):
            self.servers.append(Server(self.environment, Path(f"{self._log}-{number}.log"), self.server))
        for server in self.servers:
            server.wait_ready()

    def begin_to_stop(self) -> None:
        """Send each process that runs its SIGTERM."""
        for server in self.servers:
            server.begin_to_stop()

    def stop(self) -> None:
        """Stop as an operator does; every process must end in time."""
        self.clerk.close()
        try:
            self.begin_to_stop()
            for server in self.servers:
                server.wait_stopped()
        finally:
            for server in self.servers:
                server.kill()
            self.backend.close()

    @property
    def app_server(self) -> Server:
        """The process that Apps connect to."""
        return self.servers[0]

    @property
    def agent_server(self) -> Server:
        """The process that agents connect to: another one than the Apps', if there is one."""
        return self.servers[-1]

    def log(self) -> str:
        """What all processes have printed so far."""
        return "".join(server.log() for server in self.servers)

    @contextlib.contextmanager
    def clean_log(self) -> Iterator[None]:
        """No traceback may be printed meanwhile."""
        before = [len(server.log()) for server in self.servers]
        yield
        for server, length in zip(self.servers, before, strict=False):
            printed = server.log()[length:]
            at = printed.find("Traceback")
            assert at < 0, f"a traceback in the log:\n{printed[max(0, at - 500) : at + 5000]}"

    @functools.cached_property
    def staff(self) -> Staff:
        """Somebody who may see everything in the admin."""
        return Staff(self.clerk, self.origin)

    def person(self, name: str = "alice", **options: Any) -> Person:
        """A new user; the name gets a suffix that makes it unique."""
        return self.clerk.person(f"{name}-{uuid.uuid4().hex[:6]}", **options)

    def app_url(self, person: Person, *, token: str | None = None, port: int = 0, **query: str) -> str:
        """The address of the App's socket of a person."""
        return address(port or self.app_server.port, "/ws/app", token=token or person.token, **query)

    def agent_url(self, person: Person, *, key: str | None = None, port: int = 0, **query: str) -> str:
        """The address of the agent's socket of a person."""
        return address(port or self.agent_server.port, "/ws/agent", api_key=key or person.key, **query)

    async def app(
        self,
        person: Person,
        *,
        read_pause_seconds: float = 0,
        token: str | None = None,
        port: int = 0,
        **query: str,
    ) -> App:
        """Connect an App."""
        app = App(
            await open_socket(self.app_url(person, token=token, port=port, **query)), read_pause_seconds
        )
        app.user = person.name
        return app

    async def agent(
        self, person: Person, *, key: str | None = None, name: str = "hermes", port: int = 0, **query: str
    ) -> Agent:
        """Connect an agent."""
        agent = Agent(await open_socket(self.agent_url(person, key=key, port=port, **query)))
        agent.user = person.name
        agent.name = name
        return agent

    @property
    def origin(self) -> str:
        """The address of the HTTP side."""
        return f"http://127.0.0.1:{self.app_server.port}"

    def http(self, person: Person | None = None, **options: Any) -> httpx.AsyncClient:
        """An HTTP client, with the person's access token if one is given."""
        headers = {"Authorization": f"Bearer {person.token}"} if person else {}
        return httpx.AsyncClient(
            base_url=self.origin, headers=headers, trust_env=False, timeout=20, **options
        )

    async def until_gone(self, person: Person, side: str) -> None:
        """Wait until the gateway knows that no socket of a person is open on a side ("app" or "agent")."""

        async def gone() -> bool:
            return bool(self.clerk.ask("connections", name=person.name, side=side) == 0)

        await eventually(gone, what=f"no {side} of {person.name} is connected")

    async def history(self, person: Person, session: str, **query: Any) -> list[dict[str, Any]]:
        """
        The frames of a session as `GET /api/frames` has them, oldest first, without what a replay adds.

        What it adds is held to the protocol: cursors that increase, and the run of each message of the user.
        """
        async with self.http(person) as http:
            answer = await http.get("/api/frames", params={"session": session, "limit": 500} | query)
        assert answer.status_code == 200, answer.text
        frames = list(answer.json()["data"])
        cursors = [frame.pop("cursor") for frame in frames]
        assert cursors == sorted(set(cursors)), cursors
        for frame in frames:
            run = frame.pop("run", None)
            assert (run is not None) == (frame["from"] == person.name), frame
        return [without_null_reply(frame) for frame in frames]
