"""What every view of the second door does first: method, caller, scope, ids, body."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any
from urllib.parse import unquote_to_bytes

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from accounts import scopes
from accounts.auth import require
from accounts.authentication import principal_of
from chat import frames
from hermes_site.errors import InvalidRequest, MethodNotAllowed, NotFound, Unsupported

View = Callable[..., Awaitable[HttpResponseBase]]
Door = Callable[..., Coroutine[Any, Any, HttpResponseBase]]


def door(view: View) -> View:
    """
    A view for callers with the scope `chat`; it gets the request, the principal and the ids of the path.

    A cookie is judged by `principal_of`, by origin.
    """

    @wraps(view)
    async def checked(request: HttpRequest, **ids: str) -> HttpResponseBase:
        principal = await principal_of(request)
        require(principal, scopes.CHAT)
        return await view(request, principal, **ids)

    return checked


def by_method(**views: View) -> Door:
    """One address, a view for each method; HEAD is answered as GET, OPTIONS by what there is."""
    if "GET" in views:
        views["HEAD"] = views["GET"]
    allowed = ", ".join([*views, "OPTIONS"])

    async def chosen(request: HttpRequest, **ids: str) -> HttpResponseBase:
        if request.method == "OPTIONS":
            return HttpResponse(status=204, headers={"Allow": allowed})
        view = views.get(str(request.method))
        if view is None:
            raise MethodNotAllowed("this address does not take that method", allowed=allowed)
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
    if request.content_type != "application/json" and (raw or request.content_type):
        raise Unsupported("the body must be application/json")
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is not JSON", api_code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body is not an object", api_code="invalid_json")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(name)
