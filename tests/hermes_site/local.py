"""The command behind `make run`, in a process group of its own, for the tests that need all of it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.rig.ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 60
STOP_SECONDS = 20


class Running:
    """The command in a process group of its own."""

    def __init__(self, folder: Path, **changes: str) -> None:
        self.port = free_port()
        self.folder = folder
        self.log = folder / "output"
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment = (
            kept | {"DEBUG": "1", "PORT": str(self.port), "HERMES_DATA_DIR": str(folder / "data")} | changes
        )
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "manage.py", "run_local"],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        """What it printed so far."""
        return self.log.read_text()

    def wait_for(self, words: str) -> str:
        """Its output, once the words are in it."""
        deadline = time.monotonic() + START_SECONDS
        while words not in self.text():
            assert time.monotonic() < deadline, self.text()
            assert self.process.poll() is None, self.text()
            time.sleep(0.05)
        return self.text()

    def login(self) -> tuple[str, str]:
        """The user and the password that it prints, once everything runs."""
        found = re.search(r"log in as +(\S+) +password +(\S+)", self.wait_for("Ctrl-C stops everything"))
        assert found, self.text()
        return found.group(1), found.group(2)

    def kill(self) -> None:
        """End whatever of it is left."""
        if self.left():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def left(self) -> list[int]:
        """Processes of its group that are still there."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z" and int(fields[2]) == self.process.pid:
                found.append(int(stat.parent.name))
        return found
