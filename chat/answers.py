"""What an agent's frames do to its turns: streams, texts, files, errors. Runs in the writer's thread."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from django.conf import settings

from chat import ends, frames, happenings, windows
from chat.batch import Batch, SessionRow
from chat.contents import agent_text
from chat.events import SEPARATOR, Event
from chat.keys import new_key
from chat.models import Run, RunStatus
from chat.telling import Told
from chat.turns import OpenStream, Slot, Turn
from hermes_site.errors import GatewayError, Unsupported, UploadFailed
from media.models import Media
from media.services import frame_fields

# Errors that tell of one file or of a pace; the answer goes on after them.
PASSING_ERRORS = frozenset({"upload_failed", "file_too_large", "rate_limited"})
MOST_FILES = 100  # after one stream
_REASON = re.compile(r"[A-Za-z0-9_.:-]{1,64}")  # what may be a run's code


class Ended(Unsupported):
    """The frame belongs to something the gateway has ended: told once, and never held against the agent."""


class Outdated(Exception):
    """The frame came by a connection that has been replaced: nobody is told."""


def current(slot: Slot, generation: int) -> None:
    """
    Make sure that a frame came by the slot's present connection, and that all before it were stored.

    Raises:
        Outdated: If it did not, or one was lost: the agent comes back and goes on from what is there.
    """
    if slot.generation != generation or slot.broken == generation:
        raise Outdated


def take(batch: Batch, slot: Slot, frame: frames.AnyFrame) -> None:
    """Any frame of an agent but a piece."""
    match frame:
        case frames.StreamStart():
            try:
                stream_start(batch, slot, frame)
            except (GatewayError, Outdated) as refusal:
                ended = isinstance(refusal, Ended | Outdated)
                if ended or frame.session not in slot.open:  # else the open stream goes on untouched
                    slot.dropping[frame.session] = True
                raise
        case frames.StreamEnd():
            stream_end(batch, slot, frame)
        case frames.Message():
            message(batch, slot, frame)
        case frames.Error():
            error(batch, slot, frame)
        case frames.Event():
            happenings.event(batch, slot, frame)


def pieces(batch: Batch, slot: Slot, session_id: str, text: str) -> None:
    """More of the open stream of a session."""
    turn = slot.open.get(session_id)
    if turn is None or turn.stream is None or session_id in slot.dropping:
        raise _stray(slot, session_id)
    stream = turn.stream
    if stream.generation != slot.generation:
        stream.generation = slot.generation
        stream.interrupted = stream.interrupted or "sync" not in slot.caps
    text, stream.carry = frames.mend(stream.carry, text)
    if not text:
        return
    room = max(0, settings.HERMES_STREAM_BYTES - stream.size)
    size = len(text) if text.isascii() else len(text.encode())
    stream.size += size
    if size > room:  # what fits is kept, however its pieces were joined
        text = text.encode()[:room].decode(errors="ignore")
        batch.drop_frames(slot, session_id)
        batch.later(0, windows.TooLong(slot, turn))
    if text:
        _add_text(batch, slot, turn, text, stream.public_id, whole=False)


def stream_start(batch: Batch, slot: Slot, frame: frames.StreamStart) -> None:
    """A streamed reply begins; one that is open in its session ends, or is begun anew."""
    session = _session(batch, slot, frame.session)
    known = batch.message(slot.user_id, "agent", frame.id)
    open_turn = slot.open.get(frame.session)
    old = open_turn.stream if open_turn is not None else None
    again = old is not None and old.generation != slot.generation and old.reply_to == frame.reply_to
    is_old = known is not None and old is not None and known.key == old.key
    if is_old and old is not None and not again and old.reply_to == frame.reply_to:
        return  # said twice
    if known is not None and not (is_old and again):
        raise Unsupported("id: is taken by an earlier message", field="id")
    if old is None and len(slot.open) >= settings.HERMES_OPEN_STREAMS:
        raise Unsupported(f"type: more than {settings.HERMES_OPEN_STREAMS} streams are open", field="type")
    slot.dropping.pop(frame.session, None)
    if frame.reply_to in slot.stopped:
        raise _of_stopped(slot, frame.reply_to)
    session = session or batch.new_session(slot.user_id, frame.session, slot.name)
    if open_turn is not None and old is not None:
        if again:
            _begin_anew(batch, slot, session, open_turn, old, frame)
            return
        old.interrupted = old.interrupted or old.generation != slot.generation
        _close_stream(batch, slot, open_turn, None)
    turn = _turn(batch, slot, session, frame.reply_to)
    if open_turn is not None and open_turn is not turn:
        windows.wait_for_more(batch, slot, open_turn)
    key = new_key()
    batch.insert_message(
        key=key, session=session, run=turn.key, side="agent", public_id=frame.id, cursor=None, kind="text",
        reply_to=frame.reply_to, ts=int(frame.ts), data={"text": ""}, digest="",
    )  # fmt: skip
    turn.stream = OpenStream(key, frame.id, frame.reply_to, int(frame.ts), slot.generation)
    _tell_start(batch, slot, turn)


def stream_end(batch: Batch, slot: Slot, frame: frames.StreamEnd) -> None:
    """The open stream of a session is complete, and with it perhaps the turn."""
    data = frame.data or {}
    turn = slot.open.get(frame.session)
    if frame.session in slot.dropping:
        raise _stray(slot, frame.session, last=True)
    if turn is None:
        turn = _not_begun(batch, slot, frame)
        if turn is None:
            raise _stray(slot, frame.session, last=True)
        status = data.get("status") if data.get("status") in ("cancelled", "failed") else "cancelled"
        ends.end_turn(batch, slot, turn, str(status), code="" if status == "cancelled" else "internal")
        return
    if turn.stream is not None and turn.stream.carry:
        turn.stream.carry = ""
        _add_text(batch, slot, turn, "\ufffd", turn.stream.public_id, whole=False)
    _close_stream(batch, slot, turn, data)


def message(batch: Batch, slot: Slot, frame: frames.Message) -> None:
    """A whole text or a file: stored under its id and told; part of the turn it names, or of one of its own."""
    session = _session(batch, slot, frame.session)
    known = batch.message(slot.user_id, "agent", frame.id)
    digest = frames.same_content(frame, slot.username)
    if known is not None:
        if known.digest != digest:
            raise Unsupported("id: is taken by a message with other content", field="id")
        if "sync" in slot.caps and known.cursor is not None:
            batch.push(slot, frames.encode(_echo(slot, frame, known.cursor)))
        return
    if frame.reply_to in slot.stopped:
        raise _of_stopped(slot, frame.reply_to)
    kind, data, media = with_media(batch, slot.user_id, frame)
    session = session or batch.new_session(slot.user_id, frame.session, slot.name)
    turn = _turn(batch, slot, session, frame.reply_to)
    turn.heard, turn.sign = slot.generation, batch.monotonic
    first = turn.narrative.last_seq + 1
    cursor = batch.next_cursor(slot.user_id, from_agent=True)
    events = _whole(batch, turn, agent_text(media, data), frame.id)
    batch.insert_message(
        key=new_key(), session=session, run=turn.key, side="agent", public_id=frame.id, cursor=cursor, kind=kind,
        reply_to=frame.reply_to, ts=int(frame.ts), data=data, digest=digest,
    )  # fmt: skip
    batch.touch(session)
    turn.answered = True
    told = frames.message_frame(
        message_id=frame.id, kind=kind, sender=slot.name, to=slot.username, session=frame.session,
        reply_to=frame.reply_to, ts=int(frame.ts), data=data,
    )  # fmt: skip
    batch.tell(
        Told(
            slot.user_id, cursor=cursor, run=turn.ref, first=first, last=turn.narrative.last_seq, events=events,
            message=told,
        )
    )  # fmt: skip
    if turn.files:
        if media is not None:
            windows.file_is_in(batch, slot, turn)
    elif turn.stream is None:
        windows.wait_for_more(batch, slot, turn)


def error(batch: Batch, slot: Slot, frame: frames.Error) -> None:
    """Something went wrong at the agent: it ends the stream or turn it speaks of, or is passed on."""
    data = frame.data or {}
    code = data["code"]
    turn = slot.open.get(frame.session)
    if turn is not None and turn.stream is not None:
        ours = frame.reply_to in (None, turn.stream.reply_to, turn.ref.reply_to)
        if not ours:
            turn = None
        elif code in PASSING_ERRORS:
            happenings.relay(batch, slot, frame)
            return
    if turn is None and frame.reply_to is not None:
        session = batch.session(slot.user_id, frame.session)
        turn = slot.answering(session.key, frame.reply_to) if session is not None else None
    if turn is None or (turn.files and code == "upload_failed"):
        happenings.relay(batch, slot, frame)
        if turn is not None:
            windows.file_is_in(batch, slot, turn)
        return
    ends.end_turn(
        batch, slot, turn, "failed", code=_reason(data, code), pending_steer=_remark(data),
        text=data.get("text", ""), error=happenings.envelope(slot, frame, data),
    )  # fmt: skip


def with_media(batch: Batch, user_id: int, frame: frames.Message) -> tuple[str, dict[str, Any], Media | None]:
    """
    Type and data of a message with the true values of its file filled in.

    Raises:
        UploadFailed: If the user has no such file.
    """
    data = dict(frame.body)
    if isinstance(frame, frames.Text):
        return frame.kind, data, None
    media = batch.media(user_id, data["media"]["id"])
    if media is None:
        raise UploadFailed("data.media.id: no such file", field="data.media.id")
    data["media"] = frame_fields(media)
    return media.kind, data, media


def _session(batch: Batch, slot: Slot, session_id: str) -> SessionRow | None:
    session = batch.session(slot.user_id, session_id)
    if session is not None and session.deleted:
        raise Ended("session: was deleted", field="session")
    if session is not None and session.agent != slot.name:
        raise Unsupported("session: belongs to another agent", field="session")
    return session


def _turn(batch: Batch, slot: Slot, session: SessionRow, reply_to: str | None) -> Turn:
    """The turn a frame belongs to; one of its own where it names none that lives."""
    turn = slot.answering(session.key, reply_to)
    if turn is not None:
        return turn
    status = RunStatus.RUNNING if slot.active(session.key) is None else RunStatus.QUEUED
    turn = batch.new_run(session, slot.username, status=status, slot=slot)
    slot.add(turn)
    started = batch.event(turn, "run.started", user_message=None)
    batch.tell(Told(slot.user_id, run=turn.ref, first=1, last=1, events=[started]))
    return turn


def _tell_start(batch: Batch, slot: Slot, turn: Turn) -> None:
    stream = turn.stream
    assert stream is not None
    slot.open[turn.ref.session] = turn
    turn.heard, turn.sign = slot.generation, batch.monotonic
    start = {"id": stream.public_id, "reply_to": stream.reply_to, "ts": stream.ts}
    if turn.narrative.message_id is None:
        told = batch.event(
            turn,
            "message.started",
            message={"id": stream.public_id, "role": "assistant"},
            v3={"start": start},
        )
    else:  # a new bubble for v3; the same message, after a blank line, for everybody else
        told = batch.event(
            turn, "assistant.delta", message_id=turn.narrative.message_id, delta=SEPARATOR,
            v3={"start": start, "skip": len(SEPARATOR)},
        )  # fmt: skip
    turn.files = 0
    batch.tell(Told(slot.user_id, run=turn.ref, first=told["seq"], last=told["seq"], events=[told]))


def _add_text(batch: Batch, slot: Slot, turn: Turn, text: str, source: str, *, whole: bool) -> None:
    turn.heard, turn.sign = slot.generation, batch.monotonic
    event = _delta(batch, turn, text, source, whole=whole)
    batch.tell(Told(slot.user_id, run=turn.ref, first=event["seq"], last=event["seq"], events=[event]))


def _delta(batch: Batch, turn: Turn, text: str, source: str, *, whole: bool) -> Event:
    v3: dict[str, Any] = {}
    if turn.narrative.text_id not in (None, source):
        text = SEPARATOR + text
        v3["skip"] = len(SEPARATOR)
    if whole:
        v3 = {"whole": source}
    fields: dict[str, Any] = {"v3": v3} if v3 else {}
    return batch.event(turn, "assistant.delta", message_id=turn.narrative.message_id, delta=text, **fields)


def _whole(batch: Batch, turn: Turn, text: str, message_id: str) -> list[Event]:
    """The events of a message that came in one piece."""
    events = []
    if turn.narrative.message_id is None:
        events.append(batch.event(turn, "message.started", message={"id": message_id, "role": "assistant"}))
    if text:
        events.append(_delta(batch, turn, text, message_id, whole=True))
    return events


def _close_stream(batch: Batch, slot: Slot, turn: Turn, data: dict[str, Any] | None) -> None:
    """End a stream, and its turn with it where that is known; None: another stream takes its place."""
    turn.heard, turn.sign = slot.generation, batch.monotonic
    if data is not None and slot.caps & {"events", "control"}:
        status, files = _outcome(data), _announced(data)
        if status != "completed" or not files:
            ends.end_turn(
                batch, slot, turn, status, code=_reason(data, "" if status in ("completed", "cancelled") else "internal"),
                stream_data={"status": status} if status != "completed" else None,
                pending_steer=_remark(data),
            )  # fmt: skip
            return
        batch.otherwise(partial(setattr, turn, "files", turn.files))
        turn.files = files
    cursor, frame = ends.end_stream(batch, slot, turn)
    last = turn.narrative.last_seq
    batch.tell(
        Told(
            slot.user_id, cursor=cursor, run=turn.ref, first=last + 1, last=last, events=[], message=frame,
            streamed=True,
        )
    )  # fmt: skip
    if data is not None:
        windows.wait_for_more(batch, slot, turn)


def _outcome(data: dict[str, Any]) -> str:
    """How a stream ended, by its last frame."""
    status = data.get("status")
    return status if status in ("cancelled", "failed", "interrupted") else "completed"


def _announced(data: dict[str, Any]) -> int:
    """How many files will follow a stream."""
    files = data.get("media")
    return min(max(files, 0), MOST_FILES) if isinstance(files, int) and not isinstance(files, bool) else 0


def _reason(data: dict[str, Any], otherwise: str) -> str:
    """The agent's own word for a failure, if it is one."""
    reason = data.get("reason")
    return reason if otherwise and isinstance(reason, str) and _REASON.fullmatch(reason) else otherwise


