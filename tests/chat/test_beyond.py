"""Two processes and the layer between them: hints, positions, who is here, and a layer that does not carry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from channels.layers import InMemoryChannelLayer

from chat import beyond as beyond_module
from chat.beyond import Beyond, Position
from chat.hub import Hub
from chat.telling import RunRef, Told
from tests.chat.test_hub import Listener

PATIENCE_SECONDS = 10
RUN = RunRef(7, "run_7", "S1", "hermes", "alice", "m1")


class Layer(InMemoryChannelLayer):
    """A layer that can stop to carry, or fail."""

    carries = True
    fails = 0

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Lose it, if told so."""
        if self.carries:
            await super().send(channel, message)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """The same for a group."""
        if self.carries:
            await super().group_send(group, message)

    async def group_add(self, group: str, channel: str) -> None:
        """Fail, if told so."""
        if self.fails:
            self.fails -= 1
            raise ConnectionError("gone")
        await super().group_add(group, channel)


class Following(Listener):
    """Notes positions too."""

    def __init__(self, user_id: int) -> None:
        super().__init__(user_id)
        self.positions: list[tuple[int, dict[int, int]]] = []

    def position(self, cursor: int, runs: dict[int, int]) -> None:
        self.positions.append((cursor, runs))


class Place:
    """One process."""

    def __init__(self, layer: Layer, name: str) -> None:
        self.hub = Hub()
        self.words: list[dict[str, Any]] = []
        self.lost = 0
        self.beyond = Beyond(layer, name, self.hub, self.words.append, self._note_loss)
        self.hub.beyond = self.beyond

    def _note_loss(self) -> None:
        self.lost += 1

    async def listen(self, user_id: int) -> Following:
        """Somebody listens here, and the others know."""
        listener = Following(user_id)
        self.hub.join(listener)
        await self.hub.joined(user_id)
        return listener


@pytest.fixture
def layer() -> Layer:
    """What carries between them."""
    return Layer(capacity=1000)


@pytest.fixture
async def places(layer: Layer, settings: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Place]]:
    """Two processes."""
    settings.HERMES_POSITION_SECONDS = 0.05
    settings.HERMES_HERE_SECONDS = 0.1
    monkeypatch.setattr(beyond_module, "PROBE_SECONDS", 0.05)
    made = [Place(layer, name) for name in ("one", "two")]
    for place in made:
        await place.beyond.start()
    yield made
    for place in made:
        await place.beyond.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, not longer than it may take."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event of its own
            await asyncio.sleep(0.005)


def message(cursor: int, user_id: int = 1) -> Told:
    """A message, told."""
    return Told(user_id, cursor=cursor, run=RUN, message={"id": f"m{cursor}"})


def events(first: int, last: int, name: str = "assistant.delta") -> Told:
    """Events, told."""
    made = [{"event": name, "seq": seq, "delta": "x"} for seq in range(first, last + 1)]
    return Told(1, run=RUN, first=first, last=last, events=made)


async def known(place: Place, user_id: int) -> None:
    """Wait until a process knows that another has readers of a user."""
    await until(lambda: bool(place.beyond._remote.get(user_id)))


async def test_what_one_process_commits_the_other_s_readers_are_told(places: list[Place]) -> None:
    """In order, as committed elsewhere; readers here are told directly, and once."""
    one, two = places
    here, there = await one.listen(1), await two.listen(1)
    await known(one, 1)
    one.hub.publish([message(1), events(1, 2)])
    one.hub.publish([message(2)])
    await until(lambda: len(there.heard) == 3)
    assert [told.cursor for told in there.heard] == [1, None, 2]
    assert [told.away for told in there.heard] == [True] * 3
    assert there.heard[1].events == events(1, 2).events
    assert [told.away for told in here.heard] == [False] * 3


async def test_nothing_is_sent_where_nobody_listens(places: list[Place], layer: Layer) -> None:
    """Another user's readers hear nothing."""
    one, two = places
    other = await two.listen(2)
    await known(one, 2)
    sent: list[str] = []
    group_send = layer.group_send

    async def noted(group: str, message: dict[str, Any]) -> None:
        sent.append(group)
        await group_send(group, message)

    layer.group_send = noted  # type: ignore[method-assign]
    one.hub.publish([message(1)])
    one.hub.publish([message(1, user_id=2)])
    await until(lambda: bool(other.heard))
    assert [told.user_id for told in other.heard] == [2]
    assert "user.1" not in sent


async def test_who_has_left_is_not_told_any_more(places: list[Place]) -> None:
    """By `gone`; by silence if that gets lost."""
    one, two = places
    listener = await two.listen(1)
    await known(one, 1)
    two.hub.leave(listener)
    await until(lambda: not one.beyond._remote.get(1))


