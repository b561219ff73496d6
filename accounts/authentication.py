"""
How an HTTP request says who is calling: the Authorization header alone if there is one, else the login cookie.

With a cookie and an unsafe method the request must come from our own pages: no foreign `Origin`, and an own one, or
`Sec-Fetch-Site: same-origin`, or a CSRF token. A bearer credential is not sent by a browser on its own, so no such rule.
"""

from typing import Any
from urllib.parse import urlsplit

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from django.middleware.csrf import CsrfViewMiddleware
from rest_framework.authentication import BaseAuthentication

from accounts import auth
from accounts.models import User
from hermes_site.errors import Forbidden, Unauthorized

SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")


class GatewayAuthentication(BaseAuthentication):
    """For views of REST framework: `request.user`, `request.auth` and `request.principal`."""

    def authenticate(self, request: Any) -> tuple[User, auth.Principal] | None:
        """The caller, or None for nobody."""
        found = find_caller(request._request)
        if found is None:
            return None
        request._request.principal = found[1]
        return found

    def authenticate_header(self, request: Any) -> str:
        """What a 401 asks for."""
        return "Bearer"


def find_caller(request: HttpRequest) -> tuple[User, auth.Principal] | None:
    """
    The caller of a request; None if it carries no credential.

    Raises:
        Unauthorized: If the credential is no good.
        Forbidden: If the user is disabled, or the cookie may have been sent by a foreign page.
    """
    header = request.META.get("HTTP_AUTHORIZATION")
    if header is not None:
        return auth.find(bearer(header))
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    check_origin(request)
    return user, auth.by_cookie(user)


async def principal_of(request: HttpRequest) -> auth.Principal:
    """
    The caller of an asynchronous view.

    Raises:
        Unauthorized: If there is none, or the credential is no good.
        Forbidden: If the user is disabled, or the cookie may have been sent by a foreign page.
    """
    header = request.META.get("HTTP_AUTHORIZATION")
    if header is not None:
        return await auth.authenticate(bearer(header))
    if settings.SESSION_COOKIE_NAME not in request.COOKIES:
        raise Unauthorized("log in first")
    found = await sync_to_async(find_caller)(request)
    if found is None:
        raise Unauthorized("log in first")
    return found[1]


def bearer(header: str) -> str:
    """
    The credential of an Authorization header.

    Raises:
        Unauthorized: If the header is of another kind.
    """
    scheme, _, credential = header.strip().partition(" ")
    credential = credential.strip()
    if scheme.lower() != "bearer" or not credential or len(credential) > settings.HERMES_CREDENTIAL_BYTES:
        raise Unauthorized("the Authorization header holds no bearer credential")
    return credential


def is_foreign(request: HttpRequest) -> bool:
    """Whether the request names an `Origin` that is not ours."""
    origin = request.META.get("HTTP_ORIGIN")
    return origin is not None and not is_own(request, origin)


def is_own(request: HttpRequest, origin: str) -> bool:
    """Whether pages of this origin may use the login cookie."""
    if origin in settings.CSRF_TRUSTED_ORIGINS or origin in settings.HERMES_CORS_ORIGINS:
        return True
    try:
        parts = urlsplit(origin)
        own = f"{request.scheme}://{request.get_host()}"
    except (ValueError, DisallowedHost):
        return False
    return f"{parts.scheme}://{parts.netloc}".lower() == own.lower()


def check_origin(request: HttpRequest) -> None:
    """
    Let a request with a cookie pass only if one of our own pages sent it.

    Raises:
        Forbidden: `origin_not_allowed`.
    """
    if request.method in SAFE_METHODS:
        return
    allowed = not is_foreign(request) and (
        request.META.get("HTTP_ORIGIN") is not None
        or request.META.get("HTTP_SEC_FETCH_SITE") == "same-origin"
        or _has_csrf_token(request)
    )
    if not allowed:
        raise Forbidden("this page may not use the login cookie", api_code="origin_not_allowed")


class _Reason(CsrfViewMiddleware):
    """Django's check, asked for its opinion."""

    def _reject(self, request: HttpRequest, reason: str) -> Any:
        return reason


def _has_csrf_token(request: HttpRequest) -> bool:
    check = _Reason(lambda request: None)
    check.process_request(request)
    request.csrf_processing_done = False
    return check.process_view(request, _unmarked, (), {}) is None


def _unmarked(request: HttpRequest) -> None:
    """A view without csrf_exempt, for the check to judge."""