def _remark(data: dict[str, Any]) -> str | None:
    """A remark that the agent had accepted and could not use any more."""
    remark = data.get("pending_steer")
    return remark if isinstance(remark, str) and remark else None


def _begin_anew(
    batch: Batch, slot: Slot, session: SessionRow, turn: Turn, old: OpenStream, frame: frames.StreamStart
) -> None:
    """
    An agent that came back starts its answer over: one answer, under the id Apps know already.

    The journal of the old run cannot take back what it told, so that run ends interrupted and the answer is
    a run of its own.
    """
    turn.stream = None
    slot.open.pop(turn.ref.session, None)
    ends.end_turn(batch, slot, turn, "interrupted", code="begun_anew", text="the agent began its answer anew")
    status = RunStatus.RUNNING if slot.active(session.key) is None else RunStatus.QUEUED
    fresh = batch.new_run(session, slot.username, status=status, slot=slot)
    slot.add(fresh)
    started = batch.event(fresh, "run.started", user_message=None)
    batch.tell(Told(slot.user_id, run=fresh.ref, first=1, last=1, events=[started]))
    batch.update_message(old.key, run_id=fresh.key, ts=int(frame.ts))
    fresh.stream = OpenStream(old.key, old.public_id, old.reply_to, int(frame.ts), slot.generation)
    _tell_start(batch, slot, fresh)


