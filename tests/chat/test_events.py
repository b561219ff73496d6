"""Run events: what they add up to, live and from the journal, and what Apps and history see of them."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chat import events
from chat.events import Event, Narrative

START = {"id": "str_1", "reply_to": "m1", "ts": 5}


def told(*made: tuple[str, dict[str, Any]]) -> list[Event]:
    """Events with their numbers."""
    return [{"event": name, "seq": seq, "ts": 1.5, **rest} for seq, (name, rest) in enumerate(made, 1)]


def delta(text: str, **v3: Any) -> tuple[str, dict[str, Any]]:
    """A piece of text."""
    return "assistant.delta", {"message_id": "a", "delta": text, **({"v3": v3} if v3 else {})}


def narrative(told_events: list[Event]) -> Narrative:
    """What they add up to."""
    made = Narrative()
    for event in told_events:
        made.add(event)
    return made


def state(made: Narrative) -> dict[str, Any]:
    """All that a narrative knows."""
    return {name: value for name, value in vars(made).items() if name != "_texts"}


A_RUN = told(
    ("run.started", {"user_message": {"id": "m1", "role": "user", "content": "hello"}}),
    ("message.started", {"message": {"id": "str_1", "role": "assistant"}, "v3": {"start": START}}),
    delta("I "),
    delta("look."),
    ("tool.started", {"tool_name": "search", "tool_call_id": "c1", "args": {"q": "x"}}),
    ("tool.started", {"tool_name": "read"}),
    ("tool.completed", {"tool_name": "read", "preview": "a page"}),
    ("tool.failed", {"tool_name": "search", "tool_call_id": "c1", "preview": "no result"}),
    delta("\n\nDone", skip=2, start={"id": "str_2", "reply_to": "m1", "ts": 6}),
    delta("."),
    delta("A text of its own", whole="t1"),
    ("assistant.completed", {"message_id": "str_1", "content": "…"}),
    ("run.completed", {"completed": True}),
    ("done", {}),
)


# Narrative


def test_a_narrative_knows_question_text_stream_and_end() -> None:
    """Of a run with two streams, two tools and a whole text."""
    made = narrative(A_RUN)
    assert made.last_seq == len(A_RUN)
    assert made.question == {"id": "m1", "role": "user", "content": "hello"}
    assert made.message_id == "str_1"
    assert made.text == "I look.\n\nDone.A text of its own"
    assert (made.stream_id, made.stream_text) == ("str_2", "Done.")
    assert made.tools == []
    assert made.terminal == A_RUN[-2]


def test_a_tool_is_open_until_its_own_end() -> None:
    """By call id where both have one, else by name, first in first out."""
    made = narrative(
        told(
            ("tool.started", {"tool_name": "a", "tool_call_id": "1"}),
            ("tool.started", {"tool_name": "a", "tool_call_id": "2"}),
            ("tool.started", {"tool_name": "b"}),
            ("tool.completed", {"tool_name": "a", "tool_call_id": "2"}),
            ("tool.completed", {"tool_name": "unknown"}),
            ("tool.completed", {"tool_name": "a"}),
        )
    )
    assert [tool["tool_name"] for tool in made.tools] == ["b"]
    assert {seq: end["seq"] for seq, end in made.tool_ends.items()} == {"2": 4, "1": 6}


def test_beginnings_are_no_ends() -> None:
    """`run.started`, `run.queued` and `run.steered` leave a run open."""
    made = narrative(told(("run.started", {}), ("run.queued", {}), ("run.steered", {})))
    assert made.terminal is None


names = st.sampled_from(["a", "b", None])
calls = st.sampled_from(["c1", "c2", None])
texts = st.text(max_size=6)
starts = st.builds(lambda number: {"id": f"str_{number}", "reply_to": None, "ts": number}, st.integers(0, 3))
some_events = st.one_of(
    st.builds(lambda text: delta(text), texts),
    st.builds(lambda text: delta(text, whole="t1"), texts),
    st.builds(lambda text, start: delta("\n\n" + text, skip=2, start=start), texts, starts),
    st.builds(lambda text: delta("\n\n" + text, skip=2), texts),
    st.builds(
        lambda start: ("message.started", {"message": {"id": start["id"]}, "v3": {"start": start}}), starts
    ),
    st.builds(lambda name, call: ("tool.started", {"tool_name": name, "tool_call_id": call}), names, calls),
    st.builds(lambda name, call: ("tool.completed", {"tool_name": name, "tool_call_id": call}), names, calls),
    st.builds(
        lambda name, call: ("tool.failed", {"tool_name": name, "tool_call_id": call, "preview": "x"}),
        names,
        calls,
    ),
    st.sampled_from(
        [
            ("run.started", {"user_message": {"id": "m1", "role": "user", "content": "hi"}}),
            ("run.completed", {"completed": True}),
            ("run.failed", {"v3": {"error": {"type": "error"}}}),
            ("tool.progress", {"tool_name": "a"}),
            ("done", {}),
        ]
    ),
)
runs = st.lists(some_events, max_size=20).map(lambda made: told(*made))


@given(runs, st.lists(st.integers(0, 20), max_size=4))
@settings(max_examples=300, deadline=None)
def test_read_back_from_the_journal_a_run_is_what_it_was_live(run: list[Event], cuts: list[int]) -> None:
    """Wherever the journal's rows begin and end."""
    borders = [0, *sorted(min(cut, len(run)) for cut in cuts), len(run)]
    rows = [events.dump(run[start:end]) for start, end in itertools.pairwise(borders)]
    read = [event for row in rows for event in events.load(row)]
    assert read == run
    assert state(narrative(read)) == state(narrative(run))


