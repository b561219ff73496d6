"""HTTP: tokens for a password, new tokens for old, the login cookie, and the end of both."""

from typing import Any

from django.contrib import auth as django_auth
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import services
from accounts.authentication import GatewayAuthentication, check_origin, is_foreign
from hermes_site.errors import Forbidden, InvalidRequest

__all__ = ["GatewayAuthentication", "LoginView", "LogoutView", "RefreshView", "TokenView"]

NO_STORE = {"Cache-Control": "no-store"}


class PublicView(APIView):
    """Asked by people who are not logged in yet, so no credential is looked at."""

    authentication_classes: list[Any] = []
    permission_classes = [AllowAny]


class TokenView(PublicView):
    """POST {username, password} → {access, refresh}."""

    def post(self, request: Request) -> Response:
        """Log in for tokens."""
        pair = services.log_in(request._request, text(request, "username"), text(request, "password"))
        return Response({"access": pair.access, "refresh": pair.refresh}, headers=NO_STORE)


class RefreshView(PublicView):
    """POST {refresh} → {access, refresh}; the one sent is used up."""

    def post(self, request: Request) -> Response:
        """Renew tokens."""
        pair = services.refresh(text(request, "refresh"))
        return Response({"access": pair.access, "refresh": pair.refresh}, headers=NO_STORE)


class LoginView(PublicView):
    """POST {username, password} opens a cookie session."""

    def post(self, request: Request) -> Response:
        """Log in for a cookie; a foreign page may not log anybody in."""
        if is_foreign(request._request):
            raise Forbidden("this page may not log in", api_code="origin_not_allowed")
        user = services.check_password(request._request, text(request, "username"), text(request, "password"))
        django_auth.login(request._request, user)
        return Response({"username": user.username}, headers=NO_STORE)


class LogoutView(PublicView):
    """POST {refresh?} ends that refresh token, and the cookie session if there is one."""

    def post(self, request: Request) -> Response:
        """Log out."""
        by_token = isinstance(request.data, dict) and request.data.get("refresh") is not None
        by_cookie = (
            "HTTP_AUTHORIZATION" not in request.META
            and django_auth.get_user(request._request).is_authenticated
        )
        if by_cookie and not (by_token and is_foreign(request._request)):
            check_origin(request._request)
            django_auth.logout(request._request)
        if by_token:
            services.log_out(text(request, "refresh"))
        return Response(status=204, headers=NO_STORE)


def text(request: Request, field: str) -> str:
    """
    A non-empty string of the request's body.

    Raises:
        InvalidRequest: If it is missing or something else.
    """
    given = request.data
    value = given.get(field) if isinstance(given, dict) else None
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{field} is missing", field=field)
    return value
