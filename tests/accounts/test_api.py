"""Logging in and out over HTTP, and whose cookie counts."""

from typing import Any

import pytest
from django.http import HttpRequest, JsonResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import services, tokens
from accounts.authentication import principal_of
from accounts.models import User
from hermes_site import urls as site_urls
from tests.accounts.conftest import PASSWORD


class Whoami(APIView):
    """A view of the kind that the apps have."""

    def get(self, request: Any) -> Response:
        """Who calls."""
        return Response({"username": request.principal.username, "kind": request.principal.kind})

    post = get


@csrf_exempt
async def whoami_async(request: HttpRequest) -> JsonResponse:
    """The same, asynchronous."""
    principal = await principal_of(request)
    return JsonResponse({"username": principal.username, "kind": principal.kind})


urlpatterns = [
    path("api/test/whoami", Whoami.as_view()),
    path("api/test/async", whoami_async),
    *site_urls.urlpatterns,
]
handler404 = site_urls.handler404
DOORS = ["/api/test/whoami", "/api/test/async"]
pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True)]


def post(client: Client, address: str, body: Any = None, **headers: str) -> Any:
    """A JSON request."""
    return client.post(address, body or {}, "application/json", headers=headers)


def bearer(user: User) -> str:
    """The header's value."""
    return f"Bearer {tokens.access(user)}"


@pytest.fixture
def browser(alice: User) -> Client:
    """A browser that holds alice's login cookie and checks CSRF as browsers meet it."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    return client


def test_a_password_gives_tokens(client: Client, alice: User) -> None:
    """Which open the doors and renew themselves."""
    pair = post(client, "/api/auth/token", {"username": "alice", "password": PASSWORD}).json()
    assert set(pair) == {"access", "refresh"}
    for door in DOORS:
        answer = client.get(door, headers={"Authorization": f"Bearer {pair['access']}"})
        assert answer.json() == {"username": "alice", "kind": "token"}
    renewed = post(client, "/api/auth/refresh", {"refresh": pair["refresh"]})
    assert renewed.status_code == 200
    assert renewed["Cache-Control"] == "no-store"
    assert renewed.json() == post(client, "/api/auth/refresh", {"refresh": pair["refresh"]}).json()


def test_a_logout_ends_the_refresh_token(client: Client, alice: User) -> None:
    """204, and no more tokens."""
    pair = tokens.pair(alice)
    assert post(client, "/api/auth/logout", {"refresh": pair.refresh}).status_code == 204
    assert post(client, "/api/auth/refresh", {"refresh": pair.refresh}).status_code == 401


@pytest.mark.parametrize("name", ["alice", "nobody", "disabled", "x\x00y", "n" * 5000, "\ud800"])
def test_every_wrong_login_is_answered_alike(client: Client, alice: User, name: str) -> None:
    """Wrong password, unknown, disabled, impossible: the same 401."""
    services.create_user("disabled", PASSWORD)
    User.objects.filter(username="disabled").update(is_active=False)
    password = PASSWORD if name != "alice" else "wrong"
    answer = post(client, "/api/auth/token", {"username": name, "password": password})
    assert answer.status_code == 401
    assert answer.json() == {
        "error": {
            "code": "unauthorized",
            "type": "authentication_error",
            "message": "wrong user name or password",
        }
    }


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "null",
        "42",
        '"x"',
        "{}",
        '{"username": 1, "password": "x"}',
        '{"username": "alice"}',
        '{"username": "", "password": ""}',
    ],
)
@pytest.mark.parametrize("address", ["/api/auth/token", "/api/auth/login"])
def test_bodies_that_say_nothing_are_400(client: Client, alice: User, address: str, body: str) -> None:
    """One kind of error body, never a 500."""
    answer = client.post(address, body, "application/json")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("refresh", [None, 1, "x", "\ud800", ["x"]])
def test_bad_refresh_tokens_are_refused(client: Client, alice: User, refresh: Any) -> None:
    """400 for what is none, 401 for a bad one."""
    assert post(client, "/api/auth/refresh", {"refresh": refresh}).status_code in (400, 401)


def test_forms_are_415_and_other_methods_405(client: Client, alice: User) -> None:
    """So no foreign form logs anybody in; `Accept` is never a reason to refuse."""
    form = client.post("/api/auth/login", {"username": "alice", "password": PASSWORD})
    assert (form.status_code, form.json()["error"]["code"]) == (415, "unsupported")
    method = client.get("/api/auth/token")
    assert (method.status_code, method.json()["error"]["code"]) == (405, "method_not_allowed")
    assert "POST" in method["Allow"]
    body = {"username": "alice", "password": PASSWORD}
    assert post(client, "/api/auth/token", body, Accept="text/html").status_code == 200


def test_a_login_opens_a_cookie_session_and_a_logout_ends_it(alice: User) -> None:
    """For front ends that send cookies."""
    client = Client(enforce_csrf_checks=True)
    own = {"Origin": "http://testserver"}
    answer = post(client, "/api/auth/login", {"username": "alice", "password": PASSWORD}, **own)
    assert answer.json() == {"username": "alice"}
    cookie = answer.cookies["sessionid"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    for door in DOORS:
        assert client.get(door).json() == {"username": "alice", "kind": "cookie"}
    assert post(client, "/api/auth/logout", **own).status_code == 204
    assert client.get(DOORS[0]).status_code == 401


def test_a_foreign_page_can_neither_log_in_nor_out(browser: Client) -> None:
    """It would be logged in as somebody of its choice."""
    body = {"username": "alice", "password": PASSWORD}
    foreign = {"Origin": "https://evil.example"}
    assert post(browser, "/api/auth/login", body, **foreign).status_code == 403
    assert post(browser, "/api/auth/logout", **foreign).status_code == 403
    assert browser.get(DOORS[0]).status_code == 200


@pytest.mark.parametrize("door", DOORS)
def test_nobody_is_401(client: Client, alice: User, door: str) -> None:
    """With the header that says how to come in."""
    answer = client.get(door)
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == "Bearer"
    assert answer.json()["error"]["code"] == "unauthorized"


@pytest.mark.parametrize("door", DOORS)
def test_c41_a_bearer_call_works_beside_an_admin_cookie(
    browser: Client, alice: User, bob: User, door: str
) -> None:
    """C41: signed in to the admin in the same browser, no CSRF token, any origin: the bearer decides alone."""
    assert post(browser, door, Authorization=bearer(bob)).json() == {"username": "bob", "kind": "token"}
    assert post(browser, door, Authorization=bearer(bob), Origin="https://evil.example").status_code == 200
    assert post(browser, door, Authorization="Bearer nonsense", Origin="http://testserver").status_code == 401
    body = {"username": "bob", "password": PASSWORD}
    assert post(browser, "/api/auth/token", body).status_code == 200
    assert post(browser, "/api/auth/login", body).json() == {"username": "bob"}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://testserver"}, 403),
        ({"Origin": "http://testserver:81"}, 403),
        ({"Origin": "http://testserver.evil.example"}, 403),
        ({"Origin": "http://[bad"}, 403),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"X-CSRFToken": "a" * 32}, 403),
        ({"Origin": "http://testserver"}, 200),
        ({"Origin": "http://trusted.example"}, 200),
        ({"Origin": "http://cors.example"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_c41_a_cookie_counts_only_from_our_own_pages(
    browser: Client, settings: Any, door: str, headers: dict[str, str], status: int
) -> None:
    """C41: a foreign origin never, an own or trusted one, or the browser's word that it is the same origin."""
    settings.CSRF_TRUSTED_ORIGINS = ["http://trusted.example"]
    settings.HERMES_CORS_ORIGINS = ["http://cors.example"]
    answer = post(browser, door, **headers)
    assert answer.status_code == status, answer.content
    if status == 403:
        assert answer.json()["error"]["code"] == "forbidden"


