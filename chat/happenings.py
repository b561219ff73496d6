"""What an agent tells by `event` frames: tools and thoughts of its turns, requests for approval. For the writer."""

from __future__ import annotations

from functools import partial
from typing import Any

from chat import frames, tools
from chat.batch import Batch
from chat.events import NUMBERED, Event
from chat.telling import Told
from chat.turns import Slot, Turn

OURS = frozenset(
    {"event", "seq", "ts", "v3", "run_id", "session_id", "event_id"}
)  # keys only the gateway sets


def event(batch: Batch, slot: Slot, frame: frames.Event) -> None:
    """What else happens in a turn: numbered and kept when it is known, else passed on."""
    data = frame.data or {}
    name = data["event"]
    session = batch.session(slot.user_id, frame.session)
    turn = slot.answering(session.key, frame.reply_to) if session is not None else None
    if name == "approval.request" and turn is not None:
        _ask_approval(batch, slot, turn, frame)
        return
    known = tools.numbered(name, data, turn.narrative.message_id) if turn and name in NUMBERED else None
    if turn is None or known is None:
        relay(batch, slot, frame)
        return
    turn.heard, turn.sign = slot.generation, batch.monotonic
    one = {**{key: value for key, value in data.items() if key not in OURS}, **known}
    if not tools.is_end(name):
        _tell(batch, slot, turn, [{"event": name, **one}])
    elif tools.belongs(turn.narrative.tools, one):
        _end_tool(batch, slot, turn, {"event": name, **one})


def envelope(slot: Slot, frame: frames.Error | frames.Event, data: dict[str, Any]) -> dict[str, Any]:
    """An agent's frame as Apps get it."""
    kind = "error" if isinstance(frame, frames.Error) else "event"
    return frames.message_frame(
        message_id=frame.id, kind=kind, sender=slot.name, to=slot.username, session=frame.session,
        reply_to=frame.reply_to, ts=int(frame.ts), data=data,
    )  # fmt: skip


def relay(batch: Batch, slot: Slot, frame: frames.Error | frames.Event) -> None:
    """Pass a frame on that is not kept."""
    batch.tell(Told(slot.user_id, notice=envelope(slot, frame, frame.data or {})))


def _end_tool(batch: Batch, slot: Slot, turn: Turn, end: Event) -> None:
    """A tool has ended: told when all earlier tools of its name have, with those that waited for it."""
    held = (*turn.held, end)
    told = tools.due(turn.narrative.tools, held)
    batch.otherwise(partial(setattr, turn, "held", turn.held))
    turn.held = tuple(one for one in held if one not in told)
    if told:
        _tell(batch, slot, turn, told)


def _tell(batch: Batch, slot: Slot, turn: Turn, found: list[Event]) -> None:
    made = []
    for one in found:
        fields = dict(one)
        made.append(batch.event(turn, fields.pop("event"), **fields))
    batch.tell(Told(slot.user_id, run=turn.ref, first=made[0]["seq"], last=made[-1]["seq"], events=made))


def _ask_approval(batch: Batch, slot: Slot, turn: Turn, frame: frames.Event) -> None:
    """Keep a request for approval until it is answered, and show it."""
    turn.heard, turn.sign = slot.generation, batch.monotonic
    data = {**(frame.data or {}), "run_id": turn.ref.public_id}
    asked = envelope(slot, frame, data)
    batch.ask(turn.key, "approval", asked)
    batch.tell(Told(slot.user_id, notice=asked))
