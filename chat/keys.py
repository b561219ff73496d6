"""Primary keys that a process makes by itself, so that rows which name each other go out in one batch."""

from __future__ import annotations

import os
import random
import threading
import time

_RANDOM_BITS = 20
# No secret, so not asked of the system, which took a twentieth of the writer's time.
_random = random.Random()  # noqa: S311
os.register_at_fork(after_in_child=_random.seed)
_lock = threading.Lock()
_last = 0


def new_key() -> int:
    """
    Return a positive 63-bit integer, rising within this process and, roughly, with time.

    Two processes can make the same one in the same millisecond (one in a million then): the insert fails
    on the primary key, and the journal tries that item again with new keys. No order is read out of keys.
    """
    global _last
    with _lock:
        stamp = (time.time_ns() // 1_000_000) << _RANDOM_BITS | _random.getrandbits(_RANDOM_BITS)
        _last = max(_last + 1, stamp)
        return _last


def lowest_since(seconds: float) -> int:
    """
    A bound for searches: no row made after this Unix time has a key below it.

    A day is left for clocks that differ.
    """
    return max(0, int((seconds - 86400) * 1000)) << _RANDOM_BITS
