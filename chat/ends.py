"""How streams and runs end: the rows, events and words of an end, whoever brings it about."""

from __future__ import annotations

import json
import uuid
from typing import Any

from chat import events as run_events
from chat import frames, rows, tools
from chat.batch import Batch
from chat.events import Event
from chat.models import Command
from chat.telling import Told
from chat.turns import Slot, Turn, terminal

EXIT_CODES = {"completed": "", "cancelled": "interrupted_by_user"}


def end_stream(
    batch: Batch, slot: Slot, turn: Turn, data: dict[str, Any] | None = None
) -> tuple[int, dict[str, Any]]:
    """
    Finish the open stream of a turn: its message gets text and cursor.

    `data` is what the message's `data` holds beside its text. Returns the cursor and the message's frame,
    for the `Told` that carries the end.
    """
    stream = turn.stream
    assert stream is not None
    body = {**(data or {}), "text": turn.narrative.stream_text}
    if stream.interrupted:
        body["interrupted"] = True
    cursor = batch.next_cursor(slot.user_id, from_agent=True)
    batch.as_owner(turn)
    batch.update_message(stream.key, cursor=cursor, data=body)
    turn.stream = None
    turn.answered = True
    slot.open.pop(turn.ref.session, None)
    message = frames.message_frame(
        message_id=stream.public_id, kind="text", sender=slot.name, to=slot.username, session=turn.ref.session,
        reply_to=stream.reply_to, ts=stream.ts, data=body,
    )  # fmt: skip
    return cursor, message


def end_turn(
    batch: Batch,
    slot: Slot,
    turn: Turn,
    status: str,
    *,
    code: str = "",
    text: str = "",
    error: dict[str, Any] | None = None,
    stream_data: dict[str, Any] | None = None,
    interrupted: bool = False,
    **fields: Any,
) -> None:
    """
    End a run for good and tell so, its open stream first; the next one of its session that waits moves up.

    `error` is the `error` frame that Apps see for it. `interrupted` marks the text of an open stream as not
    whole. `fields` go on the terminal event.
    """
    events: list[Event] = []
    narrative = turn.narrative
    first = narrative.last_seq + 1
    cursor, message = None, None
    for tool in list(narrative.tools):
        end = dict(tools.missing(tool, turn.held, narrative.message_id))
        events.append(batch.event(turn, end.pop("event"), **end))
    if narrative.message_id is None and narrative.segments:  # tools without a word: they have a message too
        message_id = f"msg_{uuid.uuid4().hex}"
        events.append(batch.event(turn, "message.started", message={"id": message_id, "role": "assistant"}))
    if narrative.message_id is not None:
        events.append(
            batch.event(
                turn, "assistant.completed", message_id=narrative.message_id, content=narrative.text,
                completed=status == "completed", partial=status != "completed",
                interrupted=status in ("cancelled", "interrupted"),
            )
        )  # fmt: skip
    if left := _pending_steer(slot, turn, fields.pop("pending_steer", None)):
        fields["pending_steer"] = left
    ending = terminal(status, code or EXIT_CODES.get(status, code), text, narrative, **fields)
    if error is not None:
        ending["v3"] = {"error": error}
    events.append(batch.event(turn, f"run.{status}", **ending))
    events.append(batch.event(turn, "done"))
    if turn.stream is not None:
        turn.stream.interrupted = turn.stream.interrupted or interrupted
        cursor, message = end_stream(batch, slot, turn, stream_data)
    batch.update_run(
        turn.key, status=status, code=code, ended_at=batch.stamp, last_seq=narrative.last_seq,
        transcript=run_events.dump(run_events.transcript(narrative)), owner=None,
    )  # fmt: skip
    turn.status = status
    slot.remove(turn)
    batch.tell(
        Told(
            slot.user_id, cursor=cursor, run=turn.ref, first=first, last=narrative.last_seq, events=events,
            message=message, streamed=message is not None,
        )
    )  # fmt: skip
    _promote(batch, slot, turn.session)


def _pending_steer(slot: Slot, turn: Turn, untaken: str | None) -> str:
    """Remarks that came too late: the agent's own word of them, and those that no process has taken yet."""
    found = [untaken] if untaken else []
    may_wait = (
        "control" in slot.caps and rows.is_postgresql()
    )  # SQLite has one process, which takes them at once
    if may_wait:
        waiting = Command.objects.filter(run_id=turn.key, kind="steer", taken_at=None).order_by(
            "created_at", "pk"
        )
        found.extend(json.loads(payload)["text"] for payload in waiting.values_list("payload", flat=True))
    return "\n".join(found)


def _promote(batch: Batch, slot: Slot, session: int) -> None:
    """The oldest turn that waits behind the one that ended is the running one now."""
    waiting = slot.turns.get(session)
    if waiting and slot.active(session) is None:
        waiting[0].status = "stopping" if waiting[0].asked_stop else "running"
        waiting[0].sign = batch.monotonic
        batch.update_run(waiting[0].key, status=waiting[0].status)


def notice_error(
    batch: Batch, slot: Slot, *, session: str, reply_to: str | None, code: str, text: str, **data: Any
) -> dict[str, Any]:
    """An `error` frame to the user's Apps, made by the gateway in the agent's name; the caller tells it."""
    frame: dict[str, Any] = {
        "id": frames.new_id(), "type": "error", "from": slot.name, "to": slot.username, "session": session,
    }  # fmt: skip
    if reply_to is not None:
        frame["reply_to"] = reply_to
    return {**frame, "ts": int(batch.ts), "data": {"code": code, "text": text, **data}}
