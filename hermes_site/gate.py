"""
In front of Django: what must be decided before a body is read.

Django reads a whole request body before it asks anybody. So size is judged here, by the header and while the body
grows, and an upload must show a credential first; the views check both again, exactly.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import DatabaseError

from accounts import auth
from accounts.authentication import bearer
from hermes_site import errors
from hermes_site.middleware import error_headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

UPLOADS = "/api/media/"  # bodies that are large, and only taken from somebody known
CHATKIT = "/api/hermes/"  # its ids may hold `%2F`, so its paths are not decoded before they are split


class Gate:
    """Hands a request on when its body may be read."""

    def __init__(self, application: Application) -> None:
        """`application` gets HTTP requests only."""
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["path"].startswith(CHATKIT):
            scope = {**scope, "path": scope["raw_path"].decode("utf-8", "replace")}
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if length == b"0" and b"transfer-encoding" not in headers:
            await self.application(scope, receive, send)
            return
        upload = scope["path"].startswith(UPLOADS)
        most = settings.HERMES_UPLOAD_BODY_BYTES if upload else settings.HERMES_BODY_BYTES
        body = Body(receive, send, most)
        try:
            if upload:
                await check_credential(scope)
            if not length.isdigit():
                raise errors.InvalidRequest("Content-Length is not a number")
            if int(length) > most:
                raise too_large(most)
        except errors.GatewayError as error:
            await body.refuse(error, scope["path"])
            return
        await self.application(scope, lambda: body.receive(scope["path"]), body.send)


class Body:
    """Counts a body on its way to the application, and answers in its place when there is too much of it."""

    def __init__(self, receive: Receive, send: Send, most_bytes: int) -> None:
        """Past `most_bytes` the answer is 413."""
        self._receive = receive
        self._send = send
        self._most = most_bytes
        self._count = 0
        self._answering = False  # the application has begun to answer
        self._refused = False

    async def receive(self, path: str) -> Message:
        """The next piece; for the application a body that is too large ends like a line that broke."""
        if self._refused:
            return {"type": "http.disconnect"}
        message = await self._receive()
        self._count += len(message.get("body", b""))
        if self._count > self._most and not self._answering:
            await self.refuse(too_large(self._most), path)
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        """The application's answer, unless there was one already."""
        if not self._refused:
            self._answering = True
            await self._send(message)

    async def refuse(self, error: errors.GatewayError, path: str) -> None:
        """Answer with an error."""
        self._refused = True
        body = json.dumps(errors.body(error, api=path.startswith(CHATKIT))).encode()
        headers = {
            **error_headers(error),
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        await self._send(
            {
                "type": "http.response.start",
                "status": error.status,
                "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            }
        )
        await self._send({"type": "http.response.body", "body": body})


def too_large(most_bytes: int) -> errors.TooLarge:
    """The refusal of a body."""
    return errors.TooLarge(f"a body of at most {most_bytes} bytes is taken")


async def check_credential(scope: Scope) -> None:
    """
    Whether anybody known sends this: by the Authorization header if there is one, else by the login cookie.

    Raises:
        Unauthorized: If there is no credential, or a bad one.
        Forbidden: If its user is disabled.
        UploadFailed: If the database does not answer: only bodies of uploads are asked for one here.
    """
    headers = dict(scope["headers"])
    try:
        if b"authorization" in headers:
            await auth.authenticate(bearer(headers[b"authorization"].decode("latin-1")))
            return
        try:
            cookies = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1"))
        except CookieError:
            cookies = SimpleCookie()
        cookie = cookies.get(settings.SESSION_COOKIE_NAME)
        if cookie is None or not await auth.in_thread(_is_logged_in, cookie.value):
            raise errors.Unauthorized("log in first")
    except DatabaseError:
        raise errors.UploadFailed("nothing was stored: the database does not answer", retry_after=1) from None


def _is_logged_in(session_key: str) -> bool:
    return SESSION_KEY in SessionStore(session_key)
