"""Between the server and the views: whose headers count, one kind of error body, and pages without foreign scripts."""

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from rest_framework import exceptions
from rest_framework.views import APIView

from hermes_site import errors
from hermes_site import urls as site_urls


def address(request: HttpRequest) -> JsonResponse:
    """What the view believes of its caller."""
    return JsonResponse({"address": request.META["REMOTE_ADDR"], "secure": request.is_secure()})


RAISED: dict[str, Any] = {
    "gone": lambda: errors.Gone("it was here", field="id"),
    "limited": lambda: errors.RateLimited("slow down", retry_after=1.2),
    "conflict": lambda: errors.Conflict("busy", api_code="run_already_active"),
    "http404": lambda: Http404("secret reason"),
    "denied": lambda: PermissionDenied("secret reason"),
    "bug": lambda: ZeroDivisionError("secret reason"),
    "throttled": lambda: exceptions.Throttled(wait=3),
    "parse": lambda: exceptions.ParseError("secret reason"),
    "invalid": lambda: exceptions.ValidationError({"title": ["too long"]}),
    "media": lambda: exceptions.UnsupportedMediaType("text/plain"),
}


def fail(request: HttpRequest, what: str) -> HttpResponse:
    """A plain view that goes wrong."""
    raise RAISED[what]()


async def fail_async(request: HttpRequest, what: str) -> HttpResponse:
    """An asynchronous one."""
    raise RAISED[what]()


class Fail(APIView):
    """One of REST framework."""

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    def get(self, request: Any, what: str) -> HttpResponse:
        """Go wrong."""
        raise RAISED[what]()


def own_policy(request: HttpRequest) -> HttpResponse:
    """A view that knows better."""
    return HttpResponse("x", headers={"Content-Security-Policy": "sandbox"})


def broken_stream(request: HttpRequest) -> StreamingHttpResponse:
    """An error that is a stream is left alone."""
    return StreamingHttpResponse(iter([b"x"]), status=502)


urlpatterns = [
    path("address", address),
    path("own", own_policy),
    path("api/stream", broken_stream),
    *(path(f"{prefix}fail/<what>", fail) for prefix in ("", "api/", "media/", "api/hermes/")),
    *(path(f"{prefix}async/<what>", fail_async) for prefix in ("", "api/", "api/hermes/")),
    *(path(f"{prefix}drf/<what>", Fail.as_view()) for prefix in ("api/", "api/hermes/")),
    *site_urls.urlpatterns,
]
handler400, handler403 = site_urls.handler400, site_urls.handler403
handler404, handler500 = site_urls.handler404, site_urls.handler500
pytestmark = pytest.mark.urls(__name__)


@pytest.fixture
def client() -> Client:
    """A client that sees a 500 instead of the exception."""
    return Client(raise_request_exception=False)


