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

from bench.cpu import SERVER_CORE, on_core, tree
from tests.rig.backends import Templates
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.paths import ROOT
from tests.rig.ports import free_port

SESSION = "bench"


def compact(frame: dict[str, Any]) -> str:
    """A frame as most programs write it: JSON without spaces."""
    return json.dumps(frame, separators=(",", ":"))


class System(Protocol):
    """Something that carries pieces from agents to Apps."""

    name: str

    def pairs(self, count: int) -> list[dict[str, str]]:
        """Addresses and frames of so many fresh pairs."""

    def pids(self) -> list[int]:
        """The processes whose CPU time counts."""


@dataclass
class Relay:
    """The bare relay."""

    port: int
    process: subprocess.Popen[str]
    name: str = "bare relay, nothing stored"

    def pairs(self, count: int) -> list[dict[str, str]]:
        """Pairs by number; the frames are as long as the gateway's."""
        piece = {"type": "stream", "from": "hermes", "to": "bench-000000", "session": SESSION}
        text = compact(piece | {"data": {"text": "TEXT"}})
        return [
            {
                "agent": f"ws://127.0.0.1:{self.port}/agent/{number}",
                "app": f"ws://127.0.0.1:{self.port}/app/{number}",
                "piece": text,
                "session": SESSION,
            }
            for number in range(count)
        ]

    def pids(self) -> list[int]:
        """The one process."""
        return [self.process.pid]


@contextlib.contextmanager
def relay() -> Iterator[Relay]:
    """A running bare relay."""
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
    """The gateway, with users made as they are needed."""

    gateway: Gateway
    name: str
    people: list[Person] = field(default_factory=list)
    streams: int = 0

    def pairs(self, count: int) -> list[dict[str, str]]:
        """A user for each pair; a stream of its own for each run."""
        while len(self.people) < count:
            self.people.append(self.gateway.person("bench"))
        self.streams += 1
        session = f"{SESSION}-{self.streams}"
        pairs = []
        for person in self.people[:count]:
            address = {"from": "hermes", "to": person.name, "session": session}
            start = {"id": f"stream-{self.streams}", "type": "stream_start", "ts": 1719123456}
            pairs.append(
                {
                    "agent": self.gateway.agent_url(person),
                    "app": self.gateway.app_url(person),
                    "start": compact(start | address),
                    "session": session,
                    "end": compact({"type": "stream_end"} | address),
                    "piece": compact({"type": "stream"} | address | {"data": {"text": "TEXT"}}),
                }
            )
        return pairs

    def pids(self) -> list[int]:
        """All its server processes."""
        return [pid for server in self.gateway.servers for pid in tree(server.process.pid)]


@contextlib.contextmanager
def gateway(backend: str, server: str) -> Iterator[Gateways]:
    """A running gateway over a fresh store, in one process."""
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        templates = Templates(Path(folder))
        store = templates.make(backend)
        store.processes = 1
        limits = {
            "HERMES_RATE_LIMIT": "0",
            "HERMES_STREAM_BYTES": str(2**30),
            "HERMES_LOG_LEVEL": "WARNING",
        }
        running = Gateway(store, limits, server)
        try:
            with on_core(SERVER_CORE):
                running.start()
            yield Gateways(running, f"gateway, {server}, {backend}, all committed")
        finally:
            running.stop()
            templates.close()
