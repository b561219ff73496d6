"""C41 a cookie beside a bearer, C64 the layer and the number of processes."""

import subprocess
from collections.abc import Callable

import pytest

from tests.rig.backends import Templates, manage
from tests.rig.clerk import Person
from tests.rig.files import png
from tests.rig.gateway import BRISK, STEADY, Gateway, command
from tests.rig.paths import ROOT
from tests.rig.pool import Pool
from tests.rig.ports import free_port
from tests.rig.sockets import new_id
from tests.rig.staff import PASSWORD, Browser
from tests.rig.timing import TIMEOUT

PNG = png()


@pytest.fixture
async def signed_in(gateway: Gateway) -> Browser:
    """A browser that is signed in to the admin."""
    return await gateway.staff.browse()


async def test_c41_a_bearer_works_in_a_browser_that_is_signed_in_to_the_admin(
    gateway: Gateway, alice: Person, signed_in: Browser
) -> None:
    """Upload and login with the cookie along and without a CSRF token; the bearer decides whose file it is."""
    bearer = {"Authorization": f"Bearer {alice.token}"}
    async with signed_in as browser:
        for headers in (
            bearer,
            bearer | {"Origin": gateway.origin},
            bearer | {"Origin": "https://elsewhere.example"},
        ):
            name = f"{new_id()}.png"
            answer = await browser.client.post(
                "/api/media/upload", files={"file": (name, PNG, "image/png")}, headers=headers
            )
            assert answer.status_code == 201, answer.text
            media_id = answer.json()["media_id"]
            mine = await browser.client.get(f"/media/{media_id}", headers=bearer)
            assert (mine.status_code, mine.content) == (200, PNG)
            not_the_cookies = await browser.client.get(f"/media/{media_id}")
            assert not_the_cookies.status_code == 404
        wrong = await browser.client.post(
            "/api/media/upload", files={"file": ("a.png", PNG)}, headers={"Authorization": "Bearer wrong"}
        )
        assert wrong.status_code == 401, "a bad bearer is not replaced by the cookie"
        user = gateway.person("carol", password=PASSWORD)
        login = await browser.client.post(
            "/api/auth/token", json={"username": user.name, "password": PASSWORD}
        )
        assert login.status_code == 200, login.text
        assert {"access", "refresh"} <= set(login.json())


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, False),
        ({"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": "https://elsewhere.example"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "own"}, True),
    ],
)
async def test_c41_a_cookie_alone_needs_a_sign_that_the_page_is_ours(
    gateway: Gateway, signed_in: Browser, headers: dict[str, str], allowed: bool
) -> None:
    """A cross-site form with the cookie is refused; our own page is served."""
    headers = {name: gateway.origin if value == "own" else value for name, value in headers.items()}
    async with signed_in as browser:
        answer = await browser.client.post(
            "/api/media/upload", files={"file": (f"{new_id()}.png", PNG, "image/png")}, headers=headers
        )
    if allowed:
        assert answer.status_code == 201, answer.text
    else:
        assert answer.status_code in (401, 403)
        assert answer.json()["error"]["code"] in ("unauthorized", "forbidden")


