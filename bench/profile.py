"""
Where a busy server's time goes: py-spy's samples, summed by function.

Samples are of the thread that holds the interpreter: Python's own cost. What runs without it (SQLite's disk, the
kernel's sockets) is in the CPU figures of the tables, not here.
"""

import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RATE_HERTZ = 250


def start(pid: int, seconds: int, output: Path) -> subprocess.Popen[str]:
    """Begin to sample a process."""
    recorder = Path(sys.executable).with_name("py-spy")
    return subprocess.Popen(
        [
            *(
                str(recorder),
                "record",
                "--pid",
                str(pid),
                "--duration",
                str(seconds),
                "--rate",
                str(RATE_HERTZ),
            ),
            *("--format", "raw", "--gil", "--output", str(output)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def costs(samples: str, top: int = 10) -> list[tuple[str, float]]:
    """
    The functions in which most samples were taken, with their share of all.

    ``samples`` is py-spy's raw format: `frame;frame;frame count` a line, the innermost frame last.
    """
    own: collections.Counter[str] = collections.Counter()
    for line in samples.splitlines():
        stack, _, count = line.rpartition(" ")
        innermost = re.sub(r":\d+\)$", ")", stack.split(";")[-1])
        own[innermost] += int(count)
    total = sum(own.values()) or 1
    return [(name, count / total) for name, count in own.most_common(top)]


def folder() -> tempfile.TemporaryDirectory[str]:
    """A place for the samples."""
    return tempfile.TemporaryDirectory(prefix="hermes-profile-")
