"""The bridge's demo agent on a real gateway: lines that break, gateways that end, one whole answer each time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hermes.launcher import HermesServer
from tests.hermes.llm import ScriptedLLM
from tests.rig.bridge import Bridge
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.proxy import Proxy
from tests.rig.sockets import address, new_id
from tests.rig.timing import SCALE, eventually

WORDS = " ".join(f"word{number}" for number in range(60))
CAPS = pytest.mark.parametrize("caps", ["none", "sync,events,control"])


@contextmanager
def demo(port: int, person: Person, folder: Path, caps: str) -> Iterator[Bridge]:
    """The demo agent of a person, connected through a port."""
    flags = ("--demo", "--demo-delay", "0.05", "--caps", caps)
    with Bridge(address(port, "/ws/agent"), person.key, folder / "bridge", *flags) as bridge:
        yield bridge
        assert "Traceback" not in bridge.log(), bridge.log()[-4000:]


async def printed(bridge: Bridge, text: str, times: int = 1) -> None:
    """Wait until the bridge has said something so many times."""

    async def there() -> bool:
        return bridge.log().count(text) >= times

    await eventually(there, 60 * SCALE, f"{text!r} in the bridge's log")


async def whole_answer(gateway: Gateway, person: Person, question: dict[str, Any]) -> str:
    """The one finished answer to a question, as stored."""
    found: list[dict[str, Any]] = []

    async def there() -> bool:
        frames = await gateway.history(person, question["session"])
        found[:] = [frame for frame in frames if frame["from"] == "hermes"]
        return bool(found) and found[-1]["data"]["text"].endswith("word59")

    await eventually(there, 30 * SCALE, "the whole answer is in history")
    assert [frame.get("reply_to") for frame in found] == [question["id"]]
    return str(found[0]["data"]["text"])


@CAPS
@pytest.mark.parametrize("gateway", ["embedded"], indirect=True)
async def test_a_line_that_breaks_in_mid_stream(gateway: Gateway, alice: Person, tmp_path: Path, caps: str):
    """Reset twice, with bytes on the way: the answer is stored whole, once, in order."""
    async with Proxy(gateway.agent_server.port) as line:
        with demo(line.port, alice, tmp_path, caps) as bridge:
            await printed(bridge, "connected;")
            async with await gateway.app(alice) as app:
                question = await app.say(WORDS, new_id())
                await app.until(type="stream")
                line.reset()
                await app.until(type="stream")
                line.reset()
                assert await whole_answer(gateway, alice, question) == WORDS


@CAPS
async def test_a_gateway_that_is_stopped_and_comes_back(
    make_gateway: Callable[..., Gateway], tmp_path: Path, caps: str
):
    """The bridge waits, connects again by itself, and answers the next question."""
    gateway = make_gateway("embedded")
    person = gateway.person("alice")
    with demo(gateway.agent_server.port, person, tmp_path, caps) as bridge:
        await printed(bridge, "connected;")
        (server,) = gateway.servers
        server.begin_to_stop()
        server.wait_stopped()
        await printed(bridge, "cannot reach the gateway")
        server.start()
        await printed(bridge, "connected;", times=2)
        async with await gateway.app(person) as app:
            assert (await app.say("still here?", session := new_id()))["id"]
            assert (await app.read_stream(session)).text == "still here?"


@CAPS
@pytest.mark.timeout(180 * SCALE)
async def test_a_bridge_killed_in_mid_stream_tells_the_same_run_when_it_is_back(
    make_gateway: Callable[..., Gateway],
    hermes_server: HermesServer,
    scripted_llm: ScriptedLLM,
    tmp_path: Path,
    caps: str,
):
    """Hermes went on meanwhile: the answer is stored whole, once, and the model was asked once."""
    gateway = make_gateway("embedded", {"HERMES_STREAM_GRACE_SECONDS": "60"})
    person = gateway.person("alice")
    hermes = {"HERMES_API_URL": hermes_server.base_url, "HERMES_API_KEY": hermes_server.key}
    url = address(gateway.agent_server.port, "/ws/agent")
    with Bridge(url, person.key, tmp_path / "bridge", "--caps", caps, **hermes) as bridge:
        await printed(bridge, "connected;")
        async with await gateway.app(person) as app:
            question = await app.say(f"@slow 59 50\n{(mark := new_id())}", new_id())
            await app.until(60 * SCALE, type="stream")
            bridge.kill()
            bridge.start()
            answer = await whole_answer(gateway, person, question)
            assert answer == " ".join(f"word{number}" for number in range(1, 60))
        assert scripted_llm.times_asked(mark) == 1
        assert bridge.terminate() == 0
        assert "Traceback" not in bridge.log()
