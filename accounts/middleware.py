"""The two chat sockets: one credential each, checked before the upgrade; `scope["principal"]` is who it is."""

import json
import logging
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.conf import settings
from django.db import DatabaseError

from accounts import auth, keys, scopes
from accounts.authentication import bearer
from hermes_site import errors

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

APP_PATH = "/ws/app"
AGENT_PATH = "/ws/agent"
PARAMETERS = {APP_PATH: "token", AGENT_PATH: "api_key"}
REFUSAL = "websocket.http.response"


class CredentialMiddleware:
    """Hands a socket on when its one credential is good, else refuses the upgrade."""

    def __init__(self, application: Application) -> None:
        """`application` sees only sockets with a principal, and addresses that are not ours."""
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        path = scope["path"]
        if path not in PARAMETERS:
            await self.application(scope, receive, send)
            return
        try:
            credential, query = read_credential(scope, PARAMETERS[path])
            principal = await admit(credential, path)
        except errors.GatewayError as error:
            await refuse(scope, receive, send, error)
            return
        except DatabaseError:
            log.error("the database did not answer while a socket was authenticated")
            await refuse(scope, receive, send, errors.Unavailable("try again later", retry_after=1))
            return
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"authorization"]
        known = {**scope, "principal": principal, "query_string": query, "headers": headers}
        await self.application(known, receive, send)


def read_credential(scope: Scope, parameter: str) -> tuple[str, bytes]:
    """
    The one credential that counts, and the query without it.

    Raises:
        InvalidRequest: If the query cannot be read, is too long, or names the credential twice.
        Unauthorized: If there is none.
    """
    raw: bytes = scope["query_string"]
    if len(raw) > settings.HERMES_CREDENTIAL_BYTES:
        raise errors.InvalidRequest("the query is too long")
    try:
        fields = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except (UnicodeDecodeError, ValueError):
        raise errors.InvalidRequest("the query cannot be read") from None
    named = [value for name, value in fields if name == parameter]
    rest = urlencode([(name, value) for name, value in fields if name not in PARAMETERS.values()]).encode()
    if len(named) > 1:
        raise errors.InvalidRequest("the query names more than one credential", field=parameter)
    headers = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
    if len(headers) > 1:
        raise errors.InvalidRequest("there is more than one Authorization header")
    if headers:
        return bearer(headers[0].decode("latin-1")), rest
    if not named or not named[0]:
        raise errors.Unauthorized("a credential is missing")
    return named[0], rest


async def admit(credential: str, path: str) -> auth.Principal:
    """
    Who may open this socket: an App needs an access token or a key with `chat`, an agent a key with `agent`.

    Raises:
        Unauthorized: If the credential is no good, or of the wrong kind.
        Forbidden: If its user is disabled, or the key lacks the scope.
    """
    if path == AGENT_PATH and not keys.looks_like_key(credential):
        raise errors.Unauthorized("an agent connects with an API key")
    principal = await auth.authenticate(credential)
    auth.require(principal, scopes.AGENT if path == AGENT_PATH else scopes.CHAT)
    return principal


async def refuse(scope: Scope, receive: Receive, send: Send, error: errors.GatewayError) -> None:
    """Answer an upgrade with the error's own status where the server can, else by 403."""
    log.info("refused %s: %s %s", scope["path"], error.status, error.code)
    await receive()
    if REFUSAL not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": int(errors.CloseCode.NORMAL)})
        return
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after))).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    text = json.dumps(errors.body(error)).encode()
    await send({"type": f"{REFUSAL}.start", "status": error.status, "headers": headers})
    await send({"type": f"{REFUSAL}.body", "body": text})


async def refuse_unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    """There is no socket at this address."""
    await refuse(scope, receive, send, errors.NotFound("there is nothing here"))