def _not_begun(batch: Batch, slot: Slot, frame: frames.StreamEnd) -> Turn | None:
    """The turn that a `stream_end` without a stream ends: a stopped one that had not begun to stream."""
    if frame.reply_to is None or "control" not in slot.caps:
        return None
    session = batch.session(slot.user_id, frame.session)
    return slot.answering(session.key, frame.reply_to) if session is not None else None


def _stray(slot: Slot, session_id: str, *, last: bool = False) -> Exception:
    """What a frame without an open stream is answered with."""
    told = slot.dropping.get(session_id)
    if told is None and _ended_by_gateway(slot, session_id):
        told = False
    if told is None:
        return Unsupported("type: no stream is open in this session", field="type")
    if last:
        slot.dropping.pop(session_id, None)
    else:
        slot.dropping[session_id] = True
    return Outdated() if told else Ended("type: this stream was ended by the gateway", field="type")


def _of_stopped(slot: Slot, reply_to: str) -> Exception:
    """What still comes for a turn that was stopped before it began: told once, then nothing."""
    told, slot.stopped[reply_to] = slot.stopped[reply_to], True
    return Outdated() if told else Ended("reply_to: this turn was stopped", field="reply_to")


def _ended_by_gateway(slot: Slot, session_id: str) -> bool:
    """Whether the latest turn of a session was cut off, perhaps by an earlier process."""
    latest = (
        Run.objects.filter(user_id=slot.user_id, session__public_id=session_id, agent=slot.name)
        .order_by("-ordinal")
        .values_list("status", flat=True)
        .first()
    )
    return latest in (RunStatus.INTERRUPTED, RunStatus.CANCELLED)


def _echo(slot: Slot, frame: frames.Message, cursor: int) -> dict[str, Any]:
    echo = frames.message_frame(
        message_id=frame.id, kind=frame.kind, sender=slot.name, to=slot.username, session=frame.session,
        reply_to=frame.reply_to, ts=int(frame.ts), data=frame.body,
    )  # fmt: skip
    return {**echo, "cursor": cursor}
