"""The two chat sockets let in one good credential each, and say truly why they refuse."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from django.db import OperationalError

from accounts import auth, keys, services, tokens
from accounts.middleware import CredentialMiddleware, refuse_unknown_path
from accounts.models import User

pytestmark = pytest.mark.django_db(transaction=True)


async def knock(path: str, query: bytes = b"", *headers: tuple[bytes, bytes], extension: bool = True) -> Any:
    """Open a socket; gives the scope that the consumer saw, or the refusal's status and body."""
    sent: list[Any] = []
    seen: list[Any] = []

    async def consumer(scope: Any, receive: Any, send: Any) -> None:
        if "principal" not in scope:
            await refuse_unknown_path(scope, receive, send)
            return
        seen.append(scope)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "websocket",
        "path": path,
        "query_string": query,
        "headers": list(headers),
    }
    if extension:
        scope["extensions"] = {"websocket.http.response": {}}
    await CredentialMiddleware(consumer)(scope, receive, send)
    if seen:
        return seen[0]
    if not extension:
        return sent
    start, body = sent
    assert start["type"] == "websocket.http.response.start"
    return start["status"], json.loads(body["body"])


@pytest.fixture
def key(alice: User) -> str:
    """A key of alice's agent."""
    return services.create_key(alice)[1]


@pytest.fixture
def token(alice: User) -> str:
    """An access token of alice."""
    return tokens.access(alice)


async def test_an_app_comes_in_with_a_token_and_an_agent_with_a_key(token: str, key: str) -> None:
    """By query or by header; the consumer sees who it is, and no credential."""
    for scope in (
        await knock("/ws/app", f"since=3&token={token}&caps=sync%2Cevents".encode()),
        await knock("/ws/app", b"since=3&caps=sync%2Cevents", (b"authorization", f"Bearer {token}".encode())),
    ):
        assert scope["principal"].username == "alice"
        assert scope["query_string"] == b"since=3&caps=sync%2Cevents"
        assert token not in repr(scope)
    for spelling in (key, quote(key, safe=""), key.replace("_", "%5F")):
        scope = await knock("/ws/agent", f"api_key={spelling}".encode())
        assert scope["principal"].agent == "hermes"
        assert key not in repr(scope)


async def test_the_header_alone_decides(token: str, key: str) -> None:
    """A bad header is not saved by a good query, and a good one not spoilt by a bad query."""
    assert (await knock("/ws/app", f"token={token}".encode(), (b"authorization", b"Bearer nonsense")))[
        0
    ] == 401
    assert (await knock("/ws/app", f"token={token}".encode(), (b"authorization", b"Basic YTpi")))[0] == 401
    assert (await knock("/ws/app", b"token=nonsense", (b"authorization", f"Bearer {token}".encode())))[
        "principal"
    ]
    twice = ((b"authorization", f"Bearer {token}".encode()),) * 2
    assert (await knock("/ws/app", b"", *twice))[0] == 400


async def test_c14_wrong_kinds_are_refused(alice: User, token: str, key: str) -> None:
    """C14: a refresh token, an agent's key at the App's door, a token at the agent's, the other door's parameter."""
    refresh = tokens.pair(alice).refresh
    assert (await knock("/ws/app", f"token={refresh}".encode()))[0] == 401
    assert (await knock("/ws/app", f"token={key}".encode()))[0] == 403
    assert (await knock("/ws/agent", f"api_key={token}".encode()))[0] == 401
    assert (await knock("/ws/agent", f"token={key}".encode()))[0] == 401
    assert (await knock("/ws/app", f"api_key={token}".encode()))[0] == 401


async def test_a_program_with_a_chat_key_is_an_app(alice: User) -> None:
    """The scope `chat` opens /ws/app, and only that."""
    _, text = await auth.in_thread(lambda: services.create_key(alice, scope_names=("chat",)))
    assert (await knock("/ws/app", f"token={text}".encode()))["principal"].kind == "key"
    assert (await knock("/ws/agent", f"api_key={text}".encode()))[0] == 403


@pytest.mark.parametrize(
    ("query", "status"),
    [
        (b"", 401),
        (b"token", 401),
        (b"token=", 401),
        (b"token=%00", 401),
        (b"token=x&token=y", 400),
        (b"token=%FF%FE", 400),
        (b"\xff\xfe", 400),
        (b"token=" + b"x" * 100_000, 400),
        (b"&".join(b"a=%d" % number for number in range(60)), 400),
    ],
)
async def test_c14_odd_queries_are_refused(query: bytes, status: int) -> None:
    """C14: each with its own status and one kind of body."""
    found, body = await knock("/ws/app", query)
    assert found == status
    assert set(body["error"]) >= {"code", "type", "message"}


async def test_c14_good_and_bad_together_are_refused(token: str) -> None:
    """C14: two credentials are none, in either order."""
    for query in (f"token={token}&token=bad", f"token=bad&token={token}"):
        assert (await knock("/ws/app", query.encode()))[0] == 400


async def test_a_disabled_user_is_told_403(alice: User, token: str) -> None:
    """So that a page asks for a login."""
    await auth.in_thread(lambda: User.objects.filter(pk=alice.pk).update(is_active=False))
    assert (await knock("/ws/app", f"token={token}".encode()))[0] == 403


async def test_plain_servers_close(token: str) -> None:
    """Without the extension a close before the upgrade is a 403."""
    assert (await knock("/ws/app", b"token=x", extension=False))[0]["type"] == "websocket.close"


async def test_other_addresses_have_no_socket() -> None:
    """404, whatever they carry."""
    assert (await knock("/ws/other", b"token=x"))[0] == 404


async def test_a_database_that_does_not_answer_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a traceback, and worth coming back for."""

    def fail(credential: str) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(auth, "find", fail)
    assert (await knock("/ws/agent", f"api_key={keys.generate().text}".encode()))[0] == 503


async def test_c15_a_refusal_names_no_credential(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """C15: neither in the log nor in the answer."""
    caplog.set_level("DEBUG")
    wrong = key[:-3] + "abc"
    _, body = await knock("/ws/agent", f"api_key={wrong}".encode())
    assert wrong not in json.dumps(body)
    assert "refused /ws/agent" in caplog.text
    assert wrong[14:] not in caplog.text
