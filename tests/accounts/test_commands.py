"""The operator's commands: what they print, and when they fail."""

import io
import json
import time
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from accounts import auth, keys, tokens
from accounts.models import ApiKey, User
from hermes_site.errors import Unauthorized
from tests.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def test_create_key_prints_the_key_alone(alice: User) -> None:
    """So that a script can take it."""
    printed = run("create_key", "alice")
    assert printed.count("\n") == 1
    principal = auth.find(printed.strip())[1]
    assert (principal.username, principal.agent, principal.scopes) == ("alice", "hermes", {"agent", "media"})


def test_create_key_takes_agent_scopes_and_days(alice: User) -> None:
    """A comma list of scopes."""
    principal = auth.find(
        run("create_key", "alice", "--agent", "work", "--scopes", "chat,media", "--expires-days", "1").strip()
    )[1]
    assert (principal.agent, principal.scopes) == ("work", {"chat", "media"})
    assert principal.expires_at == pytest.approx(time.time() + 86400, abs=5)


@pytest.mark.parametrize("days", ["0", "-1"])
def test_create_key_can_make_an_expired_one(alice: User, days: str) -> None:
    """For trying what a client does then."""
    with pytest.raises(Unauthorized, match="expired"):
        auth.find(run("create_key", "alice", f"--expires-days={days}").strip())


@pytest.mark.parametrize(
    "words",
    [
        ["nobody"],
        ["alice", "--agent", "No"],
        ["alice", "--scopes", "root"],
        ["alice", "--scopes", ""],
        ["alice", "--expires-days", "1e300"],
    ],
)
def test_create_key_says_what_is_wrong(alice: User, words: list[str]) -> None:
    """And makes no key."""
    with pytest.raises(CommandError):
        run("create_key", *words)
    assert not ApiKey.objects.exists()


def test_create_user_takes_the_password_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staff gets no permission by that."""
    monkeypatch.setenv("HERMES_PASSWORD", PASSWORD)
    run("create_user", "carol", "--staff")
    carol = User.objects.get(username="carol")
    assert carol.check_password(PASSWORD)
    assert (carol.is_staff, carol.is_superuser) == (True, False)
    assert not carol.get_all_permissions()


@pytest.mark.parametrize("name", ["alice", "hermes", "a\nb", ""])
def test_create_user_refuses_taken_and_bad_names(
    alice: User, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Exit 1 and one sentence."""
    monkeypatch.setenv("HERMES_PASSWORD", PASSWORD)
    with pytest.raises(CommandError) as problem:
        run("create_user", name)
    assert problem.value.returncode == 1


def test_create_user_asks_for_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """And wants one."""
    monkeypatch.delenv("HERMES_PASSWORD", raising=False)
    answers = iter([PASSWORD, ""])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    run("create_user", "dave")
    assert User.objects.get(username="dave").check_password(PASSWORD)
    with pytest.raises(CommandError, match="password"):
        run("create_user", "erin")


def test_create_token_prints_the_token_alone(alice: User) -> None:
    """Minutes may be fractions."""
    printed = run("create_token", "alice", "--minutes", "0.5")
    assert printed.count("\n") == 1
    assert auth.find(printed.strip())[1].expires_at == pytest.approx(time.time() + 30, abs=2)
    assert tokens.read_access(run("create_token", "alice").strip()).expires_at == pytest.approx(
        time.time() + 3600, abs=2
    )
    for words in (["nobody"], ["alice", "--minutes", "1e300"]):
        with pytest.raises(CommandError):
            run("create_token", *words)


def test_revoke_key_ends_a_key(alice: User) -> None:
    """By its prefix, with or without the lead; again it does no harm."""
    text = run("create_key", "alice").strip()
    prefix = keys.prefix_of(text)
    assert "revoked" in run("revoke_key", f"hk_{prefix}")
    assert "before" in run("revoke_key", str(prefix))
    with pytest.raises(Unauthorized):
        auth.find(text)
    with pytest.raises(CommandError):
        run("revoke_key", "0000000000")


def test_demo_is_the_same_every_time(settings: Any) -> None:
    """User, password and key; the tokens are new and good. Nothing secret is stored for it."""
    settings.DEBUG = True
    first, second = json.loads(run("demo", "--json")), json.loads(run("demo", "--json"))
    assert set(first) == {"user", "password", "token", "refresh", "api_key", "base_url"}
    for name in ("user", "password", "api_key", "base_url"):
        assert first[name] == second[name]
    assert User.objects.get().check_password(first["password"])
    assert ApiKey.objects.count() == 1
    assert first["api_key"].split("_", 2)[2] not in repr(list(ApiKey.objects.values()))
    assert auth.find(first["api_key"])[1].username == auth.find(second["token"])[1].username == "demo"
    assert first["api_key"] in run("demo")


def test_demo_makes_a_new_key_for_a_revoked_one_and_leaves_a_changed_password(settings: Any) -> None:
    """Revoked is final; a password that somebody chose is theirs."""
    settings.DEBUG = True
    first = json.loads(run("demo", "--json"))
    run("revoke_key", first["api_key"].split("_")[1])
    user = User.objects.get()
    user.set_password("my own one")
    user.save()
    second = json.loads(run("demo", "--json"))
    assert auth.find(second["api_key"])
    assert second["password"] is None
    assert User.objects.get().check_password("my own one")


def test_demo_is_for_development(settings: Any) -> None:
    """Outside DEBUG only when told twice."""
    settings.DEBUG = False
    with pytest.raises(CommandError):
        run("demo")
    assert not User.objects.exists()
    assert json.loads(run("demo", "--json", "--force"))["user"] == "demo"


def test_createsuperuser_works_without_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name and password from the environment, as Django has it."""
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    run("createsuperuser", "--noinput", "--username", "admin")
    assert User.objects.get(username="admin").is_superuser
    with pytest.raises(CommandError):
        run("createsuperuser", "--noinput", "--username", "hermes")
