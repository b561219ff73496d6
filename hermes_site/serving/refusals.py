"""Answers to an upgrade that are not 101."""

from collections.abc import Iterable
from http import HTTPStatus

from websockets.datastructures import Headers
from websockets.http11 import Response

OURS = frozenset(
    {b"content-length", b"connection", b"transfer-encoding"}
)  # headers that are not the application's


def refusal(status: int, headers: Iterable[tuple[bytes, bytes]] = (), body: bytes = b"") -> Response:
    """A whole answer, after which the connection ends."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    fields = Headers(
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
        if name.lower() not in OURS
    )
    fields["Connection"] = "close"
    fields["Content-Length"] = str(len(body))
    return Response(status, phrase, fields, body)
