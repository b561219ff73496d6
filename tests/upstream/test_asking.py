"""What Hermes is told of a session and of the conversation before a question."""

from typing import Any

import pytest

from chat.asking import as_history, session_id


def rows(*said: str) -> list[dict[str, str]]:
    """A conversation: `u:` a person's words, `a:` the agent's."""
    roles = {"u": "user", "a": "assistant"}
    return [{"role": roles[one[0]], "content": one[2:], "id": str(place)} for place, one in enumerate(said)]


def kept(*said: str) -> list[str]:
    """The same conversation as it is sent."""
    return [f"{row['role'][0]}:{row['content']}" for row in as_history(rows(*said))]


def test_a_session_is_called_something_random_for_good():
    """A new name for each session, the same one from then on."""
    first, other = session_id(None, anew=False, past=False), session_id(None, anew=False, past=False)
    assert first != other
    assert len(first) > 32 and first.replace("_", "").isalnum()
    assert session_id(first, anew=False, past=True) == first


def test_a_replaced_past_is_another_session_with_the_same_memory():
    """Whether a past must be told is in the name."""
    first = session_id(None, anew=False, past=False)
    second = session_id(first, anew=True, past=True)
    third = session_id(second, anew=True, past=False)
    assert len({first, second, third}) == 3
    assert len({name.rpartition("_")[0] for name in (first, second, third)}) == 1
    assert [name.endswith("p") for name in (first, second, third)] == [False, True, False]


def test_a_past_that_began_elsewhere_must_be_told():
    """A session with messages but no name at Hermes yet."""
    assert session_id(None, anew=False, past=True).endswith("p")


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ((), []),
        (("u:1", "a:2"), ["u:1", "a:2"]),
        (("u:never answered",), []),
        (("u:failed", "u:1", "a:2"), ["u:1", "a:2"]),
        (("u:1", "a:2", "u:failed"), ["u:1", "a:2"]),
        (("u:1", "a:on it", "a:done"), ["u:1", "a:on it\n\ndone"]),
        (("a:news of its own", "u:1", "a:2"), ["u:1", "a:2"]),
        (("u:1", "a:", "u:2", "a:3"), ["u:2", "a:3"]),
    ],
)
def test_history_goes_by_question_and_answer(said: tuple[str, ...], sent: list[str]):
    """What was never answered is left out; several messages of one answer are one."""
    assert kept(*said) == sent


def test_the_newest_are_kept_within_the_bytes(settings: Any):
    """Whole messages, beginning with a question; characters count as the bytes they are."""
    settings.HERMES_UPSTREAM_HISTORY_BYTES = 8
    assert kept("u:old", "a:old", "u:1234", "a:5678") == ["u:1234", "a:5678"]
    assert kept("u:old", "a:old", "u:12345", "a:5678") == []
    assert kept("u:old", "a:old", "u:12", "a:€€") == ["u:12", "a:€€"]
    assert kept("u:old", "a:old", "u:123", "a:€€") == []
