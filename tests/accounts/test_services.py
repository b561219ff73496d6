"""Logins, refreshes, logouts and keys, as the doors call them."""

import datetime
import uuid

import pytest
from django.db import IntegrityError
from django.utils import timezone

from accounts import auth, keys, services, tokens
from accounts.models import ApiKey, UsedRefresh, User
from hermes_site.errors import Unauthorized


def age(seconds: float) -> None:
    """Let all used refresh tokens have been used that much earlier."""
    for used in UsedRefresh.objects.all():
        used.used_at -= datetime.timedelta(seconds=seconds)
        used.save()


def test_a_refresh_token_buys_one_pair(alice: User) -> None:
    """Which is good, and whose refresh token buys the next."""
    first = tokens.pair(alice)
    second = services.refresh(first.refresh)
    assert auth.find(second.access)[0] == alice
    assert second.refresh != first.refresh
    third = services.refresh(second.refresh)
    assert len({first.refresh, second.refresh, third.refresh}) == 3


def test_two_tabs_get_the_same_answer(alice: User) -> None:
    """Within 30 seconds the same token is answered alike, to the byte; after that it is refused."""
    first = tokens.pair(alice)
    assert services.refresh(first.refresh) == services.refresh(first.refresh)
    age(29)
    again = services.refresh(first.refresh)
    assert services.refresh(again.refresh)
    age(2)
    with pytest.raises(Unauthorized):
        services.refresh(first.refresh)


def test_no_token_is_stored(alice: User) -> None:
    """Only the mark that one was used."""
    first = tokens.pair(alice)
    second = services.refresh(first.refresh)
    stored = repr(list(UsedRefresh.objects.values()))
    for token in (first.refresh, second.refresh, second.access):
        assert token not in stored
        assert token.rsplit(".", 1)[1] not in stored


def test_a_logout_ends_the_refresh_token(alice: User) -> None:
    """Also within the time in which a repeat would be answered."""
    pair = tokens.pair(alice)
    services.log_out(pair.refresh)
    with pytest.raises(Unauthorized):
        services.refresh(pair.refresh)
    services.log_out(pair.refresh)  # again: no harm


def test_a_logout_with_a_used_token_ends_what_it_bought(alice: User) -> None:
    """A tab that did not notice the renewal logs out all the same."""
    first = tokens.pair(alice)
    second = services.refresh(first.refresh)
    third = services.refresh(second.refresh)
    services.log_out(first.refresh)
    for pair in (first, second, third):
        with pytest.raises(Unauthorized):
            services.refresh(pair.refresh)


def test_one_logout_leaves_other_logins_alone(alice: User) -> None:
    """Two devices are two chains."""
    phone, laptop = tokens.pair(alice), tokens.pair(alice)
    services.log_out(phone.refresh)
    assert services.refresh(laptop.refresh)


def test_logging_out_everywhere_ends_every_token(alice: User) -> None:
    """Access and refresh alike."""
    pair = tokens.pair(alice)
    services.log_out_everywhere(alice)
    with pytest.raises(Unauthorized):
        services.refresh(pair.refresh)
    with pytest.raises(Unauthorized):
        auth.find(pair.access)


def test_disabled_and_deleted_users_get_no_new_tokens(alice: User, bob: User) -> None:
    """Whatever token they hold."""
    pairs = tokens.pair(alice), tokens.pair(bob)
    services.disable_users(User.objects.filter(pk=alice.pk))
    bob.delete()
    for pair in pairs:
        with pytest.raises(Unauthorized):
            services.refresh(pair.refresh)


def test_marks_of_expired_tokens_are_removed(alice: User) -> None:
    """A logout sweeps; an expired token needs no mark to be refused."""
    services.refresh(tokens.pair(alice).refresh)
    UsedRefresh.objects.update(expires_at=timezone.now() - datetime.timedelta(seconds=1))
    services.log_out(tokens.pair(alice).refresh)
    assert UsedRefresh.objects.count() == 1


def test_c62_a_key_is_stored_as_prefix_and_digest(alice: User) -> None:
    """C62: nothing in the row gives the secret back."""
    key, text = services.create_key(alice, created_by=alice, label="laptop")
    row = repr(ApiKey.objects.filter(pk=key.pk).values().get())
    assert keys.prefix_of(text) in row
    assert text.split("_", 2)[2] not in row
    assert str(key) == f"hk_{key.prefix}_…"


def test_a_prefix_that_is_taken_is_drawn_again(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys never share one."""
    first, _ = services.create_key(alice)
    drawn = iter([first.prefix, first.prefix, "aaaaaaaaaa"])
    monkeypatch.setattr(keys.secrets, "token_hex", lambda size: next(drawn))
    second, _ = services.create_key(alice)
    assert second.prefix == "aaaaaaaaaa"


def test_a_form_issues_one_key(alice: User) -> None:
    """The second time is refused by the database."""
    form = uuid.uuid4()
    services.issue(ApiKey(user=alice), alice, form)
    with pytest.raises(IntegrityError):
        services.issue(ApiKey(user=alice), alice, form)


def test_revocation_is_final(alice: User) -> None:
    """The first time counts, later ones change nothing."""
    key, _ = services.create_key(alice)
    assert services.revoke_key(key)
    ended = ApiKey.objects.get(pk=key.pk).revoked_at
    assert not services.revoke_key(key)
    assert ApiKey.objects.get(pk=key.pk).revoked_at == ended
