"""What the processes of a gateway hold at one moment: tasks by their own word, all else counted from outside."""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.rig.gateway import Gateway
from tests.rig.timing import TIMEOUT, eventually, wait_until

SLACK = 8
"""Pools of threads that were not full before may be now; each thread has a connection to the database, a socket."""


@dataclass(frozen=True)
class Census:
    """The sums over all processes."""

    tasks: Counter[str]
    threads: int
    databases: int
    upstreams: int
    sockets: int

    def beyond(self, before: "Census") -> dict[str, Any]:
        """What there is more of than before, beyond what pools explain."""
        limits = {"threads": SLACK, "databases": SLACK, "sockets": SLACK, "upstreams": 0}
        more: dict[str, Any] = {name: getattr(self, name) - getattr(before, name) for name in limits}
        more = {name: count for name, count in more.items() if count > limits[name]}
        if self.tasks.total() > before.tasks.total():
            more["tasks"] = self.tasks - before.tasks
        return more


def take(gateway: Gateway, upstream_port: int = 0) -> Census:
    """Count now. The gateway must have been started as "counted", with the folder of its log as COUNTED."""
    database = urlsplit(gateway.environment.get("DATABASE_URL", "")).port
    folder = Path(gateway.environment["COUNTED"])
    found = Census(Counter(), 0, 0, 0, 0)
    for server in gateway.servers:
        pid = server.process.pid
        links = _links(pid)
        found = Census(
            tasks=found.tasks + _tasks(pid, folder),
            threads=found.threads + len(list(Path(f"/proc/{pid}/task").iterdir())),
            databases=found.databases
            + (connections(pid, database) if database else sum(one.endswith("db.sqlite3") for one in links)),
            upstreams=found.upstreams + (connections(pid, upstream_port) if upstream_port else 0),
            sockets=found.sockets + sum(one.startswith("socket:") for one in links),
        )
    return found


async def nothing_more(look: Callable[[], Census], before: Census, timeout_seconds: float = TIMEOUT) -> None:
    """
    Wait until there is no more of anything than before.

    Raises:
        AssertionError: If there is, after that time; the text says of what.
    """
    more: dict[str, Any] = {}

    async def none() -> bool:
        nonlocal more
        more = look().beyond(before)
        return not more

    try:
        await eventually(none, timeout_seconds)
    except TimeoutError:
        raise AssertionError(f"more than before: {more}") from None


def connections(pid: int, port: int) -> int:
    """The TCP connections of a process that lead to a port, in whatever state."""
    mine = {link for link in _links(pid) if link.startswith("socket:")}
    count = 0
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            remote = int(fields[2].rpartition(":")[2], 16)
            count += remote == port and f"socket:[{fields[9]}]" in mine
    return count


def _tasks(pid: int, folder: Path) -> Counter[str]:
    file = folder / str(pid)
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    wait_until(file.exists, what="the process has written its tasks")
    return Counter(json.loads(file.read_text()))


def _links(pid: int) -> list[str]:
    """What the descriptors of a process stand for."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(link))
        except FileNotFoundError:  # closed meanwhile
            continue
    return found
