"""What is measured: the reference and the gateway, each started on the server's core and ready for pairs."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench import inside
from bench.cpu import SERVER_CORE, on_core, tree
from bench.loads.orders import allow_many_files
from tests.rig.backends import Templates
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.paths import ROOT
from tests.rig.ports import free_port

SESSION = "bench"
TS = 1719123456
LIMITS = {
    "HERMES_RATE_LIMIT": "0",
    "HERMES_SESSIONS": "100000",
    "HERMES_STREAM_BYTES": str(2**30),
    "HERMES_LOG_LEVEL": "WARNING",
}


def compact(frame: dict[str, Any]) -> str:
    """A frame as most programs write it: JSON without spaces."""
    return json.dumps(frame, separators=(",", ":"))


def talk(user: str, lead: str) -> dict[str, str]:
    """What a pair says in whole messages: `NUMBER` and `LANE` stand for what the load puts there."""
    address = {"session": f"{lead}-LANE", "ts": TS}
    ask = {"id": f"{lead}-q-NUMBER", "type": "text", "from": user, "to": "hermes"} | address
    answer = {"id": f"{lead}-a-NUMBER", "type": "text", "from": "hermes", "to": user} | address
    answer["reply_to"] = ask["id"]
    return {
        "ask": compact(ask | {"data": {"text": "question NUMBER"}}),
        "answer": compact(answer | {"data": {"text": "answer to NUMBER"}}),
        "lead": lead,
    }


class System(Protocol):
    """Something that carries frames between agents and Apps."""

    name: str

    def pairs(self, count: int) -> list[dict[str, str]]:
        """Addresses and frames of so many pairs, for one run."""

    def pids(self) -> list[int]:
        """The processes whose CPU time counts."""


@dataclass
class Relay:
    """The bare relay."""

    port: int
    process: subprocess.Popen[str]
    name: str = "bare relay, nothing stored"
    runs: int = 0

    def pairs(self, count: int) -> list[dict[str, str]]:
        """Pairs by number; the frames are as long as the gateway's."""
        self.runs += 1
        piece = {"type": "stream", "from": "hermes", "to": "bench-00000", "session": SESSION}
        text = compact(piece | {"data": {"text": "TEXT"}})
        return [
            {
                "agent": f"ws://127.0.0.1:{self.port}/agent/{self.runs}-{number}",
                "app": f"ws://127.0.0.1:{self.port}/app/{self.runs}-{number}",
                "piece": text,
                "session": SESSION,
            }
            | talk("bench-00000", f"run{self.runs}")
            for number in range(count)
        ]

    def pids(self) -> list[int]:
        """The one process."""
        return [self.process.pid]


@contextlib.contextmanager
def relay() -> Iterator[Relay]:
    """A running bare relay."""
    allow_many_files()
    port = free_port()
    with on_core(SERVER_CORE):
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.relay", str(port)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Relay(port, process)
    finally:
        process.kill()
        process.wait()


@dataclass
class Gateways:
    """The gateway, with users made as they are needed; with two processes users are spread over them."""

    gateway: Gateway
    name: str
    people: list[Person] = field(default_factory=list)
    runs: int = 0

    def some_people(self, count: int) -> list[Person]:
        """So many users, the same ones each time."""
        missing = count - len(self.people)
        if missing > 0:
            self.people += inside.people(self.gateway.environment, missing, f"bench{len(self.people)}")
        return self.people[:count]

    def pairs(self, count: int) -> list[dict[str, str]]:
        """A user for each pair; sessions and streams of their own for each run."""
        people = self.some_people(count)
        self.runs += 1
        ports = [server.port for server in self.gateway.servers]
        return [
            self.pair(person, ports[number % len(ports)], ports[number % len(ports)])
            for number, person in enumerate(people)
        ]

    def pair(self, person: Person, app_port: int, agent_port: int) -> dict[str, str]:
        """One user's pair: the App at one process, the agent at another or the same."""
        session = f"{SESSION}-{self.runs}"
        address = {"from": "hermes", "to": person.name, "session": session}
        start = {"id": f"stream-{self.runs}", "type": "stream_start", "ts": TS}
        return {
            "agent": self.gateway.agent_url(person, port=agent_port),
            "app": self.gateway.app_url(person, port=app_port),
            "start": compact(start | address),
            "session": session,
            "end": compact({"type": "stream_end"} | address),
            "piece": compact({"type": "stream"} | address | {"data": {"text": "TEXT"}}),
        } | talk(person.name, f"run{self.runs}")

    def pids(self) -> list[int]:
        """All its server processes."""
        return [pid for server in self.gateway.servers for pid in tree(server.process.pid)]


@contextlib.contextmanager
def gateway(
    backend: str, server: str = "serve", processes: int = 1, *, start: bool = True, **settings: str
) -> Iterator[Gateways]:
    """A gateway over a fresh store, running on the server's core; two processes on any."""
    allow_many_files()
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        templates = Templates(Path(folder))
        store = templates.make(backend)
        store.processes = processes
        running = Gateway(store, LIMITS | settings, server)
        try:
            if start:
                with on_core(SERVER_CORE if processes == 1 else None):
                    running.start()
            yield Gateways(running, f"gateway, {server}, {backend}, all committed")
        finally:
            running.stop()
            templates.close()
