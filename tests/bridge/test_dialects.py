"""What Hermes says in either dialect, read as our events."""

from typing import Any

import pytest

from bridge import events
from bridge.dialects import INTERRUPTED, Hermes019, Hermes022, Translator, dialect_of
from bridge.events import Order

PAST = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})


def read(*raw: dict[str, Any]) -> list[events.Event]:
    """The events of one run."""
    translator = Translator("run_1")
    return [event for one in raw for event in translator.read(one)]


def delta(text: str) -> dict[str, Any]:
    return {"event": "message.delta", "delta": text}


def tool(name: str, ended: bool = False, **more: Any) -> dict[str, Any]:
    return {"event": "tool.completed" if ended else "tool.started", "tool": name} | more


def test_the_dialect_is_told_by_what_the_server_offers():
    """Keys for intentions exist from 0.22 on; whoever says nothing is taken for 0.19."""
    assert dialect_of({"features": {"runs_idempotency": True}}).version == "0.22"
    assert dialect_of({"features": {"run_stop": True}}).version == "0.19"
    assert dialect_of({}).version == "0.19"


def test_what_is_sent():
    """0.19 always gets the history; 0.22 only where its own is another, and a key for each intention."""
    order = Order("m/1 é", "chat_1", "hello", instructions="brief", history=PAST)
    assert Hermes019().body(order) == {
        "input": "hello",
        "session_id": "chat_1",
        "instructions": "brief",
        "conversation_history": list(PAST),
    }
    assert Hermes019().headers(order) == {}
    assert "conversation_history" not in Hermes022().body(order)
    rewritten = Order("m2", "chat_2", "hello", history=PAST, rewritten=True)
    assert Hermes022().body(rewritten)["conversation_history"] == list(PAST)
    key = Hermes022().headers(order)["Idempotency-Key"]
    assert key.isascii() and key.isprintable() and " " not in key
    assert key != Hermes022().headers(Order("m/1 e", "chat_1", "hello"))["Idempotency-Key"]
    long = Hermes022().headers(Order("x" * 128, "chat_" + "0" * 32, ""))["Idempotency-Key"]
    assert len(long) <= 255
    assert long != Hermes022().headers(Order("x" * 127 + "y", "chat_" + "0" * 32, ""))["Idempotency-Key"]


@pytest.mark.parametrize("dialect", [Hermes019(), Hermes022()])
def test_a_memory_is_named_where_the_order_names_one(dialect: Hermes019):
    """In a header; without a name there is none."""
    named = dialect.headers(Order("m1", "chat_1", "hello", memory="mine"))
    assert named["X-Hermes-Session-Key"] == "mine"
    assert "X-Hermes-Session-Key" not in dialect.headers(Order("m1", "chat_1", "hello"))


