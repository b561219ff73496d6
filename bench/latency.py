"""How long a piece takes from the agent's send to the App's receipt at set rates over 200 pairs, beside the relay."""

import argparse
from typing import Any

from bench import inside, systems
from bench.loading import load
from bench.tables import ms, p50_p99, table

PAIRS = 200
RATES = (500, 2_000, 6_000)
COMMITS = 500
WARM_SECONDS = 2.0


def measure(system: systems.System, rate: int, seconds: float) -> dict[str, Any]:
    """
    Pieces at a rate.

    Raises:
        SystemExit: If a piece was lost, doubled or came out of order.
    """
    order = {
        "pairs": system.pairs(PAIRS),
        "rate": rate,
        "warm_seconds": WARM_SECONDS,
        "seconds": seconds,
        "pids": system.pids(),
    }
    result = load("paced", order)
    p50, p99 = p50_p99(result["delays"])
    return {
        "p50": p50,
        "p99": p99,
        "rate": result["pieces"] / result["seconds"],
        "share": result["cpu_seconds"] / result["seconds"],
    }


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    seconds = options.seconds or 4.0
    rows = []
    with systems.relay() as bare, systems.gateway(options.backend, options.server) as ours:
        commits = p50_p99(inside.ask(ours.gateway.environment, "commits", count=COMMITS))
        for rate in RATES:
            measured = [measure(system, rate, seconds) for system in (bare, ours)]
            cells = [
                cell
                for one in measured
                for cell in (ms(one["p50"]), ms(one["p99"]), f"{one['rate']:,.0f}", f"{one['share']:.0%}")
            ]
            bound = 3 * measured[0]["p99"] + commits[1]
            rows.append([f"{rate:,}", *cells, ms(bound)])
        print(f"{PAIRS} pairs; relay: {bare.name}; gateway: {ours.name}.\n")
        head = ["pieces/s", "relay: p50 ms", "p99 ms", "came/s", "its core"]
        head += ["gateway: p50 ms", "p99 ms", "came/s", "its core", "3x relay's p99 + a commit's"]
        print(table(head, rows))
        print(f"\nOne commit of one row by itself: p50 {ms(commits[0])} ms, p99 {ms(commits[1])} ms.")
