"""The gate: which credentials are somebody's, and when they stop being."""

import asyncio
import datetime
import time

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import auth, keys, services, tokens
from accounts.models import ApiKey, User
from hermes_site.errors import CloseCode, Forbidden, Unauthorized


@pytest.mark.django_db(transaction=True)
async def test_an_access_token_is_its_user(alice: User) -> None:
    """With the scopes of an App, and the time of its end."""
    principal = await auth.authenticate(tokens.access(alice))
    assert (principal.user_id, principal.username, principal.kind) == (alice.pk, "alice", "token")
    assert principal.scopes == {"chat", "media"}
    assert principal.expires_at == pytest.approx(time.time() + 3600, abs=2)


@pytest.mark.django_db(transaction=True)
async def test_a_key_is_its_user_and_its_agent(alice: User) -> None:
    """Asynchronously too, from the threads of authentication."""
    key, text = await auth.in_thread(lambda: services.create_key(alice, agent="work"))
    principal = await auth.authenticate(text)
    assert (principal.username, principal.agent, principal.key_id) == ("alice", "work", key.pk)
    assert principal.scopes == {"agent", "media"}
    assert principal.expires_at is None
    assert hash(principal) == hash(await auth.authenticate(text))
    assert await auth.invalid_now([principal]) == {}
    assert await auth.agent_names(alice.pk) == ("work", ("work",))


@pytest.mark.django_db(transaction=True)
async def test_the_threads_end_and_begin_again(alice: User) -> None:
    """Closing leaves nothing open, and the next call works."""
    token = tokens.access(alice)
    assert await auth.authenticate(token)
    await asyncio.to_thread(auth.close)
    assert auth.threads._connections == []
    assert await auth.authenticate(token)


@pytest.mark.django_db(transaction=True)
async def test_a_connection_that_was_cut_is_made_anew(alice: User) -> None:
    """A database that restarted costs nobody a refusal."""
    token = tokens.access(alice)
    calls = []

    def look() -> User:
        calls.append(1)
        if len(calls) == 1:
            raise OperationalError("the server closed the connection")
        return auth.find(token)[0]

    assert await auth.in_thread(look) == alice


def test_c14_a_token_of_a_deleted_user_is_refused(alice: User) -> None:
    """C14, and nobody inherits it: not the next user of that name, not the next of that number."""
    token = tokens.access(alice)
    pk = alice.pk
    alice.delete()
    with pytest.raises(Unauthorized):
        auth.find(token)
    services.create_user("alice", "x")
    with pytest.raises(Unauthorized):
        auth.find(token)
    User(pk=pk, username="mallory").save(force_insert=not User.objects.filter(pk=pk).exists())
    with pytest.raises(Unauthorized):
        auth.find(token)


def test_c14_a_disabled_user_is_forbidden(alice: User) -> None:
    """C14: by token and by key; that is 403, so that a client asks for a login and not for a new token."""
    token = tokens.access(alice)
    _, key = services.create_key(alice)
    User.objects.filter(pk=alice.pk).update(is_active=False)
    for credential in (token, key):
        with pytest.raises(Forbidden):
            auth.find(credential)


def test_a_new_password_ends_tokens_but_not_keys(alice: User) -> None:
    """A key has an end of its own."""
    token = tokens.access(alice)
    _, key = services.create_key(alice)
    alice.set_password("another")
    alice.save()
    with pytest.raises(Unauthorized):
        auth.find(token)
    assert auth.find(key)[0] == alice


def test_c14_bad_keys_are_refused(alice: User) -> None:
    """C14: unknown, another secret, revoked, expired, cut; all alike."""
    key, text = services.create_key(alice)
    wrong = keys.compose(key.prefix, "x" * 43).text
    for bad in (wrong, keys.generate().text, text[:-1], text + "=", "hk_", "hk_\x00", "hk_" + "\ud800"):
        with pytest.raises(Unauthorized):
            auth.find(bad)
    past = timezone.now() - datetime.timedelta(seconds=1)
    _, expired = services.create_key(alice, expires_at=past)
    services.revoke_key(key)
    for bad in (expired, text):
        with pytest.raises(Unauthorized):
            auth.find(bad)


