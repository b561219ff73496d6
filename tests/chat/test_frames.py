"""The decoder: every rule of the wire, and what is said of a frame that breaks one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chat import frames
from chat.frames import BadFrame
from tests.chat.wire import DATA_BYTES, MEDIA_TYPES, TS, decode, fields

BOTH = ("text", *MEDIA_TYPES, "error", "event")
APP = (*BOTH, "stop", "steer", "ping", "pong")
AGENT = (*BOTH, "stream_start", "stream", "stream_end", "ping", "pong")
ENVELOPES = (*BOTH, "stream_start", "stop", "steer")


def refusal(text: str, side: frames.Side = "app") -> BadFrame:
    """Why this frame is not taken."""
    with pytest.raises(BadFrame) as caught:
        frames.decode(text, side, data_bytes=DATA_BYTES)
    return caught.value


def refused(kind: str = "text", side: frames.Side = "app", **changes: Any) -> BadFrame:
    """The same for a good frame with these changes."""
    return refusal(json.dumps(fields(kind, side, **changes)), side)


def side_of(kind: str) -> frames.Side:
    """A side that may send this type."""
    return "app" if kind in APP else "agent"


# Types and directions


@pytest.mark.parametrize("kind", APP)
def test_an_app_may_send(kind: str) -> None:
    """Texts, media, errors, events, stop and steer, and signs of life."""
    assert type(decode(kind)).__struct_config__.tag == kind


@pytest.mark.parametrize("kind", AGENT)
def test_an_agent_may_send(kind: str) -> None:
    """The same but stop and steer, and streams."""
    assert type(decode(kind, "agent")).__struct_config__.tag == kind


@pytest.mark.parametrize(
    ("kind", "side"),
    [
        ("stream_start", "app"),
        ("stream", "app"),
        ("stream_end", "app"),
        ("stop", "agent"),
        ("steer", "agent"),
    ],
)
def test_no_type_is_taken_in_the_wrong_direction(kind: str, side: frames.Side) -> None:
    """Streams come from agents, stop and steer from people."""
    error = refused(kind, side)
    assert error.field == "type"
    assert error.session == "S1"


@pytest.mark.parametrize("kind", ["link", "ready", "TEXT", "", "text ", 7, None, ["text"]])
def test_an_unknown_type_is_refused_with_the_id(kind: Any) -> None:
    """`ready` too: the gateway alone says it."""
    error = refused(type=kind)
    assert error.field == "type"
    assert (error.frame_id, error.session) == ("m1", "S1")


def test_a_frame_without_a_type_is_refused() -> None:
    """And the field is named."""
    assert refused(type=...).field == "type"


@pytest.mark.parametrize("kind", ["ping", "pong"])
@pytest.mark.parametrize("side", ["app", "agent"])
def test_signs_of_life_carry_only_their_type(kind: str, side: frames.Side) -> None:
    """What else is in them is dropped."""
    frame = decode(kind, side, id=5, data="anything", session=None)
    assert isinstance(frame, frames.Ping | frames.Pong)
    assert not isinstance(frame, frames.Addressed)


# What is no frame at all (C18)


@pytest.mark.parametrize(
    "text", ["{", "[]", '"x"', "null", "42", "", " ", "{}", "{]", '{"type":', "nul", "\x00"]
)
@pytest.mark.parametrize("side", ["app", "agent"])
def test_c18_what_is_no_frame_is_refused(text: str, side: frames.Side) -> None:
    """With a reason, never by another exception."""
    error = refusal(text, side)
    assert error.code == "unsupported"
    assert error.text.startswith(f"{error.field}: ")
    assert (error.frame_id, error.session) == (None, None)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"data": ...}, "data"),
        ({"data": None}, "data"),
        ({"data": []}, "data"),
        ({"data": "x"}, "data"),
        ({"data": {}}, "data.text"),
        ({"data": {"text": {}}}, "data.text"),
        ({"data": {"text": None}}, "data.text"),
        ({"data": {"text": 5}}, "data.text"),
        ({"from": ...}, "from"),
        ({"from": 5}, "from"),
        ({"to": ["alice"]}, "to"),
        ({"to": None}, "to"),
        ({"session": ...}, "session"),
        ({"session": 7}, "session"),
        ({"id": ...}, "id"),
        ({"id": 7}, "id"),
        ({"id": None}, "id"),
        ({"reply_to": 7}, "reply_to"),
        ({"reply_to": ""}, "reply_to"),
    ],
)
def test_c18_a_missing_or_ill_typed_field_is_named(changes: dict[str, Any], field: str) -> None:
    """The error says which field it was."""
    assert refused(**changes).field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"data": ...}, "data"), ({"data": {}}, "data.text"), ({"data": {"text": 1}}, "data.text")],
)
def test_c18_a_piece_without_text_is_refused(changes: dict[str, Any], field: str) -> None:
    """A `stream` frame is its text."""
    error = refused("stream", "agent", **changes)
    assert (error.field, error.session) == (field, "S1")


def test_c18_duplicate_keys_count_as_one_of_them() -> None:
    """The frame is either a ping or a text without its fields: both are answered."""
    text = '{"type":"ping","type":"text"}'
    assert refusal(text).field is not None


# Ids and sessions (C27)

GOOD_IDS = [
    "msg_001",
    "abc-123-def",
    "str_1",
    "6F9619FF-8B86-D011-B42D-00C04FC964FF",
    "x" * 128,
    "你好",
    "a/b",
    " ",
    ".",
]
BAD_IDS = ["", "x" * 129, "x" * 300, "a\nb", "a\x00b", "\x7f", "\x85"]


@pytest.mark.parametrize("value", GOOD_IDS)
def test_c27_an_id_is_an_opaque_string(value: str) -> None:
    """Kept to the letter."""
    assert decode(id=value).id == value
    assert decode(reply_to=value).reply_to == value


@pytest.mark.parametrize("value", BAD_IDS)
@pytest.mark.parametrize("field", ["id", "reply_to", "session"])
def test_c27_an_id_has_1_to_128_characters_none_of_them_a_control(field: str, value: str) -> None:
    """Sessions and references likewise; an id that is none is not answered to."""
    error = refused(**{field: value})
    assert error.field == field
    assert error.frame_id == (None if field == "id" else "m1")
    assert error.session == (None if field == "session" else "S1")


@pytest.mark.parametrize("value", [value for value in GOOD_IDS if value != "."])
@pytest.mark.parametrize("kind", ["text", "stream", "stream_end"])
def test_c27_a_session_is_an_opaque_string_too(kind: str, value: str) -> None:
    """Whatever the App made up."""
    assert decode(kind, side_of(kind), session=value).session == value


@pytest.mark.parametrize("value", [".", ".."])
@pytest.mark.parametrize("kind", ["text", "stream", "stream_end", "stop"])
def test_c27_a_session_is_no_path(kind: str, value: str) -> None:
    """`.` and `..` would be swallowed on the way of a URL."""
    assert refused(kind, side_of(kind), session=value).field == "session"


def test_streams_need_neither_id_nor_ts() -> None:
    """As in the examples of v3; they are dropped where they are sent."""
    piece = decode("stream", "agent")
    assert (piece.session, piece.data.text) == ("S1", "hello")
    end = decode("stream_end", "agent", id="x", ts=5)
    assert (end.reply_to, end.data) == (None, None)
    assert not hasattr(end, "ts")


@pytest.mark.parametrize("bad", ["\\ud800", "\\u0000", ""])
@pytest.mark.parametrize("side", ["app", "agent"])
def test_a_piece_for_a_session_that_cannot_be_is_refused(side: frames.Side, bad: str) -> None:
    """And the answer does not repeat it: it could not be written."""
    text = json.dumps(fields("stream", "agent", session="X")).replace('"X"', f'"{bad}"')
    error = refusal(text, side)
    assert error.field == ("type" if side == "app" else "session")
    assert error.session is None


# Time (C20)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (1719123456.789, 1719123456),
        (0, 0),
        (0.5, 0),
        (1719123456789, 1719123456789),
        (253402300800, 253402300800),
        (2**53, 2**53),
    ],
)
def test_c20_ts_is_unix_seconds_floored(given: float, kept: int) -> None:
    """Far futures are somebody's clock, not an error."""
    ts = decode(ts=given).ts
    assert (ts, type(ts)) == (kept, int)


