"""C12 expiry of a live socket, C14 wrong kinds of credential, C15 credentials that leak."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jwt
import pytest

from tests.rig.backends import SECRET_KEY
from tests.rig.bridge import Bridge
from tests.rig.clerk import Person
from tests.rig.gateway import STEADY, Gateway
from tests.rig.pool import Pool
from tests.rig.sockets import address, new_id, open_socket, refusal
from tests.rig.staff import PASSWORD
from tests.rig.timing import SCALE, TIMEOUT, eventually

LATE_SECONDS = 3 * SCALE


def minted(token: str, *, key: str = SECRET_KEY, algorithm: str = "HS256", **claims: Any) -> str:
    """A token like another one but for some claims; ``...`` leaves one out."""
    payload = jwt.decode(token, options={"verify_signature": False})
    payload = {name: value for name, value in (payload | claims).items() if value is not ...}
    return jwt.encode(payload, key, algorithm=algorithm)


async def is_stored(gateway: Gateway, person: Person, session: str, message_id: str) -> bool:
    """Whether a message, or a stream with its end, is committed: a `pong` tells only that it was read."""
    rows = gateway.clerk.messages(person, session)
    return any(row["id"] == message_id and row["cursor"] is not None for row in rows)


async def test_c12_an_expired_token_ends_an_idle_socket(gateway: Gateway, alice: Person) -> None:
    """Closed with 4401 at expiry; nothing reaches it afterwards; a fresh token gets what it missed."""
    session = new_id()
    expires = time.time() + 3
    async with (
        await gateway.app(alice, token=minted(alice.token, exp=int(expires))) as app,
        await gateway.agent(alice) as agent,
    ):
        before = await agent.answer("before", session)
        assert await app.next() == before
        assert await app.ended(3 + LATE_SECONDS) == 4401
        assert int(expires) - 1 <= time.time() <= expires + LATE_SECONDS
        start = await agent.stream(["after ", "expiry"], session)
        await agent.alive()
        await eventually(
            lambda: is_stored(gateway, alice, session, start["id"]), what="the stream is stored whole"
        )
        with pytest.raises(Exception, match=r"4401|closed|no close frame"):
            await app.say("too late", session)
        assert app.seen == [before]
        async with await gateway.app(alice) as renewed:
            late = await renewed.expect(type="text", id=start["id"])
            assert late["data"]["text"] == "after expiry"
            again = await renewed.say("in time", session)
            assert await agent.next() == again
        assert [frame["type"] for frame in agent.seen] == ["pong", "text"]
    assert await refusal(gateway.app_url(alice, token=minted(alice.token, exp=int(expires)))) == 401


async def test_c12_a_socket_that_speaks_is_closed_too(gateway: Gateway, alice: Person) -> None:
    """Traffic does not put expiry off."""
    async with await gateway.app(alice, token=minted(alice.token, exp=int(time.time()) + 2)) as app:
        deadline = time.monotonic() + 2 + LATE_SECONDS
        while time.monotonic() < deadline and app.socket.close_code is None:
            try:
                await app.alive()
            except Exception:  # closed between two pings, which is what is waited for
                break
        assert await app.ended(1) == 4401


REFUSALS = {"inactive user": {403}, "agent key": {401, 403}}
"""The statuses of those that are not plainly 401: a key is a good credential with the wrong scopes."""


def wrong_tokens(gateway: Gateway, person: Person) -> dict[str, str]:
    """C14's tokens, none of which opens the App's socket."""
    gone = gateway.person("gone")
    idle = gateway.person("idle")
    gateway.clerk.ask("delete_user", name=gone.name)
    gateway.clerk.ask("change_user", name=idle.name, is_active=False)
    unsigned = jwt.encode(
        jwt.decode(person.token, options={"verify_signature": False}), None, algorithm="none"
    )
    header, payload, signature = person.token.split(".")
    swapped = json.loads(base64.urlsafe_b64decode(payload + "==")) | {"sub": gone.name, "user_id": gone.name}
    forged = base64.urlsafe_b64encode(json.dumps(swapped).encode()).decode().rstrip("=")
    return {
        "refresh": minted(person.token, token_type="refresh"),
        "alg none": unsigned,
        "another secret": minted(person.token, key="another-secret-" * 4),
        "no exp": minted(person.token, exp=...),
        "no sub": minted(person.token, sub=...),
        "another epoch": minted(person.token, epoch="x"),
        "another type": minted(person.token, token_type="sliding"),
        "expired": minted(person.token, exp=int(time.time()) - 1),
        "HS512": minted(person.token, algorithm="HS512"),
        "changed payload": f"{header}.{forged}.{signature}",
        "deleted user": gone.token,
        "inactive user": idle.token,
        "agent key": person.key,
        "no token at all": "x",
    }


async def test_c14_wrong_kinds_of_token_open_nothing(gateway: Gateway, alice: Person) -> None:
    """401, or 403 for a disabled user, before the upgrade."""
    for name, token in wrong_tokens(gateway, alice).items():
        status = await refusal(gateway.app_url(alice, token=token))
        assert status in REFUSALS.get(name, {401}), name
    assert await refusal(gateway.agent_url(alice, key=alice.token)) == 401
    assert (
        await refusal(gateway.agent_url(alice, key=alice.key[:-1] + ("a" if alice.key[-1] != "a" else "b")))
        == 401
    )
    expired = gateway.clerk.key(alice.name, expires_days=0)
    assert await refusal(gateway.agent_url(alice, key=expired)) == 401
    media_only = gateway.clerk.key(alice.name, scopes="media")
    assert await refusal(gateway.agent_url(alice, key=media_only)) in (401, 403)
    revoked = gateway.clerk.key(alice.name)
    gateway.clerk.command("revoke_key", revoked.split("_")[1])
    assert await refusal(gateway.agent_url(alice, key=revoked)) == 401


BAD_QUERIES: list[tuple[str, set[int]]] = [
    ("token={good}&token=bad", {400}),
    ("token=bad&token={good}", {400}),
    ("token={good}&token={good}", {400}),
    ("token", {400, 401}),
    ("token=", {400, 401}),
    ("token=%FF%FE", {400}),
    ("token=%00", {400, 401}),
    ("token={good}%00", {400, 401}),
    ("", {401}),
    ("token=" + "x" * 10_000, {400}),
    ("token=" + "x" * 100_000, {400, 414, 431}),
    ("Token={good}", {401}),
    ("api_key={good}", {400, 401}),
    ("token={good}&since=abc", {400}),
    ("token={good}&%FF=1", {400}),
]


@pytest.mark.parametrize(("query", "statuses"), BAD_QUERIES)
async def test_c14_a_bad_query_is_refused_before_the_upgrade(
    gateway: Gateway, alice: Person, query: str, statuses: set[int]
) -> None:
    """Repeated, undecodable, missing, oversized; the same on the agent's socket."""
    for url in spelled_for_both(gateway, alice, query):
        assert await refusal(url) in statuses, (url[:60], query)


