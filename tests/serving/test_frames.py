"""The WebSocket protocol, byte by byte, against the running server."""

import struct

import pytest

from tests.serving.cases import CASES, Get, Send
from tests.serving.rig import CLOSE, Served


def test_there_are_enough_cases():
    """Each of the nine sections has cases, more than 200 together."""
    assert len(CASES) >= 200
    assert {name.partition("-")[0] for name in CASES} == set("12345679") | {"10"}


@pytest.mark.parametrize("name", CASES)
def test_case(clean_server: Served, name: str):
    """The server sends what the protocol says, then ends the connection."""
    with clean_server.open("/echo") as line:
        for step in CASES[name]:
            match step:
                case Send(data, chop):
                    line.send(data, chop)
                case Get(opcode, payload, code):
                    got, found = line.frame()
                    assert got == opcode, (got, found[:60])
                    if opcode == CLOSE:
                        assert found[:2] == (struct.pack("!H", code) if code else b"")
                    else:
                        assert found == payload
        assert line.ended()
