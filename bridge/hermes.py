"""Client of a Hermes API server: starts runs, reads their events, stops them. Keeps nothing on disk."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx

from bridge import events
from bridge.dialects import STATUS_OF_END, Hermes019, Translator, dialect_of, made_up
from bridge.events import Order, Refused

log = logging.getLogger("bridge.hermes")

# Hermes cuts longer texts without a word, and refuses larger bodies.
MAX_TEXT_CHARS = 65_536
MAX_BODY_BYTES = 10_000_000
MAX_LINE_BYTES = 16 * 1024 * 1024
# Above the keep-alive of an idle event stream, which is 30 s in 0.19.
READ_SECONDS = 75.0
STOP_TRIES = 20


class Hermes:
    """
    One Hermes API server; every method may raise `Refused`.

    A server that is away is waited for `wait_seconds`. What may have reached it is never sent twice,
    unless its dialect takes a key for it.
    """

    takes_media = False

    def __init__(
        self,
        url: str,
        key: str,
        *,
        wait_seconds: float = 10,
        retry_seconds: float = 0.5,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._wait = wait_seconds
        self._retry = retry_seconds
        self._dialect: Hermes019 | None = None
        # A kept connection may have died unseen, and a request lost with it could not be told from one
        # that was taken: each request opens its own. Redirects and proxies would take the key elsewhere.
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(READ_SECONDS, connect=5, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )

    async def close(self) -> None:
        """Close what is open; runs go on."""
        await self._http.aclose()

    async def dialect(self) -> Hermes019:
        """The dialect of the server, asked once and again after it was away."""
        if self._dialect is None:
            response = await self._insist("GET", "/v1/capabilities", safe=True)
            if response.status_code == 404:
                self._dialect = Hermes019()
            else:
                self._dialect = dialect_of(_json(_good(response)))
            log.info("Hermes speaks the dialect of %s", self._dialect.version)
        return self._dialect

    async def repeatable(self) -> bool:
        """Whether starting the same order twice makes one turn."""
        return (await self.dialect()).idempotent

    async def rereadable(self) -> bool:
        """Whether the events of a run can be read again from the first."""
        return (await self.dialect()).resumable

    async def start(self, order: Order) -> str:
        """Begin a turn and return its run id."""
        if len(order.text) > MAX_TEXT_CHARS:
            raise Refused(
                f"A message may have at most {MAX_TEXT_CHARS:,} characters; this one has {len(order.text):,}.",
                "unsupported",
                "text_too_long",
            )
        dialect = await self.dialect()
        content = json.dumps(dialect.body(order)).encode()
        if len(content) > MAX_BODY_BYTES:
            raise Refused("The message is too large for the agent.", "unsupported", "body_too_large")
        response = await self._insist(
            "POST", "/v1/runs", safe=dialect.idempotent, content=content, headers=dialect.headers(order)
        )
        run_id = _json(_good(response)).get("run_id")
        if not isinstance(run_id, str):
            raise Refused("Hermes began a run without saying which.")
        return run_id

    async def follow(self, run_id: str, *, resumed: bool = False) -> AsyncGenerator[events.Event, None]:
        """
        The events of a run, its end last and exactly once.

        When the stream of events breaks off, the rest is read again where the dialect can, else the
        run's status is asked for until it has ended.
        """
        translator = Translator(run_id)
        dialect = await self.dialect()
        seen: str | None = None
        gone_at: float | None = None
        readable = dialect.resumable or not resumed
        whole = True
        while readable:
            try:
                async with self._events(run_id, seen) as response:
                    if response.status_code != 200:
                        break
                    async for event_id, raw in _server_sent(response):
                        gone_at = None
                        seen = event_id if event_id is not None else seen
                        whole = whole and raw.get("event") != "replay.truncated"
                        for event in translator.read(raw):
                            yield event
                            if isinstance(event, events.End):
                                return
            except httpx.TransportError as error:
                log.warning("the events of %s broke off: %s", run_id, type(error).__name__)
            readable = dialect.resumable and whole
            gone_at = gone_at or time.monotonic()
            if time.monotonic() - gone_at > self._wait:
                break
            await asyncio.sleep(self._retry)
        try:
            status, run = await self._ended(run_id)
        except Refused as error:
            yield events.Failed(error.text, error.code, error.reason)
            return
        for event in translator.ended(status, run, live=False):
            yield event

    async def stop(self, run_id: str) -> None:
        """Ask for the end of a run; it comes as an event. A run that has ended is left alone."""
        for _ in range(STOP_TRIES):
            response = await self._insist("POST", _of(run_id, "stop"), safe=True, content=b"{}")
            if response.status_code != 409:  # too early: the run has no agent yet
                break
            await asyncio.sleep(self._retry)
        if response.status_code != 404:
            _good(response)

    async def steer(self, run_id: str, text: str) -> bool:
        """Add a remark to a running run; False when it cannot be taken."""
        if not (await self.dialect()).steers:
            return False
        content = json.dumps({"input": text}).encode()
        response = await self._insist("POST", _of(run_id, "steer"), safe=False, content=content)
        return response.status_code == 200

    async def approve(self, run_id: str, request_id: str, choice: str) -> None:
        """Answer the open approval request of a run."""
        body = {"choice": choice}
        if not made_up(run_id, request_id):
            body["request_id"] = request_id
        content = json.dumps(body).encode()
        _good(await self._insist("POST", _of(run_id, "approval"), safe=False, content=content))

    def _events(self, run_id: str, seen: str | None) -> Any:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": seen} if seen is not None else {})
        return self._http.stream("GET", _of(run_id, "events"), headers=headers)

    async def _ended(self, run_id: str) -> tuple[str, dict[str, Any]]:
        """Ask for a run until it has ended; its status and what is known of it."""
        while True:
            response = await self._insist("GET", f"/v1/runs/{quote(run_id, safe='')}", safe=True)
            if response.status_code == 404:
                return "interrupted", {}
            run = _json(_good(response))
            if run.get("status") in STATUS_OF_END:
                return str(run["status"]), run
            await asyncio.sleep(self._retry)

    async def _insist(self, method: str, path: str, *, safe: bool, **request: Any) -> httpx.Response:
        """One request, as often as it takes while the server is away or busy; `safe`: it may arrive twice."""
        gone_at: float | None = None
        if "content" in request:
            request["headers"] = {"Content-Type": "application/json"} | request.get("headers", {})
        while True:
            try:
                response = await self._http.request(method, path, **request)
            except httpx.TransportError as error:
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                self._dialect = self._dialect if not unsent else None
                if not unsent and not safe:
                    raise Refused(
                        "The connection to the agent broke while it was taking the message.",
                        "internal",
                        "unknown",
                    ) from error
                if gone_at is None:
                    log.warning("Hermes cannot be reached (%s): waiting", type(error).__name__)
                gone_at = gone_at or time.monotonic()
                if time.monotonic() - gone_at >= self._wait:
                    raise Refused("The agent cannot be reached.", "offline") from error
                await asyncio.sleep(self._retry)
                continue
            retry_after = response.headers.get("Retry-After", "")
            if response.status_code not in (429, 503) or not retry_after.isdecimal():
                return response
            log.info("Hermes is busy (%s): asking again in %s s", response.status_code, retry_after)
            await asyncio.sleep(float(retry_after))
            gone_at = None


async def _server_sent(response: httpx.Response) -> AsyncIterator[tuple[str | None, dict[str, Any]]]:
    """The events of a stream with their ids; comments are left out, as is what is no JSON object."""
    waiting = b""
    event_id: str | None = None
    data: list[bytes] = []
    async for chunk in response.aiter_bytes():
        *lines, waiting = (waiting + chunk).split(b"\n")
        if len(waiting) > MAX_LINE_BYTES:
            raise httpx.ReadError("a line without end")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b"id:"):
                event_id = line[3:].strip().decode("ascii", "replace")
            elif not line and data:
                try:
                    raw = json.loads(b"\n".join(data))
                except ValueError:
                    raw = None
                data = []
                if isinstance(raw, dict):
                    yield event_id, raw


def _of(run_id: str, what: str) -> str:
    return f"/v1/runs/{quote(run_id, safe='')}/{what}"


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {}


def _good(response: httpx.Response) -> httpx.Response:
    """
    The response, when it is a good one.

    Raises:
        Refused: With what the server says, fit for a user.
    """
    status = response.status_code
    if status < 300:
        return response
    error = _json(response).get("error")
    message = error.get("message") if isinstance(error, dict) else None
    reason = str((error.get("code") if isinstance(error, dict) else None) or f"http_{status}")
    if status in (401, 403):
        log.error("Hermes does not accept our key or address (%s)", status)
        raise Refused("The agent's server does not accept our key.", "internal", reason)
    code = "unsupported" if status in (400, 413, 415, 422) else "internal"
    raise Refused(f"The agent's server answered {status}: {message or response.reason_phrase}", code, reason)
