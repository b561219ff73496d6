"""
The only gate: `authenticate(credential) -> Principal`, the same for HTTP, SSE and WebSockets.

Signatures are checked in memory; the one look-up of the user or the key runs in a few threads of our own, because all
consumers of a process share Django's single one.
"""

import asyncio
import datetime
import logging
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.db.models import Q
from django.utils import timezone

from accounts import keys, scopes, tokens
from accounts.models import DEFAULT_AGENT, ApiKey, User
from hermes_site.errors import CloseCode, Forbidden, Unauthorized

log = logging.getLogger(__name__)
T = TypeVar("T")
CHUNK = 500  # principals in one query


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling and with which scopes; `expires_at` in Unix seconds, None for never."""

    user_id: int
    username: str
    kind: Literal["token", "key", "cookie"]
    scopes: frozenset[str]
    agent: str | None = None
    key_id: int | None = None
    expires_at: float | None = None
    epoch: str | None = None


# --- The gate ------------------------------------------------------------------------------------------------------
async def authenticate(credential: str) -> Principal:
    """
    Who this API key or access token belongs to.

    Raises:
        Unauthorized: If it is neither, or no longer good.
        Forbidden: If its user is disabled.
    """
    return (await in_thread(find, credential))[1]


def find(credential: str) -> tuple[User, Principal]:
    """
    The same for synchronous callers, with the user's row.

    Raises:
        Unauthorized: If the credential is no good.
        Forbidden: If its user is disabled.
    """
    if keys.looks_like_key(credential):
        return _by_key(credential)
    return _by_token(credential)


def by_cookie(user: User) -> Principal:
    """The principal of a login session; the session itself was checked by Django."""
    return Principal(
        user_id=user.pk, username=user.username, kind="cookie", scopes=scopes.OF_TOKENS, epoch=user.epoch
    )


def require(principal: Principal, scope: str) -> None:
    """
    Let nobody pass without this scope.

    Raises:
        Forbidden: If the credential does not have it.
    """
    if scope not in principal.scopes:
        raise Forbidden(f"this credential does not have the scope {scope}")


def _by_token(text: str) -> tuple[User, Principal]:
    claims = tokens.read_access(text)
    user = User.objects.filter(pk=claims.user_id).first()
    if user is None or user.username != claims.username or user.epoch != claims.epoch:
        raise Unauthorized("this token is no longer valid")
    if not user.is_active:
        raise Forbidden("this user is disabled")
    return user, Principal(
        user_id=user.pk,
        username=user.username,
        kind="token",
        scopes=scopes.OF_TOKENS,
        expires_at=claims.expires_at,
        epoch=claims.epoch,
    )


def _by_key(text: str) -> tuple[User, Principal]:
    """One query and one comparison, whether the prefix is known or not."""
    key = ApiKey.objects.select_related("user").filter(prefix=keys.prefix_of(text) or "").first()
    good = keys.matches(text, key.digest if key else keys.NO_DIGEST)
    if key is None or not good or key.revoked_at is not None:
        raise Unauthorized("this key is not valid")
    now = timezone.now()
    if key.expires_at is not None and key.expires_at <= now:
        raise Unauthorized("this key has expired")
    if not key.user.is_active:
        raise Forbidden("this user is disabled")
    _note_use(key, now)
    return key.user, Principal(
        user_id=key.user_id,
        username=key.user.username,
        kind="key",
        scopes=key.scope_set,
        agent=key.agent,
        key_id=key.pk,
        expires_at=key.expires_at.timestamp() if key.expires_at else None,
    )


def _note_use(key: ApiKey, now: datetime.datetime) -> None:
    """Remember when the key was last used; not worth a refusal when it cannot be written."""
    before = now - datetime.timedelta(seconds=settings.HERMES_KEY_SEEN_SECONDS)
    if key.last_used_at is not None and key.last_used_at > before:
        return
    try:
        unseen = Q(last_used_at=None) | Q(last_used_at__lte=before)
        ApiKey.objects.filter(unseen, pk=key.pk).update(last_used_at=now)
    except DatabaseError:
        log.warning("the last use of key %s could not be written", key.prefix)


# --- Live credentials ----------------------------------------------------------------------------------------------
async def invalid_now(principals: Collection[Principal]) -> dict[Principal, CloseCode]:
    """Those of live sockets and streams whose key, user or epoch is no longer good, and how to close them."""
    return await in_thread(find_invalid, tuple(principals)) if principals else {}


def find_invalid(principals: Collection[Principal]) -> dict[Principal, CloseCode]:
    """The same for synchronous callers."""
    users: dict[int, tuple[bool, str]] = {}
    for ids in _chunks({principal.user_id for principal in principals}):
        for pk, active, epoch in User.objects.filter(pk__in=ids).values_list("pk", "is_active", "epoch"):
            users[pk] = (active, epoch)
    good_keys: set[int] = set()
    for ids in _chunks({principal.key_id for principal in principals if principal.key_id is not None}):
        good_keys.update(ApiKey.objects.filter(pk__in=ids, revoked_at=None).values_list("pk", flat=True))
    judged = ((principal, _judge(principal, users, good_keys)) for principal in principals)
    return {principal: code for principal, code in judged if code is not None}


def _judge(principal: Principal, users: dict[int, tuple[bool, str]], good_keys: set[int]) -> CloseCode | None:
    active, epoch = users.get(principal.user_id, (False, ""))
    if not active or (principal.key_id is not None and principal.key_id not in good_keys):
        return CloseCode.KEY_REVOKED
    if principal.epoch is not None and principal.epoch != epoch:
        return CloseCode.TOKEN_EXPIRED
    if principal.expires_at is not None and principal.expires_at <= time.time():
        return CloseCode.TOKEN_EXPIRED
    return None


def _chunks(ids: set[int]) -> Iterable[list[int]]:
    ordered = sorted(ids)
    return (ordered[start : start + CHUNK] for start in range(0, len(ordered), CHUNK))


# --- Agents of a user ----------------------------------------------------------------------------------------------
async def agent_names(user_id: int) -> tuple[str, tuple[str, ...]]:
    """The name of the user's default agent, and all names its unrevoked keys give, the oldest key's first."""
    return await in_thread(find_agent_names, user_id)


def find_agent_names(user_id: int) -> tuple[str, tuple[str, ...]]:
    """The same for synchronous callers."""
    rows = ApiKey.objects.filter(user_id=user_id, revoked_at=None).order_by("created_at", "pk")
    names: list[str] = []
    for agent, stored_scopes in rows.values_list("agent", "scopes"):
        if scopes.AGENT in scopes.parse(stored_scopes) and agent not in names:
            names.append(agent)
    default = DEFAULT_AGENT if DEFAULT_AGENT in names or not names else names[0]
    return default, tuple(names)


# --- Threads -------------------------------------------------------------------------------------------------------
class Threads:
    """A few threads, each with a database connection that it keeps, made on first use."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._connections: list[object] = []

    def submit(self, function: Callable[..., T], *args: object) -> "asyncio.Future[T]":
        """Run it there, for the running loop."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                settings.HERMES_AUTH_THREADS, thread_name_prefix="auth", initializer=self._begin
            )
        return asyncio.get_running_loop().run_in_executor(self._pool, _run, function, args)

    def _begin(self) -> None:
        connection.inc_thread_sharing()  # so that `close` may close it from another thread
        self._connections.append(connection._connections[connection._alias])

    def close(self) -> None:
        """End the threads and their connections; the next call makes new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)
        for used in self._connections:
            used.close()  # type: ignore[attr-defined]
        self._connections.clear()


def _run(function: Callable[..., T], args: tuple[object, ...]) -> T:
    """Call it; a connection that the server has dropped is made anew, once."""
    try:
        return function(*args)
    except (OperationalError, InterfaceError):
        connection.close()
        return function(*args)


threads = Threads()


async def in_thread(function: Callable[..., T], *args: object) -> T:
    """Run a look-up in one of the threads that authentication keeps for itself."""
    return await threads.submit(function, *args)


def close() -> None:
    """End the threads, at the end of the process and between tests; it waits, so a running loop calls it in a thread."""
    threads.close()
