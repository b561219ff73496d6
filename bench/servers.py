"""The pieces table on each server that runs the application: `serve`, uvicorn and plain daphne, in one run."""

import argparse

from bench import systems
from bench.pieces import HEAD, side_by_side
from bench.tables import table

CELLS = [(50, 16), (200, 8), (200, 1)]
SERVERS = ("serve", "uvicorn", "daphne")


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    seconds = options.seconds or 3.0
    with systems.relay() as bare:
        print(f"Reference: {bare.name}, measured anew beside each server; {options.backend}.")
        for server in SERVERS:
            with systems.gateway(options.backend, server) as ours:
                print(f"\n{ours.name}\n")
                print(table([*HEAD, "load's core"], side_by_side(bare, ours, CELLS, seconds)), flush=True)
