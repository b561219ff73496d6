"""The events of a run, as JSON Schema: what stands in `data:` of an event stream."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NULLABLE_TEXT: Schema = {"type": ["string", "null"]}
OBJECT: Schema = {"type": "object"}
MESSAGE_ID: Schema = {"type": ["string", "null"], "description": "null for a tool before the first word"}


def ref(name: str) -> Schema:
    """A component by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(required: dict[str, Schema], **optional: Schema) -> Schema:
    """An object with these keys; others may be there."""
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


def _event(name: str, description: str, required: dict[str, Schema], **optional: Schema) -> Schema:
    common: dict[str, Schema] = {
        "event": {"const": name},
        "event_id": {"type": "string", "pattern": "^[1-9][0-9]*$"},
        "seq": {"type": "integer", "minimum": 1},
        "session_id": TEXT,
        "run_id": TEXT,
        "ts": {"type": "number", "description": "Unix seconds"},
    }
    return {**record({**common, **required}, **optional), "description": description}


_TOOL: dict[str, Schema] = {"message_id": MESSAGE_ID, "tool_name": TEXT, "preview": NULLABLE_TEXT}
_END: dict[str, Schema] = {"pending_steer": {**TEXT, "description": "remarks that came too late"}}

EVENTS: dict[str, Schema] = {
    "run.started": _event(
        "run.started",
        "First. `user_message` is null for what an agent says by itself.",
        {
            "user_message": {
                "oneOf": [
                    {"type": "null"},
                    record({"id": TEXT, "role": {"const": "user"}, "content": ref("Content")}),
                ]
            }
        },
    ),
    "run.queued": _event(
        "run.queued",
        "The agent is away; the message is kept.",
        {"status": {"const": "queued"}, "reason": {"const": "agent_offline"}},
    ),
    "run.steered": _event("run.steered", "A remark was passed on.", {"accepted": {"const": True}}),
    "message.started": _event(
        "message.started",
        "Before the first delta; one for a run.",
        {"message": record({"id": TEXT, "role": {"const": "assistant"}})},
    ),
    "assistant.delta": _event(
        "assistant.delta", "More text.", {"message_id": TEXT, "delta": {"type": "string", "minLength": 1}}
    ),
    "assistant.completed": _event(
        "assistant.completed",
        "`content` is all deltas joined.",
        {"message_id": TEXT, "content": TEXT, "completed": FLAG, "partial": FLAG, "interrupted": FLAG},
    ),
    "tool.progress": _event(
        "tool.progress",
        "A thought; never a copy of visible text.",
        {"message_id": MESSAGE_ID, "tool_name": {"const": "_thinking"}, "delta": TEXT},
    ),
    "tool.started": _event(
        "tool.started",
        "A tool begins.",
        {**_TOOL, "args": {"type": ["object", "null"]}, "tool_call_id": NULLABLE_TEXT},
    ),
    **{
        name: _event(
            name,
            "A tool has ended; ends of one name come in the order of their starts.",
            {**_TOOL, "duration": {"type": ["number", "null"]}, "tool_call_id": NULLABLE_TEXT},
        )
        for name in ("tool.completed", "tool.failed")
    },
    "run.completed": _event(
        "run.completed",
        "The agent has finished.",
        {"completed": {"const": True}, "messages": {"type": "array"}, "usage": OBJECT},
        **_END,
    ),
    "run.failed": _event(
        "run.failed",
        "The agent said so, or never came; `code` is a bare token.",
        {"code": TEXT, "turn_exit_reason": TEXT, "error": TEXT, "message": TEXT, "partial": FLAG},
        **_END,
    ),
    "run.cancelled": _event(
        "run.cancelled",
        "Stopped, and the agent has confirmed it.",
        {"interrupted": {"const": True}, "turn_exit_reason": {"const": "interrupted_by_user"}},
        **_END,
    ),
    "run.interrupted": _event(
        "run.interrupted",
        "Cut off: the agent is gone, the gateway was restarted, or a stop was never confirmed.",
        {"reason": TEXT, "error": TEXT, "partial": {"const": True}},
        **_END,
    ),
    "done": _event("done", "Last; then the stream ends.", {}),
}

UNNUMBERED: dict[str, Schema] = {
    "done": {
        **record({"event": {"const": "done"}, "session_id": TEXT, "run_id": TEXT}),
        "description": "The stream of a queued run ends here, the run goes on; not in the journal.",
    },
    "error": {
        **record(
            {"event": {"const": "error"}, "session_id": TEXT, "run_id": TEXT, "code": TEXT, "message": TEXT}
        ),
        "description": "The gateway cannot describe this run any more; `done` follows.",
    },
}


def name_of(event: str) -> str:
    """The component's name of an event."""
    return "Event" + "".join(word.capitalize() for word in event.replace(".", " ").split())


def components() -> dict[str, Schema]:
    """All events, and `Event`, which is one of them."""
    named = {name_of(event): schema for event, schema in EVENTS.items()}
    named |= {f"Unnumbered{event.capitalize()}": schema for event, schema in UNNUMBERED.items()}
    return {**named, "Event": {"anyOf": [ref(name) for name in named]}}
