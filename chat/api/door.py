"""What every view of the second door does first: method, caller, scope, ids, body."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any
from urllib.parse import unquote_to_bytes

from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from accounts import scopes
from accounts.auth import require
from accounts.authentication import principal_of
from chat import frames
from hermes_site.errors import InvalidRequest, MethodNotAllowed, NotFound, Unsupported

View = Callable[..., Awaitable[HttpResponseBase]]


def door(*methods: str) -> Callable[[View], Callable[..., Awaitable[HttpResponseBase]]]:
    """
    A view for callers with the scope `chat`; it gets the request, the principal and the ids of the path.

    CSRF: a cookie is judged by `principal_of`, by origin.
    """

    def decorate(view: View) -> Callable[..., Awaitable[HttpResponseBase]]:
        @wraps(view)
        async def checked(request: HttpRequest, **ids: str) -> HttpResponseBase:
            if request.method not in methods:
                raise MethodNotAllowed("this address does not take that method")
            principal = await principal_of(request)
            require(principal, scopes.CHAT)
            return await view(request, principal, **ids)

        return csrf_exempt(checked)

    return decorate


def by_method(
    **views: Callable[..., Awaitable[HttpResponseBase]],
) -> Callable[..., Awaitable[HttpResponseBase]]:
    """One address, a view for each method."""

    async def chosen(request: HttpRequest, **ids: str) -> HttpResponseBase:
        view = views.get(str(request.method))
        if view is None:
            raise MethodNotAllowed("this address does not take that method")
        return await view(request, **ids)

    return csrf_exempt(chosen)


def path_id(text: str, api_code: str) -> str:
    """
    An id of the path as the client meant it; the path comes still encoded.

    Raises:
        NotFound: If it can be no id of ours: it is answered like an unknown one.
    """
    try:
        name = unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        name = ""
    if not frames.valid_session(name):
        raise NotFound("there is nothing by this id", api_code=api_code)
    return name


async def body_of(request: HttpRequest) -> dict[str, Any]:
    """
    The object in a request's body; {} for an empty one. Unknown keys are ignored by whoever reads it.

    Raises:
        Unsupported: If it is not declared as JSON (415).
        InvalidRequest: `invalid_json`.
    """
    raw = request.body
    if raw and request.content_type != "application/json":
        raise Unsupported("the body must be application/json")
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is not JSON", api_code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body is not an object", api_code="invalid_json")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(name)
