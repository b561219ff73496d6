"""The agent's side of the v3 wire: frames as dictionaries, and text that may go into them."""

from __future__ import annotations

import json
import re
import time
import uuid
from typing import Any

Frame = dict[str, Any]

MEDIA_TYPES = frozenset({"image", "voice", "video", "file"})
# A character is at most 6 bytes of JSON, so a piece stays below the 1 MiB a frame may have.
MAX_PIECE_CHARS = 65_536
MAX_PREVIEW_CHARS = 500
MAX_ARGS_CHARS = 8_192
MAX_REMARK_CHARS = 8_192

_UNFIT = re.compile("[\x00\ud800-\udfff]")


def new_id() -> str:
    """An id nobody else uses."""
    return str(uuid.uuid4())


def decode(text: str | bytes) -> Frame | None:
    """Read one frame of the gateway; None when it is not a JSON object with a type."""
    try:
        frame = json.loads(text)
    except ValueError:
        return None
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        return None
    return frame


def encode(frame: Frame) -> str:
    """Write one frame; a lone surrogate anywhere in it becomes U+FFFD."""
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
    return _UNFIT.sub("\ufffd", text)


def clean(text: str) -> str:
    """The text as the gateway takes it: surrogate pairs joined, NUL and lone surrogates as U+FFFD."""
    if not _UNFIT.search(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\x00", "\ufffd")


class Cleaner:
    """Cleans a text that comes in pieces: a pair cut between two of them is put together again."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """The clean text that is certain now; a high surrogate at the end waits for the next piece."""
        piece = self._held + piece
        self._held = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._held = piece[:-1], piece[-1]
        return clean(piece)

    def rest(self) -> str:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        return clean(held)


def envelope(kind: str, *, sender: str, to: str, session: str, reply_to: str | None = None) -> Frame:
    """The outer fields of a frame that is part of a stream: no id, no time."""
    frame: Frame = {"type": kind, "from": sender, "to": to, "session": session}
    if reply_to is not None:
        frame["reply_to"] = reply_to
    return frame


def stamped(frame: Frame, frame_id: str | None = None) -> Frame:
    """The frame with an id and the time in Unix seconds."""
    return {"id": frame_id or new_id(), **frame, "ts": int(time.time())}


def fit(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event as the gateway takes them: clean, previews short, large arguments left out."""
    fitted: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, str):
            value = clean(value)
            if key == "preview" and len(value) > MAX_PREVIEW_CHARS:
                value = value[: MAX_PREVIEW_CHARS - 1] + "…"
        elif isinstance(value, dict):
            text = json.dumps(value)
            # Escaped NULs and surrogates would be refused; such arguments are not worth a frame.
            if len(text) > MAX_ARGS_CHARS or "\\u0000" in text or "\\ud" in text:
                value = None
        fitted[key] = value
    return fitted
