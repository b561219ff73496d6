"""What is on disk: there after a crash, held by one bridge, bounded."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from bridge import state as module
from bridge.state import Record, State, StateInUse


def record(message_id: str = "m1", cursor: int | None = 1, session: str = "s1") -> Record:
    return Record("alice", message_id, session, "hermes", cursor, "str_1", f"ask {message_id}", time.time())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "bridge.sqlite3"


@pytest.fixture
def state(path: Path):
    opened = State(path)
    yield opened
    opened.close()


def test_it_survives_and_knows_that_it_did(path: Path):
    """Everything is there when the file is opened again; only the first opening is fresh."""
    first = State(path)
    assert first.fresh
    assert path.stat().st_mode & 0o777 == 0o600
    first.begin(record())
    first.running("alice", "m1", "run_1")
    first.finish("alice", "m1", "completed", "answer", None)
    first.set_since("alice", 7)
    place = first.conversation("alice", "s1")
    first.close()

    second = State(path)
    assert not second.fresh
    known = second.turn("alice", "m1")
    assert known is not None
    assert (known.run_id, known.outcome, known.text) == ("run_1", "completed", "answer")
    assert second.unfinished() == [known]
    assert second.since() == second.since("alice") == 7
    assert second.conversation("alice", "s1") == place
    assert [row["content"] for row in second.history("alice", "s1")] == ["ask m1", "answer"]
    second.close()


def test_one_file_is_held_by_one_bridge(state: State, path: Path):
    """A second bridge on the same file is refused with a text that says what to do."""
    with pytest.raises(StateInUse, match="--state"):
        State(path)


def test_a_finished_turn_is_finished_once(state: State):
    """A second end changes nothing, and adds nothing to the conversation."""
    state.begin(record())
    state.finish("alice", "m1", "completed", "one", None)
    state.finish("alice", "m1", "failed", "two", "internal")
    known = state.turn("alice", "m1")
    assert known is not None
    assert (known.outcome, known.text) == ("completed", "one")
    assert len(state.history("alice", "s1")) == 2


def test_a_failed_turn_is_no_part_of_the_conversation(state: State):
    """Neither its question nor its error text comes back to the model; a stopped one's text does."""
    for message_id, outcome in (("m1", "failed"), ("m2", "cancelled")):
        state.begin(record(message_id))
        state.finish("alice", message_id, outcome, f"text {message_id}", None)
    assert [row["content"] for row in state.history("alice", "s1")] == ["ask m2", "text m2"]


def test_sessions_have_random_names_of_their_own(state: State):
    """Neither the session's nor the user's name is in the Hermes id, and no two are the same."""
    ids = {
        state.conversation(user, session).hermes_id for user in ("alice", "bob") for session in ("s1", "s2")
    }
    assert len(ids) == 4
    assert not any("alice" in name or "s1" in name for name in ids)


def test_rewriting_gives_a_new_past_under_a_new_name(state: State):
    """After a replacement the conversation is what the gateway says, in another Hermes session."""
    old = state.conversation("alice", "s1")
    state.begin(record())
    state.finish("alice", "m1", "completed", "gone", None)
    state.rewrite("alice", "s1", [("user", "kept"), ("assistant", "kept too")])
    new = state.conversation("alice", "s1")
    assert new.hermes_id != old.hermes_id
    assert new.rewritten
    assert [row["content"] for row in state.history("alice", "s1")] == ["kept", "kept too"]
    state.rewrite("alice", "s1", [])
    assert not state.conversation("alice", "s1").rewritten
    assert state.history("alice", "s1") == ()


def test_the_cursor_stops_below_what_is_unfinished(state: State, monkeypatch: pytest.MonkeyPatch):
    """It rises with finished turns, never past one that waits, runs, or ended a moment ago."""
    state.begin(record("m1", 5))
    assert state.advance("alice", 9, [8]) == 4
    state.finish("alice", "m1", "completed", "", None)
    state.settle("alice", "m1")
    assert state.advance("alice", 9, [8]) == 4
    monkeypatch.setattr(module, "CURSOR_LAG_SECONDS", -1)
    assert state.advance("alice", 9, [8]) == 7
    assert state.advance("alice", 9, []) == 9
    assert state.since("alice") == 9


def test_the_past_is_bounded(state: State, monkeypatch: pytest.MonkeyPatch):
    """Only the newest messages go to the agent, and never an answer without its question."""
    state.rewrite("alice", "s1", [(role, f"{role}{n}") for n in range(5) for role in ("user", "assistant")])
    monkeypatch.setattr(module, "HISTORY_MESSAGES", 5)
    assert [row["content"] for row in state.history("alice", "s1")] == [
        "user3",
        "assistant3",
        "user4",
        "assistant4",
    ]
    monkeypatch.setattr(module, "HISTORY_CHARS", 16)
    assert [row["content"] for row in state.history("alice", "s1")] == ["user4", "assistant4"]


def test_settled_turns_are_forgotten_after_a_while(state: State):
    """The file does not grow with every turn."""
    state.begin(
        replace(record("m1"), outcome="completed", settled_at=time.time() - 2 * module.REMEMBER_SECONDS)
    )
    state.begin(record("m2"))
    state.settle("alice", "m2")
    assert state.turn("alice", "m1") is None
    assert state.turn("alice", "m2") is not None
