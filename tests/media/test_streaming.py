"""The doors of media as an ASGI server sees them: pieces, lengths, clients that go away."""

import asyncio
import gc
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application

from media import storage
from tests.media.caller import BOUNDARY, Caller, form

DATA = os.urandom(1_000_000)


def scope(method: str, path: str, caller: Caller, headers: dict[str, str]) -> dict[str, Any]:
    """What a server says of a request."""
    named = caller.headers | headers | {"Host": "testserver"}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in named.items()],
        "client": ("127.0.0.1", 5),
        "server": ("testserver", 80),
    }


async def pieces(server: ApplicationCommunicator) -> AsyncIterator[bytes]:
    """The body of an answer, as it is sent."""
    more = True
    while more:
        message = await server.receive_output(timeout=10)
        more = message.get("more_body", False)
        yield message.get("body", b"")


def open_files() -> list[str]:
    """The stored files that this process holds open."""
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return [target for link in links if os.path.exists(link) and "/media/" in (target := os.readlink(link))]


@pytest.fixture
def media_id(alice) -> str:
    """A file of Alice's that takes many pieces."""
    return alice.upload(DATA, "data.bin").json()["media_id"]


def test_a_file_goes_out_in_small_pieces(alice, media_id):
    """No more of a file is in memory than one piece, and the file is closed at the end."""

    async def walk() -> None:
        server = ApplicationCommunicator(
            get_asgi_application(), scope("GET", f"/media/{media_id}", alice, {})
        )
        await server.send_input({"type": "http.request", "body": b"", "more_body": False})
        start = await server.receive_output(timeout=10)
        assert start["status"] == 200
        assert (b"Content-Length", b"1000000") in start["headers"]
        sent = [piece async for piece in pieces(server)]
        assert b"".join(sent) == DATA
        assert max(map(len, sent)) <= storage.PIECE_BYTES
        await server.wait(timeout=10)
        assert open_files() == []

    asyncio.run(walk())


def test_a_client_that_goes_away_leaves_no_file_open(alice, media_id):
    """A download that is broken off lets the file go."""

    async def walk() -> None:
        server = ApplicationCommunicator(
            get_asgi_application(), scope("GET", f"/media/{media_id}", alice, {})
        )
        await server.send_input({"type": "http.request", "body": b"", "more_body": False})
        assert (await server.receive_output(timeout=10))["status"] == 200
        await server.receive_output(timeout=10)
        await server.send_input({"type": "http.disconnect"})
        await server.wait(timeout=10)
        gc.collect()
        assert open_files() == []

    asyncio.run(walk())


def test_a_body_without_a_length_is_taken(alice):
    """A chunked upload, whose headers tell no length, is read like any other."""

    async def walk() -> None:
        headers = {
            "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
            "Transfer-Encoding": "chunked",
        }
        server = ApplicationCommunicator(
            get_asgi_application(), scope("POST", "/api/media/upload", alice, headers)
        )
        body = form(DATA, 'filename="data.bin"')
        for at in range(0, len(body), 100_000):
            more = at + 100_000 < len(body)
            await server.send_input(
                {"type": "http.request", "body": body[at : at + 100_000], "more_body": more}
            )
        assert (await server.receive_output(timeout=10))["status"] == 201
        told = json.loads(b"".join([piece async for piece in pieces(server)]))
        assert (told["size"], told["name"]) == (len(DATA), "data.bin")
        await server.wait(timeout=10)

    asyncio.run(walk())


def test_a_file_shorter_than_its_row_is_cut_off(stored):
    """An answer that cannot be whole ends with an error, so that no client takes it for the file."""
    (stored / "ab").mkdir(parents=True)
    (stored / "ab" / "short").write_bytes(b"12345")

    async def read() -> None:
        reader = storage.Reader("ab/short", 0, 10)
        try:
            assert [piece async for piece in reader] == [b"12345"]
        finally:
            reader.close()

    with pytest.raises(EOFError):
        asyncio.run(read())
