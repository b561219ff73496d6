"""
/api/schema: what every address under /api/ takes and answers, as OpenAPI.

Written by hand, for most of what is promised (streams, the order of checks, codes) is not to be read out of views;
tests hold every address to it.
"""

from __future__ import annotations

import re
from typing import Any

from chat.api.schema_events import FLAG, NULLABLE_TEXT, OBJECT, TEXT, Schema, components, record, ref
from chat.api.schema_parts import (
    AFTER,
    AWAY,
    BAD,
    INTEGER,
    LIMIT,
    NO_BODY,
    NUMBER,
    SCHEMAS,
    STATUSES,
    answer,
    answers,
    body,
    header,
    of,
    operation,
    query,
    stream,
)  # fmt: skip

HERMES = "/api/hermes"
_TITLE: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": 255}
_NEW = {"id": {"type": ["string", "null"], "minLength": 1, "maxLength": 128}, "title": _TITLE}
_LOGIN = body(record({"username": TEXT, "password": TEXT}))
_TOKENS = answer(record({"access": TEXT, "refresh": TEXT}))
_SESSION = answer(ref("OneSession"))
_GONE = "there is no such session"
_NO_RUN = "there is no such run"

PATHS: dict[str, dict[str, Schema]] = {
    "/api/auth/token": {
        "post": operation(
            "auth", "token", "Tokens for a password", answers({200: _TOKENS}, BAD, NO_BODY, AWAY),
            requestBody=_LOGIN, security=[],
        )
    },
    "/api/auth/refresh": {
        "post": operation(
            "auth", "refresh", "New tokens for a refresh token", answers({200: _TOKENS}, BAD, NO_BODY, AWAY),
            requestBody=body(record({"refresh": TEXT})), security=[],
        )
    },
    "/api/auth/login": {
        "post": operation(
            "auth", "login", "A login cookie for a password",
            answers({200: answer(record({"username": TEXT}))}, BAD, NO_BODY, AWAY), requestBody=_LOGIN, security=[],
        )
    },
    "/api/auth/logout": {
        "post": operation(
            "auth", "logout", "The end of a refresh token and of the cookie session",
            answers({204: answer(None)}, BAD, NO_BODY, AWAY),
            requestBody=body(record({}, refresh=TEXT), required=False), security=[],
        )
    },
    "/api/me": {
        "get": operation(
            "auth", "me", "Who is calling",
            answers(
                {200: answer(record({"username": TEXT, "agents": {"type": "array", "items": OBJECT}, "limits": OBJECT}))},
                BAD, AWAY,
            ),
        )
    },
    "/api/frames": {
        "get": operation(
            "sockets", "frames", "A page of the user's log, as frames",
            answers(
                {200: answer(record({"data": {"type": "array", "items": OBJECT}, "has_more": FLAG}))},
                BAD, AWAY, e400="a number out of range, or no session id",
            ),
            parameters=[
                query("session", TEXT),
                query("before", {"type": "integer", "minimum": 0}),
                query("limit", {"type": "integer", "minimum": 1, "maximum": 500}),
            ],
        )
    },
    "/api/media/upload": {
        "post": operation(
            "media", "upload", "Keep a file",
            answers(
                {201: answer(ref("Media")), 200: answer(ref("Media"), "the user has it already")},
                BAD, AWAY, {400: "a bad form", 413: "too large", 415: "not multipart/form-data", 507: "no room"},
            ),
            requestBody={
                "required": True,
                "content": {
                    "multipart/form-data": {"schema": record({"file": {"type": "string", "format": "binary"}})}
                },
            },
        )
    },
    f"{HERMES}/api/sessions": {
        "get": operation(
            "sessions", "listSessions", "The user's conversations, the latest activity first",
            answers(
                {
                    200: answer(
                        record(
                            {
                                "object": {"const": "list"}, "data": {"type": "array", "items": ref("Session")},
                                "limit": INTEGER, "offset": INTEGER, "has_more": FLAG,
                            }
                        )
                    )
                },
                BAD, AWAY, e400="`invalid_pagination`",
            ),
            parameters=[query("limit", {"type": "integer", "minimum": 1, "maximum": 200}), LIMIT[1]],
        ),
        "post": operation(
            "sessions", "createSession", "A conversation by the client's own id",
            answers(
                {201: _SESSION}, BAD, NO_BODY, AWAY, e409="`session_exists` or `session_deleted`",
            ),
            requestBody=body(record({}, **_NEW, agent=NULLABLE_TEXT), required=False),
        ),
    },
    f"{HERMES}/api/sessions/{{session}}": {
        "get": operation(
            "sessions", "showSession", "One conversation", answers({200: _SESSION}, BAD, AWAY, e404=_GONE),
        ),
        "patch": operation(
            "sessions", "changeSession", "Its title, and whether it is pinned or archived",
            answers({200: _SESSION}, BAD, NO_BODY, AWAY, e404=_GONE),
            requestBody=body(record({}, title=_TITLE, pinned=FLAG, archived=FLAG)),
        ),
        "delete": operation(
            "sessions", "deleteSession", "Delete it for good; its id stays taken",
            answers(
                {
                    200: answer(
                        record(
                            {"object": {"const": "hermes.session.deleted"}, "id": TEXT, "deleted": {"const": True}}
                        )
                    )
                },
                BAD, AWAY, e404=_GONE, e409="`session_active_turn`",
            ),
        ),
    },
    f"{HERMES}/api/sessions/{{session}}/fork": {
        "post": operation(
            "sessions", "forkSession", "A copy up to a run",
            answers(
                {201: _SESSION}, BAD, NO_BODY, AWAY, e404=_GONE,
                e409="`session_exists`, `session_deleted` or `session_active_turn`",
            ),
            requestBody=body(record({}, **_NEW, run_id=NULLABLE_TEXT), required=False),
        ),
    },
    f"{HERMES}/api/sessions/{{session}}/messages": {
        "get": operation(
            "sessions", "history", "The conversation so far, oldest first",
            answers(
                {
                    200: answer(
                        record(
                            {
                                "object": {"const": "list"}, "session_id": TEXT,
                                "data": {"type": "array", "items": ref("Row")},
                                "runs": {"type": "array", "items": ref("RunEntry")}, "pagination": OBJECT,
                            }
                        )
                    )
                },
                BAD, AWAY, e400="`invalid_pagination`", e404=_GONE,
            ),
            parameters=[*LIMIT, query("order", {"enum": ["latest", "oldest"]})],
        ),
    },
    f"{HERMES}/api/sessions/{{session}}/chat/stream": {
        "post": operation(
            "runs", "startRun", "Say something and follow the run",
            answers(
                {
                    200: stream("the events of the run"),
                    202: answer(ref("Accepted"), "with `Accept: application/json`: output comes by the session's events"),
                },
                BAD, NO_BODY, AWAY, e404="there is no such session, run or file",
                e409="`run_already_active` with `run_id`, `run_replaced`, `run_id_conflict`, `idempotency_key_conflict`",
                e410="`cursor_expired`: the run an idempotency key started has ended long ago",
                e422="`replace_unsupported`",
            ),
            parameters=[
                query("on_disconnect", {"enum": ["stop", "continue"]}, "`stop`: the run goes with its viewer"),
                header("Idempotency-Key", {"type": "string", "pattern": "^[!-~]{1,255}$"}),
            ],
            requestBody=body(ref("RunRequest")),
        ),
    },
    f"{HERMES}/api/sessions/{{session}}/events": {
        "get": operation(
            "runs", "sessionEvents", "Everything that happens in a conversation; SSE ids are `run_id:seq`",
            answers(
                {200: stream("the events of all its runs; it does not end by itself")}, BAD, AWAY,
                e400="`invalid_cursor`", e404=_GONE, e410="`cursor_expired` or `run_replaced`",
            ),
            parameters=[query("after", TEXT, "`run_id:seq`"), AFTER[1]],
        ),
    },
    f"{HERMES}/v1/runs/{{run}}": {
        "get": operation(
            "runs", "runStatus", "How a run stands",
            answers(
                {
                    200: answer(
                        record(
                            {
                                "object": {"const": "hermes.run"}, "run_id": TEXT, "session_id": TEXT,
                                "status": {"enum": STATUSES}, "created_at": NUMBER, "updated_at": NUMBER,
                                "last_event": NULLABLE_TEXT, "last_event_id": TEXT,
                            },
                            output=TEXT, error=TEXT,
                        )
                    )
                },
                BAD, AWAY, e404=_NO_RUN, e410="`run_replaced`",
            ),
        ),
    },
    f"{HERMES}/v1/runs/{{run}}/events": {
        "get": operation(
            "runs", "resumeRun", "The events after a number, then live, until `done`",
            answers(
                {200: stream("the rest of the run")}, BAD, AWAY, e400="`invalid_cursor`", e404=_NO_RUN,
                e410="`cursor_expired` or `run_replaced`",
            ),
            parameters=AFTER,
        ),
    },
    f"{HERMES}/v1/runs/{{run}}/stop": {
        "post": operation(
            "runs", "stopRun", "Ask for its end",
            answers({200: answer(ref("Accepted"))}, BAD, NO_BODY, AWAY, e404=_NO_RUN),
            requestBody=body(OBJECT, required=False),
        ),
    },
    f"{HERMES}/v1/runs/{{run}}/steer": {
        "post": operation(
            "runs", "steerRun", "Add a remark to a run that is streaming",
            answers(
                {
                    200: answer(
                        record({"object": {"const": "hermes.run.steer"}, "run_id": TEXT, "accepted": {"const": True}})
                    )
                },
                BAD, NO_BODY, AWAY, e404=_NO_RUN, e409="`run_not_accepting_steer`",
            ),
            requestBody=body(record({"input": {"type": "string", "minLength": 1}})),
        ),
    },
}  # fmt: skip


def describe(result: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Hook of drf-spectacular: the whole of it."""
    result["paths"] = {
        path: {method: _placed(path, one) for method, one in operations.items()}
        for path, operations in PATHS.items()
    }
    result["components"] = {
        "schemas": {**SCHEMAS, **components()},
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer", "description": "an access token or an API key"},
            "cookie": {"type": "apiKey", "in": "cookie", "name": "sessionid"},
        },
    }
    return result


def _placed(path: str, one: Schema) -> Schema:
    """An operation with the parameters of its path."""
    own = [of(name) for name in re.findall(r"{(\w+)}", path)]
    return {**one, "parameters": own + one.get("parameters", [])}


def nothing(endpoints: list[Any]) -> list[Any]:
    """Hook of drf-spectacular: no address is described by its view."""
    return []
