"""Wrong passwords slow down, and nobody is locked out."""

import datetime
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts import throttle
from accounts.models import LoginTries, User
from hermes_site.errors import RateLimited
from tests.accounts.conftest import PASSWORD


def log_in(client: Client, password: str, username: str = "alice", **headers: str) -> int:
    """The status of one login."""
    body = {"username": username, "password": password}
    return client.post("/api/auth/token", body, "application/json", **headers).status_code


def forgive(seconds: float) -> None:
    """Let time pass."""
    for row in LoginTries.objects.all():
        row.forgiven_at -= datetime.timedelta(seconds=seconds)
        row.save()


def test_an_account_is_slowed_well_before_thirty_wrong_passwords(client: Client, alice: User) -> None:
    """429 with Retry-After; then even the right password must wait, and after that time it works."""
    statuses = [log_in(client, "wrong", REMOTE_ADDR=f"10.0.0.{number}") for number in range(11)]
    assert statuses == [401] * 10 + [429]
    answer = client.post("/api/auth/token", {"username": "alice", "password": PASSWORD}, "application/json")
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "rate_limited"
    wait = int(answer["Retry-After"])
    assert 1 <= wait <= 20
    forgive(wait)
    assert log_in(client, PASSWORD) == 200
    assert log_in(client, "wrong") == 401, "the account starts anew"


def test_an_address_is_slowed_over_all_accounts(client: Client, alice: User) -> None:
    """Existing or not; other addresses are not touched."""
    statuses = [log_in(client, "wrong", f"user{number}") for number in range(21)]
    assert statuses == [401] * 20 + [429]
    assert log_in(client, PASSWORD) == 429
    assert log_in(client, PASSWORD, REMOTE_ADDR="10.0.0.9") == 200


def test_right_passwords_do_not_reset_an_address(client: Client, alice: User, bob: User) -> None:
    """An own account is no way around."""
    statuses = []
    for number in range(22):
        statuses.append(log_in(client, "wrong", f"victim{number}"))
        log_in(client, PASSWORD, "bob")
    assert statuses[:20] == [401] * 20
    assert statuses[20:] == [429] * 2


def test_forwarded_headers_change_nothing(client: Client, alice: User) -> None:
    """No header that a client can send steers or resets the count."""
    for number in range(20):
        address = f"10.1.{number}.1"
        assert (
            log_in(
                client, "wrong", f"u{number}", HTTP_X_FORWARDED_FOR=address, HTTP_FORWARDED=f"for={address}"
            )
            == 401
        )
    assert log_in(client, "wrong", "u", HTTP_X_FORWARDED_FOR="10.2.2.2", HTTP_X_REAL_IP="10.2.2.2") == 429


def test_a_trusted_proxy_names_the_address(client: Client, alice: User, settings: object) -> None:
    """Clients behind it are counted one by one, and what a client adds itself is not believed."""
    settings.HERMES_TRUSTED_PROXIES = ["127.0.0.1"]  # type: ignore[attr-defined]
    for number in range(20):
        assert (
            log_in(client, "wrong", f"u{number}", HTTP_X_FORWARDED_FOR=f"9.9.9.{number}, 203.0.113.7") == 401
        )
    assert log_in(client, "wrong", "u", HTTP_X_FORWARDED_FOR="8.8.8.8, 203.0.113.7") == 429
    assert log_in(client, "wrong", "u", HTTP_X_FORWARDED_FOR="203.0.113.7, 203.0.113.8") == 401


def test_the_admin_login_is_throttled_too(client: Client, operator: User) -> None:
    """By the same count, with a page that says so."""
    body = {"username": "operator", "password": "wrong"}
    statuses = [client.post("/admin/login/", body).status_code for _ in range(11)]
    assert statuses == [200] * 10 + [429]
    answer = client.post("/admin/login/", body)
    assert answer["Retry-After"]
    assert answer["Content-Type"].startswith("text/html")
    assert log_in(client, "wrong", "operator") == 429


def test_ipv6_addresses_of_one_network_are_one() -> None:
    """And an IPv4 address written as IPv6 is itself."""
    assert throttle.of_address("2001:db8::1") == throttle.of_address("2001:db8::ffff:1")
    assert throttle.of_address("2001:db8::1") != throttle.of_address("2001:db8:0:1::1")
    assert throttle.of_address("::ffff:10.0.0.1") == throttle.of_address("10.0.0.1")
    assert throttle.of_address("a socket file") != throttle.of_address("")


def test_what_is_forgiven_is_forgotten(alice: User) -> None:
    """The table does not grow with every name that was ever tried."""
    for number in range(5):
        throttle.take(f"user{number}", "10.0.0.1")
    forgive(10_000)
    throttle.take("another", "10.0.0.2")
    assert (
        LoginTries.objects.filter(forgiven_at__gt=timezone.now()).count() == LoginTries.objects.count() == 2
    )


@pytest.mark.django_db(transaction=True)
def test_many_at_once_are_no_better() -> None:
    """A try is taken before the password is looked at, so a burst gets as many as a row."""

    def attempt(_: int) -> bool:
        try:
            throttle.take("alice", "")
            return True
        except RateLimited:
            return False
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(30))) == 10
