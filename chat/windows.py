"""When a turn ends by itself: quiet after its answer, all announced files in, or its text too long. For the writer."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.conf import settings

from chat import ends
from chat.batch import Batch
from chat.turns import Slot, Turn


def wait_for_more(batch: Batch, slot: Slot, turn: Turn) -> None:
    """End the turn when nothing more of it comes for a while, or the files that were announced stay away."""
    turn.window += 1
    seconds = settings.HERMES_FILES_SECONDS if turn.files else settings.HERMES_TURN_END_SECONDS
    batch.later(seconds, QuietEnd(slot, turn, turn.window))


def file_is_in(batch: Batch, slot: Slot, turn: Turn) -> None:
    """One of the files that were announced has come, or failed; with the last one the turn is complete."""
    batch.otherwise(partial(setattr, turn, "files", turn.files))
    turn.files -= 1
    if turn.files == 0 and turn.stream is None:
        ends.end_turn(batch, slot, turn, "completed")


class QuietEnd:
    """A turn that has been answered, and quiet since, is complete."""

    insists = True

    def __init__(self, slot: Slot, turn: Turn, window: int) -> None:
        self.slot = slot
        self.turn = turn
        self.window = window

    def load(self, batch: Batch) -> None:
        """The user's numbers and the agent's turns."""
        batch.want_log(self.slot.user_id)
        batch.want_turns(self.slot)

    def apply(self, batch: Batch) -> None:
        """End it, unless it went on meanwhile."""
        turn = self.slot.get(self.turn.key)
        if turn is not None and turn.window == self.window and turn.stream is None and turn.answered:
            ends.end_turn(batch, self.slot, turn, "completed")

    def done(self, result: Any, error: BaseException | None) -> None:
        """Nobody waits for it."""


class TooLong:
    """A stream has more text than one may have: it ends, with an error."""

    insists = True

    def __init__(self, slot: Slot, turn: Turn) -> None:
        self.slot = slot
        self.turn = turn

    def load(self, batch: Batch) -> None:
        """The user's numbers and the agent's turns."""
        batch.want_log(self.slot.user_id)
        batch.want_turns(self.slot)

    def apply(self, batch: Batch) -> None:
        """End it, if it has not ended meanwhile."""
        turn = self.slot.get(self.turn.key)
        if turn is not None:
            text = f"the answer is longer than {settings.HERMES_STREAM_BYTES} bytes"
            _fail(batch, self.slot, turn, "unsupported", text)

    def done(self, result: Any, error: BaseException | None) -> None:
        """Nobody waits for it."""


def _fail(batch: Batch, slot: Slot, turn: Turn, code: str, text: str) -> None:
    """End a turn by the gateway's own decision, with an error to the Apps."""
    reply_to = turn.stream.reply_to if turn.stream is not None else turn.ref.reply_to
    told = ends.notice_error(batch, slot, session=turn.ref.session, reply_to=reply_to, code=code, text=text)
    ends.end_turn(batch, slot, turn, "failed", code=code, text=text, error=told, interrupted=True)