@pytest.mark.parametrize(
    "given",
    [
        "-1",
        "-0.5",
        '"1719123456"',
        "1e400",
        "NaN",
        "Infinity",
        "-Infinity",
        "true",
        "null",
        "9223372036854775808",
        "9007199254740993",
        "1" + "0" * 400,
        "1" + "0" * 5000,
        "[]",
        "{}",
    ],
)
@pytest.mark.parametrize("kind", ENVELOPES)
def test_c20_a_ts_in_a_wrong_shape_is_refused(kind: str, given: str) -> None:
    """Each of them, in every frame that has one, naming the field where JSON could be read at all."""
    side = side_of(kind)
    text = json.dumps(fields(kind, side, ts="HERE")).replace('"HERE"', given)
    error = refusal(text, side)
    assert error.field == ("frame" if len(given) > 4300 else "ts")


def test_c20_a_missing_ts_is_refused() -> None:
    """It is not made up."""
    error = refused(ts=...)
    assert (error.field, error.text) == ("ts", "ts: is missing")


# Data


def test_unknown_keys_inside_data_are_kept_and_outside_dropped() -> None:
    """Data is the peers' own."""
    frame = decode(data={"text": "x", "mood": {"a": [1, None, 2.5]}}, extra=1)
    assert frame.data == {"text": "x", "mood": {"a": [1, None, 2.5]}}
    assert not hasattr(frame, "extra")


