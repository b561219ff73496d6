"""The adapter of a front end, in Node and in a browser, drives every capability of agents that play one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.rig.bridge import Bridge
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, Frame, address
from tests.rig.timing import SCALE
from tests.second_door.agents import full_turn, playing
from tests.second_door.walking import (
    Scene,
    capabilities,
    walk_in_a_browser,
    walk_in_node,
)

WALK_SECONDS = 60 * SCALE
WORD_SECONDS = 0.02


def said(text: str) -> dict[str, str]:
    """What is said back as it is."""
    return {"said": text, "text": text}


def words(count: int) -> str:
    """So many words."""
    return " ".join(f"w{number}" for number in range(count))


ECHO: Scene = {
    "short": said("one two three"),
    "other": said("other words"),
    "endless": said(words(400)),
    "long": said(words(20)),
    "steer": {
        "said": words(20),
        "when": "text",
        "taken": True,
        "text": f"^{words(20)} and this$",
        "left": None,
    },
    "picture": ["completed", None],
    "tools": None,
}
FULL_TURN: Scene = {
    "said": "tools",
    "text": "First, I look. Then I say é 日本 😀.",
    "thinking": "let me see",
    "shown": [
        ["read", {"path": "a"}, "text of a", "completed"],
        ["read", {"path": "b"}, "text of b", "completed"],
        ["write", None, "disk full", "failed"],
    ],
}


class Talker:
    """An agent that says back what it is told, word by word, and understands stop and steer."""

    def __init__(self) -> None:
        self._turns: set[asyncio.Task[None]] = set()
        self._remarks: dict[str, list[str]] = {}
        self._stopped: set[str] = set()

    async def play(self, agent: Agent, frame: Frame) -> None:
        """Take one frame."""
        if frame["type"] == "stop":
            self._stopped.add(frame["reply_to"])
        elif frame["type"] == "steer":
            self._remarks[frame["reply_to"]].append(frame["data"]["text"])
        elif frame["data"]["text"] == "tools":
            await full_turn(agent, frame)
        else:
            self._remarks[frame["id"]] = []
            turn = asyncio.create_task(self._answer(agent, frame))
            self._turns.add(turn)
            turn.add_done_callback(self._turns.discard)

    async def _answer(self, agent: Agent, frame: Frame) -> None:
        session, ask = frame["session"], frame["id"]
        words = frame["data"]["text"].split(" ")
        await agent.start(session, ask)
        first = True
        while words or self._remarks[ask]:
            if not words:
                words += self._remarks[ask].pop(0).split(" ")
            word = words.pop(0)
            await agent.piece(word if first else f" {word}", session)
            first = False
            await asyncio.sleep(WORD_SECONDS)
            if ask in self._stopped:
                await agent.end(session, data={"status": "cancelled"})
                return
        await agent.end(session)


@pytest.fixture(params=["demo", "scripted"])
async def scene(
    request: pytest.FixtureRequest, gateway: Gateway, alice: Person, tmp_path: Path
) -> AsyncIterator[Scene]:
    """An agent at the other end, and what it makes of what it is told."""
    if request.param == "demo":
        url = address(gateway.agent_server.port, "/ws/agent")
        with Bridge(url, alice.key, tmp_path / "bridge", "--demo") as bridge:
            await asyncio.to_thread(bridge.wait_for_log, "connected")
            yield ECHO
    else:
        async with playing(gateway, alice, Talker().play):
            yield ECHO | {"tools": FULL_TURN}


async def test_in_node(gateway: Gateway, alice: Person, scene: Scene) -> None:
    """Through a server in between, with a token."""
    assert await walk_in_node(gateway, alice, scene, WALK_SECONDS) == capabilities(scene)


@pytest.mark.parametrize("scene", ["scripted"], indirect=True)
async def test_in_a_browser(gateway: Gateway, alice: Person, scene: Scene) -> None:
    """From a page, with the login cookie."""
    assert await walk_in_a_browser(gateway, alice, scene, WALK_SECONDS) == capabilities(scene)
