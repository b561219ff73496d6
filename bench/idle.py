"""Memory of Apps that are connected and say nothing, one user each, and of the process before anybody came."""

import argparse
from typing import Any

from bench import systems
from bench.cpu import resident_kib
from bench.loading import load
from bench.tables import table

SOCKETS = (1_000, 5_000)
SETTLE_SECONDS = 10.0  # what a connection leaves to write and to count is done by then


def measure(
    system: systems.System, urls: list[str], steps: list[int], seconds: float
) -> list[dict[str, Any]]:
    """
    The figures of each step, the first being a single socket.

    Raises:
        SystemExit: If a socket was refused or closed.
    """
    order = {"urls": urls, "steps": steps, "settle_seconds": SETTLE_SECONDS, "seconds": seconds}
    return list(load("idle", order | {"pids": system.pids()})["steps"])


def lines(name: str, base_kib: int, steps: list[dict[str, Any]]) -> list[list[str]]:
    """The lines of the table for one system."""
    first = steps[0]
    return [
        [
            name,
            f"{step['sockets']:,}",
            f"{base_kib / 1024:.0f}",
            f"{step['kib'] / 1024:.0f}",
            f"{(step['kib'] - first['kib']) / (step['sockets'] - first['sockets']):.1f}",
            f"{1000 * step['opening_seconds']:.2f}",
            f"{step['idle_share']:.1%}",
        ]
        for step in steps[1:]
    ]


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    steps = [max(2, int(count * options.scale)) for count in SOCKETS]
    seconds = options.seconds or 3.0
    rows = []
    with systems.relay() as bare:
        base = resident_kib(bare.pids())
        urls = [pair["app"] for pair in bare.pairs(steps[-1])]
        rows += lines(bare.name, base, measure(bare, urls, steps, seconds))
    with systems.gateway(options.backend, options.server) as ours:
        base = resident_kib(ours.pids())
        urls = [ours.gateway.app_url(person) for person in ours.some_people(steps[-1])]
        rows += lines(ours.name, base, measure(ours, urls, steps, seconds))
    head = (
        "",
        "sockets",
        "MiB before any",
        "MiB with them",
        "KiB a socket",
        "CPU ms to open one",
        "idle CPU",
    )
    print("KiB a socket: growth since the first one, which brings what is imported late.\n")
    print(table(head, rows))
