"""WebSockets as the application has them: opening, refusing, closing, signs of life, slow peers on either side."""

import socket
import struct

import pytest

from tests.rig.timing import wait_until
from tests.serving.rig import BINARY, CLOSE, CONT, PING, PONG, TEXT, Served, closing, frame

MIB = 1024 * 1024


def test_accept_sends_subprotocol_and_headers(clean_server: Served):
    """What the application adds to its acceptance reaches the peer; deflate is never agreed to."""
    with clean_server.open(
        "/echo", Sec_WebSocket_Protocol="a, b", Sec_WebSocket_Extensions="permessage-deflate"
    ) as line:
        assert line.headers["sec-websocket-protocol"] == "b"
        assert line.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert line.headers["x-test"] == "\xe9"
        assert "sec-websocket-extensions" not in line.headers


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 503])
def test_refusal_has_its_true_status(clean_server: Served, status: int):
    """A refused upgrade is answered with the application's status, headers and body, and ended."""
    with clean_server.connect() as line:
        line.upgrade(f"/decline?status={status}")
        assert line.status == status
        assert line.headers["retry-after"] == "7"
        assert line.headers["connection"] == "close"
        assert line.body() == b'{"why":"not now"}'
        assert line.ended()


def test_refusal_by_close_is_403(clean_server: Served):
    """An application that knows no other way refuses with 403."""
    with clean_server.connect() as line:
        line.upgrade("/decline")
        assert (line.status, line.body()) == (403, b"")
        assert line.ended()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec_WebSocket_Key": ""}, 400),
        ({"Sec_WebSocket_Key": "short"}, 400),
        ({"Sec_WebSocket_Version": ""}, 400),
        ({"Sec_WebSocket_Version": "8"}, 400),
        ({"Connection": "keep-alive"}, 426),
    ],
)
def test_bad_handshake_is_refused(clean_server: Served, headers: dict[str, str], status: int):
    """A request that is no good handshake never reaches the application."""
    with clean_server.connect() as line:
        line.upgrade("/echo", **headers)
        assert line.status == status
        line.body()
        assert line.ended()


def test_frames_sent_before_the_answer_are_kept(clean_server: Served):
    """A peer that does not wait for 101 loses nothing."""
    with clean_server.connect() as line:
        line.upgrade("/echo", early=frame(TEXT, b"one") + frame(TEXT, b"two"))
        line.send(frame(TEXT, b"three"))
        assert [line.frame() for _ in range(3)] == [(TEXT, b"one"), (TEXT, b"two"), (TEXT, b"three")]


def test_upgrade_on_a_used_connection(clean_server: Served):
    """A connection that has carried a request can still become a WebSocket."""
    with clean_server.connect() as line:
        line.request("GET", "/hello")
        line.body()
        line.upgrade("/echo")
        assert line.status == 101
        line.send(frame(TEXT, b"here"))
        assert line.frame() == (TEXT, b"here")


@pytest.mark.parametrize("code", [1000, 1008, 1011, 1013, 3000, 4001, 4409])
def test_application_closes_with_any_code(server: Served, code: int):
    """Code and reason of the application reach the peer; nothing follows, and nothing is read any more."""
    with server.open(f"/close?code={code}&reason=b%C3%BCcher") as line:
        assert line.frame() == (CLOSE, struct.pack("!H", code) + "bücher".encode())
        line.send(frame(TEXT, b"too late") + closing(code))
        assert line.ended()
    assert server.state()["heard"] == []


def test_reason_is_cut_at_a_character(clean_server: Served):
    """A reason longer than a close frame can hold is shortened, not refused."""
    with clean_server.open("/close?code=4001&reason=" + "%C3%A9" * 100) as line:
        opcode, payload = line.frame()
        assert opcode == CLOSE
        assert payload[2:].decode() == "é" * 61


@pytest.mark.parametrize(("query", "code"), [("", 1000), ("?fail=1", 4011)])
def test_application_that_leaves_closes(server: Served, query: str, code: int):
    """An application that returns ends its socket; one that fails says so, in the log too."""
    with server.open(f"/leave{query}") as line:
        assert line.frame() == (CLOSE, struct.pack("!H", code))
    assert ("broken on purpose" in server.log()) is (code == 4011)


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (closing(4005, b"bye"), [4005, "bye"]),
        (closing(), [1005, ""]),
        (frame(TEXT, b"\xff"), [1007, "invalid UTF-8"]),
        (b"", [1006, ""]),
    ],
)
def test_application_is_told_how_it_ended(server: Served, last: bytes, told: list[object]):
    """The disconnect has the peer's code and reason, ours for its error, 1006 for none."""
    with server.open("/echo") as line:
        line.send(last)
        if not last:
            line.sock.shutdown(socket.SHUT_WR)
        else:
            line.frame()
    assert wait_until(lambda: server.state()["ended"]) == [told]


