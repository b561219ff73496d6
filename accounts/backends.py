"""Passwords: Django's backend behind the throttle, for the API and the admin alike."""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest

from accounts import throttle
from accounts.models import User


class ThrottledBackend(ModelBackend):
    """A password login; a disabled user is answered like a wrong password."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        """
        The user whose password this is, else None.

        Raises:
            RateLimited: If there were too many wrong ones.
        """
        if username is None or password is None:
            return None
        address = request.META.get("REMOTE_ADDR", "") if request is not None else ""
        if request is not None:
            throttle.take(username, address)
        user = (
            super().authenticate(request, username=username, password=password)
            if _storable(username)
            else None
        )
        if user is not None and request is not None:
            throttle.give_back(username, address)
        return user


def _storable(username: str) -> bool:
    """Whether a database can hold it: no NUL, no half of a surrogate pair."""
    try:
        username.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in username