@pytest.mark.parametrize("door", DOORS)
def test_c41_a_csrf_token_counts_too(browser: Client, door: str) -> None:
    """C41: the double submit of Django, but never with a foreign origin."""
    browser.get("/admin/login/")
    browser.get("/admin/password_change/")
    token = browser.cookies["csrftoken"].value
    assert post(browser, door, **{"X-CSRFToken": token}).status_code == 200
    assert post(browser, door, **{"X-CSRFToken": token, "Origin": "https://evil.example"}).status_code == 403


def test_c41_a_cross_site_form_is_refused(browser: Client) -> None:
    """C41: cookie only, as a form sends it."""
    answer = browser.post(DOORS[0], {"a": "b"}, headers={"Origin": "https://evil.example"})
    assert answer.status_code in (401, 403)


def test_safe_methods_need_no_origin(browser: Client) -> None:
    """Reading by cookie is as anywhere; the answer cannot be read by a foreign page."""
    for door in DOORS:
        assert browser.get(door, headers={"Origin": "https://evil.example"}).status_code == 200


def test_a_disabled_user_is_403_by_bearer(client: Client, alice: User) -> None:
    """A page asks for a login then."""
    header = bearer(alice)
    User.objects.filter(pk=alice.pk).update(is_active=False)
    for door in DOORS:
        assert client.get(door, headers={"Authorization": header}).status_code == 403


async def test_the_whole_chain_is_asynchronous(async_client: AsyncClient, alice: User) -> None:
    """An asynchronous view is reached without a middleware that Django had to adapt, and errors are the same there."""
    answer = await async_client.get(DOORS[1], headers={"Authorization": bearer(alice)})
    assert answer.status_code == 200
    answer = await async_client.get("/api/none")
    assert answer.json()["error"]["code"] == "not_found"
