"""What an agent tells of its tools and thoughts: which of it is told on, how, and in which order. No I/O."""

from __future__ import annotations

from typing import Any

from chat.events import TOOL_ENDS, Event, same_tool

PREVIEW_CHARACTERS = 500
NAME_CHARACTERS = 200
THINKING = "_thinking"


def numbered(name: str, data: dict[str, Any], message_id: str | None) -> Event | None:
    """The fields of an event of a turn, in the one form the journal has; None if it is not such an event."""
    tool = data.get("tool_name")
    if not isinstance(tool, str) or not tool:
        return None
    fields: Event = {"message_id": message_id, "tool_name": tool[:NAME_CHARACTERS]}
    if name == "tool.progress":
        delta = data.get("delta")
        if tool != THINKING or not isinstance(delta, str) or not delta:
            return None
        return {**fields, "delta": delta}
    fields["preview"] = _text(data.get("preview"), PREVIEW_CHARACTERS)
    if name == "tool.started":
        fields["args"] = data.get("args") if isinstance(data.get("args"), dict) else None
    else:
        duration = data.get("duration")
        fields["duration"] = duration if _is_number(duration) else None
    fields["tool_call_id"] = _text(data.get("tool_call_id"), NAME_CHARACTERS)
    return fields


def belongs(started: list[Event], end: Event) -> bool:
    """Whether one of these open tools is the one that ends."""
    return any(same_tool(start, end) for start in started)


def due(started: list[Event], ends: tuple[Event, ...]) -> list[Event]:
    """
    Which of these ends may be told now, in order; `started` are the open tools in the order of their starts.

    Front ends pair ends with starts by name, first in, first out. So an end waits for the ends of all earlier
    tools of its name.
    """
    left, waiting = list(started), list(ends)
    told: list[Event] = []
    while True:
        for end in waiting:
            first = next((start for start in left if start.get("tool_name") == end["tool_name"]), None)
            if first is not None and same_tool(first, end):
                break
        else:
            return told
        waiting.remove(end)
        left.remove(first)
        told.append(end)


def missing(start: Event, ends: tuple[Event, ...], message_id: str | None) -> Event:
    """The end of a tool whose turn is over: the one that waited, else that there was none."""
    for end in ends:
        if same_tool(start, end):
            return end
    return {
        "event": "tool.failed",
        "message_id": message_id,
        "tool_name": start.get("tool_name"),
        "preview": "no result",
        "duration": None,
        "tool_call_id": start.get("tool_call_id"),
    }


def is_end(name: str) -> bool:
    """Whether an event of this name ends a tool."""
    return name in TOOL_ENDS


def _text(value: Any, most: int) -> str | None:
    return value[:most] if isinstance(value, str) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
