"""
Streamed pieces: how many a second go through, and CPU microseconds of the server a piece, beside the bare relay.

A closed loop: each pair keeps a window of pieces on the way. The figure to judge by is the ratio within one run.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import profile, systems
from bench.loading import load
from bench.tables import table

CELLS = [(1, 64), (50, 4), (50, 16), (200, 1), (200, 8)]
WARM_SECONDS = 1.0
HEAD = ("pairs, window", "relay: pieces/s", "us", "gateway: pieces/s", "us", "per core", "ratio per core")


def measure(
    system: systems.System,
    pairs: list[dict[str, str]],
    window: int,
    seconds: float,
    begun: Callable[[], None] = lambda: None,
    core: int | None = 1,
) -> dict[str, Any]:
    """
    Run one cell; ``begun`` is called when the measured time begins.

    Raises:
        SystemExit: If a piece was lost, doubled or came out of order.
    """
    order = {
        "pairs": pairs,
        "window": window,
        "warm_seconds": WARM_SECONDS,
        "seconds": seconds,
        "pids": system.pids(),
    }
    return per_piece(load("pieces", order, begun, core))


def per_piece(result: dict[str, Any]) -> dict[str, Any]:
    """The figures of a run."""
    return {
        "pieces_per_second": result["pieces"] / result["seconds"],
        "cpu_us": 1e6 * result["cpu_seconds"] / max(1, result["pieces"]),
        "load_share": result["load_share"],
    }


def row(pairs: int, window: int, bare: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """One line of the side-by-side table."""
    return [
        f"{pairs}, {window}",
        f"{bare['pieces_per_second']:,.0f}",
        f"{bare['cpu_us']:.1f}",
        f"{ours['pieces_per_second']:,.0f}",
        f"{ours['cpu_us']:.1f}",
        f"{1e6 / ours['cpu_us']:,.0f}",
        f"{bare['cpu_us'] / ours['cpu_us']:.2f}",
        f"{ours['load_share']:.0%}",
    ]


def side_by_side(
    bare: systems.System, ours: systems.System, cells: list[tuple[int, int]], seconds: float
) -> list[list[str]]:
    """Measure each cell on both, one after the other; the lines of the table."""
    return [
        row(
            pairs,
            window,
            measure(bare, bare.pairs(pairs), window, seconds),
            measure(ours, ours.pairs(pairs), window, seconds),
        )
        for pairs, window in cells
    ]


def sampled(system: systems.System, seconds: int) -> list[tuple[str, float]]:
    """The functions that cost most while 50 pairs with 16 pieces on the way run."""
    with profile.folder() as folder:
        recorder = profile.Recorder(system.pids()[0], seconds, Path(folder) / "samples")
        measure(system, system.pairs(50), 16, seconds, recorder.start)
        return profile.costs(recorder.samples())


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    seconds = options.seconds or 3.0
    cells = [(int(p), int(w)) for p, w in (cell.split(",") for cell in options.cell or [])] or CELLS
    with systems.relay() as bare, systems.gateway(options.backend, options.server) as ours:
        print(f"Reference: bare `websockets` relay, nothing stored. Measured: {ours.name}.\n")
        print("`us`: CPU of the server a piece; `per core`: pieces/s of a core with nothing else to do.\n")
        print(table([*HEAD, "load's core"], side_by_side(bare, ours, cells, seconds)), flush=True)
        if not options.no_profile:
            print("\nWhere the interpreter's time goes (own time of functions, 50 pairs, 16 on the way):\n")
            for name, share in sampled(ours, max(3, round(seconds))):
                print(f"- {share:.0%} {name}")
