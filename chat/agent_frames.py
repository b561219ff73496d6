"""What an agent says, as items for the writer: pieces of streams, which join while they wait, and all other frames."""

from __future__ import annotations

from typing import Any, Protocol

from chat import answers, frames
from chat.answers import Outdated
from chat.batch import Batch
from chat.journal import Joinable
from chat.turns import Slot


class Speaker(Protocol):
    """The connection of an agent: a socket, or the gateway's own when it asks a Hermes API server."""

    slot: Slot
    generation: int
    unwritten: int  # characters of streams that wait for their commit

    def judge(self, error: BaseException | None, session: str | None, reply_to: str | None) -> None:
        """How one of this agent's frames fared with the writer."""


class Pieces(Joinable):
    """Pieces of one stream that wait for the same commit."""

    __slots__ = ("session", "slot", "speaker", "texts")

    def __init__(self, speaker: Speaker, session: str) -> None:
        self.speaker = speaker
        self.slot = speaker.slot
        self.session = session
        self.texts: list[str] = []
        self.taken = False

    def load(self, batch: Batch) -> None:
        """The agent's turns."""
        batch.want_turns(self.slot)

    def apply(self, batch: Batch) -> None:
        """All of them as one piece."""
        answers.current(self.slot, self.speaker.generation)
        answers.pieces(batch, self.slot, self.session, "".join(self.texts))

    def failed(self, error: BaseException) -> None:
        """What comes after it would make a hole."""
        _break_off(self.speaker, error)

    def done(self, result: Any, error: BaseException | None) -> None:
        """The speaker hears how they fared."""
        self.speaker.unwritten -= sum(map(len, self.texts))
        self.speaker.judge(error, self.session, None)


class AgentFrame:
    """Any other frame of an agent."""

    __slots__ = ("frame", "slot", "speaker")

    def __init__(self, speaker: Speaker, frame: Any) -> None:
        self.speaker = speaker
        self.slot = speaker.slot
        self.frame = frame

    def load(self, batch: Batch) -> None:
        """The user's numbers, the session, whether the id is taken, the file."""
        frame, user_id = self.frame, self.slot.user_id
        batch.want_log(user_id)
        batch.want_seat(self.slot)
        batch.want_session(user_id, frame.session)
        if isinstance(frame, frames.StreamStart | frames.Message):
            batch.want_message(user_id, "agent", frame.id)
        if isinstance(frame, frames.Image | frames.Voice | frames.Video | frames.File):
            batch.want_media(user_id, frame.body["media"]["id"])

    def apply(self, batch: Batch) -> None:
        """Do what the frame says, unless a newer connection has the slot."""
        answers.current(self.slot, self.speaker.generation)
        if not batch.seated(self.slot):
            raise Outdated
        answers.take(batch, self.slot, self.frame)

    def failed(self, error: BaseException) -> None:
        """What comes after it does not follow."""
        _break_off(self.speaker, error)

    def done(self, result: Any, error: BaseException | None) -> None:
        """The speaker hears how it fared."""
        self.speaker.judge(error, self.frame.session, getattr(self.frame, "id", None))


def _break_off(speaker: Speaker, error: BaseException) -> None:
    """A frame of this connection is lost: nothing after it is taken. In the writer's thread."""
    if not isinstance(error, Outdated):
        speaker.slot.broken = speaker.generation
