"""`make run`: one command, everything up; one signal, everything gone."""

import json
import os
import re
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hermes_site.local import START_SECONDS, STOP_SECONDS, Running, free_port


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """The command, started; killed with all of its group if the test did not end it."""
    made = Running(tmp_path)
    yield made
    made.kill()


@pytest.mark.parametrize("how", ["terminate", "ctrl-c"])
def test_one_command_runs_it_all_and_one_signal_ends_it_all(running: Running, how: str) -> None:
    """Address, login and key are printed and good; the demo agent comes in; then nothing is left."""
    text = running.wait_for("Ctrl-C stops everything")
    base = f"http://127.0.0.1:{running.port}"
    assert base in text
    with urllib.request.urlopen(f"{base}/readyz", timeout=10) as answer:
        assert json.load(answer)["status"] == "ok"
    user, password = running.login()
    body = json.dumps({"username": user, "password": password}).encode()
    request = urllib.request.Request(f"{base}/api/auth/token", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        token = json.load(answer)["access"]
    deadline = time.monotonic() + START_SECONDS
    online = False
    while not online and time.monotonic() < deadline:
        request = urllib.request.Request(f"{base}/api/me", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            online = any(agent["online"] for agent in json.load(answer)["agents"])
        time.sleep(0.05)
    assert online, running.text()
    if how == "ctrl-c":
        os.killpg(running.process.pid, signal.SIGINT)  # a terminal sends it to all
    else:
        running.process.terminate()
    assert running.process.wait(STOP_SECONDS) == 0, running.text()
    assert running.left() == []
    assert "Traceback" not in running.text()
    key = re.search(r"HERMES_CHAT_KEY=(\S+)", text).group(1)  # type: ignore[union-attr]
    assert key not in (running.folder / "data" / "hermes.log").read_text()


def test_a_port_that_is_taken_ends_it_with_an_error(tmp_path: Path) -> None:
    """And leaves nothing behind."""
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        made = Running(tmp_path, PORT=str(taken.getsockname()[1]))
        try:
            assert made.process.wait(START_SECONDS) != 0
            assert made.left() == []
        finally:
            made.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_killed_it_leaves_nothing_behind(running: Running) -> None:
    """Even without a chance to say so."""
    running.wait_for("Ctrl-C stops everything")
    running.process.kill()
    running.process.wait()
    deadline = time.monotonic() + STOP_SECONDS
    while running.left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running.left() == []
