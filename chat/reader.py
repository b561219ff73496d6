"""
Join, read, follow: how a reader of one user's log and runs gets everything once and in order.

A told thing is passed on only when the one before it has been: `cursor - 1` in the log, `first - 1` in its
run. Where one is missing the reader asks for a catch-up, holds what comes meanwhile (bounded) and reads the
database.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from chat import queries
from chat.events import Event
from chat.hub import Hub
from chat.telling import RunRef, Told

ENDED_RUNS = 256  # whose numbers are remembered, so that a late repeat is known as one
HELD = 1024
MISSED_MESSAGES = 10_000


class Reader:
    """
    One reader. `emit` passes a told thing on; `behind` is called when `catch_up` has to be run.

    Until `follow` is called everything is held.
    """

    def __init__(
        self, hub: Hub, user_id: int, emit: Callable[[Told], None], behind: Callable[[], None]
    ) -> None:
        self.user_id = user_id
        self.cursor = 0
        self.is_app = False  # whether it counts as an App that is being told; set when it takes its place
        self._hub = hub
        self._emit = emit
        self._behind = behind
        self._runs: dict[int, int] = {}
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._refs: dict[int, RunRef] = {}
        self._streams: set[str] = set()  # ids of open streams whose start was passed on
        self._held: deque[Told] | None = deque()
        self._missed = False
        self._named: set[int] = set()  # runs that a position named and that are not known here

    def join(self) -> None:
        """Be told from now on; held until `follow`."""
        self._hub.join(self)

    def leave(self) -> None:
        """Be told no more."""
        self._hub.leave(self)
        self._held = deque()

    def start(self, cursor: int, runs: list[tuple[RunRef, int]], streams: set[str]) -> None:
        """What was read: everything up to this cursor, these live runs up to these numbers, these open streams."""
        self.cursor = cursor
        self._streams = set(streams)
        for ref, seq in runs:
            self._runs[ref.key] = seq
            self._refs[ref.key] = ref

    def follow(self) -> None:
        """Pass on what was held and is new, then everything as it comes."""
        held, self._held = self._held, None
        missed, self._missed = self._missed, False
        if missed:
            self._fall_behind()
        for told in held or ():
            self.tell(told)

    def tell(self, told: Told) -> None:
        """Take one committed thing, from the hub."""
        if self._held is not None:
            if len(self._held) >= HELD:
                self._missed = True
                self._held.clear()
            self._held.append(told)
            return
        if not self._follows(told):
            self._fall_behind()
            assert self._held is not None
            self._held.append(told)
            return
        self._pass_on(told)

    def position(self, cursor: int, runs: dict[int, int]) -> None:
        """Another process says how far it has told: is anything missing here?"""
        if self._held is not None:
            return
        ahead = [key for key, seq in runs.items() if key not in self._ended and seq > self._runs.get(key, 0)]
        if ahead or cursor > self.cursor:
            self._named.update(ahead)
            self._fall_behind()

    async def catch_up(self) -> None:
        """Read what was missed and pass it on, then follow again."""
        self.resume(await queries.pool.read(self.missed()))

    def missed(self) -> Callable[[], list[Told]]:
        """What reads all after this reader's position, in any thread."""
        return partial(
            _missed, self.user_id, self.cursor, dict(self._runs), dict(self._refs), set(self._streams)
        )

    def resume(self, found: list[Told]) -> None:
        """Pass on what was read, then what was held, then everything as it comes."""
        for told in found:
            self._pass_on(told)
        for key in (
            self._named - self._runs.keys()
        ):  # not live, by the database: it ended before this reader came
            self._note_end(key)
        self._named.clear()
        self.follow()

    def _fall_behind(self) -> None:
        if self._held is None:
            self._held = deque()
            self._behind()

    def _follows(self, told: Told) -> bool:
        """Whether everything before this has been passed on."""
        if told.cursor is not None and told.cursor > self.cursor + 1:
            return False
        if told.run is None or told.first == 0 or told.run.key in self._ended:
            return True
        return told.first <= self._runs.get(told.run.key, 0) + 1

    def _pass_on(self, told: Told) -> None:
        """Pass on what of it is new."""
        old_message = told.cursor is not None and told.cursor <= self.cursor
        run = told.run
        if run is not None and told.first:
            seen = told.last if run.key in self._ended else self._runs.get(run.key, 0)
            if told.first <= seen and told.events:
                rest = [event for event in told.events if event["seq"] > seen]
                if not rest and (told.message is None or old_message):
                    return
                told = told.copy(
                    events=rest, first=seen + 1, **({"message": None, "cursor": None} if old_message else {})
                )
            elif old_message:
                if not told.events:
                    return
                told = told.copy(message=None, cursor=None)
            self._note(run, told)
        elif old_message:
            return
        if told.cursor is not None:
            self.cursor = max(self.cursor, told.cursor)
        self._emit(told)

    def _note(self, run: RunRef, told: Told) -> None:
        if run.key in self._ended:
            return
        for event in told.events or ():
            if (v3 := event.get("v3")) and "start" in v3:
                self._streams.add(v3["start"]["id"])
        if told.streamed and told.message is not None:
            self._streams.discard(told.message["id"])
        self._refs[run.key] = run
        self._runs[run.key] = max(self._runs.get(run.key, 0), told.last)
        if told.events and told.events[-1]["event"] == "done":
            del self._runs[run.key], self._refs[run.key]
            self._note_end(run.key)

    def _note_end(self, key: int) -> None:
        self._ended[key] = None
        if len(self._ended) > ENDED_RUNS:
            self._ended.popitem(last=False)


