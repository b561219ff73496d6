"""Who listens: readers by user, told in order, and what is said to other processes."""

from __future__ import annotations

from typing import Any

from chat.hub import Hub
from chat.telling import Told


class Listener:
    """Notes what it is told."""

    def __init__(self, user_id: int, *, is_app: bool = False) -> None:
        self.user_id = user_id
        self.is_app = is_app
        self.heard: list[Told] = []

    def tell(self, told: Told) -> None:
        self.heard.append(told)

    def position(self, cursor: int, runs: dict[int, int]) -> None:
        raise AssertionError("nobody says a position here")


class Beyond:
    """Notes what other processes would be told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []

    def here(self, user_id: int) -> None:
        self.said.append(("here", user_id))

    def gone(self, user_id: int) -> None:
        self.said.append(("gone", user_id))

    async def joined(self, user_id: int) -> None:
        self.said.append(("joined", user_id))

    def publish(self, told: list[Told]) -> None:
        self.said.append(("publish", told))

    def say(self, word: dict[str, Any]) -> None:
        self.said.append(("say", word))

    async def stop(self) -> None:
        self.said.append(("stop", None))


def test_a_user_s_readers_are_told_in_order_and_nobody_else() -> None:
    """Each of them everything."""
    hub = Hub()
    one, two, other = Listener(1), Listener(1), Listener(2)
    for listener in (one, two, other):
        hub.join(listener)
    told = [Told(1), Told(2), Told(1)]
    hub.publish(told)
    assert one.heard == two.heard == [told[0], told[2]]
    assert other.heard == [told[1]]


def test_who_has_left_is_told_no_more() -> None:
    """Leaving twice, or without having come, is no mistake."""
    hub, listener = Hub(), Listener(1)
    hub.leave(listener)
    hub.join(listener)
    hub.leave(listener)
    hub.leave(listener)
    hub.publish([Told(1)])
    assert listener.heard == []
    assert hub.users() == []


def test_a_reader_may_leave_while_it_is_told() -> None:
    """The others are told all the same."""
    hub, last = Hub(), Listener(1)

    class Leaving(Listener):
        def tell(self, told: Told) -> None:
            super().tell(told)
            hub.leave(self)

    leaving = [Leaving(1) for _ in range(3)]
    for listener in [*leaving, last]:
        hub.join(listener)
    hub.publish([Told(1), Told(1)])
    assert [len(one.heard) for one in leaving] == [1, 1, 1]
    assert len(last.heard) == 2


def test_other_processes_hear_of_a_user_s_first_reader_and_of_the_last() -> None:
    """Not of those in between; what was told goes there as a whole."""
    hub = Hub()
    hub.beyond = beyond = Beyond()
    one, two = Listener(1), Listener(1)
    for step in (hub.join, hub.leave):
        step(one)
        step(two)
    told = [Told(5)]
    hub.publish(told)
    assert beyond.said == [("here", 1), ("gone", 1), ("publish", told)]
    hub.tell(told)
    assert len(beyond.said) == 3


def test_only_apps_count_as_handed() -> None:
    """An agent's socket and an SSE reader listen too, but take no messages for the user."""
    hub = Hub()
    assert not hub.has_apps(1)
    hub.join(Listener(1))
    assert not hub.has_apps(1)
    app = Listener(1, is_app=True)
    hub.join(app)
    assert hub.has_apps(1)
    assert not hub.has_apps(2)
    hub.leave(app)
    assert not hub.has_apps(1)


async def test_joining_waits_for_other_processes_where_there_are_any() -> None:
    """One process alone waits for nobody."""
    hub = Hub()
    await hub.joined(1)
    hub.beyond = beyond = Beyond()
    await hub.joined(1)
    assert beyond.said == [("joined", 1)]
