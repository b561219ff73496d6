"""One text and its answer at low load: how long from the App's question to the answer that comes back to it."""

import argparse

from bench import systems
from bench.hops import WARM_SECONDS
from bench.loading import load
from bench.tables import ms, p50_p99, table

PAUSE_SECONDS = 0.02
SESSIONS = 1


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    rows = []
    with systems.relay() as bare, systems.gateway(options.backend, options.server) as ours:
        for system in (bare, ours):
            order = {
                "pairs": system.pairs(1),
                "window": SESSIONS,
                "pause_seconds": PAUSE_SECONDS,
                "warm_seconds": WARM_SECONDS,
                "seconds": options.seconds or 10.0,
                "pids": system.pids(),
            }
            trips = load("hops", order)["trips"]
            rows.append([system.name, f"{len(trips):,}", *(ms(value) for value in p50_p99(trips))])
    print(
        f"One pair, one question at a time, {1000 * PAUSE_SECONDS:.0f} ms between an answer and the next.\n"
    )
    print(table(("", "trips", "p50 ms", "p99 ms"), rows))
