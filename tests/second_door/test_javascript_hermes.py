"""The same adapter drives every capability of real Hermes Agents, old and new, behind a bridge and as the upstream."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hermes.launcher import HermesServer
from tests.rig.bridge import Bridge
from tests.rig.gateway import STEADY, Gateway
from tests.rig.pool import Pool
from tests.rig.sockets import address
from tests.rig.timing import SCALE
from tests.second_door.walking import Scene, capabilities, walk_in_a_browser, walk_in_node
from tests.upstream.rig import guest, settings_for

pytestmark = pytest.mark.timeout(600)  # the first test may install Hermes

WALK_SECONDS = 150 * SCALE
HERMES = {"0.19": "hermes_server", "0.22": "newer_hermes_server"}
FILES = {"a.txt": "text of a", "b.txt": "text of b"}
READING = "\n".join(
    [
        "@together",
        "@before First, I look.",
        *(f'@tool read_file {{"path": "{name}"}}' for name in ("a.txt", "b.txt", "missing.txt")),
        "@say Then I say é 日本 😀.",
    ]
)


def words(count: int) -> str:
    """What the model says to `@slow`."""
    return " ".join(f"word{number}" for number in range(1, count + 1))


def scene(version: str, way: str) -> Scene:
    """What is said to the scripted model, and what comes of it; 0.19 tells no results of tools, a bridge takes no pictures yet."""
    newer = version == "0.22"
    results = ["text of a", "text of b", "not found"] if newer else [None] * 3
    return {
        "short": {"said": "@say one two three", "text": "one two three"},
        "other": {"said": "@say other words", "text": "other words"},
        "endless": {"said": "@slow 400 50", "text": words(400)},
        "long": {"said": "@slow 30 60", "text": words(30)},
        "steer": _remark(version, way),
        "picture": ["failed", "unsupported"] if way == "bridge" else ["completed", None],
        "tools": {
            "said": READING,
            "text": "First, I look.\n\nThen I say é 日本 😀.",
            "thinking": "",
            "shown": [
                ["read_file", name, result, status]
                for name, result, status in zip(
                    ("a.txt", "b.txt", "missing.txt"),
                    results,
                    ("completed", "completed", "failed"),
                    strict=True,
                )
            ],
        },
    }


def _remark(version: str, way: str) -> dict[str, Any]:
    """In 0.22 a remark is taken between two tools; 0.19 takes none: refused, or given back where a bridge has to say so."""
    if version == "0.22":
        said = '@tool terminal {"command": "sleep 2"}'
        return {"said": said, "when": "tool", "taken": True, "text": "and this", "left": None}
    given_back = way == "bridge"
    return {
        "said": "@slow 20 50",
        "when": "text",
        "taken": given_back,
        "text": f"^{words(20)}$",
        "left": "and this" if given_back else None,
    }


@pytest.fixture(params=list(HERMES))
def version(request: pytest.FixtureRequest) -> str:
    """Of Hermes."""
    return str(request.param)


@pytest.fixture
def hermes(request: pytest.FixtureRequest, version: str) -> HermesServer:
    """A Hermes of that version, which has files to read."""
    server: HermesServer = request.getfixturevalue(HERMES[version])
    for name, text in FILES.items():
        (server.home / "work" / name).write_text(f"{text}\n")
    return server


@pytest.fixture
def asking(pool: Pool, hermes: HermesServer) -> Iterator[Gateway]:
    """A gateway that asks this Hermes itself."""
    running = pool.get("embedded", settings_for(hermes))
    with running.clean_log():
        yield running
    assert hermes.key not in running.log()


async def test_the_upstream_in_node(asking: Gateway, version: str) -> None:
    """A user without any key, asked for by the gateway."""
    wanted = scene(version, "upstream")
    assert await walk_in_node(asking, guest(asking, "alice"), wanted, WALK_SECONDS) == capabilities(wanted)


async def test_the_upstream_in_a_browser(asking: Gateway, version: str) -> None:
    """The same from a page, with the login cookie."""
    wanted = scene(version, "upstream")
    walked = await walk_in_a_browser(asking, guest(asking, "alice"), wanted, WALK_SECONDS)
    assert walked == capabilities(wanted)


async def test_behind_a_bridge_in_node(
    pool: Pool, hermes: HermesServer, version: str, tmp_path: Path
) -> None:
    """A bridge beside Hermes, at another process of the gateway than the front end's."""
    gateway = pool.get("shared", STEADY)
    alice = gateway.person("alice")
    url = address(gateway.agent_server.port, "/ws/agent")
    settings = {"HERMES_API_URL": hermes.base_url, "HERMES_API_KEY": hermes.key}
    wanted = scene(version, "bridge")
    with gateway.clean_log(), Bridge(url, alice.key, tmp_path / "bridge", **settings) as bridge:
        await asyncio.to_thread(bridge.wait_for_log, "connected")
        assert await walk_in_node(gateway, alice, wanted, WALK_SECONDS) == capabilities(wanted)
        assert "Traceback" not in bridge.log(), bridge.log()[-4000:]
