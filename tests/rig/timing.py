"""Time in tests: one unit for every deadline, scaled by HERMES_TEST_SCALE on slow machines."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

SCALE = float(os.environ.get("HERMES_TEST_SCALE", "1"))
"""How much longer than usual everything may take here."""

TIMEOUT = 10.0 * SCALE
"""Seconds after which something that should happen counts as not happening."""

PROMPT = 1.0 * SCALE
"""Seconds within which an answer that the protocol calls immediate must be there."""

POLL = 0.02
"""Seconds between two looks at something that cannot tell us itself."""


def wait_until(look: Callable[[], T], timeout_seconds: float = TIMEOUT, what: str = "") -> T:
    """
    Look until the answer is true, and return it.

    Raises:
        TimeoutError: If it stays false for ``timeout_seconds``.
    """
    deadline = time.monotonic() + timeout_seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_seconds} s: {what or look}")
        time.sleep(POLL)
    return found


async def eventually(look: Callable[[], Awaitable[T]], timeout_seconds: float = TIMEOUT, what: str = "") -> T:
    """
    Look, asynchronously, until the answer is true, and return it.

    Raises:
        TimeoutError: If it stays false for ``timeout_seconds``.
    """
    deadline = time.monotonic() + timeout_seconds
    while not (found := await look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_seconds} s: {what or look}")
        await asyncio.sleep(POLL)
    return found
