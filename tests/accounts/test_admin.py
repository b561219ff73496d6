"""Users and keys in the admin: what can be done there, and what can never be read there."""

import logging
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.contrib.sessions.models import Session
from django.core import serializers
from django.test import Client

from accounts import auth, services, tokens
from accounts.models import ApiKey, User
from hermes_site.errors import Unauthorized
from media.models import Media
from tests.accounts.conftest import PASSWORD

KEY = re.compile(r"hk_[0-9a-f]{10}_[A-Za-z0-9_-]{43}")
ADD = "/admin/accounts/apikey/add/"
KEYS = "/admin/accounts/apikey/"


def issue(client: Client, user: User, /, **fields: Any) -> Any:
    """Send the form."""
    return client.post(ADD, {"user": user.pk, **fields})


def form_id(client: Client) -> str:
    """The hidden mark of a form that was shown."""
    match = re.search(r'name="form_id" value="([^"]+)"', client.get(ADD).content.decode())
    assert match
    return match.group(1)


def staff(name: str, *codenames: str) -> Client:
    """A member of staff with these permissions, logged in."""
    user = services.create_user(name, PASSWORD, staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def test_a_key_is_issued_for_a_user(admin_client: Client, alice: User, operator: User) -> None:
    """By its field `user` alone; the rest has defaults. It works."""
    answer = issue(admin_client, alice)
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    (text,) = set(KEY.findall(answer.content.decode()))
    principal = auth.find(text)[1]
    assert (principal.username, principal.agent, principal.scopes) == ("alice", "hermes", {"agent", "media"})
    assert ApiKey.objects.get().created_by == operator


def test_a_key_can_be_issued_with_everything(admin_client: Client, alice: User) -> None:
    """Agent, scopes, label and end."""
    fields = {
        "agent": "work",
        "scopes": ["chat"],
        "label": "cron",
        "expires_at_0": "2999-01-01",
        "expires_at_1": "00:00",
    }
    (text,) = set(KEY.findall(issue(admin_client, alice, **fields).content.decode()))
    principal = auth.find(text)[1]
    assert (principal.agent, principal.scopes) == ("work", {"chat"})
    assert principal.expires_at is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"agent": "No Way"},
        {"scopes": ["root"]},
        {"expires_at_0": "2001-01-01", "expires_at_1": "00:00"},
        {"user": 999999},
    ],
)
def test_a_wrong_form_issues_nothing(admin_client: Client, alice: User, fields: dict[str, Any]) -> None:
    """And shows no key."""
    answer = issue(admin_client, alice, **fields)
    assert answer.status_code == 200
    assert not KEY.findall(answer.content.decode())
    assert not ApiKey.objects.exists()


def test_c62_a_key_is_read_in_one_answer_only(
    admin_client: Client, alice: User, caplog: pytest.LogCaptureFixture
) -> None:
    """C62: not after a reload or the back button, not in cookie, session, log, admin log, dump or any page."""
    caplog.set_level(logging.DEBUG)
    mark = form_id(admin_client)
    first = issue(admin_client, alice, form_id=mark)
    (text,) = set(KEY.findall(first.content.decode()))
    secret = text.split("_", 2)[2]
    again = issue(admin_client, alice, form_id=mark)
    assert not KEY.findall(again.content.decode())
    assert "shown once" in again.content.decode()
    key = ApiKey.objects.get()
    for page in (
        ADD,
        KEYS,
        f"{KEYS}?q={key.prefix}",
        *(f"{KEYS}{key.pk}/{page}/" for page in ("change", "history", "delete")),
    ):
        answer = admin_client.get(page)
        assert answer.status_code == 200
        assert secret not in answer.content.decode()
    assert secret not in repr([morsel.value for morsel in first.cookies.values()])
    assert secret not in repr([session.get_decoded() for session in Session.objects.all()])
    assert secret not in serializers.serialize("json", LogEntry.objects.all())
    assert secret not in serializers.serialize("json", ApiKey.objects.all())
    with pytest.raises(Unauthorized) as refusal:
        auth.find(text[:-1] + ("a" if text[-1] != "a" else "b"))
    assert secret[:-1] not in str(refusal.value)
    assert secret[:-1] not in caplog.text


