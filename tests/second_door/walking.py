"""The walk of a front end's adapter through every capability, in Node and in a browser; see js/walk.mjs."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from playwright.async_api import Route, async_playwright

from tests.rig.backends import missing
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway

FOLDER = Path(__file__).parent / "js"
NODE, CHROMIUM = shutil.which("node"), shutil.which("chromium")
ALL = ["run", "abort", "steer", "resume", "history", "regenerate", "edit"]
Scene = dict[str, Any]


def capabilities(scene: Scene) -> list[str]:
    """What a walk through the whole scene has done, sorted."""
    return sorted(ALL + ["tools"] * bool(scene["tools"]))


async def walk_in_node(gateway: Gateway, person: Person, scene: Scene, seconds: float) -> list[str]:
    """With a bearer token, as a server in between would send it; returns what was done, sorted."""
    if NODE is None:
        missing("Node is not installed")
    order = {
        "base": f"{gateway.origin}/api/hermes",
        "headers": {"Authorization": f"Bearer {person.token}"},
        "scene": scene,
    }
    node = await asyncio.create_subprocess_exec(
        *("node", str(FOLDER / "walk.mjs"), json.dumps(order)),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        printed, complaints = await asyncio.wait_for(node.communicate(), seconds)
    finally:
        if node.returncode is None:
            node.kill()
    assert node.returncode == 0, complaints.decode()
    return sorted(json.loads(printed))


async def walk_in_a_browser(gateway: Gateway, person: Person, scene: Scene, seconds: float) -> list[str]:
    """On a page of the gateway's own, with the login cookie and nothing else; returns what was done, sorted."""
    if CHROMIUM is None:
        missing("chromium is not installed")
    password = gateway.clerk.ask("set_password", name=person.name)

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
            [person.name, password],
        )
        assert status == 200
        done = await asyncio.wait_for(
            page.evaluate(
                """async (order) => (await import("/walk.mjs")).walk(order)""",
                {"base": "/api/hermes", "headers": {}, "scene": scene},
            ),
            seconds,
        )
        await browser.close()
    assert complaints == []
    return sorted(done)