@given(runs)
@settings(max_examples=300, deadline=None)
def test_what_history_shows_is_what_was_streamed(run: list[Event]) -> None:
    """The joined contents of the assistant's rows are the joined deltas; each tool call has its row."""
    deltas = "".join(event["delta"] for event in run if event["event"] == "assistant.delta")
    rows = events.transcript(narrative(run))
    assert "".join(row["content"] for row in rows if row["role"] == "assistant") == deltas
    assert narrative(run).text == deltas
    called = [call["id"] for row in rows for call in row.get("tool_calls", ())]
    assert called == [row["tool_call_id"] for row in rows if row["role"] == "tool"]
    assert len(called) == sum(event["event"] == "tool.started" for event in run)
    ids = [row["id"] for row in rows if row["role"] == "assistant"]
    assert len(set(ids)) == len(ids)


@given(runs)
@settings(max_examples=300, deadline=None)
def test_an_app_without_capabilities_sees_the_streams_text(run: list[Event]) -> None:
    """Its pieces since the last start are the stream's text; no event is said twice."""
    stream: list[str] = []
    for kind, value in events.app_parts(run):
        if kind == "start":
            stream = []
        elif kind == "piece":
            stream.append(value)
        elif kind == "event":
            assert not value["event"].startswith(("assistant.", "message.")) and value["event"] != "done"
    assert "".join(stream) == narrative(run).stream_text


# Transcript


def test_a_transcript_has_a_row_for_each_stretch_of_text_and_each_tool() -> None:
    """The question first, tools after the text that called them."""
    rows = events.transcript(narrative(A_RUN))
    assert [(row["role"], row["id"], row["content"]) for row in rows] == [
        ("user", "m1", "hello"),
        ("assistant", "str_1", "I look."),
        ("tool", "str_1.c1", "no result"),
        ("tool", "str_1.call_6", "a page"),
        ("assistant", "str_1.2", "\n\nDone.A text of its own"),
    ]
    assert rows[1]["tool_calls"][0] == {
        "id": "c1",
        "type": "function",
        "function": {"name": "search", "arguments": '{"q":"x"}'},
    }
    assert "finish_reason" not in rows[1]
    assert rows[4]["finish_reason"] == "stop"


def test_a_run_that_was_cut_off_says_so_in_its_last_row() -> None:
    """And one without an answer has only its question."""
    rows = events.transcript(narrative(told(delta("half"), ("run.interrupted", {}))))
    assert rows == [{"id": "assistant", "role": "assistant", "content": "half", "finish_reason": "error"}]
    question = {"id": "m1", "role": "user", "content": "hi"}
    assert events.transcript(
        narrative(told(("run.started", {"user_message": question}), ("run.failed", {})))
    ) == [question]


def test_a_tool_before_any_text_belongs_to_an_empty_row() -> None:
    """As Hermes' own history has it."""
    rows = events.transcript(narrative(told(("tool.started", {"tool_name": "a"}), delta("then"))))
    assert [(row["role"], row["content"]) for row in rows] == [
        ("assistant", ""),
        ("tool", ""),
        ("assistant", "then"),
    ]


# Parts


def test_apps_see_starts_pieces_errors_and_events_in_order() -> None:
    """A whole text is not a piece: Apps get it as a message."""
    failed = told(
        ("run.started", {"user_message": None}),
        ("message.started", {"message": {"id": "str_1"}, "v3": {"start": START}}),
        delta("a"),
        delta("\n\nb", skip=2),
        delta("\n\n", skip=2, start={**START, "id": "str_2"}),
        delta("whole", whole="t1"),
        ("tool.started", {"tool_name": "t"}),
        ("assistant.completed", {}),
        ("run.failed", {"code": "x", "v3": {"error": {"type": "error"}}}),
        ("done", {}),
    )
    parts = [(kind, value["event"] if kind == "event" else value) for kind, value in events.app_parts(failed)]
    assert parts == [
        ("event", "run.started"),
        ("start", START),
        ("piece", "a"),
        ("piece", "b"),
        ("start", {**START, "id": "str_2"}),
        ("event", "tool.started"),
        ("error", {"type": "error"}),
        ("event", "run.failed"),
    ]


def test_what_is_for_the_gateway_alone_is_not_public() -> None:
    """Only the key `v3` is."""
    event = {"event": "x", "seq": 1, "v3": {"start": START}}
    assert events.public(event) == {"event": "x", "seq": 1}
    assert event["v3"]
    plain = {"event": "x", "seq": 1}
    assert events.public(plain) == plain


def test_names_that_agents_tell_are_none_of_the_gateway_s() -> None:
    """Nobody but the gateway ends a run."""
    assert events.NUMBERED.isdisjoint(events.FROM_GATEWAY)
    assert {f"run.{end}" for end in events.ENDS} <= events.FROM_GATEWAY
    assert set(events.TOOL_ENDS) <= events.NUMBERED
