"""How a load program talks: one JSON order on standard input, a line when the measured time begins, one JSON answer."""

import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

BEGUN = "begun"
"""The line that is printed when everything runs and the measured time begins."""


def carry_out(run: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
    """Read the order, run it with as many open sockets as the system allows, print the answer."""
    allow_many_files()

    async def answer() -> dict[str, Any]:
        return await run(json.load(sys.stdin))

    left = json.dumps(uvloop.run(answer())).encode()
    while left:  # print was seen to cut an answer of more than 64 KiB after uvloop had run
        left = left[os.write(1, left) :]


def say_begun() -> None:
    """Print the line."""
    print(BEGUN, flush=True)


def allow_many_files() -> None:
    """Raise this process' limit of open files, and that of what it starts, as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