async def test_a_process_that_falls_silent_is_forgotten(places: list[Place]) -> None:
    """As one that was killed."""
    one, two = places
    await two.listen(1)
    await known(one, 1)
    for task in two.beyond._tasks:
        task.cancel()
    await until(lambda: 1 not in one.beyond._remote)


async def test_a_lost_hint_is_made_good_by_a_position(places: list[Place], layer: Layer) -> None:
    """Repeated while something moves, and a little longer."""
    one, two = places
    there = await two.listen(1)
    await known(one, 1)
    layer.carries = False
    one.hub.publish([message(1), events(1, 2), events(3, 3, "done")])
    await until(lambda: not one.beyond._pending)
    layer.carries = True
    await until(lambda: (1, {7: 3}) in there.positions)
    assert there.heard == []
    await until(lambda: 1 not in one.beyond._positions)


async def test_a_hint_that_is_too_large_is_numbers_only(places: list[Place], settings: Any) -> None:
    """The reader reads the rest."""
    settings.HERMES_HINT_BYTES = 200
    one, two = places
    there = await two.listen(1)
    await known(one, 1)
    one.hub.publish([Told(1, cursor=1, run=RUN, message={"id": "m1", "data": {"text": "x" * 1000}})])
    await until(lambda: (1, {}) in there.positions)
    assert there.heard == []


async def test_a_new_listener_is_told_how_far_the_others_are(places: list[Place], settings: Any) -> None:
    """What it was told before it was in the group may have been lost."""
    settings.HERMES_POSITION_SECONDS = 3600
    one, two = places
    one.hub.publish([message(4), events(1, 2)])
    there = await two.listen(1)
    await until(lambda: bool(there.positions))
    assert there.positions[0] == (4, {7: 2})


async def test_words_go_to_all_other_processes(places: list[Place]) -> None:
    """A seat that was taken, a command that waits; not back to who said it."""
    one, two = places
    one.beyond.say({"kind": "seated", "user": 1})
    await until(lambda: bool(two.words))
    assert two.words == [{"kind": "seated", "user": 1, "process": "one"}]
    two.beyond.say({"kind": "seated", "user": 2})
    await until(lambda: bool(one.words))
    assert [word["user"] for word in one.words] == [2]


async def test_a_join_that_failed_is_tried_again(
    places: list[Place], layer: Layer, caplog: pytest.LogCaptureFixture
) -> None:
    """Although nothing else happens."""
    one, two = places
    layer.fails = 1
    listener = await two.listen(1)
    await known(one, 1)
    one.hub.publish([message(1)])
    await until(lambda: bool(listener.heard))
    assert "hints could not be sent: ConnectionError" in caplog.messages


async def test_a_layer_that_does_not_carry_is_noticed(
    places: list[Place], layer: Layer, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """By probes that do not come back; when it carries again, every reader looks for what it missed."""
    one, two = places
    there = await two.listen(1)
    await known(one, 1)
    caplog.set_level(logging.INFO)
    layer.carries = False
    await until(lambda: two.beyond._down_since is not None)
    one.hub.publish([message(1)])
    layer.carries = True
    await until(lambda: (2**62, {}) in there.positions)
    assert two.lost == 0
    assert "the channel layer carries again" in caplog.messages
    settings.HERMES_LAYER_LOST_SECONDS = 0
    layer.carries = False
    await until(lambda: two.lost > 0)


async def test_a_hint_that_makes_no_sense_does_not_end_the_listening(
    places: list[Place], layer: Layer, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; the next one is taken."""
    one, two = places
    there = await two.listen(1)
    await known(one, 1)
    await layer.group_send("user.1", {"type": "hint", "process": "x", "word": "{"})
    one.hub.publish([message(1)])
    await until(lambda: bool(there.heard))
    assert "a hint could not be taken" in caplog.messages


async def test_the_last_hints_are_sent_before_the_end(places: list[Place]) -> None:
    """An orderly stop loses nothing."""
    one, two = places
    there = await two.listen(1)
    await known(one, 1)
    one.hub.publish([message(1)])
    await one.beyond.stop()
    await until(lambda: [told.cursor for told in there.heard] == [1])


def test_a_position_is_how_far_each_live_run_was_told() -> None:
    """An ended one a last time; one that has not moved for long, no more."""
    position = Position()
    position.note(message(3), 10)
    position.note(events(1, 4), 11)
    other = RunRef(8, "run_8", "S2", "hermes", "alice", None)
    position.note(Told(1, run=other, first=1, last=2, events=[{"event": "x", "seq": 2}]), 100)
    assert position.words() == {"cursor": 3, "runs": {"7": 4, "8": 2}}
    position.leave_still(50)
    assert position.words() == {"cursor": 3, "runs": {"8": 2}}
    position.note(Told(1, run=other, first=3, last=3, events=[{"event": "done", "seq": 3}]), 101)
    assert (position.runs, position.words()["runs"]) == ({}, {"8": 3})
    position.leave_still(10**9)
    assert position.words()["runs"] == {"8": 3}