def test_c62_unknown_prefix_and_wrong_secret_cost_the_same(alice: User) -> None:
    """C62: one query and one digest each, so that time tells no prefix."""
    key, _ = services.create_key(alice)
    spent = []
    for bad in (keys.compose(key.prefix, "x" * 43).text, keys.generate().text, "hk_nonsense"):
        with (
            CaptureQueriesContext(
                connection,
            ) as queries,
            pytest.raises(Unauthorized),
        ):
            auth.find(bad)
        spent.append(len(queries))
    assert spent == [1, 1, 1]


def test_the_last_use_of_a_key_is_written_now_and_then(alice: User) -> None:
    """At most once a minute, so that reconnecting costs no write each."""
    key, text = services.create_key(alice)
    auth.find(text)
    first = ApiKey.objects.get(pk=key.pk).last_used_at
    assert first is not None
    auth.find(text)
    assert ApiKey.objects.get(pk=key.pk).last_used_at == first
    long_ago = timezone.now() - datetime.timedelta(minutes=2)
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=long_ago)
    auth.find(text)
    assert ApiKey.objects.get(pk=key.pk).last_used_at > first


def test_live_credentials_that_are_no_longer_good_are_found(alice: User, bob: User) -> None:
    """Revoked, deleted and disabled end with 4403, a new epoch and an end in time with 4401, the rest goes on."""
    _, good = services.create_key(alice)
    revoked_key, revoked = services.create_key(alice, agent="two")
    deleted_key, deleted = services.create_key(alice, agent="three")
    principals = {
        name: auth.find(text)[1]
        for name, text in (("good", good), ("revoked", revoked), ("deleted", deleted))
    }
    principals |= {"token": auth.find(tokens.access(alice))[1], "bob": auth.find(tokens.access(bob))[1]}
    principals["cookie"] = auth.by_cookie(alice)
    principals["short"] = auth.Principal(
        alice.pk, "alice", "token", frozenset(), expires_at=time.time() - 1, epoch=alice.epoch
    )
    assert set(auth.find_invalid(list(principals.values())).values()) == {CloseCode.TOKEN_EXPIRED}
    services.revoke_key(revoked_key)
    deleted_key.delete()
    services.log_out_everywhere(alice)
    services.disable_users(User.objects.filter(pk=bob.pk))
    found = auth.find_invalid(list(principals.values()))
    assert {name: found.get(principal) for name, principal in principals.items()} == {
        "good": None,
        "revoked": CloseCode.KEY_REVOKED,
        "deleted": CloseCode.KEY_REVOKED,
        "token": CloseCode.TOKEN_EXPIRED,
        "cookie": CloseCode.TOKEN_EXPIRED,
        "bob": CloseCode.KEY_REVOKED,
        "short": CloseCode.TOKEN_EXPIRED,
    }


def test_many_live_credentials_take_few_queries(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for in chunks."""
    monkeypatch.setattr(auth, "CHUNK", 10)
    made = [services.create_key(alice, agent=f"a{number}")[1] for number in range(25)]
    principals = [auth.find(text)[1] for text in made]
    with CaptureQueriesContext(connection) as queries:
        assert auth.find_invalid(principals) == {}
    assert len(queries) == 1 + 3


async def test_nobody_is_nothing_to_look_for() -> None:
    """No sockets, no query."""
    assert await auth.invalid_now([]) == {}


def test_the_default_agent_is_hermes_or_the_first_that_got_a_key(alice: User) -> None:
    """Keys that are revoked, or are no agent's, do not count."""
    assert auth.find_agent_names(alice.pk) == ("hermes", ())
    services.create_key(alice, agent="program", scope_names=("chat",))
    first, _ = services.create_key(alice, agent="work")
    services.create_key(alice, agent="home")
    services.create_key(alice, agent="home")
    assert auth.find_agent_names(alice.pk) == ("work", ("work", "home"))
    services.revoke_key(first)
    assert auth.find_agent_names(alice.pk) == ("home", ("home",))
    services.create_key(alice)
    assert auth.find_agent_names(alice.pk) == ("hermes", ("home", "hermes"))


def test_scopes_are_asked_for() -> None:
    """What a credential may not do is forbidden."""
    principal = auth.Principal(1, "alice", "key", frozenset({"agent"}))
    auth.require(principal, "agent")
    with pytest.raises(Forbidden):
        auth.require(principal, "chat")
