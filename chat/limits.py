"""Token buckets: how much of something one user or key may do in a time. No I/O."""

from __future__ import annotations

from collections.abc import Hashable

IDLE_BUCKETS = 4096  # more than these, and full ones are thrown away


class Bucket:
    """`burst` tokens at first, refilled by `rate` a second."""

    __slots__ = ("_burst", "_rate", "_stamp", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._stamp = now

    def take(self, amount: float, now: float) -> float:
        """
        Take tokens: 0.0 if there were enough, else the seconds until there will be, and nothing is taken.

        More than a whole burst is taken from a full bucket, and owed.
        """
        self._fill(now)
        needed = min(amount, self._burst)
        if self._tokens >= needed:
            self._tokens -= amount
            return 0.0
        return (needed - self._tokens) / self._rate

    def full(self, now: float) -> bool:
        """Whether nothing was taken for so long that the bucket tells nothing any more."""
        self._fill(now)
        return self._tokens >= self._burst

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._stamp) * self._rate)
        self._stamp = now


class Buckets:
    """A bucket for each key, made on first use."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: dict[Hashable, Bucket] = {}

    def take(self, key: Hashable, amount: float, now: float) -> float:
        """As `Bucket.take`, for the bucket of this key; `now` in monotonic seconds."""
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= IDLE_BUCKETS:
                self._buckets = {one: held for one, held in self._buckets.items() if not held.full(now)}
            bucket = self._buckets[key] = Bucket(self._rate, self._burst, now)
        return bucket.take(amount, now)