def spelled_for_both(gateway: Gateway, person: Person, query: str) -> Iterator[str]:
    """The addresses of both sockets with a query in which `{good}` stands for what would open them."""
    for path, name, good, port in (
        ("/ws/app", "token", person.token, gateway.app_server.port),
        ("/ws/agent", "api_key", person.key, gateway.agent_server.port),
    ):
        spelled = query.format(good=good)
        if name == "api_key":
            spelled = spelled.replace("api_key=", "~").replace("token", "api_key").replace("~", "token=")
        yield address(port, path) + (f"?{spelled}" if spelled else "")


async def test_c14_a_refresh_token_opens_nothing_but_its_own_door(gateway: Gateway) -> None:
    """One as the log-in gives it: on no socket, in no header, for no upload; the access token beside it works."""
    carol = gateway.person("carol", password=PASSWORD)
    async with gateway.http() as http:
        login = {"username": carol.name, "password": PASSWORD}
        tokens = (await http.post("/api/auth/token", json=login)).json()
        for url in (
            gateway.app_url(carol, token=tokens["refresh"]),
            gateway.agent_url(carol, key=tokens["refresh"]),
        ):
            assert await refusal(url) == 401
        header = {"Authorization": f"Bearer {tokens['refresh']}"}
        assert await refusal(address(gateway.app_server.port, "/ws/app"), additional_headers=header) == 401
        for path in ("/api/me", "/api/frames", "/api/hermes/api/sessions"):
            assert (await http.get(path, headers=header)).status_code == 401, path
        upload = await http.post("/api/media/upload", files={"file": ("a.txt", b"a")}, headers=header)
        assert upload.status_code == 401
    async with await gateway.app(carol, token=tokens["access"]) as app:
        await app.alive()


