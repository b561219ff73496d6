"""
A reader that never reads, while its agent sends 100,000 pieces: the server's memory, the other pairs, the close code.

Its agent has `control`, so that each of its streams ends a turn, and with it what the gateway remembers of that. The
same is done first with a reader that does read: what that costs in memory is not the slow one's doing. Afterwards the
history must hold every piece, in order.
"""

import argparse
import json
import urllib.request
from typing import Any

from bench import systems
from bench.loading import load
from bench.loads.slow import PIECE_CHARS, PIECES_PER_SECOND
from bench.tables import ms, table
from tests.rig.clerk import Person

PIECES, STREAMS = 100_000, 20
OTHERS = 20
PAGE = 4


def measure(ours: systems.Gateways, person: Person, reads: bool, pieces: int) -> dict[str, Any]:
    """
    One reader, good or deaf.

    Raises:
        SystemExit: If another pair lost a piece, or the history does.
    """
    specs = ours.pairs(OTHERS)
    victim = ours.pair(person, ours.gateway.app_server.port, ours.gateway.agent_server.port)
    start = json.loads(victim["start"]) | {"id": "stream-STREAM"}
    order = {
        "victim": victim | {"start": systems.compact(start), "agent": victim["agent"] + "&caps=control"},
        "others": specs,
        "reads": reads,
        "pieces": pieces,
        "streams": STREAMS,
        "pids": ours.pids(),
    }
    result = load("slow", order)
    check_history(ours, person, pieces)
    return result


def check_history(ours: systems.Gateways, person: Person, pieces: int) -> None:
    """
    All pieces of a user, by `GET /api/frames`.

    Raises:
        SystemExit: If one is missing, doubled or misplaced.
    """
    before, texts = "", []
    while True:
        request = urllib.request.Request(
            f"{ours.gateway.origin}/api/frames?limit={PAGE}{before}",
            headers={"Authorization": f"Bearer {person.token}"},
        )
        with urllib.request.urlopen(request) as answer:
            page = json.load(answer)
        texts = [frame["data"]["text"] for frame in page["data"]] + texts
        if not page["has_more"]:
            break
        before = f"&before={page['data'][0]['cursor']}"
    text = "".join(texts)
    numbers = [int(text[at : at + 8]) for at in range(0, len(text), PIECE_CHARS)]
    if numbers != list(range(pieces)):
        raise SystemExit(f"the history holds {len(numbers)} pieces, {pieces} were sent")


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    pieces = max(STREAMS, int(PIECES * options.scale) // STREAMS * STREAMS)
    rows = []
    with systems.gateway(options.backend, options.server) as ours:
        _, first, second, third = ours.some_people(OTHERS + 3)[OTHERS - 1 :]
        measure(ours, first, True, pieces)  # memory that is taken once, for good
        for name, person, reads in (("reads all", second, True), ("never reads", third, False)):
            one = measure(ours, person, reads, pieces)
            rows.append(
                [
                    name,
                    f"{(one['peak'] - one['before']) / 1024:+.1f}",
                    f"{(one['after'] - one['before']) / 1024:+.1f}",
                    one["ended"],
                    ms(one["calm_p99"]),
                    ms(one["busy_p99"]),
                ]
            )
    print(
        f"{pieces:,} pieces of {PIECE_CHARS} characters, {PIECES_PER_SECOND:,}/s, in {STREAMS} streams; {OTHERS} other pairs.\n"
    )
    head = ("the reader", "server MiB, highest", "afterwards", "ended")
    print(table([*head, "others' p99 ms before", "meanwhile"], rows))
    print("\nAll pieces were in the history afterwards, in order.")