@pytest.mark.parametrize("key", [*frames.GATEWAY_KEYS, "status"])
@pytest.mark.parametrize("kind", ["text", "image", "error", "event", "stream_start"])
@pytest.mark.parametrize("side", ["app", "agent"])
def test_what_only_the_gateway_says_is_dropped(kind: str, side: frames.Side, key: str) -> None:
    """From either side, in whatever frame it may send."""
    if kind == "stream_start" and side == "app":
        side = "agent"
    data = {**(fields(kind, side).get("data") or {}), key: "mine", "other": 1}
    frame = decode(kind, side, data=data)
    assert key not in frame.data
    assert frame.data["other"] == 1


def test_an_agent_s_stream_end_may_say_its_status() -> None:
    """That is how a stopped turn is confirmed; the rest of the gateway's keys are still dropped."""
    end = decode("stream_end", "agent", data={"status": "cancelled", "queued": True, "media": 2})
    assert end.data == {"status": "cancelled", "media": 2}


def nested(depth: int) -> dict[str, Any]:
    """An object of this depth, itself counted as 1."""
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_data_is_nested_16_deep_at_most() -> None:
    """Counting `data` as 1; lists count as objects do."""
    assert decode(data={"text": "x", "deep": nested(15)}).data["deep"] == nested(15)
    assert refused(data={"text": "x", "deep": nested(16)}).field == "data"
    lists: Any = []
    for _ in range(15):
        lists = [lists]
    assert refused(data={"text": "x", "deep": lists}).field == "data"


def test_data_has_256_keys_at_most() -> None:
    """In all, wherever they are."""
    inner = {str(number): number for number in range(254)}
    assert decode(data={"text": "x", "more": inner}).data["more"] == inner
    inner["one too many"] = 1
    assert refused(data={"text": "x", "more": inner}).field == "data"


