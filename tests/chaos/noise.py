"""Frames of chance: good ones, good ones with something wrong, and what is no frame at all."""

import json
import math
import random
from collections.abc import Iterator
from typing import Any

TYPES = (
    *(
        "text",
        "image",
        "voice",
        "video",
        "file",
        "stream_start",
        "stream",
        "stream_end",
        "error",
        "ping",
        "pong",
    ),
    *("event", "stop", "steer", "ready", "Text", "", "nonsense"),
)
CODES = (
    "timeout",
    "offline",
    "rate_limited",
    "file_too_large",
    "unsupported",
    "upload_failed",
    "internal",
    "other",
)
EVENTS = (
    "tool.started",
    "tool.completed",
    "approval.request",
    "approval.response",
    "run.completed",
    "mine",
    "",
)
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        1.5,
        -0.0,
        1e308,
        2**31,
        2**53,
        2**53 + 1,
        2**63,
        2**64,
        -(2**63),
        10**400,
    ),
    *(
        math.nan,
        math.inf,
        -math.inf,
        "",
        " ",
        "x",
        "\x00",
        "\ud800",
        "\udfff",
        "\U0001f600",
        "\u202e",
        ".",
        "..",
    ),
    *(
        "x" * 128,
        "x" * 129,
        "a" * 70_000,
        "__proto__",
        "%2F",
        "'; DROP TABLE chat_message; --",
        "{{ 7 * 7 }}",
    ),
    *([], {}, [[]], {"a": {}}, ["x"] * 300, {"type": "text"}),
)


class Noise:
    """What one peer might send; `sender` and `receiver` are what a good frame of its has there."""

    def __init__(self, chance: random.Random, sender: str, receiver: str) -> None:
        self._chance = chance
        self._sender = sender
        self._receiver = receiver
        self._ids = [f"m{number}" for number in range(20)]

    def frames(self, count: int) -> Iterator[str | bytes]:
        """So many of them."""
        kinds = (self._good, self._spoiled, self._spoiled, self._spoiled, self._text, self._json, self._cut)
        for _ in range(count):
            yield self._chance.choice(kinds)()

    def _frame(self) -> dict[str, Any]:
        chance = self._chance
        kind = chance.choice(TYPES[:13])
        frame: dict[str, Any] = {
            "type": kind,
            "from": self._sender,
            "to": self._receiver,
            "session": self._session(),
        }
        if kind not in ("stream", "stream_end"):
            frame |= {"id": f"n{chance.randrange(10**9)}", "ts": chance.randrange(2**31)}
        if chance.random() < 0.4:
            frame["reply_to"] = chance.choice(self._ids)
        if chance.random() < 0.9:
            frame["data"] = self._data(kind)
        return frame

    def _data(self, kind: str) -> dict[str, Any]:
        chance = self._chance
        data: dict[str, Any] = {"text": "word " * chance.randrange(6)}
        if kind in ("image", "voice", "video", "file"):
            data["media"] = {
                "id": f"med_{chance.randrange(9)}",
                "name": "a.png",
                "type": "image/png",
                "size": 1,
            }
        if kind == "error":
            data["code"] = chance.choice(CODES)
        if kind == "event":
            data["event"] = chance.choice(EVENTS)
        if kind == "stream_end" and chance.random() < 0.3:
            data = {
                "status": chance.choice(("cancelled", "failed", "completed", 7)),
                "media": chance.choice((0, 1, -1)),
            }
        if chance.random() < 0.1:
            data[chance.choice(("instructions", "replace_from", "history", "queued", "images"))] = self._odd()
        return data

    def _session(self) -> str:
        return f"S{self._chance.randrange(8)}"

    def _odd(self) -> Any:
        if self._chance.random() < 0.05:
            deep: Any = []
            for _ in range(self._chance.choice((20, 200, 5000))):
                deep = [deep] if self._chance.random() < 0.5 else {"a": deep}
            return deep
        return self._chance.choice(ODD)

    def _good(self) -> str:
        frame = self._frame()
        if "id" in frame and frame["type"] == "text":
            self._ids[self._chance.randrange(len(self._ids))] = frame["id"]
        return _dumps(frame)

    def _spoiled(self) -> str:
        """One to three things wrong, at the top or inside."""
        frame = self._frame()
        for _ in range(self._chance.randint(1, 3)):
            place = frame
            while place and self._chance.random() < 0.4:
                inner = [value for value in place.values() if isinstance(value, dict)]
                if not inner:
                    break
                place = self._chance.choice(inner)
            key = self._chance.choice([*place, "type", "id", "extra", ""])
            match self._chance.randrange(4):
                case 0:
                    place.pop(key, None)
                case 1 if key == "type":
                    place[key] = self._chance.choice(TYPES)
                case _:
                    place[key] = self._odd()
        return _dumps(frame)

    def _text(self) -> str:
        alphabet = (
            "{",
            "}",
            "[",
            "]",
            '"',
            ":",
            ",",
            "\\",
            "u",
            "d",
            "8",
            "0",
            "e",
            "-",
            "n",
            " ",
            "\n",
            "é",
            "😀",
        )
        return "".join(self._chance.choices(alphabet, k=self._chance.randrange(200)))

    def _json(self) -> str:
        return _dumps(self._odd())

    def _cut(self) -> str | bytes:
        whole = _dumps(self._frame())
        cut = whole[: self._chance.randrange(len(whole))]
        return cut.encode() if self._chance.random() < 0.3 else cut


def _dumps(value: Any) -> str:
    """JSON as careless as Python's: with NaN, and surrogates as escapes; what is too deep for it, by hand."""
    try:
        return json.dumps(value)
    except (RecursionError, ValueError):
        return '{"a":' * 5000 + "[" * 5000 + "]" * 5000 + "}" * 5000
