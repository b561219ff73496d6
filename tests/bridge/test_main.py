"""`python -m bridge` as an operator meets it: its exit codes, and what it says when it stops."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.state import State
from tests.bridge.fakes import FakeGateway
from tests.bridge.test_demo import start

NOWHERE = "ws://127.0.0.1:1/ws/agent"


def run(environ: dict[str, str], *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bridge", *flags],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("close", [(4403, "revoked"), None])
async def test_a_refusal_for_good_is_exit_code_3(close: tuple[int, str] | None):
    """A revoked and a wrong key end it, with the reason in the last line and the key in none."""
    async with FakeGateway() as gateway:
        gateway.close_at_once = close
        gateway.refusal = None if close else (401, {})
        process = await start(gateway, "--debug")
        _, errors = await process.communicate()
    assert process.returncode == 3
    log = errors.decode()
    assert "stopping: " in log.splitlines()[-1]
    assert "verysecret" not in log
    assert "Traceback" not in log


def test_a_state_in_use_is_exit_code_1(tmp_path: Path):
    """Two bridges on one state file would answer everything twice."""
    held = State(tmp_path / "bridge.sqlite3")
    keys = {"HERMES_CHAT_KEY": "hk_a_b", "HERMES_API_KEY": "x", "HERMES_DATA_DIR": str(tmp_path)}
    done = run(keys, "--gateway", NOWHERE)
    held.close()
    assert done.returncode == 1
    assert "--state" in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_settings_are_exit_code_2():
    """Said in one line, without starting anything."""
    done = run({"HERMES_CHAT_KEY": ""}, "--demo")
    assert done.returncode == 2
    assert "HERMES_CHAT_KEY" in done.stderr