async def test_c41_a_run_is_started_by_a_bearer_beside_the_cookie_and_never_by_a_foreign_page(
    gateway: Gateway, alice: Person, signed_in: Browser
) -> None:
    """RUN with the bearer needs no token of a form; with the cookie alone it needs a sign of our own page."""
    bearer = {"Authorization": f"Bearer {alice.token}"}
    session = new_id()
    sessions, run = "/api/hermes/api/sessions", f"/api/hermes/api/sessions/{session}/chat/stream"
    accept = {"Accept": "application/json"}  # 202 in place of a stream
    async with signed_in as browser:
        made = await browser.client.post(sessions, json={"id": session}, headers=bearer)
        assert made.status_code == 201, made.text
        for origin in ({}, {"Origin": gateway.origin}, {"Origin": "https://elsewhere.example"}):
            answer = await browser.client.post(run, json={"input": "hi"}, headers=bearer | accept | origin)
            assert answer.status_code == 202, answer.text
        for foreign in ({}, {"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
            for path, body in ((sessions, {}), (run, {"input": "hi"})):
                answer = await browser.client.post(path, json=body, headers=accept | foreign)
                assert answer.status_code == 403, answer.text
                assert answer.json()["error"]["code"] == "origin_not_allowed"
        form = await browser.client.post(sessions, data={"id": "x"}, headers={"Origin": gateway.origin})
        assert form.status_code == 415
        own = await browser.client.post(sessions, json={}, headers={"Origin": gateway.origin})
        assert own.status_code == 201, own.text


def test_c64_more_processes_without_a_shared_layer_are_refused(templates: Templates) -> None:
    """`serve --processes 2` on the embedded store ends at once and says why; so does `check`."""
    backend = templates.embedded()
    done = subprocess.run(
        [*command("serve", free_port()), "--processes", "2"],
        cwd=ROOT,
        env=backend.environment,
        capture_output=True,
        text=True,
        timeout=3 * TIMEOUT,
        check=False,
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "REDIS_URL" in said and "Traceback" not in said
    checked = subprocess.run(
        [*command("serve", 0)[:2], "check"],
        cwd=ROOT,
        env=backend.environment | {"HERMES_PROCESSES": "2"},
        capture_output=True,
        text=True,
        timeout=3 * TIMEOUT,
        check=False,
    )
    assert checked.returncode != 0 and "REDIS_URL" in checked.stderr
    backend.close()


def test_c64_the_deployment_check_warns_of_the_in_memory_layer(templates: Templates) -> None:
    """With DEBUG off and no Redis `check --deploy` names the layer; with Redis it does not."""
    embedded, shared = templates.embedded(), templates.shared()
    try:
        for backend, warned in ((embedded, True), (shared, False)):
            done = subprocess.run(
                [*command("serve", 0)[:2], "check", "--deploy"],
                cwd=ROOT,
                env=backend.environment,
                capture_output=True,
                text=True,
                timeout=3 * TIMEOUT,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert ("REDIS_URL" in done.stderr) is warned, done.stderr
    finally:
        embedded.close()
        shared.close()


async def test_c64_one_process_without_redis_serves_in_production(gateway: Gateway, alice: Person) -> None:
    """Traffic passes on each store as it is: one process alone, and across two processes with Redis."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        question = await app.say("m1", "S1")
        assert await agent.next() == question
        answer = await agent.answer("a1", "S1", question["id"])
        assert await app.next() == answer
    assert len({server.process.pid for server in gateway.servers}) == gateway.backend.processes


async def test_c64_two_plain_daphnes_share_what_redis_carries(pool: Pool) -> None:
    """The App on one, the agent on the other: texts both ways, and a stream."""
    gateway = pool.get("shared", STEADY, "daphne")
    alice = gateway.person()
    with gateway.clean_log():
        assert gateway.app_server.port != gateway.agent_server.port
        async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
            question = await app.say("m1", "S1")
            assert await agent.next() == question
            pieces = [f"{number} " for number in range(200)]
            await agent.stream(pieces, "S1", question["id"])
            assert (await app.read_stream("S1")).text == "".join(pieces)


async def test_c64_runserver_works_without_redis(make_gateway: Callable[..., Gateway]) -> None:
    """Development needs nothing but Python."""
    gateway = make_gateway("embedded", BRISK | {"DEBUG": "1"}, "runserver")
    alice = gateway.person()
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        question = await app.say("m1", "S1")
        assert await agent.next() == question
    assert "Traceback" not in gateway.log()


def test_a_missing_secret_key_stops_the_start(templates: Templates) -> None:
    """With DEBUG off; the message names the variable."""
    backend = templates.embedded()
    environment = {name: value for name, value in backend.environment.items() if name != "SECRET_KEY"}
    with pytest.raises(AssertionError, match="SECRET_KEY"):
        manage("check", environment=environment)
    backend.close()
