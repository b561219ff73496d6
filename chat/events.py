"""
Run events: their names, how they are made, and what Apps see of them.

An event is a dictionary `{"event", "seq", "ts", …}` as it lies in the journal. The optional key `v3` holds
what only the v3 rendering needs and never leaves the gateway:

- `start` `{id, reply_to, ts}`: a stream begins with this event
- `skip` n: the first n characters of the delta are a separator that v3 Apps do not see
- `whole`: the delta is a message of its own, which v3 Apps get as such; its id
- `error`: the `error` frame of the agent that ended the run
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

Event = dict[str, Any]

# What an agent may tell of a turn by `event` frames: numbered and kept in the journal.
NUMBERED = frozenset({"tool.started", "tool.completed", "tool.failed", "tool.progress"})
# Names only the gateway makes; refused from any peer.
FROM_GATEWAY = frozenset(
    {
        "run.started",
        "run.queued",
        "run.steered",
        "run.completed",
        "run.failed",
        "run.cancelled",
        "run.interrupted",
        "message.started",
        "message.replaced",
        "assistant.delta",
        "assistant.completed",
        "agent.online",
        "agent.offline",
        "session.updated",
        "session.deleted",
        "approval.resolved",
        "done",
    }
)
TOOL_ENDS = ("tool.completed", "tool.failed")
SEPARATOR = "\n\n"

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[Event])


def dump(events: list[Event]) -> str:
    """Write events as a journal row holds them."""
    return _encoder.encode(events).decode()


def dump_object(value: dict[str, Any]) -> str:
    """Write one object as a JSON column holds it."""
    return _encoder.encode(value).decode()


def load(text: str) -> list[Event]:
    """Read the events of a journal row."""
    return _decoder.decode(text)


def public(event: Event) -> Event:
    """The event without what is for the gateway alone."""
    return {key: value for key, value in event.items() if key != "v3"} if "v3" in event else event


@dataclass
class Thought:
    """A stretch of reasoning among the segments of a run."""

    pieces: list[str] = field(default_factory=list)


class Narrative:
    """
    What the events of one run add up to: its text, its tools, its open stream, its last number.

    Fed with every event in order, live or from the journal: both give the same.
    """

    def __init__(self) -> None:
        self.last_seq = 0
        self.question: Event | None = None  # the user's message: {id, role, content}
        self.message_id: str | None = None
        self.stream_id: str | None = None  # whose pieces the deltas are, in v3's eyes
        self.stream: list[str] = []
        self.text_id: str | None = None  # v3 id of the message the last visible text came from
        self.segments: list[Event | list[str] | Thought] = []  # texts, tool calls, thoughts, in order
        self.tools: list[Event] = []  # started, not ended, in start order
        self.tool_ends: dict[str, Event] = {}
        self.terminal: Event | None = None
        self._texts: list[str] | None = None

    def add(self, event: Event) -> None:
        """Take the next event."""
        self.last_seq = event["seq"]
        name = event["event"]
        v3 = event.get("v3")
        if v3 and "start" in v3:
            self.stream_id, self.stream = v3["start"]["id"], []
            self.text_id = self.stream_id
        if name == "assistant.delta":
            delta = event["delta"]
            if self._texts is None:
                self._texts = []
                self.segments.append(self._texts)
            self._texts.append(delta)
            self.text_id = v3["whole"] if v3 and "whole" in v3 else self.stream_id
            if not v3:
                self.stream.append(delta)
            elif "whole" not in v3:
                self.stream.append(delta[v3.get("skip", 0) :])
        elif name == "tool.progress":
            if not self.segments or not isinstance(thought := self.segments[-1], Thought):
                self.segments.append(thought := Thought())
            thought.pieces.append(str(event.get("delta") or ""))
        elif name == "run.started":
            self.question = event.get("user_message")
        elif name == "message.started":
            self.message_id = event["message"]["id"]
        elif name == "tool.started":
            self._texts = None
            self.segments.append(event)
            self.tools.append(event)
        elif name in TOOL_ENDS:
            start = next((tool for tool in self.tools if same_tool(tool, event)), None)
            if start is not None:
                self.tools.remove(start)
                self.tool_ends[str(start["seq"])] = event
        elif name.startswith("run.") and name.partition(".")[2] in ENDS:
            self.terminal = event

    @property
    def text(self) -> str:
        """All visible text of the run: the joined deltas."""
        return "".join(part for segment in self.segments if isinstance(segment, list) for part in segment)

    @property
    def stream_text(self) -> str:
        """The text of the latest stream so far."""
        return "".join(self.stream)


ENDS = ("completed", "failed", "cancelled", "interrupted")


def same_tool(started: Event, ended: Event) -> bool:
    """Whether an end belongs to a start: by call id where both have one, else by name."""
    ids = started.get("tool_call_id"), ended.get("tool_call_id")
    if ids[0] is not None and ids[1] is not None:
        return bool(ids[0] == ids[1])
    return bool(started.get("tool_name") == ended.get("tool_name"))


def transcript(narrative: Narrative) -> list[Event]:
    """
    The history rows of a run, without `session_id`, `run_id` and `timestamp`, which the reader adds.

    The user's row first, then an assistant row for each stretch of text (with the tools called after it),
    each tool's row, and so on; the joined contents of the assistant rows are the joined deltas. A thought
    belongs to the row whose text it follows, after a tool to the next one.
    """
    rows: list[Event] = [] if narrative.question is None else [narrative.question]
    assistant: Event | None = None
    tools: list[Event] = []
    thoughts: list[str] = []  # of the row that comes next
    number = 0

    def open_row(content: str) -> Event:
        nonlocal number
        number += 1
        base = narrative.message_id or "assistant"
        row: Event = {
            "id": base if number == 1 else f"{base}.{number}",
            "role": "assistant",
            "content": content,
        }
        think(row, thoughts)
        thoughts.clear()
        rows.append(row)
        return row

    def think(row: Event, pieces: list[str]) -> None:
        if pieces:
            row["reasoning"] = row.get("reasoning", "") + "".join(pieces)

    for segment in narrative.segments:
        if isinstance(segment, list):
            rows.extend(tools)
            tools = []
            assistant = open_row("".join(segment))
            continue
        if isinstance(segment, Thought):
            if assistant is None or tools:
                thoughts.extend(segment.pieces)
            else:
                think(assistant, segment.pieces)
            continue
        if assistant is None:
            assistant = open_row("")
        call_id = segment.get("tool_call_id") or f"call_{segment['seq']}"
        assistant.setdefault("tool_calls", []).append(
            {
                "id": call_id,
                "type": "function",
                "function": {
                    "name": segment.get("tool_name"),
                    "arguments": _encoder.encode(segment.get("args") or {}).decode(),
                },
            }
        )
        end = narrative.tool_ends.get(str(segment["seq"]), {})
        tools.append(
            {
                "id": f"{assistant['id']}.{call_id}",
                "role": "tool",
                "content": end.get("preview") or "",
                "tool_call_id": call_id,
                "tool_name": segment.get("tool_name"),
            }
        )
    if thoughts and assistant is None:
        assistant = open_row("")
    elif thoughts and assistant is not None:
        think(assistant, thoughts)
    rows.extend(tools)
    if assistant is not None and narrative.terminal is not None:
        assistant["finish_reason"] = "stop" if narrative.terminal["event"] == "run.completed" else "error"
    return rows


def app_parts(events: Iterable[Event]) -> list[tuple[str, Any]]:
    """
    What Apps see of events, in order.

    Parts are `("start", {id, reply_to, ts})`, `("piece", text)`, `("error", frame)` and `("event", event)`,
    the last for Apps that asked for events; what v3 frames say already is not said again.
    """
    parts: list[tuple[str, Any]] = []
    for event in events:
        name = event["event"]
        v3 = event.get("v3")
        if v3:
            if "start" in v3:
                parts.append(("start", v3["start"]))
            if "error" in v3:
                parts.append(("error", v3["error"]))
        if name == "assistant.delta":
            if not v3:
                parts.append(("piece", event["delta"]))
            elif "whole" not in v3 and (text := event["delta"][v3.get("skip", 0) :]):
                parts.append(("piece", text))
        elif not name.startswith(("message.", "assistant.")) and name != "done":
            parts.append(("event", event))
    return parts
