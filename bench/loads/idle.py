"""Sockets that say nothing: opened in steps, the server's memory read after each when it has settled."""

import asyncio
from typing import Any

from bench.cpu import Meter, resident_kib
from bench.loads.lines import Line, all_at_once, open_line
from bench.loads.orders import carry_out, say_begun


def _ignore(payload: bytes) -> None:
    """A socket that says nothing is told nothing that matters here."""


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Open `urls` in `steps`; returns for each step memory in KiB, CPU seconds of opening, idle CPU share."""
    pids, urls = order["pids"], order["urls"]
    faults: list[str] = []
    lines: list[Line] = []
    steps = []
    say_begun()
    for count in [1, *order["steps"]]:
        meter, before = Meter(pids), len(lines)
        lines += await all_at_once(open_line(url, "a socket", _ignore, faults) for url in urls[before:count])
        opening = meter.used()["cpu_seconds"]
        await asyncio.sleep(order["settle_seconds"])
        meter = Meter(pids)
        await asyncio.sleep(order["seconds"])
        idle = meter.used()
        steps.append(
            {
                "sockets": len(lines),
                "kib": resident_kib(pids),
                "opening_seconds": opening / (len(lines) - before),
                "idle_share": idle["cpu_seconds"] / idle["seconds"],
            }
        )
    found = faults[:5]
    for line in lines:
        line.leave()
    return {"steps": steps, "faults": found}


if __name__ == "__main__":
    carry_out(run)
