"""App and Agent: the two kinds of peer, on the `websockets` library, speaking the wire protocol by hand."""

import asyncio
import contextlib
import json
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote

import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.rig.timing import PROMPT, TIMEOUT

TS = 1719123456
"""The Unix second that every frame of the tests carries unless it is about time."""

Frame = dict[str, Any]


def new_id() -> str:
    """A fresh id, as a usual App makes them."""
    return str(uuid.uuid4())


def strict(text: str | bytes) -> Any:
    """
    Read JSON as a browser does: no NaN, no Infinity.

    Raises:
        ValueError: If a browser would refuse it.
    """
    assert isinstance(text, str), f"a binary frame came: {text!r}"

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON: {text}")

    return json.loads(text, parse_constant=refuse)


def without_null_reply(frame: Frame) -> Frame:
    """The same frame; no `reply_to` and a null one are the same to the protocol."""
    return {name: value for name, value in frame.items() if name != "reply_to" or value is not None}


def matches(frame: Frame, fields: Frame) -> bool:
    """Whether a frame has these fields; ``code`` and ``text`` are looked up in its data."""
    data = frame.get("data") or {}
    return all(
        (data.get(name) if name in ("code", "text") else frame.get(name)) == value
        for name, value in fields.items()
    )


class Peer:
    """One WebSocket; a task of its own reads it, so that a test may look late and lose nothing."""

    def __init__(self, socket: ClientConnection, read_pause_seconds: float = 0) -> None:
        self.socket = socket
        self.seen: list[Frame] = []
        self._unread: deque[Frame] = deque()
        self._arrived = asyncio.Event()
        self._pause = read_pause_seconds
        self._reader = asyncio.create_task(self._read())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _read(self) -> None:
        try:
            async for text in self.socket:
                frame = strict(text)
                self.seen.append(frame)
                self._unread.append(frame)
                self._arrived.set()
                if self._pause:
                    await asyncio.sleep(self._pause)
        except ConnectionClosed:
            pass
        finally:
            self._arrived.set()

    async def close(self) -> None:
        """Close as a well-behaved client does, and stop reading."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(PROMPT):
                await self.socket.close()
        self.abort()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader

    def abort(self) -> None:
        """Drop the line without a close frame."""
        self.socket.transport.abort()

    async def send(self, frame: Frame | str | bytes) -> None:
        """Send one frame; a string or bytes go out as they are."""
        if isinstance(frame, dict):
            frame = json.dumps(frame, ensure_ascii=False)
        await self.socket.send(frame)

    async def next(self, timeout_seconds: float = TIMEOUT) -> Frame:
        """
        The next frame nobody has taken yet.

        Raises:
            AssertionError: If none comes in time, or the socket ends first.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while not self._unread:
                    if self._reader.done():
                        self._reader.result()
                        raise AssertionError(f"closed with {self.socket.close_code}; seen: {self.seen[-5:]}")
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(f"nothing came within {timeout_seconds} s; seen: {self.seen[-5:]}") from None
        return self._unread.popleft()

    async def expect(self, timeout_seconds: float = TIMEOUT, **fields: Any) -> Frame:
        """The next frame, which must have these fields."""
        frame = await self.next(timeout_seconds)
        assert matches(frame, fields), f"expected {fields}, got {frame}"
        return frame

    async def until(self, timeout_seconds: float = TIMEOUT, **fields: Any) -> list[Frame]:
        """All frames up to and with the first that has these fields."""
        frames: list[Frame] = []
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    frames.append(await self.next(timeout_seconds + 1))
                    if matches(frames[-1], fields):
                        return frames
        except TimeoutError:
            raise AssertionError(f"no {fields} within {timeout_seconds} s; came: {frames[-5:]}") from None

    async def alive(self) -> list[Frame]:
        """A ping is answered at once; returns what came before the pong."""
        await self.send({"type": "ping"})
        frames = await self.until(PROMPT, type="pong")
        assert frames[-1] == {"type": "pong"}
        return frames[:-1]

    async def quiet(self) -> None:
        """Nothing has come that nobody took, and the socket lives."""
        assert (frames := await self.alive()) == [], frames

    async def ended(self, timeout_seconds: float = TIMEOUT) -> int:
        """
        The close code, once the other side has closed.

        Raises:
            AssertionError: If the socket stays open.
        """
        done, _ = await asyncio.wait({self._reader}, timeout=timeout_seconds)
        assert done, f"still open after {timeout_seconds} s; seen: {self.seen[-5:]}"
        self._reader.result()
        return self.socket.close_code or 1006

    def unread(self) -> list[Frame]:
        """What has come and nobody has taken, without waiting."""
        return list(self._unread)


