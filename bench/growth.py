"""
What a user's past costs: the same things with few and with many sessions, with few and with many stored messages.

The rows are written straight into the tables. Then it is looked up how the database answers each query: one that can
only be answered by reading a whole table is named, and fails the run.
"""

import argparse
from typing import Any

from bench import hops, inside, systems
from bench.loading import load
from bench.tables import ms, table
from tests.rig.clerk import Person

FEW_SESSIONS, MANY_SESSIONS = 100, 10_000
FEW_MESSAGES, MANY_MESSAGES = 10_000, 1_000_000
MESSAGES_A_SESSION = 2  # where sessions are what is many
HOP_PAIRS, HOP_WINDOW = 1, 4
WARM, COUNT = 5, 40


def measure(ours: systems.Gateways, person: Person, seconds: float) -> dict[str, tuple[float, float]]:
    """CPU seconds and p50 seconds of each thing; of a text hop only the former says something."""
    newest = inside.ask(ours.gateway.environment, "last_cursor", name=person.name)
    app, origin = ours.gateway.app_url(person, caps="sync", since=str(newest)), ours.gateway.origin
    asks = [
        {"name": "connect with since=last", "url": app, "rows": 0},
        {"name": "newest page of frames", "url": f"{origin}/api/frames?limit=100", "rows": min(100, newest)},
        {"name": "page of a session", "url": f"{origin}/api/frames?session=s-0&limit=100", "rows": 2},
        {
            "name": "page far back",
            "url": f"{origin}/api/frames?limit=100&before={newest // 2}",
            "rows": min(100, newest // 2 - 1),
        },
        {"name": "directory page", "url": f"{origin}/api/hermes/api/sessions", "rows": 50},
    ]
    for ask in asks:
        ask["token"] = person.token
    answers = load("asks", {"asks": asks, "warm": WARM, "count": COUNT, "pids": ours.pids()})["answers"]
    found = {name: (one["cpu_seconds"], one["p50"]) for name, one in answers.items()}
    ours.runs += 1
    port = ours.gateway.app_server.port
    hop = hops.measure(ours, [ours.pair(person, port, port)], HOP_WINDOW, seconds)
    return found | {"text hop": (hop["cpu_us"] / 1e6, hop["p50"])}


def lines(few: dict[str, Any], many: dict[str, Any]) -> list[list[str]]:
    """The lines of a table."""
    rows = []
    for name, (cpu, p50) in few.items():
        grown_cpu, grown_p50 = many[name]
        ratio = f"{grown_cpu / cpu:.2f}" if cpu else "-"
        rows.append([name, ms(cpu), ms(grown_cpu), ratio, ms(p50), ms(grown_p50), f"{grown_p50 / p50:.2f}"])
    return rows


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    seconds = options.seconds or 3.0
    with systems.gateway(options.backend, options.server) as ours:
        environment = ours.gateway.environment
        a, b, c, d = ours.some_people(4)
        few, many = FEW_SESSIONS, max(FEW_SESSIONS, int(MANY_SESSIONS * options.scale))
        inside.ask(environment, "fill", name=a.name, sessions=few, messages=few * MESSAGES_A_SESSION)
        inside.ask(environment, "fill", name=b.name, sessions=many, messages=many * MESSAGES_A_SESSION)
        less, more = int(FEW_MESSAGES * options.scale), int(MANY_MESSAGES * options.scale)
        inside.ask(environment, "fill", name=c.name, sessions=FEW_SESSIONS, messages=less)
        inside.ask(environment, "fill", name=d.name, sessions=FEW_SESSIONS, messages=more)
        cost = {person.name: measure(ours, person, seconds) for person in (a, b, c, d)}
        plans = inside.ask(environment, "whole_reads", name=d.name)
    head = ("", "CPU ms: few", "many", "ratio", "p50 ms: few", "many", "ratio")
    print(f"One user with {few:,} and with {many:,} sessions; {ours.name}.\n")
    print(table(head, lines(cost[a.name], cost[b.name])))
    print(f"\nOne user with {less:,} and with {more:,} messages in {FEW_SESSIONS} sessions.\n")
    print(table(head, lines(cost[c.name], cost[d.name])))
    whole = {purpose: lines for purpose, lines in plans.items() if lines}
    print(f"\nPlans looked at: {', '.join(plans)}.")
    if whole:
        raise SystemExit(f"these read a whole table: {whole}")
    print("None reads a whole table.")
