"""What readers are told of a commit, and how Apps of each kind see it. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from chat import frames
from chat.events import Event, app_parts

# Capability bits of an App, as rendering is cached by them.
SYNC, EVENTS, CONTROL, ALIAS = 1, 2, 4, 8
CAP_BITS = {"sync": SYNC, "events": EVENTS, "control": CONTROL}


class RunRef(NamedTuple):
    """What telling needs to know of a run."""

    key: int
    public_id: str
    session: str
    agent: str
    user: str
    reply_to: str | None  # the user message it answers


class Out(NamedTuple):
    """One frame for an App; waiting pieces with the same `joins` may be joined."""

    text: str
    joins: str | None = None  # what comes before the piece in the frame's text, which names its stream
    piece: str = ""


def piece_head(sender: str, to: str, session: str) -> str:
    """The text of a `stream` frame up to its piece."""
    whole = frames.encode(
        {"type": "stream", "from": sender, "to": to, "session": session, "data": {"text": ""}}
    )
    return whole[:-3]  # without the closing quote and braces


def piece_frame(head: str, piece: str) -> str:
    """The text of a `stream` frame."""
    return head + frames.encode_text(piece)[1:] + "}}"


class Told:
    """
    One committed thing: a message (with its cursor), events of a run (with their numbers), or both.

    A reader tells it when `cursor - 1` and `first - 1` have been told. `message` is the stored frame; for a
    streamed one it is the whole `text`, and `streamed` says that its end is meant. A told thing without
    numbers (`notice`) is a frame that is not stored: it goes out as it comes.
    """

    __slots__ = (
        "_rendered", "away", "cursor", "events", "first", "last", "message", "notice", "run", "side", "status",
        "streamed", "unsynced", "user_id", "was_streamed",
    )  # fmt: skip

    def __init__(
        self,
        user_id: int,
        *,
        cursor: int | None = None,
        run: RunRef | None = None,
        first: int = 0,
        last: int = 0,
        events: list[Event] | None = None,
        message: dict[str, Any] | None = None,
        side: frames.Side = "agent",
        streamed: bool = False,
        status: dict[str, Any] | None = None,
        notice: dict[str, Any] | None = None,
        was_streamed: bool = False,
        away: bool = False,
        unsynced: bool = False,
    ) -> None:
        self.user_id = user_id
        self.cursor = cursor
        self.run = run
        self.first = first
        self.last = last
        self.events = events
        self.message = message
        self.side = side
        self.streamed = streamed
        self.status = status  # {id, status, code} of the run, for echoes of an App's message
        self.notice = notice
        self.was_streamed = was_streamed  # a stored message that had been streamed, in a replay
        self.away = away  # committed by another process
        self.unsynced = unsynced  # a notice of what Apps with `sync` learn by their replay
        self._rendered: dict[int, list[Out]] = {}

    def render(self, caps: int) -> list[Out]:
        """The frames an App with these capability bits gets, in order."""
        outs = self._rendered.get(caps)
        if outs is None:
            outs = self._rendered[caps] = list(self._render(caps))
        return outs

    def copy(self, **changes: Any) -> Told:
        """The same with other values of some fields."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return Told(**{**values, **changes})

    def pack(self) -> list[Any]:
        """As plain values, for another process."""
        return [
            self.user_id, self.cursor, list(self.run) if self.run else None, self.first, self.last, self.events,
            self.message, self.side, self.streamed, self.status, self.notice, self.unsynced,
        ]  # fmt: skip

    @classmethod
    def unpack(cls, values: list[Any]) -> Told:
        """What `pack` packed."""
        user_id, cursor, run, first, last, events, message, side, streamed, status, notice, unsynced = values
        return cls(
            user_id, cursor=cursor, run=RunRef(*run) if run else None, first=first, last=last, events=events,
            message=message, side=side, streamed=streamed, status=status, notice=notice, unsynced=unsynced,
            away=True,
        )  # fmt: skip

    def _render(self, caps: int) -> Iterable[Out]:
        if self.notice is not None:
            if self.side == "app" or (self.unsynced and caps & SYNC):  # for an agent; known already
                return
            if self.notice["type"] != "event" or caps & EVENTS:
                yield Out(frames.encode(_aliased(self.notice, caps)))
            return
        late: list[Out] = []
        if self.events and self.run is not None:
            for out, is_event in self._render_events(self.events, self.run, caps):
                if is_event and self.message is not None:
                    late.append(out)
                else:
                    yield out
        if self.message is not None:
            yield from self._render_message(self.message, caps)
        yield from late

    def _render_events(self, events: list[Event], run: RunRef, caps: int) -> Iterable[tuple[Out, bool]]:
        sender = "hermes" if caps & ALIAS else run.agent
        head = ""
        for kind, value in app_parts(events):
            if kind == "piece":
                head = head or piece_head(sender, run.user, run.session)
                yield Out(piece_frame(head, value), head, value), False
            elif kind == "start":
                yield Out(frames.encode(start_frame(run, value, sender))), False
            elif kind == "error":
                yield Out(frames.encode({**value, "from": sender})), False
            elif caps & EVENTS:
                yield Out(frames.encode(event_frame(run, value, sender))), True

    def _render_message(self, message: dict[str, Any], caps: int) -> Iterable[Out]:
        if self.side == "app":
            if caps & SYNC:
                echo = message if self.cursor is None else {**message, "cursor": self.cursor}
                if self.status is not None:
                    echo = {**echo, "run": self.status}
                yield Out(frames.encode(echo))
            return
        frame = _aliased(message, caps)
        if self.streamed:
            end = {key: frame[key] for key in ("from", "to", "session")}
            frame = {"type": "stream_end", **end}
            if caps & SYNC:
                frame["id"] = message["id"]
            if caps & CONTROL and (data := _end_data(message)):
                frame["data"] = data
        if caps & SYNC:
            frame = {**frame, "cursor": self.cursor}
        yield Out(frames.encode(frame))


_FIELDS = (
    "user_id", "cursor", "run", "first", "last", "events", "message", "side", "streamed", "status", "notice",
    "was_streamed", "away", "unsynced",
)  # fmt: skip


def start_frame(run: RunRef, start: dict[str, Any], sender: str) -> dict[str, Any]:
    """The `stream_start` of a stream; `start` is what the journal keeps of it."""
    frame = {
        "id": start["id"],
        "type": "stream_start",
        "from": sender,
        "to": run.user,
        "session": run.session,
    }
    if start.get("reply_to") is not None:
        frame["reply_to"] = start["reply_to"]
    return {**frame, "ts": start["ts"]}


def event_frame(run: RunRef, event: Event, sender: str) -> dict[str, Any]:
    """An event of a run as the `event` frame of an App."""
    fields = {key: value for key, value in event.items() if key not in ("v3", "ts")}
    frame: dict[str, Any] = {
        "id": f"{run.public_id}:{event['seq']}",
        "type": "event",
        "from": sender,
        "to": run.user,
        "session": run.session,
    }
    if run.reply_to is not None:
        frame["reply_to"] = run.reply_to
    return {**frame, "ts": int(event["ts"]), "data": {**fields, "run_id": run.public_id}}


def _aliased(frame: dict[str, Any], caps: int) -> dict[str, Any]:
    return {**frame, "from": "hermes"} if caps & ALIAS else frame


def _end_data(message: dict[str, Any]) -> dict[str, Any]:
    data = message.get("data") or {}
    return {key: data[key] for key in ("status", "interrupted", "media") if key in data}
