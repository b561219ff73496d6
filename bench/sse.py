"""
Runs read over HTTP: 500 readers, each of a run of its own whose agent streams 10 pieces a second.

The cost of an event holds everything: the agent's frame, its commit, and the event on its reader's stream.
"""

import argparse

from bench import systems
from bench.loading import load
from bench.tables import ms, p50_p99, table
from tests.rig.clerk import Person

READERS, EACH_PER_SECOND, STARTS = 500, 10, 50
SETTLE_SECONDS, WARM_SECONDS = 2.0, 2.0


def talk(ours: systems.Gateways, person: Person, session: str) -> dict[str, str]:
    """What the load needs of one user: `QUESTION` and `TEXT` stand for what it puts there."""
    address = {"from": "hermes", "to": person.name, "session": session}
    start = {"id": f"answer-{session}", "type": "stream_start", "reply_to": "QUESTION", "ts": systems.TS}
    return {
        "agent": ours.gateway.agent_url(person, caps="control"),
        "host": f"127.0.0.1:{ours.gateway.app_server.port}",
        "token": person.token,
        "session": session,
        "start": systems.compact(start | address),
        "piece": systems.compact({"type": "stream"} | address | {"data": {"text": "TEXT"}}),
        "end": systems.compact({"type": "stream_end"} | address),
    }


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    readers, starts = max(1, int(READERS * options.scale)), max(2, int(STARTS * options.scale))
    with systems.gateway(options.backend, options.server) as ours:
        people = ours.some_people(readers + starts)
        order = {
            "starts": [talk(ours, person, "sse") for person in people[readers:]],
            "talks": [talk(ours, person, "sse") for person in people[:readers]],
            "each_per_second": EACH_PER_SECOND,
            "settle_seconds": SETTLE_SECONDS,
            "warm_seconds": WARM_SECONDS,
            "seconds": options.seconds or 8.0,
            "pids": ours.pids(),
        }
        result = load("sse", order)
    p50, p99 = p50_p99(result["delays"])
    bytes50, bytes99 = p50_p99([first for first, _ in result["starts"]])
    pieces50, pieces99 = p50_p99([piece for _, piece in result["starts"]])
    print(f"{readers} readers at {EACH_PER_SECOND} pieces/s each; {ours.name}.\n")
    rows = [
        ("events/s", f"{result['events'] / result['seconds']:,.0f}"),
        ("us of the server an event", f"{1e6 * result['cpu_seconds'] / max(1, result['events']):.0f}"),
        ("its core", f"{result['cpu_seconds'] / result['seconds']:.0%}"),
        ("agent's send to reader's receipt, p50 ms", ms(p50)),
        ("p99 ms", ms(p99)),
        ("KiB a reader", f"{result['kib_a_reader']:.0f}"),
        ("run start to first byte of its stream, p50 ms", ms(bytes50)),
        ("p99 ms", ms(bytes99)),
        ("run start to the agent's first piece, p50 ms", ms(pieces50)),
        ("p99 ms", ms(pieces99)),
        ("the load's core", f"{result['load_share']:.0%}"),
    ]
    print(table(("", "figure"), rows))
