"""The v3 wire: what a frame is, how one is read and written. No I/O, no clock, no database."""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

import msgspec

from hermes_site.errors import Unsupported

Side = Literal["app", "agent"]

MAX_TS = 2**53
DATA_DEPTH = 16
DATA_KEYS = 256
ERROR_CODES = frozenset(
    {"timeout", "offline", "rate_limited", "file_too_large", "unsupported", "upload_failed", "internal"}
)
# `data` keys that only the gateway writes, whoever sent the frame.
GATEWAY_KEYS = ("queued", "history", "images", "media_list", "retry_after", "interrupted")

ID_RULE = "must be 1 to 128 characters without control characters"
SESSION_RULE = ID_RULE + ", and not . or .."
_ID = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,128}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_WHERE = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING = re.compile(r"missing required field `([^`]+)`")


class BadFrame(Unsupported):
    """
    A frame that cannot be taken, with the field that is wrong and, when readable, the frame's own id.

    `frame_id` and `session` are None where they could not be read.
    """

    def __init__(
        self, field: str, reason: str, *, frame_id: str | None = None, session: str | None = None
    ) -> None:
        super().__init__(f"{field}: {reason}", field=field)
        self.frame_id = frame_id
        self.session = session


class Frame(msgspec.Struct, tag_field="type", kw_only=True, rename={"sender": "from"}):
    """Any frame; the class says its type."""

    CONTROL: ClassVar[bool] = False


class Ping(Frame, tag="ping"):
    """A sign of life that wants a `pong`."""


class Pong(Frame, tag="pong"):
    """The answer to a `ping`."""


class Addressed(Frame):
    """What every frame but `ping` and `pong` carries."""

    sender: str
    to: str
    session: str


class Envelope(Addressed):
    """The full envelope. `ts` is Unix seconds, floored."""

    id: str
    ts: int | float
    reply_to: str | None = None
    data: dict[str, Any] | None = None


class Message(Envelope):
    """An utterance that is stored: `text` or one of the media types."""

    replace_from: str | None = None

    @property
    def kind(self) -> str:
        """The wire's `type`."""
        return cast(str, type(self).__struct_config__.tag)

    @property
    def body(self) -> dict[str, Any]:
        """`data`, which decoding has made sure of."""
        return cast("dict[str, Any]", self.data)


class Text(Message, tag="text"):
    """A text message."""


class Image(Message, tag="image"):
    """A picture."""


class Voice(Message, tag="voice"):
    """A recording."""


class Video(Message, tag="video"):
    """A film."""


class File(Message, tag="file"):
    """Any other file."""


class StreamStart(Envelope, tag="stream_start"):
    """A streamed reply begins."""


class Piece(msgspec.Struct):
    """`data` of a `stream` frame."""

    text: str


class Stream(Addressed, tag="stream"):
    """The next piece of the open stream of its session."""

    data: Piece


class StreamEnd(Addressed, tag="stream_end"):
    """The open stream of its session is complete."""

    reply_to: str | None = None
    data: dict[str, Any] | None = None


class Error(Envelope, tag="error"):
    """Something went wrong at the sender."""


class Event(Envelope, tag="event"):
    """What else happens in a turn (capability `events`)."""


class Stop(Envelope, tag="stop"):
    """Asks the agent to end a turn (capability `control`)."""


class Steer(Envelope, tag="steer"):
    """Adds a remark to a running turn (capability `control`)."""


MediaMessage = Image | Voice | Video | File
AnyFrame = (
    Ping
    | Pong
    | Text
    | Image
    | Voice
    | Video
    | File
    | StreamStart
    | Stream
    | StreamEnd
    | Error
    | Event
    | Stop
    | Steer
)
_decoder: msgspec.json.Decoder[AnyFrame] = msgspec.json.Decoder(AnyFrame)
_encoder = msgspec.json.Encoder()
_sorting = msgspec.json.Encoder(order="sorted")

_FROM_APP = (Ping, Pong, Text, Image, Voice, Video, File, Error, Event, Stop, Steer)
_FROM_AGENT = (Stream, Ping, Pong, Text, Image, Voice, Video, File, StreamStart, StreamEnd, Error, Event)


def new_id() -> str:
    """An id for a frame that the gateway makes."""
    return str(uuid.uuid4())


def valid_id(value: str) -> bool:
    """Whether `value` may be a message id: 1 to 128 characters, none of them a control character."""
    if value.isascii():  # which nearly all are, and this is quick
        return 0 < len(value) <= 128 and value.isprintable()
    return _ID.fullmatch(value) is not None


def valid_session(value: str) -> bool:
    """Whether `value` may be a session id: as a message id, and neither `.` nor `..`."""
    return value not in (".", "..") and valid_id(value)


