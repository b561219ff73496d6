"""
Two gateway processes over PostgreSQL and Redis, against one: does twice the work fit into two cores?

The load, PostgreSQL and Redis need the same two cores, so what is judged is CPU: pieces a second of two cores that have
nothing else to do, beside those of one. Each process has as many pairs as the single one: fewer would leave it less to
join. A user is whole on one process, or its App is on the one and its agent on the other.
"""

import argparse

from bench import systems
from bench.pieces import measure
from bench.tables import table

PAIRS, WINDOW = 50, 16


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    seconds = options.seconds or 5.0
    measured = {}
    with systems.gateway("shared", options.server) as one:
        measured["one process"] = (1, measure(one, one.pairs(PAIRS), WINDOW, seconds, core=None))
    with systems.gateway("shared", options.server, processes=2) as two:
        measured["two, each user on one"] = (
            2,
            measure(two, two.pairs(2 * PAIRS), WINDOW, seconds, core=None),
        )
        here, there = (server.port for server in two.gateway.servers)
        two.runs += 1
        ports = [(here, there), (there, here)]
        people = two.some_people(2 * PAIRS)
        apart = [two.pair(person, *ports[number % 2]) for number, person in enumerate(people)]
        measured["two, App and agent apart"] = (2, measure(two, apart, WINDOW, seconds, core=None))
    _, single = measured["one process"]
    rows = [
        [
            name,
            f"{one['pieces_per_second']:,.0f}",
            f"{one['pieces_per_second'] / single['pieces_per_second']:.2f}",
            f"{one['cpu_us']:.1f}",
            f"{processes * 1e6 / one['cpu_us']:,.0f}",
            f"{processes * single['cpu_us'] / one['cpu_us']:.2f}",
        ]
        for name, (processes, one) in measured.items()
    ]
    print(f"{PAIRS} pairs a process, {WINDOW} on the way; PostgreSQL and Redis; {options.server}.\n")
    head = (
        "",
        "pieces/s as it was",
        "ratio",
        "us a piece, all processes",
        "pieces/s of cores of their own",
        "ratio",
    )
    print(table(head, rows))
