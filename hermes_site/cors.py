"""Which pages of other origins may call: those of HERMES_CORS_ORIGINS, with the login cookie."""

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.decorators import sync_and_async_middleware

PATHS = ("/api/", "/media/")
METHODS = "GET, HEAD, POST, PATCH, DELETE, OPTIONS"
HEADERS = "Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-CSRFToken"
EXPOSED = "Idempotency-Replayed, Retry-After, X-Hermes-Run-Id, X-Hermes-Session-Id"
KEPT_SECONDS = 600


@sync_and_async_middleware
def cors(get_response: Callable[[HttpRequest], Any]) -> Any:
    """Answer preflights of known origins, and let their pages read what is answered."""
    if iscoroutinefunction(get_response):

        async def answered_async(request: HttpRequest) -> HttpResponseBase:
            preflight = _preflight(request)
            return _marked(request, await get_response(request) if preflight is None else preflight)

        return answered_async

    def answered(request: HttpRequest) -> HttpResponseBase:
        preflight = _preflight(request)
        return _marked(request, get_response(request) if preflight is None else preflight)

    return answered


def _is_known(request: HttpRequest) -> bool:
    return request.META.get("HTTP_ORIGIN") in settings.HERMES_CORS_ORIGINS


def _preflight(request: HttpRequest) -> HttpResponse | None:
    asked = request.method == "OPTIONS" and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in request.META
    if not asked or not request.path_info.startswith(PATHS) or not _is_known(request):
        return None
    return HttpResponse(
        status=204,
        headers={
            "Access-Control-Allow-Methods": METHODS,
            "Access-Control-Allow-Headers": HEADERS,
            "Access-Control-Max-Age": str(KEPT_SECONDS),
        },
    )


def _marked(request: HttpRequest, response: Any) -> HttpResponseBase:
    if not settings.HERMES_CORS_ORIGINS or not request.path_info.startswith(PATHS):
        return response
    patch_vary_headers(response, ("Origin",))
    if _is_known(request):
        response["Access-Control-Allow-Origin"] = request.META["HTTP_ORIGIN"]
        response["Access-Control-Allow-Credentials"] = "true"
        response["Access-Control-Expose-Headers"] = EXPOSED
    return response
