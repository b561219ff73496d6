"""Users and what their rows promise."""

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from accounts import services
from accounts.models import User, validate_agent_name, validate_username

ODD_NAMES = [
    "张三",
    "a b",
    "o'neil@example.com",
    "x/../y",
    "n" * 150,
    "alice",
    "Alice",
    "a.b",
    "a_b",
    "ﬁ",
    "-x",
    "<b>",
]


@pytest.mark.django_db
def test_c23_any_name_is_kept_as_it_is() -> None:
    """C23: every name of the case, and more, is stored unchanged and found again; `alice` and `Alice` are two."""
    for name in ODD_NAMES:
        services.create_user(name, "some password")
    for name in ODD_NAMES:
        assert User.objects.get(username=name).username == name
    assert User.objects.count() == len(ODD_NAMES)


@pytest.mark.parametrize("name", ["", "n" * 151, "a\x00b", "a\nb", "a\x7fb", "a\x85b", "\ud800", "hermes"])
def test_names_that_the_wire_cannot_carry_are_refused(name: str) -> None:
    """Length, control characters, half characters, and the agent's own name."""
    with pytest.raises(ValidationError):
        validate_username(name)


@pytest.mark.django_db
def test_a_bad_name_is_refused_by_the_row_itself() -> None:
    """Not only by forms."""
    with pytest.raises(ValidationError):
        User.objects.create_user("hermes", password="x")
    with pytest.raises(ValidationError):
        User(username="a\nb").save()


def test_c23_a_username_never_changes(alice: User) -> None:
    """C23: a changed name is refused, other changes are not."""
    alice.username = "mallory"
    with pytest.raises(ValidationError, match="cannot be changed"):
        alice.save()
    again = User.objects.get(pk=alice.pk)
    again.first_name = "A."
    again.save()
    again.username = "mallory"
    with pytest.raises(ValidationError, match="cannot be changed"):
        again.save(update_fields=["username"])
    assert User.objects.get(pk=alice.pk).username == "alice"


def test_a_taken_name_is_taken(alice: User) -> None:
    """Names are unique, by their exact spelling."""
    with pytest.raises(IntegrityError), transaction.atomic():
        services.create_user("alice", "x")


def test_a_new_password_renews_the_epoch(alice: User) -> None:
    """Whoever changes it, and whether or not all fields are saved."""
    first = alice.epoch
    alice.set_password("another one")
    alice.save(update_fields=["password"])
    second = User.objects.get(pk=alice.pk).epoch
    assert second != first
    loaded = User.objects.get(pk=alice.pk)
    loaded.set_password("a third one")
    loaded.save()
    assert User.objects.get(pk=alice.pk).epoch not in (first, second)


def test_other_changes_keep_the_epoch(alice: User) -> None:
    """A login writes `last_login`; that ends no session."""
    first = alice.epoch
    alice.first_name = "A."
    alice.save()
    alice.refresh_from_db()
    alice.save()
    assert User.objects.get(pk=alice.pk).epoch == first


def test_a_stronger_hash_of_the_same_password_keeps_the_epoch(alice: User, settings: object) -> None:
    """Django stores a better hash at login; nobody is logged out by that."""
    settings.PASSWORD_HASHERS = [  # type: ignore[attr-defined]
        "django.contrib.auth.hashers.PBKDF2PasswordHasher",
        "django.contrib.auth.hashers.MD5PasswordHasher",
    ]
    before = alice.password
    assert alice.check_password("correct horse battery")
    stored = User.objects.get(pk=alice.pk)
    assert stored.password != before
    assert stored.epoch == alice.epoch


def test_the_epoch_is_part_of_a_cookie_session(alice: User) -> None:
    """ "Log out everywhere" ends login sessions too."""
    before = alice.get_session_auth_hash()
    services.log_out_everywhere(alice)
    assert alice.get_session_auth_hash() != before


@pytest.mark.parametrize("name", ["hermes", "a", "0", "work_2-b", "a" * 32])
def test_agent_names(name: str) -> None:
    """As the wire allows them."""
    validate_agent_name(name)


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a b", "a" * 33, "a\n", "é"])
def test_other_agent_names_are_refused(name: str) -> None:
    """So that every client can write them."""
    with pytest.raises(ValidationError):
        validate_agent_name(name)
