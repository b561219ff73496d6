"""A short storm in every run of the suite; `make chaos` is the long one."""

from pathlib import Path

import pytest

from tests.chaos.storm import COMPLETE_SHARE, run
from tests.rig.timing import SCALE

SEED = 20261130
FAULTS = 12


@pytest.mark.timeout(300 * SCALE)
async def test_a_short_storm_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """Every kind of fault at least once under three conversations; afterwards every sentence of the verdict holds."""
    outcome = await run(SEED, FAULTS, tmp_path, pause_seconds=(0.2, 1.0))
    print("\n".join(outcome.lines()))
    assert not outcome.verdict.wrong, "\n".join(outcome.lines())
    assert outcome.faults.total() == FAULTS and len(outcome.faults) == 6
    assert outcome.verdict.counts["complete"] >= COMPLETE_SHARE * outcome.verdict.counts["turns"], (
        outcome.lines()
    )
