"""The adapter of a front end, in Node and in a browser, drives every capability."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Route, async_playwright

from tests.rig.bridge import Bridge
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, Frame
from tests.second_door.agents import full_turn, playing

FOLDER = Path(__file__).parent / "js"
CHROMIUM = shutil.which("chromium")
ALL = ["run", "abort", "steer", "resume", "history", "regenerate", "edit"]
WALK_SECONDS = 60
WORD_SECONDS = 0.02


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
async def answered(
    request: pytest.FixtureRequest, gateway: Gateway, alice: Person, tmp_path: Path
) -> AsyncIterator[bool]:
    """An agent at the other end; whether it uses tools."""
    if request.param == "demo":
        url = f"ws://127.0.0.1:{gateway.agent_server.port}/ws/agent"
        with Bridge(url, alice.key, tmp_path / "bridge", "--demo") as bridge:
            await asyncio.to_thread(bridge.wait_for_log, "connected")
            yield False
    else:
        async with playing(gateway, alice, Talker().play):
            yield True


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node on this machine")
async def test_in_node(gateway: Gateway, alice: Person, answered: bool) -> None:
    """With a bearer token, as a server in between would send it."""
    order = {
        "base": f"{gateway.origin}/api/hermes",
        "headers": {"Authorization": f"Bearer {alice.token}"},
        "tools": answered,
    }
    node = await asyncio.create_subprocess_exec(
        *("node", str(FOLDER / "walk.mjs"), json.dumps(order)),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, complaints = await asyncio.wait_for(node.communicate(), WALK_SECONDS)
    assert node.returncode == 0, complaints.decode()
    assert sorted(json.loads(printed)) == sorted(ALL + ["tools"] * answered)


@pytest.fixture
def password(gateway: Gateway, alice: Person) -> Iterator[str]:
    """A password for the user."""
    yield gateway.clerk.ask("set_password", name=alice.name)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")
@pytest.mark.parametrize("answered", ["scripted"], indirect=True)
async def test_in_a_browser(gateway: Gateway, alice: Person, password: str, answered: bool) -> None:
    """On a page of the gateway's own, with the login cookie and nothing else."""

    async def served(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        await route.fulfill(path=FOLDER / name, content_type="text/javascript")

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.route("**/*.mjs", served)
        await page.goto(f"{gateway.origin}/")
        status = await page.evaluate(
            """async ([username, password]) => (await fetch("/api/auth/login", {
                method: "POST", credentials: "include", headers: {"Content-Type": "application/json"},
                body: JSON.stringify({username, password}),
            })).status""",
            [alice.name, password],
        )
        assert status == 200
        done = await asyncio.wait_for(
            page.evaluate(
                """async (order) => (await import("/walk.mjs")).walk(order)""",
                {"base": "/api/hermes", "headers": {}, "tools": answered},
            ),
            WALK_SECONDS,
        )
        await browser.close()
    assert sorted(done) == sorted(ALL + ["tools"] * answered) and complaints == []
