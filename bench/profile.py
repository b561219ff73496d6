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


class Recorder:
    """Samples one process for some seconds, once started."""

    def __init__(self, pid: int, seconds: int, output: Path) -> None:
        self._output = output
        self._process: subprocess.Popen[str] | None = None
        self._command = [
            str(Path(sys.executable).with_name("py-spy")),
            *("record", "--pid", str(pid), "--duration", str(seconds), "--rate", str(RATE_HERTZ)),
            *("--format", "raw", "--gil", "--output", str(output)),
        ]

    def start(self) -> None:
        """Begin to sample."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def samples(self) -> str:
        """
        Wait for the end; py-spy's raw format.

        Raises:
            RuntimeError: If it could not sample; the text says why.
        """
        assert self._process is not None
        _, said = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"py-spy could not sample: {said.strip()[-500:]}")
        return self._output.read_text()


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
