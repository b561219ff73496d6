"""HTTP bodies in both directions: as they come, bounded, and never mixed up with the next request."""

import json

import pytest

from tests.rig.timing import wait_until
from tests.serving.rig import Line, Served

MIB = 1024 * 1024
LARGE = 100 * MIB


def boundary(length: int) -> tuple[bytes, bytes, int]:
    """Head and tail of a form with one file of this length, and the length of all."""
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    tail = b"\r\n--b--\r\n"
    return head, tail, len(head) + length + len(tail)


def pour(line: Line, length: int) -> None:
    """Send so many bytes."""
    piece = bytes(MIB)
    for _ in range(length // MIB):
        line.send(piece)


@pytest.mark.parametrize("kind", ["raw", "multipart", "chunked"])
def test_large_upload_takes_no_memory(server: Served, kind: str):
    """100 MB go through in small pieces, whatever they are called."""
    before = server.peak()
    with server.connect() as line:
        if kind == "raw":
            line.send(line.head("PUT", "/body", LARGE, Content_Type="application/octet-stream"))
            pour(line, LARGE)
            length = LARGE
        elif kind == "multipart":
            head, tail, length = boundary(LARGE)
            form = "multipart/form-data; boundary=b"
            line.send(line.head("POST", "/body", length, Content_Type=form) + head)
            pour(line, LARGE)
            line.send(tail)
        else:
            line.send(line.head("POST", "/body", None, Transfer_Encoding="chunked"))
            for _ in range(LARGE // MIB):
                line.send(b"100000\r\n" + bytes(MIB) + b"\r\n")
            line.send(b"0\r\n\r\n")
            length = LARGE
        line.read_head()
        found = json.loads(line.body())
    assert found["length"] == length
    assert found["largest"] <= 2 * MIB
    assert server.peak() - before < 8 * MIB


def test_application_that_reads_slowly_makes_the_peer_wait(server: Served):
    """A body waits in the network, not in memory, and arrives whole."""
    before = server.peak()
    with server.connect() as line:
        line.send(line.head("PUT", "/body?pause=0.002", 20 * MIB))
        pour(line, 20 * MIB)
        line.read_head()
        assert json.loads(line.body())["length"] == 20 * MIB
    assert server.peak() - before < 6 * MIB


def test_early_refusal_reaches_a_peer_that_still_sends(server: Served):
    """An answer before the end of the body arrives whole, and ends the connection."""
    with server.connect() as line:
        line.send(line.head("PUT", "/refuse", 20 * MIB) + bytes(MIB))
        line.read_head()
        assert (line.status, line.body()) == (413, b"too large")
        assert line.headers["connection"] == "close"
        pour(line, 19 * MIB)
        assert line.ended()
    assert server.get("/hello")


def test_rest_of_a_refused_body_is_no_request(server: Served):
    """What follows a refused body is thrown away, even if it looks like a request."""
    with server.connect() as line:
        smuggled = line.head("GET", "/hello", None)
        line.send(line.head("POST", "/refuse", 1000 + len(smuggled)) + bytes(10))
        line.read_head()
        line.body()
        line.send(bytes(990) + smuggled + smuggled)
        assert line.ended()
    assert "GET /hello" not in server.log()


def test_expect_continue_is_sent_when_the_body_is_wanted(clean_server: Served):
    """A peer that asks first hears 100 if the body is read, and the refusal if it is not."""
    with clean_server.connect() as line:
        line.send(line.head("PUT", "/body", 5, Expect="100-continue"))
        line.read_head()
        assert line.status == 100
        line.send(b"12345")
        line.read_head()
        assert json.loads(line.body())["length"] == 5
    with clean_server.connect() as line:
        line.send(line.head("PUT", "/refuse", 5, Expect="100-continue"))
        line.read_head()
        assert line.status == 413


def test_peer_that_leaves_in_mid_body_is_noticed(server: Served):
    """A broken upload is a disconnect, not a short body."""
    with server.connect() as line:
        line.send(line.head("PUT", "/body", 1000) + b"half")
        wait_until(lambda: server.state()["taken"] == 4)
    assert wait_until(lambda: server.state()["ended"]) == ["body"]


def test_stalled_body_ends():
    """Between two pieces of a body a peer may be silent for a limited time."""
    with Served(idle_seconds=0.3) as server:
        with server.connect() as line:
            line.send(line.head("PUT", "/body", 1000) + b"half")
            assert line.ended()
        assert wait_until(lambda: server.state()["ended"]) == ["body"]


def test_head_that_trickles_ends():
    """A whole head has a limited time, however often a byte of it comes."""
    with Served(idle_seconds=0.5) as server, server.connect() as line:
        line.sock.settimeout(0.1)
        line.send(b"GET /hello HTTP/1.1\r\n")

        def over() -> bool:
            try:
                line.send(b"X")
                return not line.sock.recv(1)
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(over, 3)


def test_requests_in_a_row_keep_their_order(clean_server: Served):
    """Requests sent at once on one connection are answered one by one."""
    with clean_server.connect() as line:
        first = line.head("PUT", "/body", 3) + b"abc"
        line.send(first + line.head("GET", "/hello", None) + first)
        found = []
        for _ in range(3):
            line.read_head()
            found.append(line.body())
        assert [json.loads(body).get("length") if body[:1] == b"{" else "pid" for body in found] == [
            3,
            "pid",
            3,
        ]


def test_slow_download_takes_no_memory(server: Served):
    """An answer of 200 MB for a peer that reads nothing: the application waits."""
    before = server.memory()
    with server.connect(receive_buffer=4096) as line:
        line.send(line.head("GET", "/download?pieces=3200", None))
        line.read_head()
        sent = wait_until(lambda: server.state()["sent"])
        assert server.state()["sent"] < 3200, sent
        assert server.memory() - before < 2 * MIB


def test_download_arrives_whole(clean_server: Served):
    """A long answer to a peer that reads is complete."""
    with clean_server.connect() as line:
        line.send(line.head("GET", "/download?pieces=64", None))
        line.read_head()
        assert len(line.body()) == 64 * 65536


def test_stream_ends_with_its_peer(server: Served):
    """An endless answer is ended when nobody is there any more."""
    with server.connect() as line:
        line.send(line.head("GET", "/stream", None))
        line.read_head()
        line.exactly(20)
    wait_until(lambda: server.get("/hello"))
    with server.connect() as line:
        line.send(line.head("GET", "/stream", None))
        line.read_head()
        assert line.exactly(3)


def test_broken_application_is_500_or_a_cut_answer(server: Served):
    """A failure before the answer is a 500 in JSON; one in the middle is never taken for a whole answer."""
    with server.connect() as line:
        line.request("GET", "/broken")
        assert line.status == 500
        assert json.loads(line.body())["error"]["code"] == "internal"
    with server.connect() as line:
        line.request("GET", "/broken?begun=1")
        with pytest.raises(EOFError):
            line.body()
    assert server.log().count("RuntimeError: broken on purpose") == 2


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /hello\x00 HTTP/1.1\r\nHost: test\r\n\r\n", 400),
        (b"GET /h\xc3\xa9llo HTTP/1.1\r\nHost: test\r\n\r\n", 400),
        (b"GET /hello?\xe9 HTTP/1.1\r\nHost: test\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHo st: test\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: a\x0bb\r\n\r\n", 400),
        (b"POST /body HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST /body HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST /body HTTP/1.1\r\nContent-Length: 5\r\nX-\xe9: a\r\n\r\n12345", 400),
        (b"POST /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /hello HTTP/1.1\r\n" + b"X-Long: " + b"x" * 20000 + b"\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
    ],
)
def test_bad_request_is_refused(clean_server: Served, data: bytes, status: int):
    """What is no request, or could be read in two ways, is answered with 400, and the connection ends."""
    with clean_server.connect() as line:
        line.send(data)
        line.read_head()
        assert line.status == status
