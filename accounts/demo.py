"""
The demo user: its password and key follow from the secret key, so they can be printed again without being kept.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from accounts import keys, scopes, services, tokens
from accounts.models import DEFAULT_AGENT, ApiKey, User

NAME = "demo"
KEYS = 1000  # as many revoked demo keys before it gives up


@dataclass(frozen=True, slots=True)
class Demo:
    """All that one needs to try the product; `password` is None when somebody has changed it."""

    user: str
    password: str | None
    token: str
    refresh: str
    api_key: str


def make() -> Demo:
    """The demo user and one good key of its own, made if absent."""
    password = _derived("password")[:16]
    user = User.objects.filter(username=NAME).first() or services.create_user(NAME, password)
    pair = tokens.pair(user)
    return Demo(
        user=user.username,
        password=password if user.check_password(password) else None,
        token=pair.access,
        refresh=pair.refresh,
        api_key=_key(user),
    )


@transaction.atomic
def _key(user: User) -> str:
    """The first of the derived keys that was not revoked."""
    for number in range(KEYS):
        prefix = hashlib.sha256(_derived(f"prefix {number}").encode()).hexdigest()[: 2 * keys.PREFIX_BYTES]
        new = keys.compose(prefix, _derived(f"secret {number}"))
        key, _ = ApiKey.objects.get_or_create(
            prefix=new.prefix,
            defaults={
                "user": user,
                "digest": new.digest,
                "agent": DEFAULT_AGENT,
                "label": "demo",
                "scopes": scopes.join(scopes.DEFAULT),
            },
        )
        if key.revoked_at is None and key.user_id == user.pk:
            return new.text
    raise LookupError("every demo key was revoked")


def _derived(what: str) -> str:
    """43 URL-safe characters that only this installation can make."""
    mac = hmac.new(settings.SECRET_KEY.encode(), f"demo {what}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")
