"""What one turn has to say to the gateway, and how much of it this connection has been told already."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from bridge import events, wire
from bridge.wire import Frame


class Answer:
    """
    The output of one turn, kept whole until the gateway has it.

    The turn adds to it at any time; `frames` gives what the present connection still lacks, so
    whatever gathers while the socket is busy leaves as one piece, and a new connection goes on where
    the gateway says it is, or begins the stream anew.
    """

    def __init__(
        self, *, user: str, agent: str, session: str, message_id: str | None, stream_id: str
    ) -> None:
        self.user = user
        self.agent = agent
        self.session = session
        self.message_id = message_id
        self.stream_id = stream_id
        self.end: events.End | None = None
        self.attached = True  # may be told on the present connection
        self.settled = False  # the gateway is known to have the end
        self.end_told = False
        self._begun = False  # the stream is open at the gateway, as far as we know
        self._said: list[str] = []
        self._waiting: deque[str | Frame] = deque()
        self._open_request: Frame | None = None
        self._files: list[Frame] = []
        self._files_told = 0
        self._untaken: list[str] = []

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._said)

    @property
    def begun(self) -> bool:
        """Whether the gateway was told of a stream on this connection."""
        return self._begun

    def add(self, event: events.Event) -> None:
        """Take the next event of the turn; nothing may follow its end."""
        if self.end is not None:
            return
        match event:
            case events.Delta(text):
                if text:
                    self._said.append(text)
                    self._waiting.append(text)
            case events.Attachment(kind, media):
                frame = self._envelope(kind) | {"data": {"media": media}}
                self._files.append(wire.stamped(frame))
            case events.Completed() | events.Failed() | events.Cancelled():
                self.end = event
                self._open_request = None
                if event.pending_steer:
                    self._untaken.append(event.pending_steer)
            case _:
                data = {"event": event.name, **wire.fit(event.data())}
                frame = wire.stamped(self._envelope("event") | {"data": data})
                self._waiting.append(frame)
                if isinstance(event, events.ApprovalRequest):
                    self._open_request = frame

    def answered(self) -> None:
        """The open approval request was answered: it is not told again."""
        self._open_request = None

    def leave(self, remark: str) -> None:
        """The agent did not take a remark that its sender was told of as passed on: the end will hold it."""
        if self.end is None:
            self._untaken.append(remark)

    def frames(self, caps: frozenset[str]) -> Iterator[Frame]:
        """
        What the connection lacks, in order; a frame counts as told when the next one is asked for.

        A frame that could not be sent is therefore given again to the next connection.
        """
        while self._waiting:
            head = self._waiting[0]
            if isinstance(head, dict):
                if "events" in caps:
                    yield head
                self._waiting.popleft()
                continue
            if not self._begun:
                yield wire.stamped(self._envelope("stream_start"), self.stream_id)
                self._begun = True
            piece = self._next_piece()
            yield self._envelope("stream") | {"data": {"text": piece}}
        if self.end is not None and not self.end_told:
            yield from self._end_frames(caps)
            self.end_told = True

    def owes(self) -> bool:
        """Whether `frames` has something to give."""
        return bool(self._waiting) or (self.end is not None and not self.end_told)

    def go_on(self, chars: int) -> None:
        """A new connection, and the gateway holds `chars` characters of the open stream: tell the rest."""
        text = self.text
        if chars > len(text):
            self.begin_anew()
            return
        self._tell_from(chars, text)
        self._begun = True

    def begin_anew(self, stream_id: str | None = None) -> None:
        """A new connection, which may lack some of the stream: tell all of it under one `stream_start`."""
        self.stream_id = stream_id or self.stream_id
        self._tell_from(0, self.text)
        self._begun = False

    def _tell_from(self, chars: int, text: str) -> None:
        """Everything after `chars` is waiting again; events that were told stay told, an open request does not."""
        later = [item for item in self._waiting if isinstance(item, dict)]
        said = len(text) - sum(len(item) for item in self._waiting if isinstance(item, str))
        if chars < said:
            self._waiting.appendleft(text[chars:said])
        else:
            self._drop(chars - said)
        if self._open_request is not None and self._open_request not in later:
            self._waiting.append(self._open_request)
        self.attached = True
        self.end_told = False
        self._files_told = 0

    def _drop(self, chars: int) -> None:
        """Take so many characters off the text that waits; what waits between them stays."""
        kept: deque[str | Frame] = deque()
        for item in self._waiting:
            if isinstance(item, str):
                item, chars = item[chars:], max(0, chars - len(item))
            if item:
                kept.append(item)
        self._waiting = kept

    def _next_piece(self) -> str:
        """Take the text at the head, joined up to the next event and the size of a frame."""
        pieces: list[str] = []
        room = wire.MAX_PIECE_CHARS
        while self._waiting and room and isinstance(piece := self._waiting[0], str):
            self._waiting.popleft()
            if len(piece) > room:
                self._waiting.appendleft(piece[room:])
                piece = piece[:room]
            pieces.append(piece)
            room -= len(piece)
        return "".join(pieces)

    def _end_frames(self, caps: frozenset[str]) -> Iterator[Frame]:
        control = "control" in caps
        match self.end:
            case events.Completed():
                if not self._begun:
                    yield wire.stamped(self._envelope("stream_start"), self.stream_id)
                    self._begun = True
                data = {"media": len(self._files)} if control and self._files else {}
                yield self._end_with(data | self._left(caps))
                yield from self._file_frames()
            case events.Cancelled() if control:
                yield self._end_with({"status": "cancelled"} | self._left(caps))
            case events.Cancelled() if self._begun:
                yield self._envelope("stream_end")
            case events.Cancelled():
                yield self._error("internal", "The turn was stopped.", "", caps)
            case events.Failed(text, code, reason):
                yield self._error(code, text, reason, caps)

    def _end_with(self, data: dict[str, Any]) -> Frame:
        end = self._envelope("stream_end")
        return end | {"data": data} if data else end

    def _left(self, caps: frozenset[str]) -> dict[str, Any]:
        """The remarks that came to nothing."""
        if not self._untaken or "control" not in caps:
            return {}
        return {"pending_steer": wire.clean("\n".join(self._untaken))[: wire.MAX_REMARK_CHARS]}

    def _file_frames(self) -> Iterator[Frame]:
        while self._files_told < len(self._files):
            yield self._files[self._files_told]
            self._files_told += 1

    def _error(self, code: str, text: str, reason: str, caps: frozenset[str]) -> Frame:
        data: dict[str, Any] = {"code": code, "text": wire.clean(text)[:500]}
        if reason and "events" in caps:
            data["reason"] = reason
        data |= self._left(caps)
        return wire.stamped(self._envelope("error") | {"data": data})

    def _envelope(self, kind: str) -> Frame:
        reply_to = self.message_id
        # v3 has no `reply_to` on these two; the end carries one where there may be no stream to name.
        if kind == "stream" or (kind == "stream_end" and self._begun):
            reply_to = None
        return wire.envelope(kind, sender=self.agent, to=self.user, session=self.session, reply_to=reply_to)
