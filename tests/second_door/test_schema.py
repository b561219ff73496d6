"""The addresses are held to what /api/schema says of them."""

import copy
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
import schemathesis.generation.jsonschema.strategy  # else it is compiled inside the test, deep in the stack
from django.urls import URLPattern, URLResolver, get_resolver
from hypothesis import HealthCheck, given, seed, settings
from playwright.sync_api import expect, sync_playwright
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from chat.api import schema
from tests.rig.bridge import Bridge
from tests.rig.gateway import Gateway
from tests.second_door.client import BASE, read_block

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
ENDLESS = f"{BASE}/api/sessions/{{session}}/events"
EXAMPLES = 6
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def fuzzed(
    request: pytest.FixtureRequest, templates: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A gateway with an agent that answers at once, its schema, and somebody to call it."""
    extra = {"HERMES_QUEUED_STREAM_SECONDS": "1", "HERMES_RATE_LIMIT": "0", "HERMES_LOGIN_TRIES": "1000000",
             "HERMES_LOGIN_ADDRESS_TRIES": "1000000"}  # fmt: skip
    gateway = Gateway(templates.make("embedded"), extra)
    gateway.start()
    person = gateway.person("alice")
    url = f"ws://127.0.0.1:{gateway.agent_server.port}/ws/agent"
    try:
        with Bridge(url, person.key, tmp_path_factory.mktemp("bridge"), "--demo") as bridge:
            bridge.wait_for_log("connected")
            headers = {"Authorization": f"Bearer {person.token}"}
            with httpx.Client(base_url=gateway.origin, headers=headers, trust_env=False, timeout=30) as http:
                assert http.post(f"{BASE}/api/sessions", json={"id": "known"}).status_code == 201
                ran = http.post(f"{BASE}/api/sessions/known/chat/stream", json={"input": "hi"})
                assert ran.status_code == 200
                yield gateway, http, ran.headers["X-Hermes-Run-Id"]
        with gateway.clean_log():
            pass
    finally:
        gateway.stop()


def described() -> dict[str, Any]:
    """The schema as it is made."""
    return schema.describe({"openapi": "3.1.0", "info": {"title": "Hermes Chat", "version": "1"}})


def validator(name: str) -> Callable[[Any], None]:
    """Holds a value to a component."""
    whole = {**described(), "$ref": f"#/components/schemas/{name}"}
    return jsonschema_rs.validator_for(whole).validate


def routes(patterns: list[URLPattern | URLResolver], before: str = "/") -> Iterator[str]:
    """All addresses of the site, with parameters as OpenAPI writes them."""
    for pattern in patterns:
        path = before + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(pattern.pattern))
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, path)
        else:
            yield path


def test_every_address_is_described() -> None:
    """Those that describe the others apart."""
    site = {path for path in routes(get_resolver().url_patterns) if path.startswith("/api/")}
    uploads = {path for path in site if path.startswith("/api/media/") and path != "/api/media/upload"}
    assert site - {"/api/schema", "/api/docs"} - uploads == set(described()["paths"])


def test_the_schema_is_served_and_shown(fuzzed: Any) -> None:
    """As JSON, to anybody; the page loads nothing from elsewhere."""
    gateway, _, _ = fuzzed
    served = httpx.get(f"{gateway.origin}/api/schema", trust_env=False)
    assert served.status_code == 200 and served.json()["paths"] == json.loads(
        json.dumps(described()["paths"])
    )
    page = httpx.get(f"{gateway.origin}/api/docs", trust_env=False)
    assert page.status_code == 200 and "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert "<style" not in page.text and not re.search(r"<script>", page.text)
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert address.startswith("/"), address
        assert httpx.get(gateway.origin + address.replace("&amp;", "&"), trust_env=False).status_code == 200


def test_every_event_fits_its_schema(fuzzed: Any) -> None:
    """Of a run with a stop in it, and of one that ends by itself."""
    _, http, run = fuzzed
    fits = validator("Event")
    text = http.get(f"{BASE}/v1/runs/{run}/events").text
    names = [check_block(block, fits) for block in text.split("\n\n") if block]
    assert names[0] == "run.started" and names[-1] == "done"


def check_block(text: str, fits: Callable[[Any], None]) -> str | None:
    """Hold one block of a stream to the schemas of events."""
    block = read_block(text)
    if block.data is not None:
        fits(block.data)
        assert block.name == block.data["event"]
    return block.name


def test_no_address_answers_what_is_not_described(fuzzed: Any) -> None:
    """Whatever is sent: no 500, no answer that the schema does not have, streams read to their end."""
    gateway, http, run = fuzzed
    raw = copy.deepcopy(described())
    del raw["paths"][ENDLESS]  # it does not end; its own tests read it
    raw["paths"] = {path: item for path, item in raw["paths"].items() if path != "/api/media/upload"}
    for item in raw["paths"].values():
        for parameter in [one for each in item.values() for one in each["parameters"] if one["in"] == "path"]:
            known = {"session": ["known"], "run": [run]}[parameter["name"]]
            parameter["schema"] = {"anyOf": [{"enum": known}, {"enum": known}, parameter["schema"]]}
    loaded = schemathesis.openapi.from_dict(raw)
    loaded.config.update(base_url=gateway.origin)
    fits = validator("Event")
    statuses: set[int] = set()
    begun = time.monotonic()
    for found in loaded.get_all_operations():
        operation = found.ok()

        @seed(20260101)
        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy())
        def answered(case: Any) -> None:
            response = case.call(headers=dict(http.headers), timeout=30)
            statuses.add(response.status_code)
            case.validate_response(response, checks=CHECKS)
            if response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
                for block in response.text.split("\n\n"):
                    if block:
                        check_block(block, fits)

        answered()
    assert {200, 201, 400, 404} <= statuses, statuses
    assert time.monotonic() - begun < 60


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")
def test_the_page_shows_the_schema_under_our_policy(fuzzed: Any) -> None:
    """In a real browser, without a complaint, and with nothing from elsewhere."""
    gateway, _, _ = fuzzed
    complaints: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{gateway.origin}/api/docs")
        expect(page.locator("#operations-runs-startRun")).to_be_visible()
        browser.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith((gateway.origin, "data:"))] == []
