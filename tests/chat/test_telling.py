"""What is told of a commit, as each kind of App sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chat.events import Event
from chat.telling import ALIAS, CAP_BITS, CONTROL, EVENTS, SYNC, RunRef, Told, piece_frame, piece_head

RUN = RunRef(key=7, public_id="run_7", session="S1", agent="work", user="alice", reply_to="m1")
START = {"id": "str_1", "reply_to": "m1", "ts": 5}
ENVELOPE = {"from": "work", "to": "alice", "session": "S1"}
MESSAGE = {"id": "str_1", "type": "text", **ENVELOPE, "reply_to": "m1", "ts": 5, "data": {"text": "hi"}}


def seen(told: Told, caps: int = 0) -> list[dict[str, Any]]:
    """The frames an App with these capability bits gets."""
    return [json.loads(out.text) for out in told.render(caps)]


def events_of(*made: dict[str, Any], first: int = 1, **more: Any) -> Told:
    """Events of the run, told."""
    events: list[Event] = [{"seq": seq, "ts": 9.75, **event} for seq, event in enumerate(made, first)]
    return Told(1, run=RUN, first=first, last=first + len(events) - 1, events=events, **more)


STREAM = (
    {"event": "message.started", "message": {"id": "str_1"}, "v3": {"start": START}},
    {"event": "assistant.delta", "delta": "h\u00e9"},
    {"event": "assistant.delta", "delta": '"\n'},
)


def test_a_stream_is_its_start_and_pieces() -> None:
    """As v3 has them: neither id nor ts on a piece."""
    assert seen(events_of(*STREAM)) == [
        {"id": "str_1", "type": "stream_start", **ENVELOPE, "reply_to": "m1", "ts": 5},
        {"type": "stream", **ENVELOPE, "data": {"text": "hé"}},
        {"type": "stream", **ENVELOPE, "data": {"text": '"\n'}},
    ]


def test_a_start_without_reply_to_has_none() -> None:
    """What was absent stays absent."""
    start = {"event": "message.started", "v3": {"start": {**START, "reply_to": None}}}
    assert "reply_to" not in seen(events_of(start))[0]


@pytest.mark.parametrize("caps", range(16))
def test_a_piece_is_the_same_for_every_app(caps: int) -> None:
    """Whatever it asked for; only the name of the agent may be another."""
    told = events_of({"event": "assistant.delta", "delta": "x"})
    [piece] = seen(told, caps)
    assert piece == {
        "type": "stream",
        **ENVELOPE,
        "from": "hermes" if caps & ALIAS else "work",
        "data": {"text": "x"},
    }
    [out] = told.render(caps)
    assert out.text == piece_frame(out.joins or "", out.piece)


def test_pieces_say_of_which_stream_they_are() -> None:
    """Two sessions of one agent are not joined, nor are two agents."""
    heads = {piece_head("work", "alice", session) for session in ("S1", "S2", 'S"1')}
    heads |= {piece_head("hermes", "alice", "S1")}
    assert len(heads) == 4
    for head in heads:
        assert json.loads(piece_frame(head, 'a"b\u00e9'))["data"] == {"text": 'a"b\u00e9'}


# Messages


def test_a_whole_message_goes_to_every_app() -> None:
    """With its cursor where `sync` was asked for."""
    told = Told(1, cursor=3, run=RUN, message=MESSAGE)
    assert seen(told) == [MESSAGE]
    assert seen(told, SYNC) == [{**MESSAGE, "cursor": 3}]


def test_a_streamed_message_is_its_end() -> None:
    """With id and cursor for `sync`, with the data of the end for `control`."""
    data = {"text": "hi", "status": "cancelled", "interrupted": True, "media": 2, "other": 1}
    told = Told(1, cursor=3, run=RUN, message={**MESSAGE, "data": data}, streamed=True)
    end = {"type": "stream_end", **ENVELOPE}
    assert seen(told) == [end]
    assert seen(told, EVENTS) == [end]
    assert seen(told, SYNC) == [{**end, "id": "str_1", "cursor": 3}]
    extra = {"status": "cancelled", "interrupted": True, "media": 2}
    assert seen(told, CONTROL) == [{**end, "data": extra}]
    plain = Told(1, cursor=3, run=RUN, message=MESSAGE, streamed=True)
    assert seen(plain, SYNC | CONTROL) == [{**end, "id": "str_1", "cursor": 3}]


def test_a_person_s_message_is_echoed_to_sync_apps_only() -> None:
    """With cursor and run."""
    own = {**MESSAGE, "id": "m1", "from": "alice", "to": "work"}
    run = {"id": "run_7", "status": "running", "code": None}
    told = Told(1, cursor=2, run=RUN, message=own, side="app", status=run)
    assert seen(told) == seen(told, EVENTS | CONTROL) == []
    assert seen(told, SYNC) == [{**own, "cursor": 2, "run": run}]
    again = Told(1, message={**own, "cursor": 2, "run": run}, side="app")
    assert seen(again, SYNC) == [{**own, "cursor": 2, "run": run}]


def test_an_alias_hides_the_name_of_the_default_agent() -> None:
    """In whatever kind of frame."""
    error = {"id": "e1", "type": "error", **ENVELOPE, "ts": 5, "data": {"code": "internal", "text": "x"}}
    told = events_of(
        *STREAM, {"event": "run.failed", "v3": {"error": error}}, cursor=3, message=MESSAGE, streamed=True
    )
    frames = (
        seen(told, ALIAS)
        + seen(Told(1, notice=error), ALIAS)
        + seen(Told(1, cursor=1, run=RUN, message=MESSAGE), ALIAS)
    )
    assert len(frames) == 7
    assert {frame["from"] for frame in frames} == {"hermes"}


# Events


def test_events_are_frames_for_those_who_asked() -> None:
    """A full envelope, named by run and number; what is for the gateway alone is left out."""
    told = events_of({"event": "tool.started", "tool_name": "t", "v3": {"x": 1}}, first=4)
    assert seen(told) == seen(told, SYNC | CONTROL) == []
    assert seen(told, EVENTS) == [
        {
            "id": "run_7:4",
            "type": "event",
            **ENVELOPE,
            "reply_to": "m1",
            "ts": 9,
            "data": {"event": "tool.started", "seq": 4, "tool_name": "t", "run_id": "run_7"},
        }
    ]


def test_the_end_of_a_stream_comes_before_the_end_of_its_run() -> None:
    """An `error` before both."""
    error = {"id": "e1", "type": "error", **ENVELOPE, "ts": 5, "data": {"code": "internal", "text": "x"}}
    told = events_of(
        STREAM[1],
        {"event": "assistant.completed"},
        {"event": "run.failed", "code": "x", "v3": {"error": error}},
        {"event": "done"},
        cursor=3,
        message=MESSAGE,
        streamed=True,
    )
    kinds = [
        frame["data"]["event"] if frame["type"] == "event" else frame["type"] for frame in seen(told, EVENTS)
    ]
    assert kinds == ["stream", "error", "stream_end", "run.failed"]
    assert [frame["type"] for frame in seen(told)] == ["stream", "error", "stream_end"]


@pytest.mark.parametrize("kind", ["error", "event"])
def test_a_notice_goes_out_as_it_is(kind: str) -> None:
    """An event only to those who asked; what is for an agent to no App at all."""
    notice = {"id": "n1", "type": kind, **ENVELOPE, "ts": 5, "data": {"event": "agent.online"}}
    told = Told(1, notice=notice)
    assert seen(told, EVENTS) == [notice]
    assert seen(told, SYNC) == ([notice] if kind == "error" else [])
    assert seen(Told(1, notice=notice, side="app"), EVENTS) == []


# Values


def test_every_capability_has_its_bit() -> None:
    """And the alias one of its own, so that rendering can be kept by them."""
    assert set(CAP_BITS) == {"sync", "events", "control"}
    assert sorted([*CAP_BITS.values(), ALIAS]) == [1, 2, 4, 8]


def test_what_is_told_goes_to_other_processes_whole() -> None:
    """Packed as plain JSON values; there it counts as committed elsewhere."""
    told = events_of(*STREAM, cursor=3, message=MESSAGE, streamed=True, status={"id": "run_7"})
    away = Told.unpack(json.loads(json.dumps(told.pack())))
    assert away.run == RUN
    assert (away.away, told.away) == (True, False)
    for caps in range(16):
        assert seen(away, caps) == seen(told, caps)
    notice = Told.unpack(json.loads(json.dumps(Told(1, notice={"type": "error"}, side="app").pack())))
    assert (notice.run, notice.notice, notice.side) == (None, {"type": "error"}, "app")


def test_a_copy_differs_in_what_was_named() -> None:
    """And is rendered anew."""
    told = events_of(*STREAM, cursor=3, message=MESSAGE, streamed=True)
    assert len(seen(told)) == 4
    assert len(seen(told.copy(events=None))) == 1
    assert seen(told.copy(streamed=False, events=None)) == [MESSAGE]
    assert len(seen(told)) == 4


def test_frames_are_rendered_once_for_all_apps_of_a_kind() -> None:
    """They share the very list."""
    told = events_of(*STREAM)
    assert told.render(SYNC) is told.render(SYNC)