def decode(text: str, side: Side, *, data_bytes: int) -> AnyFrame:
    """
    Read one frame sent by a peer of `side`.

    `data_bytes` bounds what `data` may hold beside its `text`. Stream text may still hold lone surrogates
    and NUL: `mend` deals with those.

    Raises:
        BadFrame: If the text is not JSON, or not a frame this side may send.
    """
    try:
        frame = _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        frame = _second_look(text, error)
    if isinstance(frame, Stream):
        if side == "app":
            raise _bad(frame, "type", "stream comes from an agent only")
        if not valid_session(frame.session):
            raise _bad(frame, "session", SESSION_RULE)
        return frame
    if not isinstance(frame, _FROM_APP if side == "app" else _FROM_AGENT):
        kind = type(frame).__struct_config__.tag
        raise _bad(frame, "type", f"{kind} is not for this direction")
    if isinstance(frame, Addressed):
        _check(frame, side, data_bytes)
    return frame


def mend(carry: str, text: str) -> tuple[str, str]:
    """
    Make a piece of a stream valid Unicode; returns `(text, carry)`.

    A high surrogate at the end waits in `carry` for the next piece; any other lone surrogate and NUL become
    U+FFFD, so that an answer is never lost over one character.
    """
    if not carry and "\x00" not in text and text.isascii():
        return text, ""
    text = carry + text
    carry = ""
    if text and "\ud800" <= text[-1] <= "\udbff":
        text, carry = text[:-1], text[-1]
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\x00", "\ufffd"), carry


def encode(frame: Mapping[str, Any]) -> str:
    """Write a frame as the text of one WebSocket message."""
    return _encoder.encode(frame).decode()


def read_data(text: str) -> dict[str, Any]:
    """Read a frame of ours, or its `data`, as it was written."""
    return msgspec.json.decode(text, type=dict[str, Any])


def encode_text(text: str) -> str:
    """Write a text as a JSON string."""
    return _encoder.encode(text).decode()


def message_frame(
    *,
    message_id: str,
    kind: str,
    sender: str,
    to: str,
    session: str,
    reply_to: str | None,
    ts: int,
    data: Mapping[str, Any],
    replace_from: str | None = None,
) -> dict[str, Any]:
    """The full envelope of a stored message; what is absent stays absent."""
    frame: dict[str, Any] = {"id": message_id, "type": kind, "from": sender, "to": to, "session": session}
    if reply_to is not None:
        frame["reply_to"] = reply_to
    frame["ts"] = ts
    if replace_from is not None:
        frame["replace_from"] = replace_from
    return {**frame, "data": data}


def same_content(message: Message, to: str) -> str:
    """What "the same content" means for an id sent twice: a digest of all but `ts`, media by id."""
    data = dict(message.body)
    media = data.get("media")
    if isinstance(media, dict):
        data["media"] = media.get("id")
    content = [message.kind, to, message.session, message.reply_to, message.replace_from, data]
    return hashlib.sha256(_sorting.encode(content)).hexdigest()


def _bad(frame: Any, field: str, reason: str) -> BadFrame:
    frame_id, session = getattr(frame, "id", None), getattr(frame, "session", None)
    return BadFrame(
        field,
        reason,
        frame_id=frame_id if isinstance(frame_id, str) and valid_id(frame_id) else None,
        session=session if isinstance(session, str) and valid_session(session) else None,
    )


class _Readable:
    """What could be read of a frame that is not one."""

    def __init__(self, value: Any) -> None:
        is_object = isinstance(value, dict)
        self.id = value.get("id") if is_object else None
        self.session = value.get("session") if is_object else None


def _second_look(text: str, error: Exception) -> AnyFrame:
    """Say precisely why the strict reader refused; let stream text with odd surrogates pass."""
    if not text:
        raise BadFrame("frame", "is empty")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrame("frame", "is not JSON, or nested too deeply") from None
    readable = _Readable(value)
    if not isinstance(value, dict):
        raise BadFrame("frame", "is not an object")
    if value.get("type") == "stream":
        try:
            return msgspec.convert(value, Stream)
        except (msgspec.ValidationError, ValueError, RecursionError) as again:
            error = again
    reason = str(error)
    if missing := _MISSING.search(reason):
        where = _WHERE.search(reason)
        field = f"{where[1]}.{missing[1]}" if where and where[1] else missing[1]
        raise _bad(readable, field, "is missing")
    if where := _WHERE.search(reason):
        raise _bad(readable, _first_bad(value) or where[1] or "frame", reason[: where.start()])
    if isinstance(error, msgspec.DecodeError):
        reason = "holds a lone surrogate or a number that JSON does not have"
    raise _bad(
        readable,
        _first_bad(value) or "frame",
        reason if isinstance(error, msgspec.MsgspecError) else "is not valid",
    )


