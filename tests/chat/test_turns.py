"""The live turns of one agent: which one a frame answers, which one runs, and how a run ends."""

from __future__ import annotations

import pytest

from chat.events import Narrative
from chat.telling import RunRef
from chat.turns import OpenStream, Slot, Turn, terminal


def turn(key: int, ordinal: int, question: str | None, *, session: int = 1, status: str = "queued") -> Turn:
    """A turn."""
    return Turn(
        key,
        RunRef(key, f"run_{key}", f"S{session}", "hermes", "alice", question),
        session,
        ordinal,
        status,
        1,
    )


def slot(*turns: Turn) -> Slot:
    """A slot with these turns, in whatever order they came."""
    made = Slot(1, 1, "alice", "hermes")
    for one in turns:
        made.add(one)
    return made


FIRST = turn(1, 1, "m1", status="running")
SECOND = turn(2, 2, "m2")
OWN = turn(3, 3, None)
ELSEWHERE = turn(4, 1, "m4", session=2, status="stopping")


@pytest.mark.parametrize("order", [(FIRST, SECOND, OWN, ELSEWHERE), (OWN, ELSEWHERE, SECOND, FIRST)])
def test_a_frame_answers_the_turn_it_names_or_the_oldest(order: tuple[Turn, ...]) -> None:
    """Of its session only; one that names nothing live answers none."""
    made = slot(*order)
    assert made.answering(1, "m2") is SECOND
    assert made.answering(1, None) is FIRST
    assert made.answering(1, "m4") is None
    assert made.answering(2, None) is ELSEWHERE
    assert made.answering(9, None) is None


def test_one_turn_of_a_session_is_active() -> None:
    """Running or stopping; those that wait are not."""
    made = slot(OWN, SECOND, FIRST, ELSEWHERE)
    assert made.active(1) is FIRST
    assert made.active(2) is ELSEWHERE
    made.remove(FIRST)
    assert made.active(1) is None
    assert made.answering(1, None) is SECOND


def test_a_turn_that_ended_is_gone_with_its_stream() -> None:
    """Removing it twice is no mistake; another one's stream stays."""
    made = slot(FIRST, SECOND)
    made.open["S1"] = SECOND
    made.remove(FIRST)
    made.remove(FIRST)
    assert made.open == {"S1": SECOND}
    made.remove(SECOND)
    assert (made.open, made.turns, list(made.all_turns())) == ({}, {}, [])


def test_what_only_a_connection_knows_outlives_forgetting() -> None:
    """Who was heard, and when; which connection a stream came by."""
    old = turn(1, 1, "m1")
    old.heard, old.sign, old.window, old.told_silence = 5, 123.0, 7, True
    old.stream = OpenStream(9, "str_1", "m1", 1, 5)
    old.stream.interrupted = True
    made = slot(old)
    made.forget()
    assert not made.known and list(made.all_turns()) == [] and made.handed == 0
    fresh = turn(1, 1, "m1")
    fresh.stream = OpenStream(9, "str_1", "m1", 1, 0)
    fresh.recall(made.before[1])
    assert (fresh.heard, fresh.sign, fresh.window, fresh.told_silence) == (5, 123.0, 7, True)
    assert (fresh.stream.generation, fresh.stream.interrupted) == (5, True)
    other = turn(1, 1, "m1")
    other.stream = OpenStream(10, "str_2", "m1", 1, 0)
    other.recall(made.before[1])
    assert (other.stream.generation, other.stream.interrupted) == (0, False)


def test_a_turn_has_begun_when_anything_came_of_it() -> None:
    """A stream, a message, an event of a tool; its question alone is nothing."""
    fresh = turn(1, 1, "m1")
    fresh.take_narrative([{"event": "run.started", "seq": 1, "user_message": {"id": "m1"}}])
    assert not fresh.begun
    fresh.take_narrative([{"event": "tool.started", "seq": 2, "tool_name": "x"}])
    assert fresh.begun
    streaming = turn(1, 1, "m1")
    streaming.stream = OpenStream(9, "str_1", "m1", 1, 0)
    assert streaming.begun


@pytest.mark.parametrize(
    ("status", "code", "fields"),
    [
        ("completed", "", {"completed": True, "messages": [], "usage": {}}),
        (
            "failed",
            "llm_down",
            {
                "code": "llm_down",
                "turn_exit_reason": "llm_down",
                "error": "why",
                "message": "why",
                "partial": False,
            },
        ),
        ("cancelled", "x", {"interrupted": True, "turn_exit_reason": "interrupted_by_user"}),
        ("interrupted", "agent_gone", {"reason": "agent_gone", "error": "why", "partial": True}),
    ],
)
def test_the_end_of_a_run_says_how_it_ended(status: str, code: str, fields: dict[str, object]) -> None:
    """In the fields that front ends look for; more may be added."""
    assert terminal(status, code, "why", Narrative(), more=1) == {**fields, "more": 1}


def test_a_failure_in_the_middle_of_an_answer_is_partial() -> None:
    """Something had been said."""
    narrative = Narrative()
    narrative.add({"event": "message.started", "seq": 1, "message": {"id": "a"}})
    assert terminal("failed", "x", "why", narrative)["partial"] is True
