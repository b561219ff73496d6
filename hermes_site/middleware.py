"""What stands between the server and every view: proxies' headers, content security, errors as one kind of body."""

import ipaddress
import json
import logging
import math
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.utils.decorators import sync_and_async_middleware

from hermes_site import errors

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
JSON_PATHS = ("/api/", "/media/", "/ws/")
BY_STATUS: dict[int, type[errors.GatewayError]] = {
    400: errors.InvalidRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    409: errors.Conflict,
    410: errors.Gone,
    413: errors.TooLarge,
    415: errors.Unsupported,
    429: errors.RateLimited,
    500: errors.Internal,
    503: errors.Unavailable,
}
TEXTS = {
    400: "this request cannot be read",
    401: "log in first",
    403: "this is not allowed",
    404: "there is nothing here",
    405: "this address does not take that method",
    500: "something went wrong here",
}

View = Callable[[HttpRequest], Any]

logger = logging.getLogger(__name__)


def wants_json(request: HttpRequest) -> bool:
    """Whether errors of this address are JSON."""
    return request.path_info.startswith(JSON_PATHS)


def is_api(request: HttpRequest) -> bool:
    """Whether the codes are those of the ChatKit door."""
    return request.path_info.startswith("/api/hermes/")


def error_headers(error: errors.GatewayError) -> dict[str, str]:
    """The headers that go with an error."""
    headers = {"Cache-Control": "no-store"}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.MethodNotAllowed) and error.allowed:
        headers["Allow"] = error.allowed
    return headers


def error_response(request: HttpRequest, error: errors.GatewayError) -> HttpResponse:
    """The answer for an error: JSON for programs, a short page for people."""
    headers = error_headers(error)
    if wants_json(request):
        return JsonResponse(errors.body(error, is_api(request)), status=error.status, headers=headers)
    page = render(request, "error.html", {"text": error.text, "status": error.status}, status=error.status)
    for name, value in headers.items():
        page[name] = value
    return page


def as_outage(request: Any, problem: Exception) -> errors.GatewayError | None:
    """What a view's exception means to the caller when it is the database that is away; None: it is not."""
    if not isinstance(problem, OperationalError | InterfaceError):
        return None
    logger.warning("the database did not answer under %s: %s", request.path, type(problem).__name__)
    return errors.Unavailable("the database does not answer; try again in a moment", retry_after=1)


def _as_json(request: HttpRequest, response: Any) -> HttpResponseBase:
    """An error page of Django's, where programs ask, becomes the JSON body."""
    status = response.status_code
    is_json = response.get("Content-Type", "").startswith("application/json")
    if status < 400 or not wants_json(request) or is_json or response.streaming:
        return response
    kind = BY_STATUS.get(status, errors.Internal if status >= 500 else errors.InvalidRequest)
    error = kind(TEXTS.get(status, getattr(response, "reason_phrase", "") or kind.__name__))
    response.content = json.dumps(errors.body(error, is_api(request)))
    response["Content-Type"] = "application/json"
    if "Content-Length" in response:
        response["Content-Length"] = str(len(response.content))
    for name, value in error_headers(error).items():
        response.setdefault(name, value)
    return response


def _around(get_response: View, after: Callable[[HttpRequest, Any], Any]) -> Any:
    """A middleware that only looks at the answer, sync or async as the rest of the chain."""
    if iscoroutinefunction(get_response):

        async def answered_async(request: HttpRequest) -> Any:
            return after(request, await get_response(request))

        return answered_async

    def answered(request: HttpRequest) -> Any:
        return after(request, get_response(request))

    return answered


@sync_and_async_middleware
def gateway_errors(get_response: View) -> Any:
    """Every error under /api and /media has one kind of body, whoever made it."""
    middleware = _around(get_response, _as_json)

    def process_exception(request: HttpRequest, exception: Exception) -> HttpResponse | None:
        error = exception if isinstance(exception, errors.GatewayError) else as_outage(request, exception)
        return error_response(request, error) if error is not None else None

    middleware.process_exception = process_exception
    return middleware


@sync_and_async_middleware
def content_security_policy(get_response: View) -> Any:
    """Pages run our own scripts only; a view that sets a policy of its own keeps it."""

    def after(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.setdefault("Content-Security-Policy", POLICY)
        return response

    return _around(get_response, after)


@sync_and_async_middleware
def proxy_headers(get_response: View) -> Any:
    """Forwarded headers are believed from HERMES_TRUSTED_PROXIES alone; from anybody else they are removed."""
    if iscoroutinefunction(get_response):

        async def answered_async(request: HttpRequest) -> Any:
            _settle_address(request.META)
            return await get_response(request)

        return answered_async

    def answered(request: HttpRequest) -> Any:
        _settle_address(request.META)
        return get_response(request)

    return answered


def _settle_address(meta: dict[str, Any]) -> None:
    """Make REMOTE_ADDR the client's, and drop what a client may have made up."""
    trusted = _networks(tuple(settings.HERMES_TRUSTED_PROXIES))
    if not _is_in(meta.get("REMOTE_ADDR", ""), trusted):
        for name in [
            name for name in meta if name.startswith("HTTP_X_FORWARDED_") or name == "HTTP_FORWARDED"
        ]:
            del meta[name]
        return
    for hop in reversed(meta.get("HTTP_X_FORWARDED_FOR", "").split(",")):
        address = hop.strip()
        if not _is_address(address):
            return
        meta["REMOTE_ADDR"] = address
        if not _is_in(address, trusted):
            return


def _networks(names: tuple[str, ...]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(name, strict=False) for name in names]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_in(address: str, networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    return _is_address(address) and any(ipaddress.ip_address(address) in network for network in networks)
