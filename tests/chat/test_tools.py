"""What an agent tells of its tools."""

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from chat import tools
from chat.events import Event, Narrative


def start(name: str, call: str | None) -> Event:
    """A tool that began."""
    return {"event": "tool.started", "tool_name": name, "tool_call_id": call}


def end(name: str, call: str | None) -> Event:
    """A tool that ended."""
    return {"event": "tool.completed", "tool_name": name, "tool_call_id": call, "preview": f"of {call}"}


def test_an_end_waits_for_the_ends_of_earlier_tools_of_its_name() -> None:
    """And only for those: another name's end passes."""
    started = [start("read", "1"), start("read", "2"), start("write", "3")]
    assert tools.due(started, (end("read", "2"),)) == []
    assert tools.due(started, (end("read", "2"), end("write", "3"))) == [end("write", "3")]
    assert tools.due(started, (end("read", "2"), end("read", "1"))) == [end("read", "1"), end("read", "2")]


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=5), st.randoms())
def test_told_as_they_are_due_ends_pair_with_starts_by_name_first_in_first_out(
    names: list[str], chance: random.Random
) -> None:
    """In whatever order tools end."""
    calls = [(name, str(number)) for number, name in enumerate(names)]
    narrative = Narrative()
    numbers = itertools.count(1)
    for name, call in calls:
        narrative.add({**start(name, call), "seq": next(numbers)})
    ended = list(calls)
    chance.shuffle(ended)
    held: tuple[Event, ...] = ()
    told: list[Event] = []
    for name, call in ended:
        held = (*held, end(name, call))
        due = tools.due(narrative.tools, held)
        held = tuple(one for one in held if one not in due)
        for one in due:
            narrative.add({**one, "seq": next(numbers)})
        told += due
    assert held == () and narrative.tools == []
    for name in set(names):
        assert [one["tool_call_id"] for one in told if one["tool_name"] == name] == [
            call for other, call in calls if other == name
        ]


def test_events_have_one_form() -> None:
    """Previews are cut, arguments are an object or nothing, and only thoughts are progress."""
    one = tools.numbered("tool.started", {"tool_name": "t", "preview": "x" * 900, "args": [1]}, "m")
    assert one == {
        "message_id": "m", "tool_name": "t", "preview": "x" * 500, "args": None, "tool_call_id": None,
    }  # fmt: skip
    assert tools.numbered("tool.completed", {"tool_name": "t", "duration": True}, None) == {
        "message_id": None, "tool_name": "t", "preview": None, "duration": None, "tool_call_id": None,
    }  # fmt: skip
    assert tools.numbered("tool.progress", {"tool_name": "t", "delta": "50 %"}, "m") is None
    assert tools.numbered("tool.progress", {"tool_name": "_thinking", "delta": ""}, "m") is None
    thought = tools.numbered("tool.progress", {"tool_name": "_thinking", "delta": "hm"}, "m")
    assert thought == {"message_id": "m", "tool_name": "_thinking", "delta": "hm"}
    assert tools.numbered("tool.started", {"args": {}}, "m") is None
