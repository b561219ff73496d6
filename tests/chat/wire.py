"""Frames as peers write them, for the tests of chat."""

from __future__ import annotations

import json
from typing import Any

from chat import frames

DATA_BYTES = 64 * 1024
TS = 1719123456
AGENT_TYPES = ("stream_start", "stream", "stream_end")
MEDIA_TYPES = ("image", "voice", "video", "file")


def fields(kind: str = "text", side: frames.Side = "app", **changes: Any) -> dict[str, Any]:
    """A good frame of this type as a dictionary; a change to `...` takes the field out."""
    sender, to = ("alice", "hermes") if side == "app" else ("hermes", "alice")
    frame: dict[str, Any] = {"type": kind}
    if kind not in ("ping", "pong"):
        frame |= {"from": sender, "to": to, "session": "S1"}
    if kind not in ("ping", "pong", "stream", "stream_end"):
        frame |= {"id": "m1", "ts": TS}
    if kind in ("text", "stream"):
        frame["data"] = {"text": "hello"}
    elif kind in MEDIA_TYPES:
        frame["data"] = {"media": {"id": "med_1"}}
    elif kind == "error":
        frame["data"] = {"code": "internal", "text": "it broke"}
    elif kind == "event":
        frame["data"] = {"event": "tool.started"}
    elif kind == "steer":
        frame["data"] = {"text": "more"}
    if kind in ("stop", "steer"):
        frame["reply_to"] = "m0"
    frame |= changes
    return {name: value for name, value in frame.items() if value is not ...}


def decode(kind: str = "text", side: frames.Side = "app", **changes: Any) -> Any:
    """The same, read by the decoder."""
    return frames.decode(json.dumps(fields(kind, side, **changes)), side, data_bytes=DATA_BYTES)
