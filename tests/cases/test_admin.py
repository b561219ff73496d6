"""
C60 script that was sent as traffic, C62 keys that are shown once.

What a browser makes of the pages is tested in a browser; here each page is parsed as a browser parses it, and no
element of the payload's making may be in it.
"""

import re
from typing import Any

import pytest

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import App, new_id, open_socket
from tests.rig.staff import PASSWORD, Browser, Page, elements
from tests.rig.timing import SCALE

MARK = "xssmark"
PAYLOADS = [
    f"<script>{MARK}(1)</script>",
    f'"><img src={MARK} onerror={MARK}(2)>',
    f"'-{MARK}(3)-'",
    f"javascript:{MARK}(4)",
    f"</textarea></script><svg onload={MARK}(5)>",
    "{{" + MARK + "}}",
]


def assert_inert(page: Page) -> None:
    """No element, handler or script address on a page comes from a payload."""
    for tag, attributes in elements(page.text):
        for name, value in attributes.items():
            assert not (name.startswith("on") and MARK in value), (page.url, tag, attributes)
            if name in ("href", "src", "action", "formaction", "style"):
                assert not value.strip().lower().startswith(("javascript:", "data:")), (
                    page.url,
                    tag,
                    attributes,
                )
                assert not (name == "src" and MARK in value), (page.url, tag, attributes)
        assert not tag.startswith(MARK)
    scripts = re.findall(r"<script\b[^>]*>(.*?)</script>", page.text, re.DOTALL | re.IGNORECASE)
    assert not [script for script in scripts if MARK in script], page.url
    policy = page.headers.get("content-security-policy", "")
    assert "'unsafe-inline'" not in policy.split("script-src")[-1].split(";")[0], page.url


async def leave_payloads(gateway: Gateway, admin: Browser, person: Person, payload: str) -> None:
    """Put a payload wherever a client may put text."""
    row = {
        "kind": "image",
        "type": f"image/{payload}"[:127],
        "size": 1,
        "width": 1,
        "height": 1,
        "name": f"{payload}.png",
    }
    media_id = f"med-{payload}"
    gateway.clerk.ask(
        "media",
        owner=person.name,
        public_id=media_id,
        sha256=new_id().replace("-", "") * 2,
        storage_name=new_id(),
        **row,
    )
    socket = await open_socket(gateway.app_url(person), user_agent_header=payload)
    app = App(socket)
    app.user = person.name
    async with app, await gateway.agent(person) as agent:
        text = await app.say(payload, payload, id=payload)
        await agent.next()
        frames: list[dict[str, Any]] = [
            app.envelope("text", payload, data={"text": payload, payload: {payload: [payload]}}),
            app.envelope("image", payload, data={"media": {"id": media_id}, "text": payload}),
            app.envelope("text", payload, data={"text": "x"}, reply_to=payload),
        ]
        for frame in frames:
            await app.send(frame)
            await agent.next()
        await agent.stream([payload, payload], payload, text["id"])
        await app.read_stream(payload)
        await agent.send(
            agent.envelope(
                "error", payload, data={"code": "internal", "text": payload}, reply_to=frames[0]["id"]
            )
        )
        await app.until(type="error")
        await agent.send(agent.envelope("text", payload, id=payload, data={"text": payload}))
        await app.until(id=payload)
        for page in await admin.rows(
            "chat", "connection", person.name
        ):  # while the odd User-Agent is connected
            assert_inert(page)
            assert "/change/" not in page.url or MARK in page.text


MODELS = [
    *(("accounts", "user"), ("accounts", "apikey"), ("media", "media")),
    *(("chat", "chatsession"), ("chat", "message"), ("chat", "run")),
]


@pytest.mark.timeout(180 * SCALE)
async def test_c60_script_in_traffic_is_text_in_the_admin(gateway: Gateway) -> None:
    """Lists, searches, filters, details, histories, delete confirmations and messages of actions."""
    shown = 0
    async with await gateway.staff.browse() as admin:
        for payload in PAYLOADS:
            person = gateway.clerk.person(f"{payload}{new_id()[:8]}")
            gateway.clerk.key(person.name, label=payload)
            await leave_payloads(gateway, admin, person, payload)
            for (app, model), search in zip(
                MODELS, (person.name, payload, payload, payload, payload, person.name), strict=True
            ):
                pages = await admin.rows(app, model, search)
                assert any("/change/" in page.url for page in pages), f"{model}: nothing found by {search!r}"
                for page in pages:
                    assert_inert(page)
                    shown += MARK in page.text
            assert_inert(await revoked(admin, person.prefix))
        for app, model in MODELS:
            for page in await admin.overview(app, model):
                assert_inert(page)
                shown += MARK in page.text
        assert_inert(await admin.get("/admin/"))
    assert shown > len(PAYLOADS), "the payloads are nowhere to be seen, so nothing was tested"