@dataclass
class Stream:
    """One streamed reply as an App saw it."""

    start: Frame
    pieces: list[str] = field(default_factory=list)
    end: Frame | None = None

    @property
    def text(self) -> str:
        """All pieces joined."""
        return "".join(self.pieces)


class App(Peer):
    """A person's phone or browser."""

    user: str = ""

    def envelope(self, type: str, session: str, **fields: Any) -> Frame:
        """A whole frame of this App; ``fields`` replace or add, a ``data`` given is used as it is."""
        frame = {
            "id": new_id(),
            "type": type,
            "from": self.user,
            "to": "hermes",
            "session": session,
            "ts": TS,
        }
        return without_null_reply(frame | fields)

    async def say(self, text: str, session: str, **fields: Any) -> Frame:
        """Send a text; returns the frame."""
        frame = self.envelope("text", session, data={"text": text}, **fields)
        await self.send(frame)
        return frame

    async def read_stream(self, session: str, timeout_seconds: float = TIMEOUT) -> Stream:
        """The next streamed reply of a session, whole; frames of other sessions may not come in between."""
        stream = Stream(await self.expect(timeout_seconds, type="stream_start", session=session))
        while stream.end is None:
            frame = await self.next(timeout_seconds)
            assert frame["session"] == session, f"a frame of another session: {frame}"
            if frame["type"] == "stream":
                stream.pieces.append(frame["data"]["text"])
            else:
                assert frame["type"] == "stream_end", f"in a stream came {frame}"
                stream.end = frame
        return stream


class Agent(Peer):
    """The program that answers."""

    user: str = ""
    name: str = "hermes"

    def envelope(self, type: str, session: str, **fields: Any) -> Frame:
        """A whole frame of this agent; ``fields`` replace or add."""
        frame = {
            "id": new_id(),
            "type": type,
            "from": self.name,
            "to": self.user,
            "session": session,
            "ts": TS,
        }
        return without_null_reply(frame | fields)

    async def answer(self, text: str, session: str, reply_to: str | None = None, **fields: Any) -> Frame:
        """Send a finished text; returns the frame."""
        frame = self.envelope("text", session, reply_to=reply_to, data={"text": text}, **fields)
        await self.send(frame)
        return frame

    async def start(self, session: str, reply_to: str | None = None, **fields: Any) -> Frame:
        """Open a stream; returns the frame."""
        frame = self.envelope("stream_start", session, reply_to=reply_to, **fields)
        await self.send(frame)
        return frame

    async def piece(self, text: str, session: str) -> None:
        """Send the next piece of the open stream of a session."""
        await self.send(self.bare("stream", session, data={"text": text}))

    async def end(self, session: str, **fields: Any) -> None:
        """Close the open stream of a session."""
        await self.send(self.bare("stream_end", session, **fields))

    def bare(self, type: str, session: str, **fields: Any) -> Frame:
        """A frame without id and time, as the protocol has `stream` and `stream_end`."""
        return {"type": type, "from": self.name, "to": self.user, "session": session} | fields

    async def stream(self, pieces: list[str], session: str, reply_to: str | None = None) -> Frame:
        """Send a whole streamed reply; returns its first frame."""
        start = await self.start(session, reply_to)
        for piece in pieces:
            await self.piece(piece, session)
        await self.end(session)
        return start


def address(port: int, path: str, **query: str) -> str:
    """The address of a socket of a gateway on this machine; values are percent-encoded."""
    pairs = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return f"ws://127.0.0.1:{port}{path}" + (f"?{pairs}" if pairs else "")


async def open_socket(url: str, **options: Any) -> ClientConnection:
    """A WebSocket without compression and without pings of its own; ``options`` go to `connect`."""
    options = {"compression": None, "ping_interval": None, "proxy": None, "max_size": None} | options
    options.setdefault("open_timeout", TIMEOUT)
    return await connect(url, **options)


async def refusal(url: str, **options: Any) -> int:
    """
    The HTTP status with which an upgrade is refused.

    Raises:
        AssertionError: If it is accepted.
    """
    try:
        socket = await open_socket(url, **options)
    except InvalidStatus as refused:
        return refused.response.status_code
    except websockets.exceptions.InvalidMessage as broken:
        raise AssertionError(f"no HTTP answer: {broken.__cause__!r}") from broken
    await socket.close()
    raise AssertionError(f"accepted: {url[:200]}")
