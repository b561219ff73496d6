"""API keys as values."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts import keys


def test_a_key_is_made_of_lead_prefix_and_secret() -> None:
    """`hk_<prefix>_<secret>`, the secret with 256 bits."""
    new = keys.generate()
    lead, prefix, secret = new.text.split("_", 2)
    assert (lead, prefix) == ("hk", new.prefix)
    assert len(secret) == 43
    assert keys.prefix_of(new.text) == new.prefix


def test_c14_keys_are_the_same_percent_encoded_and_raw() -> None:
    """C14: no character of a key is changed by quoting, so both spellings in a query work."""
    for _ in range(200):
        text = keys.generate().text
        assert quote(text, safe="") == text


def test_the_digest_holds_neither_the_key_nor_its_secret() -> None:
    """What is stored cannot be turned back."""
    new = keys.generate()
    assert new.text not in new.digest
    assert len(new.digest) == 64
    assert keys.matches(new.text, new.digest)


def test_only_the_very_key_matches() -> None:
    """Another secret under the same prefix does not."""
    new = keys.generate()
    other = keys.compose(new.prefix, keys.generate().text.split("_", 2)[2])
    assert not keys.matches(other.text, new.digest)
    assert not keys.matches(new.text, keys.NO_DIGEST)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hk_",
        "hk_1dd5047e0d",
        "hk_1dd5047e0d_",
        "hk_1dd5047e0d_short",
        "HK_1dd5047e0d_" + "a" * 43,
        "hk_1dd5047e0d_" + "a" * 43 + "\n",
    ],
)
def test_what_is_not_a_key_has_no_prefix(text: str) -> None:
    """Only the exact shape is looked up."""
    assert keys.prefix_of(text) is None


@given(st.text())
def test_any_text_can_be_judged(text: str) -> None:
    """No text raises, surrogates and NUL included, and none matches the digest of no key."""
    keys.prefix_of(text)
    assert not keys.matches(text, keys.NO_DIGEST)
