"""
JSON web tokens: issued and read, without a look at the database.

HS256 and nothing else. A token names its user three times: `sub` (username), `uid` (primary key) and `epoch`, so that it
fits neither a later user of the same name nor the same user after a password change.
"""

import datetime
import hashlib
import hmac
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from rest_framework_simplejwt.exceptions import TokenError
from rest_framework_simplejwt.tokens import AccessToken, RefreshToken, Token

from accounts.models import User
from hermes_site.errors import Unauthorized


@dataclass(frozen=True, slots=True)
class Claims:
    """What a good token says; `expires_at` in Unix seconds."""

    username: str
    user_id: int
    epoch: str
    jti: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class Pair:
    """What a login gets."""

    access: str
    refresh: str


def access(user: User, seconds: float | None = None) -> str:
    """An access token for this user; `seconds` is its life, HERMES_ACCESS_SECONDS by default."""
    life = settings.HERMES_ACCESS_SECONDS if seconds is None else seconds
    return _issue(AccessToken(), user, time.time(), life, None)


def pair(user: User, issued_at: float | None = None, after: str | None = None) -> Pair:
    """
    An access and a refresh token.

    With `after` (the jti of the refresh token that buys them) and `issued_at` the same arguments give the same tokens,
    so that a repeated request can be answered alike without keeping any token.
    """
    now = time.time() if issued_at is None else issued_at
    return Pair(
        access=_issue(AccessToken(), user, now, settings.HERMES_ACCESS_SECONDS, _derived("access", after)),
        refresh=_issue(RefreshToken(), user, now, settings.HERMES_REFRESH_SECONDS, successor(after)),
    )


def successor(jti: str | None) -> str | None:
    """The jti of the refresh token that this one buys."""
    return _derived("refresh", jti)


def read_access(text: str) -> Claims:
    """
    Read an access token.

    Raises:
        Unauthorized: If it is not one of ours, not an access token, or expired.
    """
    return _read(AccessToken, text)


def read_refresh(text: str) -> Claims:
    """
    Read a refresh token; whether it was used already is not known here.

    Raises:
        Unauthorized: If it is not one of ours, not a refresh token, or expired.
    """
    return _read(RefreshToken, text)


def _issue(token: Token, user: User, issued_at: float, life: float, jti: str | None) -> str:
    at = datetime.datetime.fromtimestamp(issued_at, datetime.UTC)
    token.set_iat(at_time=at)
    token.set_exp(from_time=at, lifetime=datetime.timedelta(seconds=life))
    if jti is not None:
        token["jti"] = jti
    token["sub"] = user.username
    token["uid"] = user.pk
    token["epoch"] = user.epoch
    return str(token)


def _derived(kind: str, jti: str | None) -> str | None:
    if jti is None:
        return None
    key = str(settings.SIMPLE_JWT["SIGNING_KEY"]).encode()
    return hmac.new(key, f"{kind} after {jti}".encode(), hashlib.sha256).hexdigest()[:32]


def _read(kind: type[Token], text: str) -> Claims:
    if len(text) > settings.HERMES_CREDENTIAL_BYTES or not text.isascii():
        raise Unauthorized("this token is not valid")
    try:
        token: Any = kind(text)  # type: ignore[arg-type]  (simplejwt takes the text, whatever its annotation says)
        claims = Claims(
            username=token["sub"],
            user_id=token["uid"],
            epoch=token["epoch"],
            jti=token["jti"],
            expires_at=float(token["exp"]),
        )
    except (TokenError, KeyError, TypeError, ValueError, OverflowError):
        raise Unauthorized("this token is not valid") from None
    if (
        not isinstance(claims.username, str)
        or type(claims.user_id) is not int
        or not isinstance(claims.jti, str)
    ):
        raise Unauthorized("this token is not valid")
    if claims.expires_at <= time.time():  # the leeway is for clocks at issue, not for the end
        raise Unauthorized("this token has expired")
    return claims
