"""Token buckets: a burst at once, then a rate, and what one takes is not another's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat.limits import IDLE_BUCKETS, Bucket, Buckets


def test_a_burst_is_taken_at_once_and_then_the_rate_counts() -> None:
    """The answer says how long to wait, and waiting that long is enough."""
    bucket = Bucket(2, 5, now=100)
    assert [bucket.take(1, 100) for _ in range(5)] == [0.0] * 5
    wait = bucket.take(1, 100)
    assert wait == pytest.approx(0.5)
    assert bucket.take(1, 100 + wait / 2) == pytest.approx(0.25)
    assert bucket.take(1, 100 + wait) == 0.0


def test_a_refusal_takes_nothing() -> None:
    """Who asks too often does not wait longer for it."""
    bucket = Bucket(1, 1, now=0)
    assert bucket.take(1, 0) == 0.0
    for _ in range(100):
        assert bucket.take(1, 0) == pytest.approx(1)
    assert bucket.take(1, 1) == 0.0


def test_rest_does_not_save_up_more_than_a_burst() -> None:
    """However long it was."""
    bucket = Bucket(10, 3, now=0)
    assert [bucket.take(1, 1e6) for _ in range(3)] == [0.0] * 3
    assert bucket.take(1, 1e6) > 0


def test_more_than_a_burst_is_taken_from_a_full_bucket_and_owed() -> None:
    """A large frame is let through once, and paid for."""
    bucket = Bucket(10, 10, now=0)
    assert bucket.take(100, 0) == 0.0
    assert bucket.take(1, 0) == pytest.approx(9.1)
    assert bucket.take(1, 9.1) == 0.0


def test_a_clock_that_stands_gives_nothing() -> None:
    """Time is what refills."""
    bucket = Bucket(1000, 1, now=5)
    assert bucket.take(1, 5) == 0.0
    assert bucket.take(1, 5) > 0


@given(st.lists(st.floats(0, 2), max_size=60), st.integers(1, 20), st.integers(1, 10))
@settings(max_examples=200, deadline=None)
def test_in_any_time_no_more_passes_than_burst_and_rate_allow(
    pauses: list[float], rate: int, burst: int
) -> None:
    """Whatever the pattern of asking."""
    bucket, now, passed = Bucket(rate, burst, now=0), 0.0, 0
    for pause in pauses:
        now += pause
        passed += bucket.take(1, now) == 0.0
    assert passed <= burst + rate * now + 1e-6


def test_each_key_has_a_bucket_of_its_own() -> None:
    """One who is refused stands in nobody's way."""
    buckets = Buckets(1, 2)
    assert [buckets.take("a", 1, 0) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert buckets.take(("a", "b"), 1, 0) == 0.0


def test_keys_that_are_idle_are_forgotten_and_others_are_not() -> None:
    """Memory stays bounded by who is busy."""
    buckets = Buckets(1, 1)
    for number in range(IDLE_BUCKETS - 1):
        buckets.take(number, 1, 0)
    buckets.take("busy", 1, 99.5)
    buckets.take("one more", 1, 100)
    assert len(buckets._buckets) == 2
    assert buckets.take("busy", 1, 100) == pytest.approx(0.5)