async def test_c14_issued_credentials_work_in_every_spelling(gateway: Gateway, alice: Person) -> None:
    """Raw and percent-encoded, in the query and in the header; the header decides when both are there."""
    for credential in (alice.token, alice.key):
        assert quote(credential, safe="") == credential, "an issued credential needs no encoding"
    encoded = "".join(f"%{byte:02X}" for byte in alice.key.encode())
    for key in (alice.key, encoded):
        socket = await open_socket(address(gateway.agent_server.port, "/ws/agent") + f"?api_key={key}")
        await socket.close()
    encoded = "".join(f"%{byte:02x}" for byte in alice.token.encode())
    for token in (alice.token, encoded):
        socket = await open_socket(address(gateway.app_server.port, "/ws/app") + f"?token={token}")
        await socket.close()
    header = {"Authorization": f"Bearer {alice.token}"}
    for query in ({}, {"token": "bad"}):
        url = address(gateway.app_server.port, "/ws/app", **query)
        socket = await open_socket(url, additional_headers=header, origin="https://elsewhere.example")
        await socket.close()
    bad = {"Authorization": "Bearer bad"}
    assert await refusal(gateway.app_url(alice), additional_headers=bad) == 401


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
async def test_c14_other_servers_refuse_the_same(pool: Pool, server: str) -> None:
    """Plain daphne can only say 403; uvicorn says the true status."""
    gateway = pool.get("embedded", STEADY, server)
    alice = gateway.person()
    with gateway.clean_log():
        for name, token in wrong_tokens(gateway, alice).items():
            status = await refusal(gateway.app_url(alice, token=token))
            assert status in ({403} if server == "daphne" else REFUSALS.get(name, {401})), name
        for query, statuses in BAD_QUERIES:
            if (
                len(query) > 8000
            ):  # what these servers make of a long line is their own: the gateway is not asked
                continue
            for url in spelled_for_both(gateway, alice, query):
                status = await refusal(url)
                assert status in (statuses if server == "uvicorn" else {400, 403, 414}), query
        async with await gateway.app(alice) as app:
            await app.alive()


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
async def test_c15_other_servers_print_no_credential(pool: Pool, server: str) -> None:
    """Good and bad ones, of sockets and of calls, in a query where nobody takes them: paths only in the access log."""
    gateway = pool.get("embedded", STEADY, server)
    alice = gateway.person()
    bad_token, bad_key = alice.token[:-6] + "zzzzzz", alice.key[:-6] + "zzzzzz"
    async with await gateway.app(alice) as app, await gateway.agent(alice):
        await app.alive()
    for url in (gateway.app_url(alice, token=bad_token), gateway.agent_url(alice, key=bad_key)):
        assert await refusal(url) in (401, 403)
    async with gateway.http() as http:
        for query in ({"token": alice.token}, {"api_key": alice.key}, {"token": bad_token}):
            for path in ("/api/me", "/media/med_none", "/nowhere", "/healthz"):
                await http.get(path, params=query)
                await http.post(path, params=query)
    await eventually(lambda: is_printed(gateway, "/nowhere"), what="the calls are in the access log")
    for secret in (alice.token, alice.token.split(".")[2], alice.key.split("_", 2)[2], bad_token, bad_key):
        assert secret not in gateway.log()


async def is_printed(gateway: Gateway, text: str) -> bool:
    """Whether a gateway has printed something."""
    return text in gateway.log()