def test_peer_that_never_closes_is_cut():
    """After our close frame a peer has a limited time; then its connection is reset or ended."""
    with Served(close_seconds=0.3) as server, server.open("/close?code=4001") as line:
        assert line.frame()[0] == CLOSE
        with pytest.raises((EOFError, ConnectionResetError)):
            while True:
                line.exactly(1)


def test_undecided_application_is_not_waited_for():
    """An upgrade that is neither taken nor refused in time is answered with 503."""
    with Served(accept_seconds=0.3) as server:
        with server.connect() as line:
            line.upgrade("/undecided")
            assert line.status == 503
        assert wait_until(lambda: server.state()["ended"]) == [1006]
        assert "did not answer a WebSocket on /undecided" in server.log()


def test_silent_peer_is_pinged_and_its_pong_counts():
    """A silent peer gets pings; its pong is a sign of life that the application can see."""
    with Served(ping_seconds=0.2) as server, server.open("/hold") as line:
        before = server.state()["open"][0]["last_heard"]
        assert line.frame() == (PING, b"")
        assert server.state()["open"][0]["last_heard"] == before
        line.send(frame(PONG))
        wait_until(lambda: server.state()["open"][0]["last_heard"] > before)


def test_unread_messages_are_bounded():
    """An application that does not read makes its peer wait; afterwards it gets every message."""
    with Served(unread_frames=10) as server, server.open("/hold?seconds=2") as line:
        line.sock.settimeout(0.2)
        sent = 0
        with pytest.raises(TimeoutError):
            while True:
                sent += line.sock.send(frame(BINARY, bytes(1000))[:1008]) // 1008
        memory = server.memory()
        assert memory < 90 * MIB
        line.sock.settimeout(10)
        wait_until(lambda: server.state()["taken"] >= sent - 1)


def test_many_tiny_frames_do_not_fill_memory():
    """Frames of seven bytes become large objects, so only as many are read as may wait."""
    with Served(unread_frames=10) as server, server.open("/hold") as line:
        before = server.memory()
        line.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            while True:
                line.send(frame(TEXT, b"x") * 10000)
        assert server.memory() - before < 3 * MIB


@pytest.mark.parametrize("way", ["send", "push"])
def test_slow_reader_costs_no_memory(server: Served, way: str):
    """100,000 texts for a peer that reads nothing: the writer waits, and the rest comes when the peer reads."""
    count, size = 100_000, 150
    before = server.memory()
    with server.open(f"/flood?way={way}&count={count}&size={size}", receive_buffer=4096) as line:
        wait_until(lambda: server.state()["open"][0]["paused"])
        state = server.state()
        assert state["sent"] < count
        assert state["open"][0]["buffered"] < 100 * 1024
        assert server.memory() - before < MIB
        for _ in range(count):
            assert line.frame() == (TEXT, b"y" * size)


def test_abort_frees_what_waits(server: Served):
    """A slow reader can be let go: its connection ends and the application is told."""
    with server.open("/flood?way=abort&count=100000&size=1000", receive_buffer=4096) as line:
        assert wait_until(lambda: server.state()["ended"]) == [1006]
        with pytest.raises((EOFError, ConnectionResetError)):
            while True:
                line.frame()


def test_peer_that_vanishes_while_paused_frees_the_writer(server: Served):
    """A writer that waits for a slow peer goes on when the peer is gone."""
    line = server.open("/flood?way=push&count=100000&size=1000", receive_buffer=4096)
    wait_until(lambda: server.state()["open"][0]["paused"])
    line.sock.close()
    assert wait_until(lambda: server.state()["ended"]) == [1006]


def test_close_between_fragments_of_a_control_frame(clean_server: Served):
    """A connection that ends in the middle of a message leaves no trace of it."""
    with clean_server.open("/echo") as line:
        line.send(frame(TEXT, b"never", fin=False) + frame(CONT, b"ended", fin=False))
    with clean_server.open("/echo") as line:
        line.send(frame(TEXT, b"fresh"))
        assert line.frame() == (TEXT, b"fresh")


def test_asyncio_loop_serves_as_well():
    """Without uvloop the same server runs on asyncio's own loop."""
    with Served(plain_loop=True) as server:
        with server.open("/echo") as line:
            line.send(frame(TEXT, b"hello"))
            assert line.frame() == (TEXT, b"hello")
            line.send(closing(1000))
            assert line.frame()[0] == CLOSE
            assert line.ended()
        assert server.end() == 0
