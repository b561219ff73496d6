"""
`python -m bench [SUBJECT]`: what the gateway costs, beside its references in the same run.

Servers on one core, load on another. Each subject prints a Markdown table, and fails when anything was lost, doubled or
out of order. Without a subject: `pieces`.
"""

import argparse
import importlib
import signal
import sys
import time

SUBJECTS = {
    "pieces": "streamed pieces a second and CPU a piece",
    "servers": "the same on serve, uvicorn and plain daphne",
    "latency": "pieces at set rates, from send to receipt",
    "hops": "whole texts a second, each committed",
    "trip": "one text and its answer at low load",
    "idle": "memory of sockets that say nothing",
    "start": "from start to the first accepted socket",
    "slow": "a reader that never reads",
    "processes": "two processes against one",
    "growth": "many sessions, many messages of one user",
    "sse": "runs read over HTTP",
}


def main() -> None:
    """Measure one subject and print."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    listed = "; ".join(f"{name}: {what}" for name, what in SUBJECTS.items())
    parser.add_argument(
        "subject", nargs="?", default="pieces", choices=SUBJECTS, help=listed, metavar="SUBJECT"
    )
    parser.add_argument("--server", default="serve", choices=["serve", "daphne", "uvicorn"])
    parser.add_argument("--backend", default="embedded", choices=["embedded", "shared"])
    parser.add_argument("--seconds", type=float, help="measured time of each cell")
    parser.add_argument(
        "--cell", action="append", metavar="PAIRS,WINDOW", help="of pieces, instead of the usual ones"
    )
    parser.add_argument(
        "--no-profile", action="store_true", help="pieces: without the functions that cost most"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of sockets, rows and pieces, to try with less"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # and stop what was started
    began = time.monotonic()
    importlib.import_module(f"bench.{options.subject}").main(options)
    print(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
