"""Primary keys that a process makes by itself."""

from __future__ import annotations

import threading
import time

from chat import keys


def test_keys_rise_and_fit_a_database_s_integer() -> None:
    """Never the same twice in one process, however fast."""
    made = [keys.new_key() for _ in range(5000)]
    assert made == sorted(set(made))
    assert all(0 < key < 2**63 for key in made)


def test_threads_never_get_the_same_key() -> None:
    """The writer and the event loop both make them."""
    made: list[int] = []

    def make() -> None:
        for _ in range(2000):
            made.append(keys.new_key())

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8000


def test_a_time_bounds_keys_from_below() -> None:
    """A search for rows since then misses none, with a day for clocks that differ."""
    now = time.time()
    key = keys.new_key()
    assert keys.lowest_since(now) < key
    assert keys.lowest_since(now + 86_000) < key
    assert keys.lowest_since(now + 2 * 86_400) > key
    assert keys.lowest_since(0) == 0


def test_keys_follow_time_roughly() -> None:
    """Rows made later have higher keys, across processes too, down to the millisecond or so."""
    before = int(time.time() * 1000) - 1
    assert before << 20 < keys.new_key()
