"""What the description of the addresses is made of: helpers, parameters, and the shapes of bodies."""

from __future__ import annotations

from typing import Any

from chat.api.schema_events import FLAG, NULLABLE_TEXT, OBJECT, TEXT, Schema, record, ref

INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"cookie": []}]
BAD = {401: "no credential, or a bad one", 403: "not allowed, or asked for by a foreign page"}
AWAY = {429: "too much at once", 503: "not now; `Retry-After` says when"}
NO_BODY = {400: "not JSON, or not as it must be", 413: "larger than 10 MB", 415: "not application/json"}
STATUSES = ["queued", "running", "stopping", "completed", "failed", "cancelled", "interrupted"]


def json_of(schema: Schema) -> Schema:
    """Content of an answer or body."""
    return {"application/json": {"schema": schema}}


def answers(good: dict[int, Schema], *families: dict[int, str], **own: str) -> Schema:
    """The answers of one operation: good ones, then errors by status (own ones as `e404="…"`)."""
    wrong = {status: text for family in families for status, text in family.items()}
    wrong |= {int(name[1:]): text for name, text in own.items()}
    return {
        **{str(status): answer for status, answer in good.items()},
        **{
            str(status): {"description": text, "content": json_of(ref("Error"))}
            for status, text in sorted(wrong.items())
        },
    }


def answer(schema: Schema | None, text: str = "") -> Schema:
    """One good answer."""
    return {"description": text or "as asked", **({"content": json_of(schema)} if schema else {})}


def stream(text: str) -> Schema:
    """An event stream."""
    body = {"type": "string", "description": "frames `id:` `event:` `data:`; comments while nothing happens"}
    content = {"text/event-stream": {"schema": body, "x-event": ref("Event")}}
    headers = {
        name: {"schema": TEXT} for name in ("X-Hermes-Session-Id", "X-Hermes-Run-Id", "Idempotency-Replayed")
    }
    return {"description": text, "content": content, "headers": headers}


def body(schema: Schema, *, required: bool = True) -> Schema:
    """A request's body."""
    return {"required": required, "content": json_of(schema)}


def query(name: str, schema: Schema, text: str = "") -> Schema:
    """An optional parameter of the query."""
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


def header(name: str, schema: Schema, text: str = "") -> Schema:
    """An optional header."""
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": text}


def of(name: str) -> Schema:
    """A parameter of the path."""
    schema = {"type": "string", "minLength": 1, "maxLength": 128}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def operation(tag: str, name: str, summary: str, responses: Schema, **more: Any) -> Schema:
    """One operation, open to those with a credential unless `security` says else."""
    return {
        "tags": [tag],
        "operationId": name,
        "summary": summary,
        "security": SECURITY,
        "responses": responses,
        **more,
    }


LIMIT = [
    query("limit", {"type": "integer", "minimum": 1, "maximum": 500}),
    query("offset", {"type": "integer", "minimum": 0, "maximum": 10**9}),
]
AFTER = [
    query("after", {"type": "string", "pattern": "^[0-9]{1,18}$"}, "the last number the client has"),
    header("Last-Event-ID", TEXT, "read when `after` is absent"),
]
SCHEMAS: dict[str, Schema] = {
    "Error": record(
        {"error": record({"code": TEXT, "type": TEXT, "message": TEXT}, param=TEXT, run_id=TEXT)}
    ),
    "Content": {"oneOf": [TEXT, {"type": "array", "items": OBJECT}]},
    "Input": {
        "oneOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "minItems": 1, "items": {"anyOf": [ref("TextPart"), ref("ImagePart")]}},
        ],
        "description": "a text or content parts; also a list of {role, content}, of which the last user entry counts",
    },
    "TextPart": record({"type": {"enum": ["text", "input_text"]}, "text": TEXT}),
    "ImagePart": record(
        {
            "type": {"enum": ["image_url", "input_image"]},
            "image_url": {"oneOf": [TEXT, record({"url": TEXT}, detail=TEXT)]},
        }
    ),
    "RunRequest": record(
        {},
        input=ref("Input"),
        instructions=NULLABLE_TEXT,
        replace_from={
            **NULLABLE_TEXT,
            "description": "regenerate or edit: the run from which on all is replaced",
        },
        run_id={"type": ["string", "null"], "pattern": "^[A-Za-z0-9._~-]{1,128}$"},
    ),
    "Accepted": record({"run_id": TEXT, "status": {"enum": STATUSES}}),
    "Session": record(
        {
            "id": TEXT,
            "title": NULLABLE_TEXT,
            "preview": NULLABLE_TEXT,
            "message_count": INTEGER,
            "started_at": NUMBER,
            "last_active": NUMBER,
            "created_at": TEXT,
            "updated_at": TEXT,
            "parent_session_id": NULLABLE_TEXT,
            "pinned": FLAG,
            "archived": FLAG,
            "agent": TEXT,
            "active_run": {"oneOf": [{"type": "null"}, ref("Accepted")]},
        }
    ),
    "OneSession": record({"object": {"const": "hermes.session"}, "session": ref("Session")}),
    "Row": record(
        {
            "id": TEXT,
            "session_id": TEXT,
            "role": {"enum": ["user", "assistant", "tool"]},
            "content": ref("Content"),
            "run_id": TEXT,
            "timestamp": NUMBER,
            "tool_calls": {"type": ["array", "null"]},
            "tool_call_id": NULLABLE_TEXT,
            "tool_name": NULLABLE_TEXT,
            "finish_reason": NULLABLE_TEXT,
            "reasoning": NULLABLE_TEXT,
        }
    ),
    "RunEntry": record(
        {
            "run_id": TEXT,
            "status": {"enum": STATUSES},
            "last_event_id": TEXT,
            "started_at": NUMBER,
            "ended_at": {"type": ["number", "null"]},
            "error": {"oneOf": [{"type": "null"}, record({"code": TEXT, "type": TEXT, "message": TEXT})]},
        }
    ),
    "Media": record(
        {
            "media_id": TEXT,
            "name": TEXT,
            "type": TEXT,
            "size": INTEGER,
            "kind": TEXT,
            "url": TEXT,
            "sha256": TEXT,
        },
        width={"type": ["integer", "null"]},
        height={"type": ["integer", "null"]},
        duration={"type": ["integer", "null"]},
        thumbnail_url=NULLABLE_TEXT,
    ),
}
