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
    rows = []
    with systems.relay() as bare:
        for server in SERVERS:
            with systems.gateway(options.backend, server) as ours:
                lines = side_by_side(bare, ours, CELLS, seconds)
            rows += [[server, *line] for line in lines]
    print(f"Reference: {bare.name}, measured anew beside each server; {options.backend}.\n")
    print(table(["server", *HEAD, "load's core"], rows))