def test_pictures_are_sent_as_parts():
    """Addresses of pictures go with the text in one message."""
    body = Hermes019().body(Order("m1", "chat_1", "look", images=("https://example.org/a.png",)))
    (message,) = body["input"]
    assert message["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]


def test_a_turn_with_tools():
    """Deltas, tools paired in the order they began, and the end; the copy of the visible text is no reasoning."""
    said = read(
        delta("let me see"),
        {"event": "reasoning.available", "text": "let me see"},
        tool("terminal", preview="a"),
        tool("terminal", preview="b"),
        tool("terminal", ended=True, duration=0.5, error=True),
        tool("terminal", ended=True, duration=1, error=False, preview="ok"),
        delta("\n\ndone"),
        {"event": "reasoning.available", "text": "done"},
        {"event": "approval.responded", "choice": "once"},
        {"event": "run.completed", "output": "done", "usage": {"total_tokens": 3}},
    )
    assert said == [
        events.Delta("let me see"),
        events.ToolStarted("terminal", "call_1", "a"),
        events.ToolStarted("terminal", "call_2", "b"),
        events.ToolEnded("terminal", "call_1", failed=True, duration=0.5),
        events.ToolEnded("terminal", "call_2", preview="ok", duration=1),
        events.Delta("\n\ndone"),
        events.Completed("done", {"total_tokens": 3}),
    ]


def test_real_reasoning_is_told():
    """What is not a copy of the answer is what the model thought; long copies are cut and still copies."""
    assert read({"event": "reasoning.available", "text": "I think"}, delta("yes")) == [
        events.Reasoning("I think"),
        events.Delta("yes"),
    ]
    assert read(delta("y" * 900), {"event": "reasoning.available", "text": "y" * 500}) == [
        events.Delta("y" * 900)
    ]


def test_commentary_is_told_once():
    """What had been streamed already is dropped, the rest is text."""
    said = read(
        {"event": "message.interim", "text": "a", "already_streamed": True},
        {"event": "message.interim", "text": "b", "already_streamed": False},
    )
    assert said == [events.Delta("b")]


@pytest.mark.parametrize(
    ("raw", "end"),
    [
        ({"event": "run.failed", "error": "HTTP 401: no"}, events.Failed("HTTP 401: no")),
        ({"event": "run.cancelled"}, events.Cancelled()),
        ({"event": "run.interrupted"}, INTERRUPTED),
        (
            {
                "event": "run.completed",
                "output": "",
                "partial": True,
                "turn_exit_reason": "max_iterations(60/60)",
            },
            events.Failed("The agent failed without saying why.", "internal", "max_iterations"),
        ),
    ],
)
def test_ends(raw: dict[str, Any], end: events.Event):
    """What was not finished is never called completed."""
    assert read(raw) == [end]


@pytest.mark.parametrize("name", ["run.completed", "run.failed", "run.cancelled"])
def test_a_remark_that_was_taken_for_nothing_is_not_lost(name: str):
    """0.22 gives it back at the end of the run."""
    (end,) = read({"event": name, "output": "", "pending_steer": "in French"})
    assert isinstance(end, events.End) and (end.name, end.pending_steer) == (name, "in French")


def test_text_that_no_event_brought_comes_before_the_end():
    """An answer without deltas is told whole; deltas are believed over the output."""
    assert read({"event": "run.completed", "output": "all"})[0] == events.Delta("all")
    assert read(delta("some"), {"event": "run.completed", "output": "other"})[1:] == [
        events.Completed("other")
    ]


@pytest.mark.parametrize(
    ("seen", "rest"),
    [
        ([], "the answer"),
        ([delta("the ")], "answer"),
        ([delta("the answer")], ""),
        ([delta("before"), tool("t"), tool("t", ended=True)], "\n\nthe answer"),
        ([delta("before"), tool("t"), tool("t", ended=True), delta("\n\nthe")], " answer"),
        ([delta("something else")], "\n\nthe answer"),
    ],
)
def test_after_a_lost_stream_the_status_brings_the_rest(seen: list[dict[str, Any]], rest: str):
    """What the events had not brought when they broke off is taken from the run's output."""
    translator = Translator("run_1")
    for raw in seen:
        list(translator.read(raw))
    said = list(translator.ended("completed", {"output": "the answer"}, live=False))
    assert "".join(event.text for event in said if isinstance(event, events.Delta)) == rest
    assert said[-1] == events.Completed("the answer")


def test_requests_for_approval_have_ids():
    """The server's own where it gives one, else one of ours."""
    raw = {
        "event": "approval.request",
        "command": "rm x",
        "description": "deletes",
        "choices": ["once", "deny"],
    }
    translator = Translator("run_1")
    (first,) = translator.read(raw)
    (second,) = translator.read(raw | {"request_id": "theirs"})
    assert isinstance(first, events.ApprovalRequest) and isinstance(second, events.ApprovalRequest)
    assert (first.command, first.choices) == ("rm x", ("once", "deny"))
    assert first.request_id and second.request_id == "theirs"


def test_nonsense_is_nothing():
    """Fields of the wrong kind and unknown events do no harm."""
    assert read({}, {"event": 5}, delta(5), {"event": "subagent.started"}, {"event": "message.delta"}) == []  # type: ignore[arg-type]
    assert isinstance(read(tool("x", ended=True, duration="long"))[0], events.ToolEnded)
