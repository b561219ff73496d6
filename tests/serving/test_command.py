"""`manage.py serve` as an operator calls it, with the real application."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rig.timing import SCALE, TIMEOUT, wait_until
from tests.serving.rig import ROOT, Served

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A migrated installation of its own."""
    made = {
        "PATH": os.environ["PATH"],
        "SECRET_KEY": "a-secret-key-for-tests-alone-0123456789-abcdefghij",
        "ALLOWED_HOSTS": "test",
        "HERMES_DATA_DIR": str(tmp_path / "data"),
        "PYTHONUNBUFFERED": "1",
    }
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=made, check=True)
    return made


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts `serve`; its output is in the folder's `log`."""
    running = []

    def begin(*arguments: str, **more: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "serve", *arguments],
                cwd=ROOT,
                env=environment | more,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
def test_both_servers_serve_refuse_and_end(start: Start, tmp_path: Path, server: str):
    """One application on both: health, a refused upgrade with its true status, SIGTERM in good order."""
    process = start("--port", "0", "--server", server)
    log = tmp_path / "log"
    wait_until(lambda: "Listening on http://127.0.0.1:" in log.read_text(), 3 * TIMEOUT)
    served = Served.__new__(Served)
    served.port = int(log.read_text().partition("Listening on http://127.0.0.1:")[2].split()[0])
    with served.connect() as line:
        line.request("GET", "/healthz")
        assert line.status == 200
    with served.connect() as line:
        line.upgrade("/ws/app?token=no-good-at-all")
        assert line.status == 401
    process.terminate()
    assert process.wait(15 * SCALE) == 0
    assert "Traceback" not in log.read_text()
    assert "no-good-at-all" not in log.read_text()


def test_several_processes_need_what_they_can_share(start: Start, tmp_path: Path):
    """With SQLite or without Redis more than one process is refused, and says why."""
    assert start("--port", "0", "--processes", "2").wait(3 * TIMEOUT) == 1
    log = (tmp_path / "log").read_text()
    assert "hermes_site.E001" in log
    assert "hermes_site.E002" in log


def test_taken_port_is_told_at_once(start: Start, tmp_path: Path):
    """A port that somebody has is one line, not a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert start("--port", str(port)).wait(3 * TIMEOUT) == 1
    log = (tmp_path / "log").read_text()
    assert f"cannot listen on 127.0.0.1:{port}" in log
    assert "Traceback" not in log


def test_shared_port_is_not_shared_with_strangers():
    """Several processes of one parent share a port; a second parent does not slip in beside them."""
    from hermes_site.serving import listening

    with listening.reserve("127.0.0.1", 0) as reserved:
        port = reserved.getsockname()[1]
        with listening.bind("127.0.0.1", port, shared=True) as child:
            child.listen()
            with pytest.raises(OSError, match="in use"):
                listening.reserve("127.0.0.1", port)
