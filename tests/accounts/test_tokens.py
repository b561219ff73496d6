"""Tokens as text, without a database: what is in them, and which are believed."""

import base64
import json
import time
from typing import Any

import jwt
import pytest
from django.conf import settings

from accounts import tokens
from accounts.models import User
from hermes_site.errors import Unauthorized

USER = User(pk=7, username="alice", epoch="0123456789abcdef")


def forge(key: str | None = None, algorithm: str = "HS256", **changes: Any) -> str:
    """A token that is good but for the changes; None removes a claim."""
    now = int(time.time())
    claims: dict[str, Any] = {
        "token_type": "access",
        "exp": now + 60,
        "iat": now,
        "jti": "j",
        "sub": "alice",
        "uid": 7,
        "epoch": USER.epoch,
    }
    claims = {name: value for name, value in (claims | changes).items() if value is not None}
    return jwt.encode(claims, key or settings.SIMPLE_JWT["SIGNING_KEY"], algorithm=algorithm)


def unsigned(header: dict[str, str]) -> str:
    """A token with this header, good claims and no signature."""

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = jwt.decode(forge(), options={"verify_signature": False})
    return f"{part(header)}.{part(claims)}."


def test_a_token_names_its_user_three_times() -> None:
    """Username, primary key and epoch, and its end."""
    claims = tokens.read_access(tokens.access(USER, 90))
    assert (claims.username, claims.user_id, claims.epoch) == ("alice", 7, USER.epoch)
    assert claims.expires_at == pytest.approx(time.time() + 90, abs=2)


def test_the_forged_token_of_these_tests_is_good() -> None:
    """Else the refusals below would prove nothing."""
    assert tokens.read_access(forge()).username == "alice"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(lambda: tokens.pair(USER).refresh, id="refresh token"),
        pytest.param(lambda: unsigned({"alg": "none", "typ": "JWT"}), id="alg none"),
        pytest.param(lambda: unsigned({"alg": "HS256", "typ": "JWT"}), id="no signature"),
        pytest.param(lambda: forge(algorithm="HS512", key="k" * 64), id="another algorithm"),
        pytest.param(
            lambda: forge(algorithm="HS512", key=settings.SIMPLE_JWT["SIGNING_KEY"] * 2), id="HS512"
        ),
        pytest.param(lambda: forge(key="another secret of the right length, really"), id="another secret"),
        pytest.param(lambda: forge(exp=None), id="no exp"),
        pytest.param(lambda: forge(exp=int(time.time()) - 1), id="expired a second ago"),
        pytest.param(lambda: forge(exp="soon"), id="exp is a word"),
        pytest.param(lambda: forge(exp=1e400), id="exp is infinite"),
        pytest.param(lambda: forge(nbf=int(time.time()) + 60), id="not yet"),
        pytest.param(lambda: forge(iat=int(time.time()) + 60), id="issued in the future"),
        pytest.param(lambda: forge(sub=None), id="no sub"),
        pytest.param(lambda: forge(sub=7), id="sub is a number"),
        pytest.param(lambda: forge(uid=None), id="no uid"),
        pytest.param(lambda: forge(uid="7"), id="uid is a word"),
        pytest.param(lambda: forge(uid=True), id="uid is a bool"),
        pytest.param(lambda: forge(epoch=None), id="no epoch"),
        pytest.param(lambda: forge(token_type=None), id="no type"),
        pytest.param(lambda: forge() + "x", id="cut wrong"),
        pytest.param(lambda: "", id="empty"),
        pytest.param(lambda: "a.b.c", id="no token"),
        pytest.param(lambda: "\x00", id="NUL"),
        pytest.param(lambda: "\ud800", id="half a character"),
        pytest.param(lambda: "é" * 50, id="not ASCII"),
        pytest.param(lambda: "x" * 100_000, id="100 kB"),
    ],
)
def test_c14_other_tokens_are_refused(text: Any) -> None:
    """C14: every wrong kind is one clean refusal."""
    with pytest.raises(Unauthorized):
        tokens.read_access(text())


def test_a_clock_five_seconds_ahead_may_issue_tokens() -> None:
    """Leeway for `iat` and `nbf`, none for `exp`."""
    ahead = int(time.time()) + 3
    assert tokens.read_access(forge(iat=ahead, nbf=ahead))


def test_an_access_token_does_not_refresh() -> None:
    """The two kinds are not exchangeable, either way."""
    with pytest.raises(Unauthorized):
        tokens.read_refresh(tokens.access(USER))


def test_the_same_purchase_gives_the_same_tokens() -> None:
    """So a repeated request is answered alike without keeping a token."""
    at = time.time()
    assert tokens.pair(USER, at, "bought with") == tokens.pair(USER, at, "bought with")
    assert tokens.pair(USER, at, "bought with") != tokens.pair(USER, at, "another")
    assert tokens.pair(USER) != tokens.pair(USER)