def _first_bad(value: dict[str, Any]) -> str | None:
    """The top-level field that holds a number or a text the wire does not know, if one does."""
    for field, item in value.items():
        if isinstance(item, float) and not math.isfinite(item):
            return str(field)
        if isinstance(item, str) and _SURROGATE.search(item):
            return str(field)
    return None


def _check(frame: Addressed, side: Side, data_bytes: int) -> None:
    """The rules that types alone do not say."""
    if not valid_session(frame.session):
        raise _bad(frame, "session", SESSION_RULE)
    reply_to: str | None = getattr(frame, "reply_to", None)
    if reply_to is not None and not valid_id(reply_to):
        raise _bad(frame, "reply_to", ID_RULE)
    if isinstance(frame, Envelope):
        if not valid_id(frame.id):
            raise _bad(frame, "id", ID_RULE)
        if not 0 <= frame.ts <= MAX_TS:
            raise _bad(frame, "ts", "must be Unix seconds, not negative and at most 2^53")
        frame.ts = math.floor(frame.ts)
    data = getattr(frame, "data", None)
    if data is not None:
        for key in GATEWAY_KEYS:
            data.pop(key, None)
        if side == "app" or not isinstance(frame, StreamEnd):
            data.pop("status", None)
        _check_size(frame, data, data_bytes)
    if isinstance(frame, Message):
        _check_message(frame, side)
    elif isinstance(frame, Error):
        _check_error(frame)
    elif isinstance(frame, Event):
        if not isinstance((data or {}).get("event"), str):
            raise _bad(frame, "data.event", "must be a string")
    elif isinstance(frame, Stop | Steer):
        if frame.reply_to is None:
            raise _bad(frame, "reply_to", "must name the message whose turn is meant")
        text = (data or {}).get("text")
        if isinstance(frame, Steer) and not (isinstance(text, str) and text.strip()):
            raise _bad(frame, "data.text", "must be a text that is not empty")


def _check_message(frame: Message, side: Side) -> None:
    data = frame.data
    if data is None:
        raise _bad(frame, "data", "is missing")
    if "replace_from" in data:
        inner = data.pop("replace_from")
        frame.replace_from = inner if frame.replace_from is None else frame.replace_from
    if side == "agent":
        frame.replace_from = None
    if frame.replace_from is not None and not (
        isinstance(frame.replace_from, str) and valid_id(frame.replace_from)
    ):
        raise _bad(frame, "replace_from", "must be the id of an earlier message")
    text = data.get("text")
    if isinstance(frame, Text) or text is not None:
        if not isinstance(text, str):
            raise _bad(frame, "data.text", "must be a string")
        if "\x00" in text:
            raise _bad(frame, "data.text", "holds a NUL character")
    if not isinstance(data.get("instructions", ""), str):
        raise _bad(frame, "data.instructions", "must be a string")
    if not isinstance(frame, Text):
        media = data.get("media")
        if not isinstance(media, dict):
            raise _bad(frame, "data.media", "must be an object")
        if not (isinstance(media.get("id"), str) and valid_id(media["id"])):
            raise _bad(frame, "data.media.id", "must be the id of a file")


def _check_error(frame: Error) -> None:
    data = frame.data or {}
    code = data.get("code")
    if not isinstance(code, str) or code not in ERROR_CODES:
        raise _bad(frame, "data.code", "must be one of " + ", ".join(sorted(ERROR_CODES)))
    if not isinstance(data.get("text", ""), str):
        raise _bad(frame, "data.text", "must be a string")


def _check_size(frame: Addressed, data: dict[str, Any], data_bytes: int) -> None:
    """`data` beside its text: bounded in bytes, depth and number of keys."""
    if len(data) == ("text" in data):
        return
    keys, waiting = 0, [(cast(Any, data), 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > DATA_DEPTH:
            raise _bad(frame, "data", f"is nested more than {DATA_DEPTH} deep")
        if isinstance(value, dict):
            keys += len(value)
            inner = list(value.values())
        else:
            inner = value
        waiting.extend((item, depth + 1) for item in inner if isinstance(item, dict | list))
    if keys > DATA_KEYS:
        raise _bad(frame, "data", f"has more than {DATA_KEYS} keys")
    rest = {key: value for key, value in data.items() if key != "text"}
    if len(_encoder.encode(rest)) > data_bytes:
        raise _bad(frame, "data", f"holds more than {data_bytes} bytes beside its text")
