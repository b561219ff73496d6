"""Handing agents what waits for them, and watching for signs of life. For the writer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from django.conf import settings
from django.db.models import Q

from chat import ends, frames, queries, rows
from chat.batch import Batch
from chat.models import LIVE, Run, RunStatus
from chat.presence import Quiet
from chat.telling import RunRef, Told
from chat.turns import Slot, Turn

HAND_OUT_ROWS = 100


class Dispatch(Quiet):
    """
    Hand an agent what waits for it, oldest first; `delivered_at` is committed before the frame is written.

    What this very batch stores is not read yet: the result says whether to look again.
    """

    def __init__(self, slot: Slot, generation: int) -> None:
        self.slot = slot
        self.generation = generation

    def load(self, batch: Batch) -> None:
        """The user's numbers, so that no message can come between, and the agent's turns."""
        batch.want_log(self.slot.user_id)
        batch.want_turns(self.slot)

    def apply(self, batch: Batch) -> bool:
        """Take the next ones up as turns."""
        slot = self.slot
        if slot.generation != self.generation:
            return False
        last, _ = batch.cursors_before(slot.user_id)
        if slot.handed >= last:
            return False
        begin, end = slot.redeliver
        again = Q(delivered_at__isnull=False, user_message__cursor__gt=begin, user_message__cursor__lte=end)
        runs = list(
            Run.objects.filter(
                Q(delivered_at__isnull=True) | again,
                user_id=slot.user_id,
                agent=slot.name,
                status__in=LIVE,
                user_message__cursor__gt=slot.handed,
                user_message__cursor__lte=last,
            )
            .select_related("session", "user_message")
            .order_by("user_message__cursor")[: HAND_OUT_ROWS + 1]
        )
        for run in runs[:HAND_OUT_ROWS]:
            take_up(batch, slot, run)
        more = len(runs) > HAND_OUT_ROWS
        slot.handed = runs[HAND_OUT_ROWS - 1].user_message.cursor if more else last
        batch.otherwise(partial(setattr, slot, "redeliver", slot.redeliver))
        slot.redeliver = (max(begin, slot.handed), end)
        return more or batch.cursors(slot.user_id)[0] > last


def take_up(batch: Batch, slot: Slot, run: Run) -> None:
    """Make a run that waits, or is handed out again, a turn of its agent's, and have its message handed over."""
    question = run.user_message
    assert question is not None and question.cursor is not None
    handed_before = run.epoch > 0
    turn = slot.get(run.pk)
    if turn is None:
        if run.delivered_at is not None:
            return  # another process' by now
        ref = RunRef(
            run.pk, run.public_id, run.session.public_id, slot.name, slot.username, question.public_id
        )
        status = RunStatus.QUEUED if slot.active(run.session_id) else RunStatus.RUNNING
        turn = Turn(run.pk, ref, run.session_id, run.ordinal, status, slot.generation)
        turn.take_narrative(queries.events_after(run.pk, 0))
        slot.add(turn)
        batch.claim(turn)
        batch.update_run(
            run.pk,
            status=status,
            owner=rows.unique(batch.process),
            epoch=slot.generation,
            delivered_at=batch.stamp,
        )
    turn.heard = slot.generation
    data = frames.read_data(question.data)
    if question.replace_from is not None or begins_fork(slot, run.session.copied, run.ordinal):
        data["history"] = queries.history_before(run.session_id, run.ordinal)
    frame = frames.message_frame(
        message_id=question.public_id,
        kind=question.type,
        sender=slot.username,
        to=slot.name,
        session=run.session.public_id,
        reply_to=question.reply_to,
        ts=question.ts,
        data=data,
        replace_from=question.replace_from,
    )
    if handed_before and "sync" in slot.caps:
        frame["redelivered"] = True
    hand_out(batch, slot, turn, frame, question.cursor)


def begins_fork(slot: Slot, copied: int | None, ordinal: int) -> bool:
    """Whether a run is the first of a session's own, of which its agent knows nothing yet, and can be told."""
    return copied is not None and ordinal == copied + 1 and "control" in slot.caps


def hand_out(batch: Batch, slot: Slot, turn: Turn, frame: dict[str, Any], cursor: int) -> None:
    """Have a message handed to its agent, which from now on owes a sign of life."""
    if "sync" in slot.caps:
        frame = {**frame, "cursor": cursor}
    images = frame["data"].get("images")
    if images and not slot.caps:  # a plain agent reads texts
        text = "\n".join([part for part in [frame["data"].get("text"), *images] if part])
        frame = {**frame, "data": {**frame["data"], "text": text}}
    batch.push(slot, frames.encode(frame))
    turn.sign = batch.monotonic


class Silences(Quiet):
    """Look for turns of which nothing was heard for a set time: their Apps get a notice, and they live on."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self.slots = [slot for slot in slots if slot.known and slot.turns]

    def load(self, batch: Batch) -> None:
        """The agents' turns."""
        for slot in self.slots:
            batch.want_turns(slot)

    def apply(self, batch: Batch) -> None:
        """Tell it once per silence; waiting behind another turn is none."""
        limit = settings.HERMES_ANSWER_SECONDS
        for slot in self.slots:
            for turn in slot.all_turns():
                if turn.status == RunStatus.QUEUED or batch.monotonic - turn.sign < limit:
                    turn.told_silence = False
                elif not turn.told_silence:
                    turn.told_silence = True
                    _tell_silence(batch, slot, turn, limit)


def _tell_silence(batch: Batch, slot: Slot, turn: Turn, limit: float) -> None:
    reply_to = turn.ref.reply_to or (turn.stream.reply_to if turn.stream else None)
    text = f"the agent has shown no sign of life for {limit:g} seconds"
    error = ends.notice_error(
        batch, slot, session=turn.ref.session, reply_to=reply_to, code="timeout", text=text
    )
    batch.tell(Told(slot.user_id, notice=error))
