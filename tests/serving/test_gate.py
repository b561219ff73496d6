"""The gate in front of Django: size by header and by growth, credentials before bodies, raw paths for ids."""

import json
from typing import Any

import pytest

from hermes_site import errors, gate
from hermes_site.gate import Gate

UPLOAD = "/api/media/upload"


class Inner:
    """An application that reads the body, then answers with its length."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] | None = None
        self.received: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        while True:
            self.received.append(message := await receive())
            if not message.get("more_body"):
                break
        length = sum(len(message.get("body", b"")) for message in self.received)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(length).encode()})


class Call:
    """One request through the gate."""

    def __init__(self, inner: Any = None) -> None:
        self.inner = inner or Inner()
        self.sent: list[dict[str, Any]] = []
        self.read = 0

    async def __call__(self, path: str, headers: dict[str, str], pieces: list[bytes]) -> int:
        waiting = list(pieces)

        async def receive() -> dict[str, Any]:
            self.read += 1
            body = waiting.pop(0) if waiting else b""
            return {"type": "http.request", "body": body, "more_body": bool(waiting)}

        async def send(message: dict[str, Any]) -> None:
            self.sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": path.replace("%2F", "/"),
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        await Gate(self.inner)(scope, receive, send)
        assert [message["type"] for message in self.sent] == ["http.response.start", "http.response.body"]
        return int(self.sent[0]["status"])

    @property
    def code(self) -> str:
        """The code of the error that was answered."""
        return str(json.loads(self.sent[1]["body"])["error"]["code"])


@pytest.fixture(autouse=True)
def limits(settings: Any) -> None:
    """Small limits."""
    settings.HERMES_BODY_BYTES = 100
    settings.HERMES_UPLOAD_BODY_BYTES = 1000


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """One credential that is good."""

    async def authenticate(credential: str) -> object:
        if credential == "off":
            raise errors.Forbidden("disabled")
        if credential != "good":
            raise errors.Unauthorized("no good")
        return object()

    monkeypatch.setattr(gate.auth, "authenticate", authenticate)


async def test_small_body_goes_through():
    """What is within the limit reaches the application, piece by piece."""
    call = Call()
    assert await call("/api/auth/token", {"Content-Length": "100"}, [b"x" * 50, b"y" * 50]) == 200
    assert call.sent[1]["body"] == b"100"
    assert len(call.inner.received) == 2


async def test_large_body_is_refused_unread():
    """A length over the limit is 413 before a byte is read."""
    call = Call()
    assert await call("/api/auth/token", {"Content-Length": "101"}, [b"x" * 101]) == 413
    assert (call.code, call.read, call.inner.scope) == ("file_too_large", 0, None)


async def test_c38_body_without_a_length_is_refused_when_it_is_too_large():
    """C38: a chunked body is cut off at the limit, and the application does not take the part for the whole."""
    call = Call()
    assert await call("/api/auth/token", {"Transfer-Encoding": "chunked"}, [b"x" * 60] * 10) == 413
    assert call.read == 2
    assert call.inner.received[-1] == {"type": "http.disconnect"}


@pytest.mark.parametrize("length", ["-1", "1e3", "٣", ""])
async def test_length_that_is_no_number_is_refused(length: str):
    """A length that could be read in two ways is 400."""
    call = Call()
    assert await call("/api/auth/token", {"Content-Length": length}, []) == 400


async def test_code_of_the_chatkit_door():
    """Under /api/hermes the error has that door's code."""
    call = Call()
    assert await call("/api/hermes/chat", {"Content-Length": "101"}, []) == 413
    assert call.code == "body_too_large"


async def test_ids_with_slashes_are_split_before_they_are_decoded():
    """Under /api/hermes, and only there, the path that Django sees is not decoded."""
    for path, seen in (("/api/hermes/a%2Fb", "/api/hermes/a%2Fb"), ("/media/a%2Fb", "/media/a/b")):
        call = Call()
        await call(path, {}, [])
        assert call.inner.scope["path"] == seen


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer bad"}, 401),
        ({"Authorization": "Basic good"}, 401),
        ({"Authorization": "Bearer off"}, 403),
        ({"Authorization": "Bearer good"}, 413),
        ({"Cookie": "theme=dark"}, 401),
        ({"Cookie": "=;;\x00"}, 401),
    ],
)
async def test_c38_stranger_is_refused_before_the_size_is_judged(headers: dict[str, str], status: int):
    """C38: an upload needs a good credential before anything of it is read, whatever its length."""
    call = Call()
    assert await call(UPLOAD, headers | {"Content-Length": "5000"}, [b"x"]) == status
    assert call.read == 0


@pytest.mark.usefixtures("known")
async def test_known_peer_may_upload_more():
    """Uploads have a limit of their own."""
    call = Call()
    headers = {"Authorization": "Bearer good", "Content-Length": "1000"}
    assert await call(UPLOAD, headers, [b"x" * 1000]) == 200


@pytest.mark.django_db(transaction=True)
async def test_cookie_must_be_of_somebody_logged_in(django_user_model: Any):
    """A made-up cookie and an anonymous session are strangers; a logged-in one is not."""
    from django.contrib.auth import SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore

    anonymous, known = SessionStore(), SessionStore()
    await anonymous.aset("theme", "dark")
    await anonymous.asave()
    await known.aset(SESSION_KEY, "1")
    await known.asave()
    for key, status in (("made-up", 401), (anonymous.session_key, 401), (known.session_key, 200)):
        call = Call()
        assert await call(UPLOAD, {"Cookie": f"sessionid={key}", "Content-Length": "1"}, [b"x"]) == status


async def test_answer_that_has_begun_is_not_replaced():
    """An application that answers before the body's end keeps its answer, however long the body gets."""

    async def early(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 202, "headers": []})
        for _ in range(5):
            await receive()
        await send({"type": "http.response.body", "body": b""})

    assert await Call(early)("/api/x", {"Transfer-Encoding": "chunked"}, [b"x" * 60] * 5) == 202
