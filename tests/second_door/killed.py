"""A viewer who is killed."""

import asyncio
import json

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.timing import TIMEOUT
from tests.second_door.client import BASE


class Killed:
    """A viewer of a run who is killed in mid-stream: its socket is gone from one moment to the next."""

    def __init__(self, gateway: Gateway, person: Person, timeout_seconds: float = TIMEOUT) -> None:
        self._port = gateway.app_server.port
        self._token = person.token
        self._seconds = timeout_seconds

    async def run(self, session: str, said: str = "hello", query: str = "") -> str:
        """Begin a run and read up to its first delta; returns the run's id."""
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = json.dumps({"input": said}).encode()
        head = (
            f"POST {BASE}/api/sessions/{session}/chat/stream{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        read = b""
        while b"event: assistant.delta\n" not in read:
            piece = await asyncio.wait_for(reader.read(65536), self._seconds)
            assert piece, read
            read += piece
        return read.lower().partition(b"x-hermes-run-id: ")[2].partition(b"\r\n")[0].decode()

    def die(self) -> None:
        """Be gone."""
        self._writer.transport.abort()