def test_c62_two_operators_get_a_key_each(admin_client: Client, alice: User) -> None:
    """C62: at once, each from a form of its own."""
    other = staff("second", "add_apikey", "view_apikey", "view_user")
    marks = form_id(admin_client), form_id(other)
    shown = [
        KEY.findall(issue(client, alice, form_id=mark).content.decode())[0]
        for client, mark in zip((admin_client, other), marks, strict=True)
    ]
    assert len(set(shown)) == 2
    assert all(auth.find(text)[1].username == "alice" for text in shown)


def test_c62_staff_who_may_only_look_cannot_issue(alice: User) -> None:
    """C62: neither by the form nor by its address; and cannot revoke."""
    client = staff("viewer", "view_apikey", "view_user")
    key, text = services.create_key(alice)
    assert client.get(KEYS).status_code == 200
    assert client.get(f"{KEYS}{key.pk}/change/").status_code == 200
    assert client.get(ADD).status_code == 403
    assert issue(client, alice).status_code == 403
    client.post(KEYS, {"action": "revoke_keys", "_selected_action": [key.pk]})
    client.post(f"{KEYS}{key.pk}/change/", {"label": "x"})
    assert ApiKey.objects.get().label == ""
    assert auth.find(text)
    assert staff("nobody").get(KEYS).status_code == 403


def test_keys_are_found_by_prefix_and_by_user(admin_client: Client, alice: User, bob: User) -> None:
    """The ways an operator looks for one."""
    key, _ = services.create_key(alice, label="laptop")
    services.create_key(bob)
    for query in (key.prefix, "alice", "laptop"):
        page = admin_client.get(KEYS, {"q": query}).content.decode()
        assert key.prefix in page
        assert "1 API key" in page


def test_revoking_is_an_action(admin_client: Client, alice: User) -> None:
    """Its name holds `revoke`; it is final and noted."""
    key, text = services.create_key(alice)
    answer = admin_client.post(KEYS, {"action": "revoke_keys", "_selected_action": [key.pk]}, follow=True)
    assert "1 revoked" in answer.content.decode()
    with pytest.raises(Unauthorized):
        auth.find(text)
    assert LogEntry.objects.get().change_message == "Revoked."


def test_an_issued_key_keeps_what_it_may_do(admin_client: Client, alice: User, bob: User) -> None:
    """Only the label changes, whatever a form sends."""
    key, text = services.create_key(alice)
    fields = {
        "label": "new",
        "user": bob.pk,
        "agent": "x",
        "scopes": ["chat"],
        "revoked_at_0": "2001-01-01",
        "digest": "0",
    }
    assert admin_client.post(f"{KEYS}{key.pk}/change/", fields).status_code == 302
    principal = auth.find(text)[1]
    assert (principal.username, principal.agent, principal.scopes) == ("alice", "hermes", {"agent", "media"})
    assert ApiKey.objects.get().label == "new"


def test_c23_a_username_is_fixed_in_the_admin(admin_client: Client, alice: User) -> None:
    """C23: the form does not change it."""
    page = f"/admin/accounts/user/{alice.pk}/change/"
    assert 'name="username"' not in admin_client.get(page).content.decode()
    fields = {"username": "mallory", "is_active": "on", "first_name": "A."}
    assert admin_client.post(page, fields).status_code == 302
    alice.refresh_from_db()
    assert (alice.username, alice.first_name) == ("alice", "A.")


