"""
A small model of how an agent's frames become turns, streams and messages, after the protocol alone.

It knows nothing of journals, rows or batches: only what devices without capabilities are to see of each
session, in order, and what is to be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GRACE_SECONDS = 30
TURN_END_SECONDS = 1
STOP_SECONDS = 30
PASSING = ("upload_failed", "file_too_large", "rate_limited")


@dataclass(eq=False)
class ModelTurn:
    """One turn of a session."""

    question: str | None
    heard: int  # the connection that was handed it, or said something of it last
    status: str = "live"
    answered: bool = False
    over_at: float | None = None  # when it is complete, unless more of it comes
    begun: bool = False
    stop_at: float | None = None  # when a stop that is not confirmed ends it


@dataclass(eq=False)
class ModelStream:
    """A stream that is open."""

    id: str
    reply_to: str | None
    turn: ModelTurn
    connection: int
    text: str = ""
    interrupted: bool = False


@dataclass(eq=False)
class ModelSession:
    """One conversation."""

    turns: list[ModelTurn] = field(default_factory=list)
    stream: ModelStream | None = None
    dropping: bool = False  # what comes up to the next end or start is nobody's
    shown: list[str] = field(default_factory=list)  # what devices see, pieces of a stream joined
    kept: dict[str, tuple[str, bool]] = field(default_factory=dict)  # id -> text, and whether it is marked

    def live(self) -> list[ModelTurn]:
        """The turns that have not ended, oldest first."""
        return [turn for turn in self.turns if turn.status == "live"]

    def show(self, words: str) -> None:
        """A device sees this; pieces of one stream count as one."""
        if words.startswith("piece ") and self.shown and self.shown[-1].startswith("piece "):
            self.shown[-1] += words[6:]
        else:
            self.shown.append(words)


class Model:
    """One agent and what it says. `caps` as it asked for them."""

    def __init__(self, caps: frozenset[str]) -> None:
        self.ends_turns = bool(caps & {"control", "events"})
        self.confirms = "control" in caps
        self.sync = "sync" in caps
        self.sessions = {name: ModelSession() for name in ("S1", "S2")}
        self.connection = 1
        self.now = 0.0
        self.graces: list[tuple[float, int]] = []
        self.stopped: set[str] = set()  # messages whose answers are nobody's

    # What a person does

    def ask(self, session: str, message_id: str) -> None:
        """A message begins a turn."""
        self.sessions[session].turns.append(ModelTurn(message_id, self.connection))

    def stop(self, session: str, message_id: str) -> None:
        """An agent with `control` is asked, any other is cut off; what still comes is dropped."""
        one = self.sessions[session]
        turn = next((turn for turn in one.live() if turn.question == message_id), None)
        if turn is None:
            return
        if not self.confirms:
            self._cut_off(one, turn)
        elif one.live()[0] is not turn and not turn.begun:
            self.stopped.add(message_id)
            turn.status = "cancelled"
        elif turn.stop_at is None:
            turn.stop_at = self.now + STOP_SECONDS

    def _cut_off(self, one: ModelSession, turn: ModelTurn) -> None:
        turn.status = "interrupted"
        if one.stream is not None and one.stream.turn is turn:
            one.stream.interrupted = one.dropping = True
            self._close(one)
        elif turn.question is not None:
            self.stopped.add(turn.question)

    # What the agent does; each says whether the frame is taken

    def start(self, session: str, stream_id: str, reply_to: str | None) -> bool:
        """A second start ends the open stream; after a break with the same `reply_to` it is begun anew."""
        one = self.sessions[session]
        one.dropping = reply_to in self.stopped
        if one.dropping:
            return False
        old = one.stream
        if old is not None:
            if old.connection != self.connection and old.reply_to == reply_to:
                old.turn.status = "interrupted"
                turn = ModelTurn(None, self.connection, begun=True)
                one.turns.append(turn)
                one.stream = ModelStream(old.id, reply_to, turn, self.connection)
                one.show(f"start {old.id} {reply_to}")
                return True
            old.interrupted = old.interrupted or old.connection != self.connection
            self._close(one)
        turn = self._turn(one, reply_to)
        if old is not None and old.turn is not turn:
            old.turn.over_at = self.now + TURN_END_SECONDS
        turn.begun = True
        one.stream = ModelStream(stream_id, reply_to, turn, self.connection)
        one.show(f"start {stream_id} {reply_to}")
        return True

    def piece(self, session: str, text: str) -> bool:
        """More text of the open stream."""
        one = self.sessions[session]
        if one.stream is None or one.dropping:
            return False
        if one.stream.connection != self.connection:
            one.stream.connection = self.connection
            one.stream.interrupted = one.stream.interrupted or not self.sync
        one.stream.text += text
        if text:
            one.stream.turn.heard = self.connection
            one.show(f"piece {text}")
        return True

    def end(self, session: str) -> bool:
        """The stream is complete, and with an agent that knows ends the turn."""
        one = self.sessions[session]
        if one.stream is None or one.dropping:
            one.dropping = False
            return False
        turn = one.stream.turn
        self._close(one)
        turn.heard = self.connection
        if self.ends_turns:
            turn.status = "completed"
        else:
            turn.over_at = self.now + TURN_END_SECONDS
        return True

    def text(self, session: str, message_id: str, reply_to: str | None) -> bool:
        """A whole message belongs to a turn and does not end its stream."""
        one = self.sessions[session]
        if reply_to in self.stopped:
            return False
        turn = self._turn(one, reply_to)
        turn.answered = turn.begun = True
        if one.stream is None or one.stream.turn is not turn:
            turn.over_at = self.now + TURN_END_SECONDS
        one.kept[message_id] = (f"text of {message_id}", False)
        one.show(f"text {message_id}")
        return True

    def error(self, session: str, code: str, reply_to: str | None) -> bool:
        """Ends the stream or the turn it speaks of, or is passed on."""
        one = self.sessions[session]
        stream = one.stream
        one.show(f"error {code} {reply_to}")
        if stream is not None and reply_to in (None, stream.reply_to, stream.turn.question):
            if code in PASSING:
                return True
            self._close(one)
            stream.turn.status = "failed"
            return True
        named = [turn for turn in one.live() if reply_to is not None and turn.question == reply_to]
        for turn in named:
            turn.status = "failed"
        return True

    # What happens to its connection

    def leave(self) -> None:
        """Its line is gone: a time of grace begins."""
        self.graces.append((self.now + GRACE_SECONDS, self.connection))

    def connect(self) -> None:
        """It is there again."""
        self.connection += 1
        self.stopped.clear()
        for one in self.sessions.values():
            one.dropping = False
            for turn in one.live():
                if (
                    turn.answered
                    and (one.stream is None or one.stream.turn is not turn)
                    and not self.ends_turns
                ):
                    turn.over_at = self.now + TURN_END_SECONDS
                if turn.heard < 0:  # it waits in the queue, and is handed out
                    turn.heard = self.connection
        # whoever does not come back to what it had begun before this connection leaves it
        self.graces.append((self.now + GRACE_SECONDS, self.connection - 1))

    def let(self, seconds: float) -> None:
        """Time passes: turns that are quiet are over, graces end."""
        end = self.now + seconds
        while True:
            dues = [(at, connection) for at, connection in self.graces if at <= end]
            overs = [
                turn.over_at
                for one in self.sessions.values()
                for turn in one.live()
                if turn.over_at is not None
            ]
            stops = [
                turn.stop_at
                for one in self.sessions.values()
                for turn in one.live()
                if turn.stop_at is not None
            ]
            moments = [at for at, _ in dues] + [at for at in (*overs, *stops) if at <= end]
            if not moments:
                break
            self.now = min(moments)
            for one in self.sessions.values():
                for turn in one.live():
                    if turn.over_at is not None and turn.over_at <= self.now:
                        turn.over_at = None
                        if turn.answered and (one.stream is None or one.stream.turn is not turn):
                            turn.status = "completed"
                    elif turn.stop_at is not None and turn.stop_at <= self.now:
                        self._cut_off(one, turn)
            for due in [one for one in dues if one[0] <= self.now]:
                self.graces.remove(due)
                self._grace_over(due[1])
        self.now = end

    def _grace_over(self, connection: int) -> None:
        for one in self.sessions.values():
            for turn in one.live():
                if not 0 <= turn.heard <= connection:
                    continue
                stream = one.stream if one.stream is not None and one.stream.turn is turn else None
                if turn.answered and stream is None:
                    turn.status = "completed"
                elif not turn.begun and turn.stop_at is None and self.sync and turn.question is not None:
                    turn.heard = -1
                else:
                    reply_to = (stream.reply_to if stream is not None else None) or turn.question
                    one.show(f"error offline {reply_to}")
                    turn.status = "interrupted"
                    if stream is not None:
                        stream.interrupted = True
                        self._close(one)

    def _turn(self, one: ModelSession, reply_to: str | None) -> ModelTurn:
        live = one.live()
        if reply_to is None:
            found = live[0] if live else None
        else:
            found = next((turn for turn in live if turn.question == reply_to), None)
        if found is None:
            found = ModelTurn(None, self.connection)
            one.turns.append(found)
        found.heard = self.connection
        return found

    def _close(self, one: ModelSession) -> None:
        assert one.stream is not None
        stream, one.stream = one.stream, None
        one.kept[stream.id] = (stream.text, stream.interrupted)
        stream.turn.answered = True
        one.show("end")