def _missed(
    user_id: int, cursor: int, runs: dict[int, int], refs: dict[int, RunRef], streams: set[str]
) -> list[Told]:
    """
    Everything after a reader's position, in an order in which it may be told.

    Messages go by cursor; before a message come the events of its run that precede it, after the last
    message the rest of the events.
    """
    for ref, _ in queries.live_runs(user_id):
        refs.setdefault(ref.key, ref)
    messages = queries.messages_between(user_id, cursor, 2**62, MISSED_MESSAGES)
    for message in messages:
        assert message.run is not None
        refs.setdefault(message.run.key, message.run)
    rest = {key: queries.events_after(key, runs.get(key, 0)) for key in refs}
    found: list[Told] = []
    for message in messages:
        run = message.run
        assert run is not None and message.message is not None
        message_id = message.message["id"]
        before, rest[run.key] = _split(rest[run.key], message_id)
        if before:
            found.append(_of_events(user_id, run, before))
        streams.update(start["id"] for start in map(_start, before) if start is not None)
        streamed = message.was_streamed and message_id in streams
        found.append(message.copy(streamed=streamed, away=True))
    for key, events in rest.items():
        if events:
            told = _of_events(user_id, refs[key], events)
            found.append(told.copy(events=_without_text(events)) if events[-1]["event"] == "done" else told)
    return found


def _of_events(user_id: int, run: RunRef, events: list[Event]) -> Told:
    return Told(user_id, run=run, first=events[0]["seq"], last=events[-1]["seq"], events=events)


def _without_text(events: list[Event]) -> list[Event]:
    """
    What is left of a run that has ended, when all its messages have been told.

    A stream among it was begun anew: its message is that of a later run, which has told it.
    """
    return [event for event in events if event["event"] not in ("message.started", "assistant.delta")]


def _start(event: Event) -> dict[str, Any] | None:
    start: dict[str, Any] | None = (event.get("v3") or {}).get("start")
    return start


def _split(events: list[Event], message_id: str) -> tuple[list[Event], list[Event]]:
    """The events told before a message, and the rest: what begins another stream, or ends the run, is later."""
    for place, event in enumerate(events):
        start = _start(event)
        if start is not None and start["id"] != message_id:
            return events[:place], events[place:]
        if event["event"].startswith("run.") and event["event"] not in ("run.started", "run.queued"):
            return events[:place], events[place:]
    return events, []
