"""From a request as Twisted read it to an ASGI scope as daphne makes it; a test compares the two."""

from typing import Any
from urllib.parse import unquote

from daphne.utils import HEADER_NAME_RE, INVALID_HEADER_VALUE_BYTES
from websockets.datastructures import Headers
from websockets.http11 import Request as Handshake

NOT_FOR_CLIENTS = b"daphne-root-path"  # daphne lets anybody set the root path with it; we let nobody


def fault(request: Any) -> str | None:
    """Why this request cannot become a scope, or None."""
    for name, values in request.requestHeaders.getAllRawHeaders():
        if not HEADER_NAME_RE.fullmatch(name):
            return "invalid header name"
        if any(INVALID_HEADER_VALUE_BYTES.intersection(value) for value in values):
            return "invalid header value"
    if not request.path.isascii():
        return "invalid characters in the path"
    if not request.query_string.isascii():
        return "invalid characters in the query"
    return None


def http(request: Any) -> dict[str, Any]:
    """The scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": request.clientproto.split(b"/")[-1].decode("ascii"),
        "method": request.method.decode("ascii"),
        "scheme": request.client_scheme,
        "headers": [(name, value) for name, values in _headers(request) for value in values],
        **_common(request),
    }


def websocket(request: Any) -> dict[str, Any]:
    """The scope of a WebSocket; headers that came more than once are joined, as daphne does."""
    headers = [(name, b",".join(values)) for name, values in _headers(request)]
    subprotocols: list[str] = []
    for name, value in headers:
        if name == b"sec-websocket-protocol":
            subprotocols = [word.strip() for word in unquote(value.decode("ascii", "replace")).split(",")]
    return {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "headers": headers,
        "subprotocols": subprotocols,
        **_common(request),
    }


def handshake(request: Any) -> Handshake:
    """The same request for `websockets` to judge."""
    return Handshake(
        request.uri.decode("ascii"),
        Headers(
            (name.decode("ascii"), value.decode("latin-1"))
            for name, values in request.requestHeaders.getAllRawHeaders()
            for value in values
        ),
        request.method.decode("ascii"),
        request.clientproto.decode("ascii"),
    )


def _common(request: Any) -> dict[str, Any]:
    """What both kinds have."""
    return {
        "path": unquote(request.path.decode("ascii")),
        "raw_path": request.path,
        "root_path": "",
        "query_string": request.query_string,
        "client": request.client_addr,
        "server": request.server_addr,
    }


def _headers(request: Any) -> list[tuple[bytes, list[bytes]]]:
    """Names in small letters; none with an underscore, which WSGI-minded code would take for a dash."""
    return [
        (name.lower(), values)
        for name, values in request.requestHeaders.getAllRawHeaders()
        if b"_" not in name and name.lower() != NOT_FOR_CLIENTS
    ]
