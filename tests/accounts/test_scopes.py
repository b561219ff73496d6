"""The scopes of keys."""

import pytest

from accounts import scopes


def test_order_and_repeats_do_not_matter() -> None:
    """A comma list has one stored form."""
    assert scopes.parse("media, agent,media") == ("agent", "media")
    assert scopes.join(("media", "agent")) == "agent,media"


@pytest.mark.parametrize("text", ["", " , ", "agent,root", "Agent"])
def test_unknown_or_no_scopes_are_refused(text: str) -> None:
    """A key can do what it says and nothing else."""
    with pytest.raises(ValueError, match="scope"):
        scopes.parse(text)


def test_an_agents_key_does_not_act_as_an_app_by_default() -> None:
    """`chat` must be asked for."""
    assert scopes.DEFAULT == ("agent", "media")
