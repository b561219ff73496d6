"""
`python -m bench`: pieces a second and CPU a piece, the gateway beside a bare relay in the same run.

Server on one core, load on another, a closed loop with a window of pieces not yet seen. The figure to judge by is the
ratio of the two within one run.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import load, profile, systems
from bench.cpu import LOAD_CORE, on_core
from tests.rig.paths import ROOT

CELLS = [(1, 64), (50, 4), (50, 16), (200, 1), (200, 8)]
WARM_SECONDS = 1.0


def measure(
    system: systems.System, pairs: int, window: int, seconds: float, begun: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """
    Run one cell; ``begun`` is called when the measured time begins.

    Raises:
        SystemExit: If a piece was lost, doubled or came out of order.
    """
    order = {
        "pairs": system.pairs(pairs),
        "window": window,
        "warm_seconds": WARM_SECONDS,
        "seconds": seconds,
        "pids": system.pids(),
    }
    with on_core(LOAD_CORE):
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.load"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(order))
    process.stdin.close()
    if process.stdout.readline().strip() == load.BEGUN:
        begun()
    answer, said = process.stdout.read(), process.stderr.read() if process.stderr is not None else ""
    if process.wait():
        raise SystemExit(f"the load failed: {said[-2000:]}")
    result: dict[str, Any] = json.loads(answer)
    if result["faults"]:
        raise SystemExit(f"{system.name}, {pairs} pairs: {result['faults']}")
    return {
        "pieces_per_second": result["pieces"] / result["seconds"],
        "cpu_us": 1e6 * result["cpu_seconds"] / max(1, result["pieces"]),
        "server_share": result["cpu_seconds"] / result["seconds"],
        "load_share": result["load_share"],
    }


def table(name: str, rows: dict[tuple[int, int], tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """The side-by-side table, in Markdown."""
    lines = [
        f"Reference: bare `websockets` relay, nothing stored. Measured: {name}.",
        "",
        "`us`: CPU microseconds of the server a piece; `per core`: pieces/s of a core that has nothing else to do.",
        "",
        "| pairs, window | relay: pieces/s | us | gateway: pieces/s | us | per core | ratio per core | load's core |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (pairs, window), (bare, ours) in rows.items():
        lines.append(
            f"| {pairs}, {window} | {bare['pieces_per_second']:,.0f} | {bare['cpu_us']:.1f} "
            f"| {ours['pieces_per_second']:,.0f} | {ours['cpu_us']:.1f} "
            f"| {1e6 / ours['cpu_us']:,.0f} | {bare['cpu_us'] / ours['cpu_us']:.2f} "
            f"| {ours['load_share']:.0%} |"
        )
    return "\n".join(lines)


def sampled(system: systems.System, seconds: int) -> list[tuple[str, float]]:
    """The functions that cost most while 50 pairs with 16 pieces on the way run."""
    with profile.folder() as folder:
        recorder = profile.Recorder(system.pids()[0], seconds, Path(folder) / "samples")
        measure(system, 50, 16, seconds, recorder.start)
        return profile.costs(recorder.samples())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--server", default="serve", choices=["serve", "daphne", "uvicorn"])
    parser.add_argument("--backend", default="embedded", choices=["embedded", "shared"])
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of each cell")
    parser.add_argument("--cell", action="append", metavar="PAIRS,WINDOW", help="instead of the usual ones")
    parser.add_argument("--no-profile", action="store_true")
    options = parser.parse_args()
    cells = [(int(p), int(w)) for p, w in (cell.split(",") for cell in options.cell or [])] or CELLS
    began = time.monotonic()
    rows = {}
    with systems.relay() as bare, systems.gateway(options.backend, options.server) as ours:
        for pairs, window in cells:
            rows[pairs, window] = (
                measure(bare, pairs, window, options.seconds),
                measure(ours, pairs, window, options.seconds),
            )
        print(table(ours.name, rows), flush=True)
        if not options.no_profile:
            print("\nWhere the interpreter's time goes (own time of functions, 50 pairs, 16 on the way):\n")
            for name, share in sampled(ours, max(3, round(options.seconds))):
                print(f"- {share:.0%} {name}")
    print(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
