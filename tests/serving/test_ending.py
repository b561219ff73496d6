"""Beginning and end of a process: ready before it listens, and gone in good order."""

import os
import signal
import time

import pytest

from tests.rig.timing import SCALE, wait_until
from tests.serving.rig import CLOSE, TEXT, Served, closing, frame


def test_nothing_is_accepted_before_the_start_is_done():
    """While the application starts, connections are refused; the first one that is accepted finds it started."""
    with Served({"TEST_STARTUP_SECONDS": "1"}) as server:
        assert server.state()["started"] is True


def test_application_that_does_not_start_ends_the_process():
    """A failed start is logged and is an exit status of 1."""
    server = Served({"TEST_STARTUP_FAILS": "1"})
    try:
        assert server.process.wait(10 * SCALE) == 1
        assert "this application does not start" in server.log()
    finally:
        server.kill()


def test_term_drains_and_closes_with_4001(own_server: Served):
    """On SIGTERM the application says goodbye, and sockets that are still open are closed with 4001."""
    with own_server.open("/echo") as line:
        own_server.process.send_signal(signal.SIGTERM)
        opcode, payload = line.frame()
        assert (opcode, payload[:2]) == (CLOSE, (4001).to_bytes(2, "big"))
        line.send(closing(4001))
        assert line.ended()
    assert own_server.process.wait(10 * SCALE) == 0
    assert "Traceback" not in own_server.log()


def test_draining_takes_nothing_new():
    """While it drains a process answers requests and upgrades with 503, and goes on with what it has."""
    with Served({"TEST_DRAIN_SECONDS": "1"}) as server, server.open("/echo") as line:
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "draining" in server.log())
        line.send(frame(TEXT, b"still here"))
        assert line.frame() == (TEXT, b"still here")
        with server.connect() as other:
            other.upgrade("/echo")
            assert (other.status, other.headers["retry-after"]) == (503, "1")
        with server.connect() as other:
            other.request("POST", "/body", b"12345")
            assert (other.status, other.headers["connection"]) == (503, "close")
        assert server.process.wait(10 * SCALE) == 0


def test_answer_on_its_way_is_finished(own_server: Served):
    """A request that came before SIGTERM is still answered."""
    with own_server.connect() as line:
        line.send(line.head("GET", "/slow?seconds=1", None))
        wait_until(lambda: own_server.get("/hello"))
        own_server.process.send_signal(signal.SIGTERM)
        line.read_head()
        assert line.body() == b"done"
    assert own_server.process.wait(10 * SCALE) == 0


def test_endless_stream_is_cut(own_server: Served):
    """A stream without an end does not hold the process, and is not rounded off."""
    with own_server.connect() as line:
        line.request("GET", "/stream")
        own_server.process.send_signal(signal.SIGTERM)
        with pytest.raises(EOFError):
            line.body()
    assert own_server.process.wait(10 * SCALE) == 0
    assert "Traceback" not in own_server.log()


def test_second_signal_ends_at_once():
    """Who cannot wait says it twice."""
    with Served({"TEST_DRAIN_SECONDS": "60"}) as server:
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "draining" in server.log())
        server.process.send_signal(signal.SIGINT)  # Ctrl-C beside a SIGTERM is the same wish
        with server.connect() as line:
            line.request("GET", "/hello")
            assert line.status == 503
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(2 * SCALE) == 128 + signal.SIGTERM


def test_hanging_drain_is_not_waited_for():
    """However long the goodbye takes, the process is gone in the set time."""
    with Served({"TEST_DRAIN_SECONDS": "60"}, exit_seconds=1) as server:
        begun = time.monotonic()
        assert server.end() == 1
        assert time.monotonic() - begun < 3 * SCALE


def test_processes_share_the_port():
    """Connections are spread over the processes, evenly enough."""
    with Served(processes=2) as server:
        pids = [int(server.get("/hello")) for _ in range(40)]
        assert set(pids) == set(server.children())
        assert min(pids.count(pid) for pid in set(pids)) >= 5
        assert server.end() == 0


def test_killed_process_is_replaced():
    """A child that is killed is started again, and the other one serves meanwhile."""
    with Served(processes=2) as server:
        first, second = server.children()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: first not in server.children())
        assert int(server.get("/hello")) == second
        wait_until(lambda: len(server.children()) == 2)
        wait_until(lambda: int(server.get("/hello")) != second)
        assert "died (status -9)" in server.log()


def test_no_process_is_left_behind():
    """A parent that is killed takes its children along."""
    with Served(processes=2) as server:
        children = server.children()
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        wait_until(lambda: not any(alive(pid) for pid in children))


def test_parent_drains_all():
    """SIGTERM to the parent drains every child, and the parent ends last."""
    with Served({"TEST_DRAIN_SECONDS": "0.5"}, processes=2) as server:
        lines = [server.open("/echo") for _ in range(6)]
        children = server.children()
        assert server.end() == 0
        assert not any(alive(pid) for pid in children)
        for line in lines:
            assert line.frame()[1][:2] == (4001).to_bytes(2, "big")
            line.sock.close()
        assert "Traceback" not in server.log()


def test_children_that_do_not_start_end_the_parent():
    """Processes that never get ready are not tried for ever."""
    server = Served({"TEST_STARTUP_FAILS": "1"}, processes=2)
    try:
        assert server.process.wait(15 * SCALE) == 1
    finally:
        server.kill()


def alive(pid: int) -> bool:
    """Whether a process still runs; a dead one that nobody has buried does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
