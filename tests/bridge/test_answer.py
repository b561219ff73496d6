"""What one turn says on each connection: all of it, in order, once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge import events, wire
from bridge.answer import Answer

V3: frozenset[str] = frozenset()
ALL = frozenset({"sync", "events", "control"})
TOOL = events.ToolStarted("terminal", "call_1", "ls")


def answer() -> Answer:
    return Answer(user="alice", agent="hermes", session="s1", message_id="m1", stream_id="str_1")


def told(one: Answer, caps: frozenset[str] = ALL, at_most: int | None = None) -> list[dict[str, Any]]:
    """The frames of a connection that breaks when so many were written."""
    frames = []
    for frame in one.frames(caps):
        if at_most is not None and len(frames) == at_most:
            break
        frames.append(frame)
    return frames


def kinds(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["data"]["event"] if frame["type"] == "event" else frame["type"] for frame in frames]


def text(frames: list[dict[str, Any]]) -> str:
    return "".join(frame["data"]["text"] for frame in frames if frame["type"] == "stream")


def test_the_frames_of_an_answer_are_those_of_v3():
    """Start with id, reply_to and time; pieces and end without; nothing that v3 does not know."""
    one = answer()
    for event in (events.Delta("a"), TOOL, events.Delta("b"), events.Completed("ab")):
        one.add(event)
    start, piece, last, end = told(one, V3)
    assert {k: v for k, v in start.items() if k != "ts"} == {
        "id": "str_1",
        "type": "stream_start",
        "from": "hermes",
        "to": "alice",
        "session": "s1",
        "reply_to": "m1",
    }
    assert isinstance(start["ts"], int)
    assert piece == {
        "type": "stream",
        "from": "hermes",
        "to": "alice",
        "session": "s1",
        "data": {"text": "a"},
    }
    assert last["data"] == {"text": "b"}
    assert end == {"type": "stream_end", "from": "hermes", "to": "alice", "session": "s1"}


def test_what_waits_together_leaves_as_one_piece():
    """Deltas join while they wait, but never across an event, nor beyond the size of a frame."""
    one = answer()
    for word in ("a", "b", "c"):
        one.add(events.Delta(word))
    one.add(TOOL)
    one.add(events.Delta("d" * (wire.MAX_PIECE_CHARS + 1)))
    frames = told(one)
    assert kinds(frames) == ["stream_start", "stream", "tool.started", "stream", "stream"]
    assert [len(f["data"]["text"]) for f in frames if f["type"] == "stream"] == [3, wire.MAX_PIECE_CHARS, 1]


def test_a_failure_is_an_error_and_never_an_answer():
    """Before any text only the error is said; in an open stream the error ends it."""
    for said in ("", "half"):
        one = answer()
        one.add(events.Delta(said))
        one.add(events.Failed("no", "timeout", "timeout"))
        frames = told(one, V3)
        assert kinds(frames) == (["stream_start", "stream", "error"] if said else ["error"])
        assert frames[-1]["reply_to"] == "m1"
        assert frames[-1]["data"] == {"code": "timeout", "text": "no"}


def test_a_stopped_turn_says_so_to_those_who_asked_for_control():
    """`stream_end` with status cancelled, with `reply_to` when nothing had streamed; plainly for v3."""
    one = answer()
    one.add(events.Cancelled())
    (end,) = told(one)
    assert (end["type"], end["data"], end["reply_to"]) == ("stream_end", {"status": "cancelled"}, "m1")

    two = answer()
    two.add(events.Delta("x"))
    two.add(events.Cancelled())
    frames = told(two, V3)
    assert kinds(frames) == ["stream_start", "stream", "stream_end"]
    assert "data" not in frames[-1]

    three = answer()
    three.add(events.Cancelled())
    assert kinds(told(three, V3)) == ["error"]


def test_an_empty_answer_is_still_one():
    """A turn that ends well without text is an empty stream."""
    one = answer()
    one.add(events.Completed())
    assert kinds(told(one)) == ["stream_start", "stream_end"]


def test_files_follow_the_end_which_announces_them():
    """The number of files is in `stream_end` for those with control; the files come after it."""
    for caps, data in ((ALL, {"media": 1}), (V3, None)):
        one = answer()
        one.add(events.Attachment("file", {"id": "med_1"}))
        one.add(events.Completed())
        frames = told(one, caps)
        assert kinds(frames) == ["stream_start", "stream_end", "file"]
        assert frames[1].get("data") == data
        assert frames[2]["data"] == {"media": {"id": "med_1"}}


@pytest.mark.parametrize("end", [events.Completed, events.Cancelled, partial(events.Failed, "no")])
def test_remarks_that_came_to_nothing_ride_on_the_end(end: Callable[..., events.End]):
    """Those that were not taken and those that were taken for nothing, for a gateway with `control`; bounded."""
    one = answer()
    one.leave("not taken")
    one.add(end(pending_steer="too late"))
    one.leave("after the end")
    (*_, last) = told(one)
    assert last["data"]["pending_steer"] == "not taken\ntoo late"
    two = answer()
    two.add(end(pending_steer="too late"))
    (*_, last) = told(two, frozenset({"events"}))
    assert "pending_steer" not in last.get("data", {})
    three = answer()
    three.add(end(pending_steer="x" * 100_000))
    (*_, last) = told(three)
    assert last["data"]["pending_steer"] == "x" * wire.MAX_REMARK_CHARS


def test_nothing_follows_the_end():
    """An answer has one end, and what comes later is dropped."""
    one = answer()
    one.add(events.Completed())
    one.add(events.Delta("late"))
    one.add(events.Failed("late"))
    assert kinds(told(one)) == ["stream_start", "stream_end"]
    assert told(one) == []


def test_an_open_request_is_asked_again_on_a_new_connection():
    """An approval request is repeated with its id until it is answered."""
    one = answer()
    request = events.ApprovalRequest("r1", "rm -rf x", "deletes", ("once", "deny"))
    one.add(events.Delta("a"))
    one.add(request)
    first = told(one)[-1]
    one.go_on(1)
    assert told(one) == [first]
    assert first["data"] == {"event": "approval.request", **request.data()}
    one.answered()
    one.go_on(1)
    assert told(one) == []


@given(
    st.lists(st.one_of(st.text("abc", min_size=1, max_size=3), st.just(TOOL)), max_size=8), st.integers(0, 24)
)
def test_what_waits_is_told_from_where_the_gateway_is(items: list, held: int):
    """A bridge that was restarted reads its turn again from the first event; none of it was told by this one."""
    one = answer()
    for item in items:
        one.add(item if isinstance(item, events.ToolStarted) else events.Delta(item))
    whole = "".join(item for item in items if isinstance(item, str))
    chars = min(held, len(whole))
    one.go_on(chars)
    frames = told(one)
    assert text(frames) == whole[chars:]
    assert kinds(frames).count("tool.started") == sum(1 for item in items if item is TOOL)


PIECES = st.lists(st.one_of(st.text("abc", min_size=1, max_size=3), st.just(TOOL)), max_size=12)


@given(PIECES, PIECES, st.integers(0, 30), st.integers(0, 36))
def test_it_goes_on_exactly_where_the_gateway_is(before: list, after: list, broken_at: int, held: int):
    """After a broken line the gateway's characters and the rest are the whole, and no told event is said twice."""
    one = answer()
    for item in before:
        one.add(item if isinstance(item, events.ToolStarted) else events.Delta(item))
    first = told(one, at_most=broken_at)
    chars = min(held, len(text(first)))
    for item in after:
        one.add(item if isinstance(item, events.ToolStarted) else events.Delta(item))
    one.add(events.Completed())
    if any(frame["type"] == "stream_start" for frame in first):
        one.go_on(chars)
    else:
        one.begin_anew()
        chars = 0
    second = told(one)
    whole = "".join(item for item in before + after if isinstance(item, str))
    assert text(first)[:chars] + text(second) == whole
    events_told = [f["id"] for f in first + second if f["type"] == "event"]
    # The one that was being written when the line broke may be told again.
    assert len(set(events_told)) == sum(1 for item in before + after if item is TOOL)
    assert len(events_told) - len(set(events_told)) <= 1
    assert kinds(second)[-1] == "stream_end"


@given(PIECES, st.integers(0, 30))
def test_begun_anew_it_says_everything(items: list, broken_at: int):
    """A stream begun anew holds the whole text, under the id that was asked for."""
    one = answer()
    for item in items:
        one.add(item if isinstance(item, events.ToolStarted) else events.Delta(item))
    told(one, at_most=broken_at)
    one.begin_anew("str_2")
    one.add(events.Completed())
    frames = told(one)
    assert text(frames) == "".join(item for item in items if isinstance(item, str))
    assert [f["id"] for f in frames if f["type"] == "stream_start"] == ["str_2"]


def test_a_gateway_that_holds_more_than_was_said_is_told_anew():
    """More characters than there are cannot be ours: the stream begins anew."""
    one = answer()
    one.add(events.Delta("abc"))
    one.go_on(99)
    assert text(told(one)) == "abc"
