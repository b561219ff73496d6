"""The bridge as an operator starts it beside an agent: a process with its settings in the environment."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.rig.backends import clean_environment
from tests.rig.paths import ROOT
from tests.rig.timing import TIMEOUT, wait_until


class Bridge:
    """One bridge; `start` may follow `kill`, on the same state. Use as a context manager."""

    def __init__(self, gateway_url: str, key: str, data: Path, *arguments: str, **environment: str) -> None:
        self._environment = clean_environment() | {
            "HERMES_CHAT_GATEWAY": gateway_url,
            "HERMES_CHAT_KEY": key,
            "HERMES_DATA_DIR": str(data),
            **environment,
        }
        self._arguments = arguments
        self.log_path = data / "bridge.log"
        data.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, without waiting for it to connect."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bridge", *self._arguments],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT)

    def log(self) -> str:
        """What it has printed so far."""
        return self.log_path.read_text(errors="replace")

    def wait_for_log(self, text: str) -> None:
        """Wait until it has printed something."""
        wait_until(lambda: text in self.log(), what=f"{text!r} in the bridge's log")