def test_data_is_bounded_beside_its_text() -> None:
    """The text has the frame's own bound."""
    long = "x" * (2 * DATA_BYTES)
    assert decode(data={"text": long}).data["text"] == long
    assert decode(data={"text": long, "more": "y" * (DATA_BYTES - 100)}).data["text"] == long
    error = refused(data={"text": "x", "more": "y" * DATA_BYTES})
    assert (error.field, error.frame_id) == ("data", "m1")


def test_depth_and_size_are_judged_in_every_frame_that_has_data() -> None:
    """Ends of streams and events as well."""
    assert refused("stream_end", "agent", data={"deep": nested(16)}).field == "data"
    assert refused("event", data={"event": "x", "deep": nested(16)}).field == "data"


def test_json_that_is_nested_beyond_measure_is_refused() -> None:
    """Wherever it is, without an exception of the parser's."""
    deep = "[" * 100_000 + "]" * 100_000
    for text in (deep, '{"type":"text","data":' + deep + "}", '{"a":' * 50_000 + "1" + "}" * 50_000):
        assert refusal(text).code == "unsupported"


# Text


def test_a_text_without_nul_and_lone_surrogates_is_any_unicode() -> None:
    """Pairs are one character, and stay."""
    text = "naïve 你好 👩‍👧 \u202e \ufffd"
    assert decode(data={"text": text}).data["text"] == text
    raw = json.dumps(fields(data={"text": "X"})).replace('"X"', '"\\ud83d\\ude00"')
    assert frames.decode(raw, "app", data_bytes=DATA_BYTES).data == {"text": "😀"}


@pytest.mark.parametrize("kind", ["text", "image"])
def test_nul_in_a_text_is_refused(kind: str) -> None:
    """A database would not take it."""
    data = {**fields(kind)["data"], "text": "a\x00b"}
    assert refused(kind, data=data).field == "data.text"


@pytest.mark.parametrize("bad", ["\\ud800", "\\udfff", "\\ude00\\ud83d"])
@pytest.mark.parametrize("field", ["text", "id", "session", "to"])
def test_a_lone_surrogate_is_refused(field: str, bad: str) -> None:
    """In a text and in any other field; what can be read of the frame is answered to."""
    frame = fields(data={"text": "X"}) if field == "text" else fields(**{field: "X"})
    error = refusal(json.dumps(frame).replace('"X"', f'"{bad}"'))
    assert error.code == "unsupported"
    assert error.frame_id == (None if field == "id" else "m1")


@pytest.mark.parametrize("bad", ["\\u0000", "\\ud83d", "\\ude00", "\\ude00\\ud83d"])
def test_a_piece_may_hold_anything(bad: str) -> None:
    """An answer is not lost over a character: `mend` deals with it later."""
    text = json.dumps(fields("stream", "agent", data={"text": "X"})).replace('"X"', f'"a{bad}b"')
    frame = frames.decode(text, "agent", data_bytes=DATA_BYTES)
    assert isinstance(frame, frames.Stream)
    assert len(frame.data.text) >= 3


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400"])
def test_numbers_that_json_does_not_have_are_refused_inside_data(number: str) -> None:
    """A browser could not read them."""
    text = json.dumps(fields(data={"text": "x", "n": "X"})).replace('"X"', number)
    error = refusal(text)
    assert (error.frame_id, error.session) == ("m1", "S1")


# Media, errors, events, control


@pytest.mark.parametrize("kind", MEDIA_TYPES)
def test_a_media_frame_needs_its_file_s_id_only(kind: str) -> None:
    """The gateway fills in the rest."""
    assert decode(kind, data={"media": {"id": "x"}}).data == {"media": {"id": "x"}}
    for data, field in (
        ({}, "data.media"),
        ({"media": []}, "data.media"),
        ({"media": {}}, "data.media.id"),
        ({"media": {"id": 5}}, "data.media.id"),
        ({"media": {"id": "a\x00b"}}, "data.media.id"),
        ({"media": {"id": ""}}, "data.media.id"),
        ({"media": {"id": "x"}, "text": 5}, "data.text"),
    ):
        assert refused(kind, data=data).field == field
    assert refused(kind, data=...).field == "data"