@pytest.mark.parametrize("door", ["/api/fail", "/api/async", "/media/fail"])
@pytest.mark.parametrize(
    ("what", "status", "code", "kind"),
    [
        ("gone", 410, "not_found", "invalid_request_error"),
        ("limited", 429, "rate_limited", "rate_limit_error"),
        ("conflict", 409, "invalid_request", "conflict_error"),
        ("http404", 404, "not_found", "invalid_request_error"),
        ("denied", 403, "forbidden", "permission_error"),
        ("bug", 500, "internal", "server_error"),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_every_error_has_one_kind_of_body(
    client: Client, settings: Any, door: str, what: str, status: int, code: str, kind: str, debug: bool
) -> None:
    """Whoever made it, with DEBUG or without; reasons that are not meant for people stay inside."""
    settings.DEBUG = debug
    answer = client.get(f"{door}/{what}")
    assert answer.status_code == status
    assert answer["Content-Type"] == "application/json"
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (code, kind)
    assert b"secret" not in answer.content
    assert answer["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("what", "status", "code"),
    [
        ("gone", 410, "not_found"),
        ("limited", 429, "rate_limited"),
        ("http404", 404, "not_found"),
        ("denied", 403, "forbidden"),
        ("bug", 500, "internal"),
        ("throttled", 429, "rate_limited"),
        ("parse", 400, "invalid_request"),
        ("invalid", 400, "invalid_request"),
        ("media", 415, "unsupported"),
    ],
)
def test_views_of_rest_framework_have_the_same(client: Client, what: str, status: int, code: str) -> None:
    """Its own exceptions included."""
    answer = client.get(f"/api/drf/{what}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert b"secret" not in answer.content
    if status == 429:
        assert int(answer["Retry-After"]) >= 1


def test_the_second_door_has_its_own_codes(client: Client) -> None:
    """Under /api/hermes, from every kind of view."""
    for door in ("fail", "async", "drf"):
        assert client.get(f"/api/hermes/{door}/conflict").json()["error"]["code"] == "run_already_active"
        assert client.get(f"/api/hermes/{door}/limited").json()["error"]["code"] == "rate_limit_exceeded"
    assert client.get("/api/hermes/drf/parse").json()["error"]["code"] == "invalid_json"
    assert client.get("/api/hermes/none").json()["error"]["code"] == "not_found"


def test_the_wrong_method_is_json_too(client: Client) -> None:
    """With the methods that are right."""
    answer = client.post("/api/drf/gone")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert "GET" in answer["Allow"]


def test_people_get_a_page(client: Client) -> None:
    """Outside the doors of programs."""
    for address, status in (
        ("/fail/gone", 410),
        ("/fail/bug", 500),
        ("/fail/http404", 404),
        ("/none", 404),
        ("/fail/denied", 403),
    ):
        answer = client.get(address)
        assert answer.status_code == status
        assert answer["Content-Type"].startswith("text/html")
        assert b"secret" not in answer.content


def test_an_unknown_host_is_400(client: Client) -> None:
    """As JSON for programs, and without a traceback."""
    answer = client.get("/api/none", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400


def test_a_stream_is_left_as_it_is(client: Client) -> None:
    """Its head is sent already."""
    assert client.get("/api/stream").getvalue() == b"x"


def test_no_post_is_redirected(client: Client) -> None:
    """Neither with a slash too many nor with one too few."""
    for address in ("/api/auth/token/", "/api/none", "/admin"):
        assert client.post(address).status_code in (403, 404)


def test_forwarded_headers_of_strangers_are_removed(client: Client) -> None:
    """Neither address nor protocol is believed."""
    answer = client.get("/address", headers={"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "https"})
    assert answer.json() == {"address": "127.0.0.1", "secure": False}


@pytest.mark.parametrize(
    ("forwarded", "believed"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("6.6.6.6, 203.0.113.7", "203.0.113.7"),
        ("6.6.6.6, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("nonsense", "127.0.0.1"),
        ("203.0.113.7, nonsense", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
    ],
)
def test_a_trusted_proxy_is_believed(client: Client, settings: Any, forwarded: str, believed: str) -> None:
    """From the right, up to the first that is not a proxy of ours."""
    settings.HERMES_TRUSTED_PROXIES = ["127.0.0.1", "10.0.0.0/8"]
    answer = client.get("/address", headers={"X-Forwarded-For": forwarded, "X-Forwarded-Proto": "https"})
    assert answer.json() == {"address": believed, "secure": True}


async def test_the_same_holds_asynchronously(async_client: AsyncClient, settings: Any) -> None:
    """The chain has two forms."""
    settings.HERMES_TRUSTED_PROXIES = ["127.0.0.1"]
    answer = await async_client.get("/api/async/gone", headers={"X-Forwarded-For": "203.0.113.7"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "not_found")
    assert "Content-Security-Policy" in answer


def test_a_view_may_have_its_own_policy(client: Client) -> None:
    """Stricter than the site's."""
    assert client.get("/own")["Content-Security-Policy"] == "sandbox"
    assert "script-src 'self'" in client.get("/address")["Content-Security-Policy"]
