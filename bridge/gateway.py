"""The agent's socket: connects, backs off, keeps the heartbeat, and says why it waits or stops."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException

from bridge import wire
from bridge.wire import Frame

log = logging.getLogger("bridge.gateway")

KEY_REVOKED = 4403
WAIT_LONG = {4008: "20 of our frames in a row were invalid", 4409: "another bridge took this agent's place"}
# A conversation that was rewritten comes with its whole history in one frame.
MAX_FRAME_BYTES = 16 * 1024 * 1024


class Closed(Exception):
    """The connection ended; whoever was using it stops."""


class Stopped(Exception):
    """The gateway will not have this agent again; connecting anew is no use."""


@dataclass(frozen=True, slots=True)
class Times:
    """All times of the socket, in seconds; tests shorten them together."""

    backoff: tuple[float, ...] = (1, 2, 4, 8, 30)
    long_wait: float = 300
    rate_limited: float = 60
    open: float = 20
    ready: float = 10
    ping: float = 30
    silence: float = 90
    close: float = 3


class Link:
    """One live connection. `caps` is what the gateway granted: empty for plain v3."""

    def __init__(self, socket: ClientConnection, times: Times) -> None:
        self.caps: frozenset[str] = frozenset()
        self.ready: Frame = {}
        self.pongs = 0
        self._socket = socket
        self._times = times
        self._pings = 0
        self._heard_at = time.monotonic()
        self._first: Frame | None = None

    async def send(self, frame: Frame) -> None:
        """
        Write one frame; waits while the socket is busy.

        Raises:
            Closed: If the connection has ended.
        """
        try:
            await self._socket.send(wire.encode(frame))
        except ConnectionClosed as error:
            raise Closed from error

    async def ping(self) -> int:
        """Send a ping and return its number: when `pongs` reaches it, all sent before it was read."""
        self._pings += 1
        number = self._pings
        await self.send({"type": "ping"})
        return number

    async def greet(self, wanted: frozenset[str]) -> None:
        """Learn what the gateway grants: its first frame is `ready`, or it knows no capabilities."""
        await self.ping()
        if not wanted:
            return
        try:
            async with asyncio.timeout(self._times.ready):
                frame = await self._receive()
        except TimeoutError:
            frame = None
        if frame is None or frame["type"] != "ready":
            log.warning("the gateway knows no capabilities: going on with plain v3")
            self._first = frame
            return
        data = frame.get("data")
        self.ready = data if isinstance(data, dict) else {}
        granted = self.ready.get("caps")
        self.caps = wanted & frozenset(granted if isinstance(granted, list) else ())
        if self.caps != wanted:
            log.warning("the gateway granted only: %s", ", ".join(sorted(self.caps)) or "nothing")

    async def frames(self) -> AsyncIterator[Frame]:
        """Everything the gateway sends until the connection ends, `pong` included."""
        if self._first is not None:
            first, self._first = self._first, None
            if first["type"] == "pong":
                self.pongs += 1
            yield first
        while True:
            try:
                frame = await self._receive()
            except Closed:
                return
            if frame["type"] == "pong":
                self.pongs += 1
            yield frame

    async def keep_alive(self) -> None:
        """Ping, and give the connection up when nothing has come for too long."""
        pinged_at = time.monotonic()
        while True:
            now = time.monotonic()
            if now - self._heard_at >= self._times.silence:
                log.warning(
                    "nothing heard from the gateway for %.0f s: connecting anew", now - self._heard_at
                )
                self._socket.transport.abort()
                return
            if now - pinged_at >= self._times.ping:
                pinged_at = now
                await self.ping()
            until_ping = pinged_at + self._times.ping - now
            until_silence = self._heard_at + self._times.silence - now
            await asyncio.sleep(max(0.01, min(until_ping, until_silence)))

    async def _receive(self) -> Frame:
        while True:
            try:
                message = await self._socket.recv()
            except ConnectionClosed as error:
                raise Closed from error
            self._heard_at = time.monotonic()
            if (frame := wire.decode(message)) is not None:
                return frame
            log.warning("the gateway sent something that is no frame; left aside")


class Gateway:
    """The way to the gateway, for as long as the bridge runs."""

    def __init__(self, url: str, key: str, caps: frozenset[str], times: Times | None = None) -> None:
        self._url = url
        self._key = key
        self._caps = caps
        self._times = times or Times()

    async def run(self, serve: Callable[[Link], Awaitable[None]], since: Callable[[], int | None]) -> None:
        """
        Keep one connection and hand each new one to `serve`, which returns when it has ended.

        Raises:
            Stopped: When the gateway refused for good.
        """
        failures = 0
        refused = 0
        while True:
            try:
                wait = await self._once(serve, since())
                failures = refused = 0
            except InvalidStatus as error:
                status = error.response.status_code
                refused = refused + 1 if status == 403 else 0
                wait = self._refusal(status, error.response.headers.get("Retry-After"), refused)
            except (OSError, TimeoutError, InvalidHandshake, WebSocketException) as error:
                log.warning("cannot reach the gateway: %s", _short(error))
                wait = None
            if wait is None:
                wait = self._times.backoff[min(failures, len(self._times.backoff) - 1)]
                failures += 1
            log.info("connecting again in %g s", wait)
            await asyncio.sleep(wait)

    async def _once(self, serve: Callable[[Link], Awaitable[None]], since: int | None) -> float | None:
        """One connection from its opening to its end; how long to wait then, None for the usual."""
        log.info("connecting to %s", _address(self._url))
        async with _Connect(
            self._asking(since),
            additional_headers={"Authorization": f"Bearer {self._key}"},
            compression=None,
            max_size=MAX_FRAME_BYTES,
            open_timeout=self._times.open,
            close_timeout=self._times.close,
            ping_interval=None,
            proxy=None if _is_local(self._url) else True,
            logger=logging.getLogger("bridge.websockets"),
        ) as socket:
            link = Link(socket, self._times)
            heartbeat = asyncio.create_task(_until_closed(link.keep_alive()))
            try:
                await link.greet(self._caps)
                log.info("connected; capabilities: %s", ", ".join(sorted(link.caps)) or "none, plain v3")
                await serve(link)
            except Closed:
                pass
            finally:
                heartbeat.cancel()
                await asyncio.wait([heartbeat])
        return self._parting(socket.close_code, socket.close_reason)

    def _parting(self, code: int | None, reason: str | None) -> float | None:
        log.warning("the connection ended with %s%s", code, f": {reason}" if reason else "")
        if code == KEY_REVOKED:
            raise Stopped("the key was revoked or its user disabled")
        if code in WAIT_LONG:
            log.warning("%s", WAIT_LONG[code])
            return self._times.long_wait
        return None

    def _refusal(self, status: int, retry_after: str | None, refused: int) -> float | None:
        if status == 401:
            raise Stopped("the gateway does not accept this API key (401)")
        if status == 400:
            raise Stopped("the gateway does not accept the address's query (400)")
        if status == 403 and refused >= len(self._times.backoff):
            # Plain daphne answers everything with 403, a gateway that is shutting down among it.
            raise Stopped("the gateway refuses this agent (403): wrong key or disabled user")
        log.warning("the gateway refused the connection with %s", status)
        if status == 429:
            return float(retry_after) if retry_after and retry_after.isdecimal() else self._times.rate_limited
        return None

    def _asking(self, since: int | None) -> str:
        if not self._caps:
            return self._url
        query = {"caps": ",".join(sorted(self._caps))}
        if since is not None and "sync" in self._caps:
            query["since"] = str(since)
        return f"{self._url}{'&' if '?' in self._url else '?'}{urlencode(query, safe=',')}"


class _Connect(connect):
    """Opens a socket where it was told to: a redirect would take the key elsewhere."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow none."""
        return exc


async def _until_closed(work: Awaitable[None]) -> None:
    try:
        await work
    except Closed:
        pass


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(url: str) -> str:
    """The address without its query, which may hold a credential."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


def _short(error: BaseException) -> str:
    return str(error) or type(error).__name__