@pytest.mark.parametrize("code", sorted(frames.ERROR_CODES))
def test_the_seven_codes_of_v3_are_taken(code: str) -> None:
    """From either side."""
    for side in ("app", "agent"):
        assert decode("error", side, data={"code": code, "text": "why"}).data["code"] == code


def test_an_error_has_one_of_the_seven_codes() -> None:
    """And a text, if any, that is one."""
    assert len(frames.ERROR_CODES) == 7
    for data, field in (
        ({"code": "weird"}, "data.code"),
        ({}, "data.code"),
        ({"code": "internal", "text": 5}, "data.text"),
    ):
        assert refused("error", data=data).field == field
    assert refused("error", data=...).field == "data.code"
    assert decode("error", data={"code": "internal"}).data == {"code": "internal"}


def test_a_code_may_be_anything_json_has_and_is_refused_then() -> None:
    """Also what cannot be looked up in a set."""
    for code in ({}, [], None, 5):
        assert refused("error", data={"code": code}).field == "data.code"


def test_an_event_has_a_name() -> None:
    """`data.event`, a string."""
    for data in (..., {}, {"event": 5}, {"event": None}):
        assert refused("event", data=data).field == "data.event"


@pytest.mark.parametrize("kind", ["stop", "steer"])
def test_control_frames_name_a_turn(kind: str) -> None:
    """By the message that began it."""
    for reply_to in (..., None):
        assert refused(kind, reply_to=reply_to).field == "reply_to"


@pytest.mark.parametrize("data", [..., {}, {"text": ""}, {"text": " \n"}, {"text": 5}])
def test_a_remark_has_a_text(data: Any) -> None:
    """That is not empty."""
    assert refused("steer", data=data).field == "data.text"


def test_instructions_are_a_text() -> None:
    """For this turn only."""
    assert decode(data={"text": "x", "instructions": "be brief"}).data["instructions"] == "be brief"
    assert refused(data={"text": "x", "instructions": 5}).field == "data.instructions"


def test_replace_from_may_stand_in_the_envelope_or_in_data() -> None:
    """The envelope wins; it is taken out of data."""
    assert decode(replace_from="m0").replace_from == "m0"
    frame = decode(data={"text": "x", "replace_from": "m0"})
    assert (frame.replace_from, frame.data) == ("m0", {"text": "x"})
    both = decode(replace_from="m0", data={"text": "x", "replace_from": "m9"})
    assert both.replace_from == "m0"
    for bad in ("", "x" * 129, 5):
        assert refused(data={"text": "x", "replace_from": bad}).field == "replace_from"


def test_an_agent_cannot_replace() -> None:
    """The key is dropped."""
    frame = decode("text", "agent", data={"text": "x", "replace_from": "m0"})
    assert (frame.replace_from, frame.data) == (None, {"text": "x"})


def test_a_refusal_is_worded_for_people() -> None:
    """Field, then reason; and it is a `GatewayError` that doors know how to render."""
    error = refused(data={"text": 5})
    assert error.text == str(error)
    assert error.text.startswith("data.text: ")
    assert error.wire_code == "unsupported"


# Names


def test_ids_made_by_the_gateway_are_ids() -> None:
    """And never the same twice."""
    made = {frames.new_id() for _ in range(100)}
    assert len(made) == 100
    assert all(frames.valid_id(one) for one in made)


