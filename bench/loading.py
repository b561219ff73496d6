"""Runs a load program on the load's core and reads its answer."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench.cpu import LOAD_CORE, on_core
from bench.loads.orders import BEGUN
from tests.rig.paths import ROOT


def load(
    program: str,
    order: dict[str, Any],
    begun: Callable[[], None] = lambda: None,
    core: int | None = LOAD_CORE,
) -> dict[str, Any]:
    """
    Have `bench/loads/<program>.py` carry out an order; ``begun`` is called when the measured time begins.

    Raises:
        SystemExit: If it failed, or something was lost, doubled, out of order or refused.
    """
    with on_core(core):
        process = subprocess.Popen(
            [sys.executable, "-m", f"bench.loads.{program}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(order))
        process.stdin.close()
        answer = ""
        for line in process.stdout:
            if line.strip() == BEGUN:
                begun()
            else:
                answer = line
        if process.wait():
            raise SystemExit(f"the load {program} failed")
    finally:
        process.kill()
        process.wait()
    result: dict[str, Any] = json.loads(answer)
    if result["faults"]:
        raise SystemExit(f"{program}: {result['faults']}")
    return result
