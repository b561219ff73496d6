"""Things that are asked one at a time: connections of an App, pages over HTTP. How long each takes, and costs."""

import asyncio
import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

from bench.cpu import Meter
from bench.loads.lines import open_line
from bench.loads.orders import carry_out, say_begun
from bench.tables import p50_p99

READY_SECONDS = 30.0


async def connect(url: str, faults: list[str]) -> None:
    """Connect an App with capabilities, until its `ready`."""
    ready: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def take(payload: bytes) -> None:
        if ready.done():
            faults.append(f"after ready: {payload[:200]!r}")
        else:
            ready.set_result(payload)

    line = await open_line(url, "an App", take, faults)
    async with asyncio.timeout(READY_SECONDS):
        first = json.loads(await ready)
    if first["type"] != "ready" or first["data"]["truncated"]:
        faults.append(f"expected ready, got {first}")
    line.leave()


class Pages:
    """One kept HTTP connection."""

    def __init__(self, url: str, token: str, least_rows: int) -> None:
        parts = urlsplit(url)
        self._line = http.client.HTTPConnection(parts.netloc)
        self._path = f"{parts.path}?{parts.query}"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._least_rows = least_rows

    def get(self, faults: list[str]) -> None:
        """One page, whole."""
        self._line.request("GET", self._path, headers=self._headers)
        answer = self._line.getresponse()
        body = answer.read()
        if answer.status != 200 or len(json.loads(body)["data"]) < self._least_rows:
            faults.append(f"{self._path}: {answer.status} {body[:200]!r}")


async def run(order: dict[str, Any]) -> dict[str, Any]:
    """Ask each of `asks` so many times; returns by name the p50 and p99 seconds and the CPU seconds of one."""
    faults: list[str] = []
    answers = {}
    say_begun()
    for ask in order["asks"]:
        pages = Pages(ask["url"], ask["token"], ask["rows"]) if ask["url"].startswith("http") else None
        taken = []
        for number in range(-order["warm"], order["count"]):
            if number == 0:
                meter = Meter(order["pids"])
            began = time.perf_counter()
            if pages is not None:
                await asyncio.to_thread(pages.get, faults)
            else:
                await connect(ask["url"], faults)
            if number >= 0:
                taken.append(time.perf_counter() - began)
        p50, p99 = p50_p99(taken)
        cost = meter.used()["cpu_seconds"] / order["count"]
        answers[ask["name"]] = {"p50": p50, "p99": p99, "cpu_seconds": cost}
    return {"answers": answers, "faults": faults[:5]}


if __name__ == "__main__":
    carry_out(run)
