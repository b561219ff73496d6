"""Access logs: no server prints a query, where credentials may be."""

import logging
import subprocess
import sys

import pytest

from hermes_site.serving import plain
from tests.rig.ports import free_port
from tests.rig.timing import TIMEOUT, wait_until
from tests.serving.rig import ROOT, Served

SECRET = "hunter2-hunter2"

PROGRAM = """
import sys
from hermes_site.serving import plain
plain.hide_queries()
from tests.serving.application import application
"""


def test_serve_prints_no_query(server: Served):
    """Requests, WebSockets and refusals are logged by their path alone."""
    server.get(f"/hello?token={SECRET}")
    with server.open(f"/echo?token={SECRET}"):
        pass
    with server.connect() as line:
        line.upgrade(f"/decline?status=401&token={SECRET}")
    wait_until(lambda: "WEBSOCKET /decline 401" in server.log())
    assert "GET /hello 200" in server.log()
    assert "WEBSOCKET /echo connected" in server.log()
    assert SECRET not in server.log()


def test_error_prints_no_query(server: Served):
    """A failing application is logged with its path alone."""
    with server.connect() as line:
        line.request("GET", f"/broken?token={SECRET}")
    wait_until(lambda: "failed on /broken" in server.log())
    assert SECRET not in server.log()


@pytest.mark.parametrize("name", ["daphne", "uvicorn"])
def test_other_servers_print_no_query(name: str, tmp_path):
    """Plain daphne and uvicorn print paths only, once the application is imported."""
    (tmp_path / "program.py").write_text(PROGRAM)
    port = str(free_port())
    arguments = {
        "daphne": ["-m", "daphne", "-p", port],
        "uvicorn": ["-m", "uvicorn", "--lifespan", "off", "--port", port],
    }[name]
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments, "program:application"],
            cwd=tmp_path,
            env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "PYTHONUNBUFFERED": "1"},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        other = Served.__new__(Served)
        other.port = int(port)

        def answers() -> bool:
            try:
                return bool(other.get(f"/hello?token={SECRET}"))
            except ConnectionRefusedError:
                return False

        wait_until(answers, 2 * TIMEOUT)
        with other.open(f"/scope?token={SECRET}"):
            pass
        wait_until(lambda: "/scope" in log.read_text())
        assert "/hello" in log.read_text()
        assert SECRET not in log.read_text()
    finally:
        process.terminate()
        process.wait()


def test_uvicorns_false_alarm_is_not_printed():
    """A refusal that ASGI allows is no error, though uvicorn says so."""
    plain.hide_queries()
    log = logging.getLogger("uvicorn.error")
    record = log.makeRecord(log.name, logging.ERROR, "f", 1, plain.NOT_SO, (), None)
    assert not log.filter(record)
    other = log.makeRecord(log.name, logging.ERROR, "f", 1, "%s failed", ("/a?b=c",), None)
    assert log.filter(other)
    assert other.getMessage() == "/a failed"


@pytest.mark.parametrize("nvx", ["0", "1"])
def test_slow_frames_are_told_of(nvx: str):
    """Plain daphne without Autobahn's NVX is warned of, with it nothing is said."""
    program = (
        "import logging, daphne.cli; logging.basicConfig(); "
        "from hermes_site.serving import plain; plain.warn_of_slow_frames()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"AUTOBAHN_USE_NVX": nvx},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("NVX is off" in done.stderr) is (nvx == "0")