async def test_c15_no_credential_is_found_in_logs_tables_or_pages(
    make_gateway: Callable[..., Gateway], backend: str, tmp_path: Path
) -> None:
    """Good and bad sockets, HTTP calls with a credential in the query, the bridge at debug, exceptions."""
    gateway = make_gateway(backend, {"HERMES_LOG_LEVEL": "DEBUG"})
    alice = gateway.person()
    hermes_key = f"hermes-{new_id()}"
    bad_key = alice.key[:-6] + "zzzzzz"
    bad_token = alice.token[:-6] + "zzzzzz"
    secrets = {
        "token": alice.token,
        "signature": alice.token.split(".")[2],
        "key": alice.key,
        "secret of the key": alice.key.split("_", 2)[2],
        "bad key": bad_key,
        "bad token": bad_token,
        "password": PASSWORD,
        "secret key": SECRET_KEY,
        "the key of Hermes": hermes_key,
    }
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        answer = await agent.answer("hello", "S1")
        assert await app.next() == answer
        await app.say("hello", "S1")
        await agent.next()
        await app.send(json.dumps({"type": "text", "token": alice.token}))
        await app.expect(type="error")
    for url in (gateway.app_url(alice, token=bad_token), gateway.agent_url(alice, key=bad_key)):
        assert await refusal(url) == 401
    async with gateway.http() as http:
        for path in (
            "/api/frames",
            "/api/me",
            "/media/med_none",
            "/api/media/upload",
            "/nowhere",
            "/healthz",
        ):
            for query in ({"token": alice.token}, {"api_key": alice.key}, {"token": bad_token}):
                await http.get(path, params=query)
                await http.post(path, params=query)
        await http.post("/api/auth/token", json={"username": alice.name, "password": PASSWORD})
        await http.post("/api/auth/refresh", json={"refresh": alice.token})
        await http.get("/api/frames", headers={"Authorization": f"Bearer {bad_key}"})
    url = address(gateway.agent_server.port, "/ws/agent")
    with Bridge(
        url, alice.key, tmp_path / "bridge", "--demo", "--debug", HERMES_API_KEY=hermes_key
    ) as bridge:
        async with await gateway.app(alice) as app:
            question = await app.say("hello", "S2")
            await app.until(type="stream_start", reply_to=question["id"])
            await app.until(type="stream_end")
    with Bridge(url, bad_key, tmp_path / "bad", "--demo", "--debug") as refused_bridge:
        assert refused_bridge.process.wait(TIMEOUT) != 0
    bridge_logs = bridge.log() + refused_bridge.log()
    assert bridge_logs
    pages = []
    async with await gateway.staff.browse() as admin:
        for app_label, model in (
            *(("accounts", "user"), ("accounts", "apikey"), ("media", "media")),
            *(("chat", "chatsession"), ("chat", "message"), ("chat", "run"), ("chat", "connection")),
        ):
            pages += await admin.pages_of(app_label, model)
    table = gateway.clerk.ask("table_of", app="accounts", model="ApiKey")
    gateway.clerk.ask("sql", statement=f"ALTER TABLE {table} RENAME TO {table}_away")  # connect fails now
    assert await refusal(gateway.agent_url(alice)) in (500, 503)
    users = gateway.clerk.ask("table_of", app="accounts", model="User")
    gateway.clerk.ask("sql", statement=f"ALTER TABLE {users} RENAME TO {users}_away")  # and a view
    async with gateway.http(alice) as http:
        broken = await http.get("/api/me", params={"token": alice.token})
        assert broken.status_code in (500, 503)
    assert await refusal(gateway.app_url(alice)) in (500, 503)
    texts = {
        "the log": gateway.log().encode(),
        "the bridge's log": bridge_logs.encode(),
        "the tables and files": gateway.backend.dump(),
        "the answer to a failed call": broken.content + str(broken.headers).encode(),
        "the admin": "".join(page.text for page in pages).encode(),
    }
    assert texts["the log"] and texts["the tables and files"]
    leaks = [
        (place, name)
        for name, secret in secrets.items()
        for place, text in texts.items()
        if secret.encode() in text
    ]
    assert leaks == []
