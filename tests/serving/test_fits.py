"""Whether the daphne, Twisted and websockets that are installed are still those that the server is built on."""

import ast
import asyncio
import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.metadata import version

import daphne.http_protocol
import daphne.server
import daphne.utils
import pytest
import websockets.frames
import websockets.http11
import websockets.protocol
import websockets.server
from twisted.internet import abstract, asyncioreactor, tcp
from twisted.protocols import basic
from twisted.web import http

from tests.rig.ports import free_port
from tests.rig.timing import TIMEOUT, wait_until
from tests.serving.rig import ROOT, TEXT, Served

TRIED = {"daphne": "4.2", "Twisted": "26.10", "websockets": "17.4", "autobahn": "26.10"}

TOUCHED = {
    http.HTTPChannel: (
        *("allHeadersReceived", "allContentReceived", "checkPersistence", "requestDone", "loseConnection"),
        *("registerProducer", "unregisterProducer", "resumeProducing", "rawDataReceived", "forceAbortClient"),
        *("_respondToBadRequestAndDisconnect", "setTimeout", "resetTimeout", "lineLengthExceeded"),
    ),
    http.Request: ("requestReceived", "handleContentChunk", "finish", "connectionLost", "isSecure"),
    daphne.http_protocol.WebRequest: ("handle_reply",),
    daphne.http_protocol.HTTPFactory: ("buildProtocol",),
    daphne.server.Server: ("check_headers_type", "stop", "log_action", "create_application", "handle_reply"),
    tcp.Connection: (
        "stopReading",
        "stopWriting",
        "abortConnection",
        "loseWriteConnection",
        "unregisterProducer",
    ),
    basic.LineReceiver: ("dataReceived",),
    asyncioreactor.AsyncioSelectorReactor: ("adoptStreamPort", "callLater", "run", "stop"),
    websockets.protocol.Protocol: (
        *("receive_data", "events_received", "data_to_send", "send_ping", "send_close", "fail"),
    ),
    websockets.server.ServerProtocol: ("accept",),
    websockets.frames.Close: ("check",),
    websockets.http11.Response: ("serialize",),
}


def attributes_set(function: object) -> set[str]:
    """The names that a method gives to its object."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    targets = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in targets if isinstance(node.ctx, ast.Store)}


@pytest.mark.parametrize("name", TRIED)
def test_versions_are_those_that_were_tried(name: str):
    """Another version may work; this test asks for a look at the server before it is taken."""
    assert version(name).startswith(TRIED[name])


@pytest.mark.parametrize("kind", TOUCHED, ids=lambda kind: kind.__name__)
def test_methods_that_the_server_uses_exist(kind: type):
    """Every method that is called or replaced is there."""
    assert [name for name in TOUCHED[kind] if not callable(getattr(kind, name, None))] == []


def test_attributes_that_the_server_uses_exist():
    """Every attribute that is read or written is one that the library has too."""
    assert {"requests", "_dataBuffer", "_transferDecoder", "_handlingRequest"} <= attributes_set(
        http.HTTPChannel.__init__
    )
    assert "_networkProducer" in attributes_set(http.HTTPChannel.connectionMade)
    assert {"persistent", "length", "_savedTimeOut", "_abortingCall"} <= set(vars(http.HTTPChannel))
    assert {"dataBuffer", "offset"} <= set(vars(abstract.FileDescriptor))
    assert "_tempDataBuffer" in attributes_set(abstract.FileDescriptor.__init__)
    assert {"socket", "fileno", "protocol"} <= attributes_set(tcp.Connection.__init__)
    assert "_response_started" in attributes_set(daphne.http_protocol.WebRequest.__init__)
    made = websockets.protocol.Protocol(websockets.protocol.SERVER)
    for name in ("close_rcvd", "close_sent", "eof_sent", "state", "writes"):
        assert hasattr(made, name)
    assert daphne.utils.HEADER_NAME_RE.fullmatch(b"x-a")
    assert daphne.utils.INVALID_HEADER_VALUE_BYTES


def test_reactor_has_its_loop():
    """Twisted's reactor shows the event loop that it runs on."""
    loop = asyncio.new_event_loop()
    try:
        assert asyncioreactor.AsyncioSelectorReactor(loop)._asyncioEventloop is loop
    finally:
        loop.close()


class Plain(Served):
    """Daphne as it is, with the same application."""

    def __init__(self) -> None:
        self.port = free_port()
        command = ["-m", "daphne", "-p", str(self.port), "-v", "0", "tests.serving.application:application"]
        self.process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=dict(os.environ), start_new_session=True
        )
        wait_until(self._answers, 2 * TIMEOUT, "daphne answers")

    def _answers(self) -> bool:
        assert self.process.poll() is None
        try:
            return bool(self.get("/hello"))
        except ConnectionRefusedError:
            return False


@pytest.fixture(scope="module")
def plain() -> Iterator[Plain]:
    """Plain daphne."""
    made = Plain()
    yield made
    made.kill()


REQUESTS = [
    ("GET", "/scope", {}),
    ("GET", "/scope?a=1&b=%20", {"Cookie": "a=1; b=2", "X_Odd": "caf\xe9"}),
    ("GET", "/s%20c%2Fope?", {"Accept": "*/*"}),
    ("POST", "/scope", {"Content_Type": "text/plain", "Transfer_Encoding": "identity"}),
]


def shown(server: Served, method: str, path: str, headers: dict[str, str], kind: str) -> dict[str, object]:
    """The scope that a server makes of a request, without the ports, which differ by nature."""
    with server.connect() as line:
        if kind == "http":
            line.request(method, path, b"" if method == "POST" else None, **headers)
            text = line.body()
        else:
            line.upgrade(path, **headers)
            opcode, text = line.frame()
            assert opcode == TEXT
        scope: dict[str, object] = ast.literal_eval(text.decode())
    for name in ("client", "server"):
        host, port = scope[name]  # type: ignore[misc]
        assert isinstance(port, int)
        scope[name] = host
    scope["headers"] = sorted(scope["headers"])  # type: ignore[call-overload]
    return scope


@pytest.mark.parametrize(("method", "path", "headers"), REQUESTS)
def test_http_scope_is_daphnes(plain: Plain, server: Served, method: str, path: str, headers: dict[str, str]):
    """The application cannot tell our requests from those of plain daphne."""
    assert shown(server, method, path, headers, "http") == shown(plain, method, path, headers, "http")


@pytest.mark.parametrize("path", ["/scope", "/scope?token=a%2Bb&caps=sync", "/s%20c%2Fope?"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec_WebSocket_Protocol": "a, b%20c", "Origin": "https://example.org"},
        {"Authorization": "Bearer x"},
    ],
)
def test_websocket_scope_is_daphnes(plain: Plain, server: Served, path: str, headers: dict[str, str]):
    """The application cannot tell our WebSockets from those of plain daphne."""
    assert shown(server, "GET", path, headers, "ws") == shown(plain, "GET", path, headers, "ws")


def test_headers_with_underscores_and_the_root_path_are_not_for_clients(server: Served):
    """A client can set neither a header that looks like another one nor the application's root."""
    with server.connect() as line:
        line.send(
            b"GET /scope HTTP/1.1\r\nHost: test\r\nX_Forwarded_For: 1.2.3.4\r\nDaphne-Root-Path: /evil\r\n\r\n"
        )
        line.read_head()
        scope = ast.literal_eval(line.body().decode())
    assert scope["root_path"] == ""
    assert [name for name, _ in scope["headers"]] == [b"host"]
