"""`python -m tests.chaos --seed N --faults 300`: one long storm and its report; the exit status says how it went."""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.storm import COMPLETE_SHARE, run


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="hermes-storm-"))
    outcome = asyncio.run(run(given.seed, given.faults, folder))
    print("\n".join(outcome.lines()))
    if given.keep:
        print(f"logs: {folder}")
    counts = outcome.verdict.counts
    counted = counts["complete"] >= COMPLETE_SHARE * counts["turns"]
    if not counted:
        print(f"fewer than {COMPLETE_SHARE:.0%} of the turns are complete: this run does not count")
    return int(bool(outcome.verdict.wrong) or not counted)


if __name__ == "__main__":
    sys.exit(main())
