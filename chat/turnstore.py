"""Reads the live turns of an agent back from the database: at a takeover, and after a commit that failed."""

from __future__ import annotations

import uuid
from collections import defaultdict

from chat import events as run_events
from chat.models import LIVE, JournalRow, Message, Run
from chat.telling import RunRef
from chat.turns import OpenStream, Slot, Turn


def load_turns(slot: Slot, owner: uuid.UUID) -> None:
    """
    Fill `slot.turns` with what the database says of turns its agent was handed, or began, and `owner` owns.

    What only a connection knows (who was heard on it) is taken as of the generation before the present one.
    """
    slot.clear()
    runs = list(
        Run.objects.filter(user_id=slot.user_id, agent=slot.name, status__in=LIVE, delivered_at__isnull=False)
        .select_related("session", "user_message")
        .order_by("session_id", "ordinal")
    )
    events = defaultdict(list)
    rows = (
        JournalRow.objects.filter(run__in=runs)
        .order_by("run_id", "first_seq")
        .values_list("run_id", "events")
    )
    for run_id, text in rows:
        events[run_id].extend(run_events.load(text))
    messages = defaultdict(list)
    for message in Message.objects.filter(run__in=runs, side="agent").order_by("created_at"):
        messages[message.run_id].append(message)
    for run in runs:
        question = run.user_message
        ref = RunRef(
            run.pk, run.public_id, run.session.public_id, slot.name, slot.username,
            question.public_id if question else None,
        )  # fmt: skip
        turn = Turn(run.pk, ref, run.session_id, run.ordinal, run.status, slot.generation - 1)
        turn.take_narrative(events[run.pk])
        turn.narrative.last_seq = max(turn.narrative.last_seq, run.last_seq)
        turn.asked_stop = run.status == "stopping"
        for message in messages[run.pk]:
            if message.cursor is not None:
                turn.answered = True
            elif message.replaced_by_id is None:
                stream = OpenStream(
                    message.pk, message.public_id, message.reply_to, message.ts, slot.generation - 1
                )
                stream.size = len(turn.narrative.stream_text.encode())
                turn.stream = stream
                slot.open[ref.session] = turn
        if run.pk in slot.before:
            turn.recall(slot.before[run.pk])
        slot.add(turn)
    slot.before = {}
    slot.known = True
