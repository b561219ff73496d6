"""The decoder against anything at all: a frame or a `BadFrame`, and never another exception."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chat import frames
from tests.chat.wire import DATA_BYTES, MEDIA_TYPES, fields

TYPES = (
    "text", *MEDIA_TYPES, "stream_start", "stream", "stream_end", "error", "event", "stop", "steer", "ping", "pong",
)  # fmt: skip
SIDES: tuple[frames.Side, ...] = ("app", "agent")
FIELDS = ("id", "type", "from", "to", "session", "reply_to", "ts", "data", "replace_from")

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", ".", "..", "m1", "S1", "alice", "hermes", "a\x00", "x" * 129, 10**400, -(10**30)])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
datas = st.fixed_dictionaries(
    {},
    optional={
        "text": values,
        "media": values | st.fixed_dictionaries({"id": values}),
        "code": values,
        "event": values,
        "status": values,
        "replace_from": values,
        "instructions": values,
    },
)


def written(value: Any) -> str:
    """As JSON, with whatever Python puts there: NaN, huge numbers, escaped surrogates."""
    return json.dumps(value)


@st.composite
def almost_frames(draw: st.DrawFn) -> str:
    """A good frame of some type with a few fields changed, taken out or added."""
    frame = fields(draw(st.sampled_from(TYPES)), draw(st.sampled_from(SIDES)))
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=3)):
        if draw(st.booleans()):
            frame[name] = draw(datas if name == "data" else values)
        else:
            frame.pop(name, None)
    return written(frame)


texts = (
    almost_frames() | values.map(written) | st.text() | st.text(alphabet='{}[]":,\\u0d8etrufalsn1e-. \x00')
)


def check(text: str, side: frames.Side) -> None:
    """What must be true of whatever the decoder makes of a text."""
    try:
        frame = frames.decode(text, side, data_bytes=DATA_BYTES)
    except frames.BadFrame as error:
        assert error.wire_code == "unsupported"
        assert error.field and error.text.startswith(f"{error.field}: ")
        assert error.frame_id is None or frames.valid_id(error.frame_id)
        assert error.session is None or frames.valid_session(error.session)
        answer = {"id": frames.new_id(), "type": "error", "data": {"code": "unsupported", "text": error.text}}
        answer |= {"reply_to": error.frame_id, "session": error.session}
        json.loads(frames.encode(answer))
        return
    assert isinstance(frame, frames.Frame)
    if isinstance(frame, frames.Envelope):
        assert frames.valid_id(frame.id)
        assert type(frame.ts) is int and 0 <= frame.ts <= frames.MAX_TS
    if isinstance(frame, frames.Addressed):
        assert frames.valid_session(frame.session)
    if isinstance(frame, frames.Addressed) and not isinstance(frame, frames.Stream):
        data = getattr(frame, "data", None)
        assert data is None or not data.keys() & set(frames.GATEWAY_KEYS)
        reject = msgspec.json.encode(data)  # what is stored and relayed
        assert b"NaN" not in reject and b"Infinity" not in reject
        assert json.loads(reject) == data
    if isinstance(frame, frames.Message):
        assert len(frames.same_content(frame, "x")) == 64
        assert "\x00" not in frame.body.get("text", "")


@given(texts, st.sampled_from(SIDES))
@settings(max_examples=600, deadline=None)
@example("", "app")
@example("\ud800", "app")
@example('{"type":"text"}\ud800', "agent")
@example('{"type":"ping","type":"text"}', "app")
@example("1" + "0" * 400, "app")
@example('{"ts":1' + "0" * 400 + "}", "agent")
@example('{"ts":1' + "0" * 5000 + "}", "agent")
@example("[" * 100_000, "app")
@example('{"type":"stream","data":' * 20_000, "agent")
@example('{"type":' + "[" * 5000 + "]" * 5000 + "}", "agent")
@example(written(fields("error", data={"code": {}})), "app")
@example(written(fields("error", data={"code": "internal", "text": None})), "app")
@example(written(fields(data={"text": "x", "big": 10**400})), "app")
@example(written(fields(data={"text": "x", "big": 2**64})), "app")
@example(written(fields("stream", "agent", data={"text": "\ud800"}, session="\ud800")), "agent")
@example(written(fields("stream", "agent", data={"text": "\ud800"}, extra=float("nan"))), "agent")
@example(written(fields(data={"text": "x", "\ud800": 1})), "app")
@example("\ufeff" + written(fields()), "app")
def test_any_text_is_a_frame_or_a_bad_frame(text: str, side: frames.Side) -> None:
    """And what is a frame keeps every rule, and can be stored and relayed as strict JSON."""
    check(text, side)


@given(st.sampled_from(TYPES), st.data())
@settings(max_examples=300, deadline=None)
def test_the_order_and_spacing_of_fields_mean_nothing(kind: str, data: st.DataObject) -> None:
    """A frame is its fields."""
    side: frames.Side = "agent" if kind.startswith("stream") else "app"
    frame = fields(kind, side)
    shuffled = dict(data.draw(st.permutations(list(frame.items()))))
    one = frames.decode(json.dumps(frame), side, data_bytes=DATA_BYTES)
    assert frames.decode(json.dumps(shuffled, indent=1), side, data_bytes=DATA_BYTES) == one


@given(st.lists(st.text(st.characters(exclude_categories=[]), max_size=8), max_size=6))
@settings(max_examples=300, deadline=None)
def test_mending_does_not_depend_on_where_a_text_is_cut(pieces: list[str]) -> None:
    """Apart from a half character at the very end, which waits."""
    carry, out = "", []
    for piece in pieces:
        text, carry = frames.mend(carry, piece)
        out.append(text)
    whole, rest = frames.mend("", "".join(pieces))
    assert ("".join(out), carry) == (whole, rest)
    whole.encode()
    assert "\x00" not in whole


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", TYPES)
def test_every_good_frame_survives_being_written_and_read(side: frames.Side, kind: str) -> None:
    """Where its side may send it; else it is refused by its type."""
    try:
        frame = frames.decode(json.dumps(fields(kind, side)), side, data_bytes=DATA_BYTES)
    except frames.BadFrame as error:
        assert error.field == "type"
        return
    again = msgspec.json.encode(frame).decode()
    assert frames.decode(again, side, data_bytes=DATA_BYTES) == frame