# Mending


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["abc"], "abc"),
        (["a\x00b"], "a\ufffdb"),
        (["\ud83d", "\ude00"], "😀"),
        (["a\ud83d", "", "\ude00b"], "a😀b"),
        (["\ud83d", "x"], "\ufffdx"),
        (["\ude00"], "\ufffd"),
        (["\ud83d\ud83d", "\ude00"], "\ufffd😀"),
        (["\ude00\ud83d", "\ude00"], "\ufffd😀"),
        (["é\ud83d", "\x00"], "é\ufffd\ufffd"),
    ],
)
def test_a_stream_is_mended_as_it_comes(pieces: list[str], whole: str) -> None:
    """A character cut in two is put together again; what is no character becomes U+FFFD."""
    carry, out = "", []
    for piece in pieces:
        text, carry = frames.mend(carry, piece)
        text.encode()  # every piece by itself is valid
        out.append(text)
    assert "".join(out) == whole
    assert carry == ""


def test_a_high_surrogate_waits() -> None:
    """For the other half, which the next piece may bring."""
    assert frames.mend("", "a\ud83d") == ("a", "\ud83d")
    assert frames.mend("\ud83d", "") == ("", "\ud83d")


# Writing


def test_frames_are_written_as_strict_json() -> None:
    """Compact, in the order given, text as it is."""
    text = frames.encode({"type": "text", "data": {"text": 'é"\\\n'}})
    assert text == '{"type":"text","data":{"text":"é\\"\\\\\\n"}}'
    assert frames.read_data(text) == json.loads(text)
    assert frames.encode_text("a\n") == '"a\\n"'


def test_a_stored_message_is_the_frame_that_was_sent() -> None:
    """What was absent stays absent."""
    made = frames.message_frame(
        message_id="m1", kind="text", sender="alice", to="hermes", session="S1", reply_to=None, ts=TS, data={"text": "hello"}
    )  # fmt: skip
    assert made == fields()
    made = frames.message_frame(
        message_id="m1", kind="text", sender="alice", to="hermes", session="S1", reply_to="m0", ts=TS,
        data={"text": "hello"}, replace_from="m0",
    )  # fmt: skip
    assert made == fields(reply_to="m0", replace_from="m0")


# The same content


def digest(kind: str = "text", to: str = "hermes", **changes: Any) -> str:
    """The digest of a good frame with these changes."""
    return frames.same_content(decode(kind, **changes), to)


@pytest.mark.parametrize(
    "changes",
    [
        {"ts": 5},
        {"ts": TS + 0.5},
        {"id": "other"},
        {"unknown": 1},
        {"data": {"text": "hello", "queued": True}},
    ],
)
def test_the_same_message_sent_again_has_the_same_content(changes: dict[str, Any]) -> None:
    """Its time, and what is dropped anyway, do not count."""
    assert digest(**changes) == digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"text": "hello "}},
        {"data": {"text": "hello", "more": 1}},
        {"session": "S2"},
        {"reply_to": "m0"},
        {"replace_from": "m0"},
        {"to": "work"},
    ],
)
def test_anything_else_is_other_content(changes: dict[str, Any]) -> None:
    """Each of type, to, session, reply_to, replace_from and data."""
    assert digest(**({"to": "hermes"} | changes)) != digest()


def test_data_is_compared_by_value_not_by_spelling() -> None:
    """The order of keys is not content, at any depth; the order of lists is."""
    one = {"text": "x", "a": {"b": [1, 2], "c": 3}}
    other = {"a": {"c": 3, "b": [1, 2]}, "text": "x"}
    assert digest(data=one) == digest(data=other)
    assert digest(data=one) != digest(data={**one, "a": {"b": [2, 1], "c": 3}})


def test_media_is_compared_by_its_id() -> None:
    """What a sender says of it is replaced by the true values anyway."""
    bare = digest("image", data={"media": {"id": "x"}})
    assert digest("image", data={"media": {"id": "x", "name": "a", "size": 5}}) == bare
    assert digest("image", data={"media": {"id": "y"}}) != bare
    assert digest("file", data={"media": {"id": "x"}}) != bare
