"""A reader's steps: what follows is passed on, what is known is not, and a hole is never stepped over."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from chat import reader as reader_module
from chat.events import Event
from chat.hub import Hub
from chat.reader import ENDED_RUNS, HELD, Reader
from chat.telling import RunRef, Told


class Reading:
    """A reader of user 1 that notes what it passes on, and how often it wanted to catch up."""

    def __init__(self, cursor: int = 0, runs: dict[int, int] | None = None) -> None:
        self.hub = Hub()
        self.passed: list[Told] = []
        self.behind = 0
        self.reader = Reader(self.hub, 1, self.passed.append, self._fall_behind)
        self.reader.join()
        self.reader.start(cursor, [(run(key), seq) for key, seq in (runs or {}).items()], set())

    def _fall_behind(self) -> None:
        self.behind += 1

    def tell(self, *told: Told) -> None:
        """Through the hub, as commits are told."""
        self.hub.publish(list(told))

    @property
    def shown(self) -> list[str]:
        """What was passed on, in a short spelling: `c3` a message, `7:4` an event, `!` a notice."""
        return [word for told in self.passed for word in spelled(told)]


def run(key: int) -> RunRef:
    """A run."""
    return RunRef(key, f"run_{key}", "S1", "hermes", "alice", "m1")


def spelled(told: Told) -> list[str]:
    """See `Reading.shown`."""
    words = [f"{told.run.key}:{event['seq']}" for event in told.events or () if told.run is not None]
    if told.cursor is not None:
        assert told.message is not None
        words.append(f"c{told.cursor}")
    return [*words, *(["!"] if told.notice is not None else [])]


def message(cursor: int, key: int = 7, last: int = 0) -> Told:
    """A message of a run."""
    return Told(
        1, cursor=cursor, run=run(key), first=last + 1 if last else 0, last=last, message={"id": f"m{cursor}"}
    )


def events(key: int, first: int, last: int, *, end: bool = False, cursor: int | None = None) -> Told:
    """Events of a run, perhaps with its end, perhaps with a message."""
    made: list[Event] = [
        {"event": "assistant.delta", "delta": "x", "seq": seq} for seq in range(first, last + 1)
    ]
    if end:
        made[-1] = {"event": "done", "seq": last}
    body = None if cursor is None else {"id": f"m{cursor}"}
    return Told(1, run=run(key), first=first, last=last, events=made, cursor=cursor, message=body)


NOTICE = Told(1, notice={"type": "error"})


def following(cursor: int = 0, runs: dict[int, int] | None = None) -> Reading:
    """A reader that follows already."""
    reading = Reading(cursor, runs)
    reading.reader.follow()
    return reading


def test_what_follows_is_passed_on() -> None:
    """Messages by cursor, events by number of their run, notices as they come."""
    reading = following(3, {7: 2})
    reading.tell(message(4), events(7, 3, 5), NOTICE, events(8, 1, 1), events(7, 6, 6, cursor=5))
    assert reading.shown == ["c4", "7:3", "7:4", "7:5", "!", "8:1", "7:6", "c5"]
    assert (reading.reader.cursor, reading.behind) == (5, 0)


def test_what_is_known_is_not_passed_on_again() -> None:
    """Neither messages nor events, in whatever order the repeats come."""
    reading = following(3, {7: 2})
    reading.tell(message(3), events(7, 1, 2), message(1), events(7, 2, 2))
    assert reading.shown == []
    reading.tell(events(7, 3, 4), message(4), message(4), events(7, 3, 4))
    assert reading.shown == ["7:3", "7:4", "c4"]
    assert reading.behind == 0


def test_of_what_is_partly_known_the_rest_is_passed_on() -> None:
    """With numbers that say so."""
    reading = following(0, {7: 2})
    reading.tell(events(7, 1, 4))
    assert reading.shown == ["7:3", "7:4"]
    assert (reading.passed[0].first, reading.passed[0].last) == (3, 4)


def test_a_known_message_with_new_events_leaves_the_events() -> None:
    """And known events with a new message the message."""
    reading = following(5, {7: 2})
    reading.tell(events(7, 2, 3, cursor=5))
    assert reading.shown == ["7:3"]
    assert (reading.passed[0].cursor, reading.passed[0].message) == (None, None)
    reading.tell(events(7, 2, 3, cursor=6))
    assert reading.shown == ["7:3", "c6"]
    reading.tell(events(7, 2, 3, cursor=6))
    assert reading.shown == ["7:3", "c6"]


def test_a_hole_in_the_log_stops_the_reader() -> None:
    """It wants to catch up, once, and passes nothing on meanwhile."""
    reading = following(3)
    reading.tell(message(5), message(4), NOTICE, message(6))
    assert (reading.shown, reading.behind) == ([], 1)


def test_a_hole_in_a_run_stops_the_reader() -> None:
    """Also a run that is heard of for the first time in its middle."""
    for told in (events(7, 4, 4), events(9, 2, 2)):
        reading = following(3, {7: 2})
        reading.tell(told)
        assert (reading.shown, reading.behind) == ([], 1)


def test_after_a_catch_up_what_was_held_follows_without_repeats() -> None:
    """What the catch-up has read, and the hub had told meanwhile, is passed on once."""
    reading = following(3)
    reading.tell(message(5), message(6), events(7, 1, 2))
    reading.reader.resume([message(4), message(5)])
    assert reading.shown == ["c4", "c5", "c6", "7:1", "7:2"]
    reading.tell(message(7))
    assert reading.shown[-1] == "c7"


def test_a_catch_up_that_did_not_close_the_hole_is_followed_by_another() -> None:
    """Nothing is stepped over."""
    reading = following(3)
    reading.tell(message(6))
    reading.reader.resume([message(4)])
    assert (reading.shown, reading.behind) == (["c4"], 2)


def test_until_it_follows_everything_is_held() -> None:
    """Joining comes before reading, so what is told in between is not lost."""
    reading = Reading()
    reading.tell(message(4), events(7, 3, 3), NOTICE)
    assert reading.shown == []
    reading.reader.start(3, [(run(7), 2)], set())
    reading.reader.follow()
    assert reading.shown == ["c4", "7:3", "!"]


def test_more_than_can_be_held_is_read_instead() -> None:
    """Memory is bounded, and the reader knows that it missed something."""
    reading = Reading(0)
    reading.tell(*(message(cursor) for cursor in range(1, HELD + 10)))
    assert reading.reader._held is not None and len(reading.reader._held) < HELD
    reading.reader.follow()
    assert (reading.shown, reading.behind) == ([], 1)


def test_more_than_can_be_held_while_it_is_behind_is_read_again() -> None:
    """The second catch-up is asked for when the first is over."""
    reading = following(0)
    reading.tell(*(message(cursor) for cursor in range(2, HELD + 10)))
    assert reading.behind == 1
    reading.reader.resume([message(cursor) for cursor in range(1, 6)])
    assert reading.behind == 2
    assert reading.shown == [f"c{cursor}" for cursor in range(1, 6)]


def test_a_position_ahead_asks_for_a_catch_up() -> None:
    """Of the log or of any run; one behind does not."""
    for cursor, runs, behind in ((3, {7: 2}, 0), (2, {7: 1}, 0), (4, {}, 1), (3, {7: 3}, 1), (3, {8: 1}, 1)):
        reading = following(3, {7: 2})
        reading.reader.position(cursor, runs)
        reading.reader.position(cursor, runs)
        assert reading.behind == behind


def test_a_run_that_is_not_live_is_asked_for_once() -> None:
    """A process that has lost it may go on naming it: whoever came after its end reads once, and knows."""
    reading = following(3)
    for _ in range(5):
        reading.reader.position(3, {9: 7})
        if reading.reader._held is not None:
            reading.reader.resume([])
    assert (reading.behind, reading.shown) == (1, [])
    reading.tell(events(10, 1, 1))
    reading.reader.position(3, {10: 1})
    assert reading.behind == 1


def test_a_position_says_nothing_new_while_it_catches_up() -> None:
    """It will be repeated."""
    reading = Reading(3)
    reading.reader.position(9, {7: 3})
    assert reading.behind == 0


def test_a_run_that_ended_is_known_as_ended() -> None:
    """Late repeats and positions of it mean nothing; a message that belongs to it is still passed on."""
    reading = following(3, {7: 2})
    reading.tell(events(7, 3, 4, end=True))
    reading.reader.position(3, {7: 4})
    reading.tell(events(7, 3, 4, end=True), events(7, 1, 1))
    assert reading.shown == ["7:3", "7:4"]
    reading.tell(message(4))
    assert (reading.shown[-1], reading.behind) == ("c4", 0)


def test_the_memory_of_ended_runs_is_bounded() -> None:
    """The latest ones are kept."""
    reading = following()
    reading.tell(*(events(key, 1, 1, end=True) for key in range(1, ENDED_RUNS + 10)))
    assert len(reading.reader._ended) == ENDED_RUNS
    assert reading.reader._runs == {}
    reading.tell(events(ENDED_RUNS + 9, 1, 1, end=True))
    assert len(reading.passed) == ENDED_RUNS + 9


def test_who_has_left_holds_nothing_any_more() -> None:
    """Told later, it passes nothing on."""
    reading = following(3)
    reading.reader.leave()
    reading.tell(message(4))
    reading.reader.tell(message(4))
    assert reading.shown == []


def test_events_before_a_message_are_told_before_it() -> None:
    """What begins another stream, or ends the run, is later."""
    names = ["message.started", "assistant.delta", "tool.started", "assistant.delta", "run.completed", "done"]
    made: list[Event] = [{"event": name, "seq": seq} for seq, name in enumerate(names, 1)]
    made[0]["v3"] = {"start": {"id": "str_1"}}
    made[3]["v3"] = {"start": {"id": "str_2"}}
    assert reader_module._split(made, "str_1") == (made[:3], made[3:])
    assert reader_module._split(made, "str_2") == ([], made)
    assert reader_module._split(made[3:], "str_2") == (made[3:4], made[4:])
    assert reader_module._split([], "x") == ([], [])


log = st.lists(st.integers(1, 3), min_size=1, max_size=25)


@given(log, st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_is_lost_or_doubled_everything_is_passed_on_once_and_in_order(
    sizes: list[int], data: st.DataObject
) -> None:
    """Some are told twice, late or never; a catch-up reads what is committed by then."""
    committed, seq = [], 0
    for cursor, size in enumerate(sizes, 1):
        committed.append(events(7, seq + 1, seq + size, cursor=cursor))
        seq += size
    reading = following()
    place = 0
    while place < len(committed):
        step = data.draw(st.sampled_from(["tell", "lose", "repeat", "position", "catch up"]))
        if step == "tell":
            reading.tell(committed[place])
        elif step == "repeat" and place:
            reading.tell(committed[data.draw(st.integers(0, place - 1))])
        elif step == "position":
            reading.reader.position(place, {7: committed[place - 1].last if place else 0})
        elif step == "catch up" and reading.reader._held is not None:
            catch_up(reading, committed[:place])
        place += step in ("tell", "lose")
    reading.reader.position(len(committed), {7: seq})
    while reading.reader._held is not None:
        catch_up(reading, committed)
    expected = [word for told in committed for word in spelled(told)]
    assert reading.shown == expected


def catch_up(reading: Reading, committed: list[Told]) -> None:
    """As a read of the database gives it: what is after the reader's position."""
    cursor, seen = reading.reader.cursor, reading.reader._runs.get(7, 0)
    reading.reader.resume([told for told in committed if (told.cursor or 0) > cursor or told.last > seen])