@pytest.mark.parametrize(
    "name", ["张三", "a b", "o'neil@example.com", "x/../y", "n" * 150, "Alice", "ﬁne", "<b>x</b>"]
)
def test_c23_any_user_is_made_found_and_let_in(admin_client: Client, alice: User, name: str) -> None:
    """C23: under the very name that was typed, in the admin's own login too."""
    fields = {"username": name, "password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    assert admin_client.post("/admin/accounts/user/add/", fields).status_code == 302
    user = User.objects.get(username=name)
    assert (
        f"/user/{user.pk}/change/" in admin_client.get("/admin/accounts/user/", {"q": name}).content.decode()
    )
    User.objects.filter(pk=user.pk).update(is_staff=True)
    answer = Client().post("/admin/login/", {"username": name, "password": PASSWORD})
    assert answer.status_code == 302


@pytest.mark.parametrize("name", ["hermes", "a\nb", "n" * 151, "alice"])
def test_names_that_are_not_allowed_are_refused(admin_client: Client, alice: User, name: str) -> None:
    """With the form again, not with an error page."""
    fields = {"username": name, "password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    answer = admin_client.post("/admin/accounts/user/add/", fields)
    assert answer.status_code == 200
    assert User.objects.count() == 2


def test_users_are_disabled_and_logged_out_by_actions(admin_client: Client, alice: User) -> None:
    """Their data stay."""
    token = tokens.access(alice)
    admin_client.post(
        "/admin/accounts/user/", {"action": "log_out_everywhere", "_selected_action": [alice.pk]}
    )
    with pytest.raises(Unauthorized):
        auth.find(token)
    admin_client.post("/admin/accounts/user/", {"action": "disable_users", "_selected_action": [alice.pk]})
    assert not User.objects.get(pk=alice.pk).is_active


def test_a_password_changed_in_the_admin_ends_tokens(admin_client: Client, alice: User) -> None:
    """As one changed anywhere."""
    token = tokens.access(alice)
    fields = {"password1": "another battery", "password2": "another battery", "usable_password": "true"}
    assert admin_client.post(f"/admin/accounts/user/{alice.pk}/password/", fields).status_code == 302
    with pytest.raises(Unauthorized):
        auth.find(token)


def test_a_user_with_data_is_disabled_and_not_deleted(admin_client: Client, alice: User, bob: User) -> None:
    """Neither alone nor among others, and nobody looks through all the data to find out; without data it is done."""
    issue(admin_client, bob)
    Media.objects.create(owner=alice, public_id="med_1", name="x", kind="file", type="text/plain", size=1)
    page = admin_client.post(f"/admin/accounts/user/{alice.pk}/delete/", {"post": "yes"})
    assert "disable the user instead" in page.content.decode() and 'value="yes"' not in page.content.decode()
    chosen = {"action": "delete_selected", "_selected_action": [alice.pk, bob.pk], "post": "yes"}
    page = admin_client.post("/admin/accounts/user/", chosen)
    assert "disable the user instead" in page.content.decode()
    assert set(User.objects.filter(username__in=["alice", "bob"])) == {alice, bob}
    assert admin_client.post(f"/admin/accounts/user/{bob.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not User.objects.filter(username="bob").exists()


PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "{{7*7}}",
    "</title><svg onload=alert(1)>",
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_c60_scripts_in_names_and_labels_do_not_run(admin_client: Client, payload: str) -> None:
    """C60: list, detail, deletion, history, search and messages show them as text; pages run only our own scripts."""
    user = services.create_user(payload, PASSWORD)
    answer = issue(admin_client, user, label=payload)
    key = ApiKey.objects.get()
    pages = [answer]
    for base, pk in (("/admin/accounts/user/", user.pk), (KEYS, key.pk)):
        pages += [admin_client.get(base), admin_client.get(base, {"q": payload})]
        pages += [admin_client.get(f"{base}{pk}/{page}/") for page in ("change", "history", "delete")]
        body = {"action": "delete_selected", "_selected_action": [pk]}
        pages.append(admin_client.post(base, body))
    pages.append(
        admin_client.post(KEYS, {"action": "revoke_keys", "_selected_action": [key.pk]}, follow=True)
    )
    pages.append(admin_client.get("/admin/"))
    for page in pages:
        text = page.content.decode()
        assert page.status_code == 200
        for raw in ("<script>alert", "<img src=x", "<svg onload", ">49<"):
            assert raw not in text
        policy = page["Content-Security-Policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert page["X-Frame-Options"] == "DENY"
