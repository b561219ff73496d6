"""CPU time and memory of process trees, and which core they run on. Linux only: reads /proc."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
SERVER_CORE, LOAD_CORE = 0, 1


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time that the processes have used, all their threads together."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_SECOND


class Meter:
    """What some processes and this one use, from now on."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._began, self._cpu, self._own = time.monotonic(), cpu_seconds(pids), time.process_time()

    def used(self) -> dict[str, float]:
        """So far: `seconds` of the clock, `cpu_seconds` of the processes, `load_share` of this one's core."""
        seconds = time.monotonic() - self._began
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds(self._pids) - self._cpu,
            "load_share": (time.process_time() - self._own) / seconds,
        }


def resident_kib(pids: list[int]) -> int:
    """Resident memory of the processes together."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """What is started meanwhile runs on one core, where there are several; None: on any."""
    before = os.sched_getaffinity(0)
    if core is not None and len(before) > 1:
        os.sched_setaffinity(0, {sorted(before)[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