async def revoked(admin: Browser, prefix: str) -> Page:
    """Revoke a key by the admin's action; the page that says so."""
    listed = await admin.list_page("accounts", "apikey", q=prefix)
    row = re.search(r"/admin/accounts/apikey/([^/]+)/change/", listed.text)
    action = re.search(r'<option value="([^"]*revoke[^"]*)"', listed.text)
    assert row and action, listed.url
    fields = {"action": action[1], "_selected_action": row[1]}
    done = await admin.submit(listed.url, fields)
    if 'name="post"' in done.text:  # a confirmation in between
        done = await admin.submit(listed.url, fields | {"post": "yes"})
    return done


async def key_form(browser: Browser, user: str) -> Page:
    """Issue a key for a user by the admin's form."""
    found = await browser.list_page("accounts", "user", q=user)
    row = re.search(r"/admin/accounts/user/([^/]+)/change/", found.text)
    assert row
    return await browser.submit("/admin/accounts/apikey/add/", {"user": row[1]})


def keys_on(page: Page) -> list[str]:
    """Whole keys that a page shows."""
    return re.findall(r"hk_[A-Za-z0-9]+_[A-Za-z0-9_-]{16,}", page.text)


async def test_c62_a_key_is_shown_once_and_kept_nowhere(gateway: Gateway, alice: Person) -> None:
    """On the answer of the form alone: not after a reload, in no list, log, cookie, dump or API answer; and it works."""
    async with await gateway.staff.browse() as admin, await gateway.staff.browse() as colleague:
        issued = await key_form(admin, alice.name)
        keys = set(keys_on(issued))
        assert len(keys) == 1, issued.text[-3000:]
        key = keys.pop()
        secret, prefix = key.split("_", 2)[2], key.split("_")[1]
        assert "no-store" in issued.headers.get("cache-control", "")
        cookies = str(admin.client.cookies.jar)
        pages = [await admin.get(issued.url), await admin.get("/admin/"), await colleague.get("/admin/")]
        pages += await admin.pages_of("accounts", "apikey", prefix)
        pages += await colleague.pages_of("accounts", "user", alice.name)
        assert any(prefix in page.text for page in pages)
        both = [await key_form(browser, alice.name) for browser in (admin, colleague)]
        assert len({tuple(keys_on(page)) for page in both}) == 2, "two operators get a key each"
        async with gateway.http(alice) as http:
            me = await http.get("/api/me")
            pages.append(Page(str(me.url), me.status_code, me.text, me.headers))
    async with await gateway.agent(alice, key=key) as agent:
        await agent.alive()
    log_entries = str(gateway.clerk.ask("sql", statement="SELECT * FROM django_admin_log"))
    wrong = key[:-4] + "zzzz"
    async with gateway.http() as http:
        for bad in (wrong, f"hk_{'0' * len(prefix)}_{secret}"):
            failed = await http.get("/api/me", headers={"Authorization": f"Bearer {bad}"})
            assert failed.status_code == 401
            assert secret not in failed.text and bad not in failed.text
    places = {
        "cookies": cookies,
        "the admin's log": log_entries,
        "the log": gateway.log(),
        "the tables": gateway.backend.dump().decode(errors="replace"),
    } | {page.url: page.text for page in pages}
    assert [place for place, text in places.items() if secret in text] == []
    assert prefix in places["the tables"]


async def test_c62_who_may_only_look_cannot_issue(gateway: Gateway, alice: Person) -> None:
    """Staff with view permission sees the list and is refused the form, the action and the change."""
    name = f"viewer-{new_id()[:6]}"
    gateway.clerk.ask("create_user", name=name, password=PASSWORD, is_staff=True)
    gateway.clerk.ask("permit", name=name, permissions=["view_apikey", "view_user"])
    async with Browser(gateway.origin) as viewer:
        await viewer.log_in(name, PASSWORD)
        listed = await viewer.list_page("accounts", "apikey", q=alice.prefix)
        assert alice.prefix in listed.text
        assert "/admin/accounts/apikey/add/" not in listed.text
        assert not re.search(r'<option value="[^"]*revoke', listed.text)
        refused = await viewer.client.get("/admin/accounts/apikey/add/")
        assert refused.status_code == 403
        page = await viewer.get("/admin/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        fields = {"csrfmiddlewaretoken": token[1] if token else viewer.client.cookies.get("csrftoken")}
        posted = await viewer.client.post(
            "/admin/accounts/apikey/add/", data=fields, headers={"Referer": page.url}
        )
        assert posted.status_code == 403
        row = re.search(r"/admin/accounts/apikey/([^/]+)/change/", listed.text)
        assert row
        await viewer.client.post(
            "/admin/accounts/apikey/",
            data=fields | {"action": "revoke", "_selected_action": row[1]},
            headers={"Referer": page.url},
        )
    async with await gateway.agent(alice) as agent:
        await agent.alive()


async def test_c62_an_operator_revokes_a_key_by_the_action(gateway: Gateway, alice: Person) -> None:
    """Its open socket is closed with 4403, and it opens nothing any more."""
    async with await gateway.agent(alice) as agent, await gateway.staff.browse() as admin:
        await revoked(admin, alice.prefix)
        assert await agent.ended() == 4403
