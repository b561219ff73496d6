"""The demo agent, run as the operator runs it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from tests.bridge.fakes import FakeGateway


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    """A gateway that grants everything."""
    async with FakeGateway("sync,events,control") as playing:
        yield playing


async def start(gateway: FakeGateway, *flags: str) -> asyncio.subprocess.Process:
    environ = os.environ | {"HERMES_CHAT_KEY": "hk_prefix_verysecret", "HERMES_CHAT_GATEWAY": gateway.url}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bridge", "--demo", *flags, env=environ, stderr=asyncio.subprocess.PIPE
    )


async def stop(process: asyncio.subprocess.Process) -> str:
    process.send_signal(signal.SIGTERM)
    _, errors = await process.communicate()
    assert process.returncode == 0
    return errors.decode()


@pytest.mark.parametrize("caps", ["none", "sync,events,control"])
async def test_it_echoes_in_a_stream(gateway: FakeGateway, caps: str):
    """A text comes back word by word, with and without capabilities, and a signal ends the agent cleanly."""
    process = await start(gateway, "--caps", caps, "--demo-delay", "0.01")
    connection = await gateway.connection()
    assert connection.headers["Authorization"] == "Bearer hk_prefix_verysecret"
    await connection.ask("one two  three\n四")
    await connection.wait_for("stream_end")
    begin = connection.frames[0]
    assert (begin["type"], begin["reply_to"], begin["from"], begin["to"]) == (
        "stream_start",
        "m1",
        "hermes",
        "alice",
    )
    assert connection.text() == "one two  three\n四"
    assert len(connection.of_type("stream")) > 1
    log = await stop(process)
    assert "verysecret" not in log
    assert "connected" in log


async def test_it_answers_media_with_the_same_media(gateway: FakeGateway):
    """A picture comes back after a stream that names it, and the end of the stream announces it."""
    process = await start(gateway)
    connection = await gateway.connection()
    media = {"id": "med_1", "name": "cat.png", "type": "image/png", "size": 5, "width": 1, "height": 1}
    await connection.control("image", id="m1", data={"media": media, "text": "look"})
    picture = (await connection.wait_for("image"))[0]
    assert "cat.png" in connection.text() and "look" in connection.text()
    assert connection.of_type("stream_end")[0]["data"] == {"media": 1}
    assert (picture["data"]["media"], picture["reply_to"]) == (media, "m1")
    await stop(process)


async def test_it_understands_stop(gateway: FakeGateway):
    """A stopped turn ends at once and says that it was cancelled."""
    process = await start(gateway, "--demo-delay", "5")
    connection = await gateway.connection()
    await connection.ask("one two three")
    await connection.wait_for("stream")
    await connection.control("stop", reply_to="m1")
    end = (await connection.wait_for("stream_end"))[0]
    assert end["data"] == {"status": "cancelled"}
    assert connection.text() == "one "
    await stop(process)
