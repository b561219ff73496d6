"""
Whole texts: hops a second, each committed, beside the bare relay's, which are not.

A hop is one text from an App to its agent, or one from the agent to the App. The gateway's figure holds all that goes
with it: the run, its events, and the end of the turn a second after its answer.
"""

import argparse
from typing import Any

from bench import systems
from bench.loading import load
from bench.tables import ms, p50_p99, table

PAIRS, WINDOW = 50, 4
WARM_SECONDS = 2.0  # the turns of an agent without capabilities end a second after its answer


def measure(
    system: systems.System, pairs: list[dict[str, str]], window: int, seconds: float
) -> dict[str, Any]:
    """
    Hops of so many pairs.

    Raises:
        SystemExit: If a text was lost, doubled or came out of order.
    """
    order = {"pairs": pairs, "window": window, "warm_seconds": WARM_SECONDS, "seconds": seconds}
    result = load("hops", order | {"pids": system.pids()})
    p50, p99 = p50_p99(result["trips"])
    return {
        "hops_per_second": result["hops"] / result["seconds"],
        "cpu_us": 1e6 * result["cpu_seconds"] / max(1, result["hops"]),
        "server_share": result["cpu_seconds"] / result["seconds"],
        "load_share": result["load_share"],
        "p50": p50,
        "p99": p99,
    }


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    seconds = options.seconds or 5.0
    with systems.relay() as bare, systems.gateway(options.backend, options.server) as ours:
        measured = {
            system.name: measure(system, system.pairs(PAIRS), WINDOW, seconds) for system in (bare, ours)
        }
        reference = measured[bare.name]
        print(f"{PAIRS} pairs, {WINDOW} questions of each on the way; trips are question and answer.\n")
        head = (
            "",
            "hops/s",
            "us a hop",
            "per core",
            "ratio hops/s",
            "ratio per core",
            "trip p50 ms",
            "p99 ms",
        )
        rows = [
            [
                name,
                f"{one['hops_per_second']:,.0f}",
                f"{one['cpu_us']:.0f}",
                f"{1e6 / one['cpu_us']:,.0f}",
                f"{one['hops_per_second'] / reference['hops_per_second']:.2f}",
                f"{reference['cpu_us'] / one['cpu_us']:.2f}",
                ms(one["p50"]),
                ms(one["p99"]),
            ]
            for name, one in measured.items()
        ]
        print(table(head, rows))
