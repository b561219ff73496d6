"""Agents come and go: seats, what they are handed, what is handed out again, and what ends without them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import User
from chat import dispatch, presence, processes
from chat.models import AgentSlot, Connection, Message, Process, Run
from chat.runs import Expire
from hermes_site.errors import CloseCode, Offline, RateLimited, Unsupported
from tests.chat.desk import Agent, Desk, Device


def statuses(user: User) -> dict[str, str]:
    """Status of each run by its user message."""
    runs = Run.objects.filter(user=user).select_related("user_message")
    return {run.user_message.public_id: run.status for run in runs if run.user_message is not None}


def handed(agent: Agent) -> list[str]:
    """The ids of what an agent was handed."""
    return [frame["id"] for frame in agent.heard]


# What is handed out


def test_a_message_is_handed_out_as_it_is_stored(desk: Desk, alice: User) -> None:
    """In the same transaction; an agent without capabilities gets the frame of v3 and nothing else."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.say(id="m1", data={"text": "hello", "mood": "good"}, ts=7.5, reply_to="m0")
    assert agent.heard == [
        {
            "id": "m1", "type": "text", "from": "alice", "to": "hermes", "session": "S1", "reply_to": "m0", "ts": 7,
            "data": {"text": "hello", "mood": "good"},
        }
    ]  # fmt: skip
    assert Run.objects.get().delivered_at is not None


def test_what_waits_is_handed_out_in_order_and_once(desk: Desk, alice: User) -> None:
    """C04: when the agent comes; a later connection does not get it again."""
    device = Device(desk, alice)
    answers = [device.ask(f"m{number}", f"S{number % 3}") for number in range(5)]
    assert all(answer.queued for answer in answers)
    agent = Agent(desk, alice)
    assert handed(agent) == [f"m{number}" for number in range(5)]
    assert list(statuses(alice).values()).count("running") == 3  # one of each session
    agent.leave()
    assert handed(Agent(desk, alice)) == []


def test_more_waits_than_one_look_hands_out(desk: Desk, alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks again."""
    monkeypatch.setattr("chat.dispatch.HAND_OUT_ROWS", 3)
    device = Device(desk, alice)
    for number in range(10):
        device.ask(f"m{number}")
    assert handed(Agent(desk, alice)) == [f"m{number}" for number in range(10)]


def test_an_agent_gets_what_is_for_its_name(desk: Desk, alice: User, bob: User) -> None:
    """Not what is for another of the same user, nor for one of the same name of another user."""
    agents = [Agent(desk, alice, name="one"), Agent(desk, alice, name="two"), Agent(desk, bob, name="one")]
    device = Device(desk, alice)
    device.say(agent="one", to="one", id="m1")
    device.say(agent="two", to="two", id="m2", session="S2")
    assert [handed(agent) for agent in agents] == [["m1"], ["m2"], []]


def test_after_a_forgotten_place_nothing_is_handed_out_twice(desk: Desk, alice: User) -> None:
    """A failed commit makes an agent's place be read again; that is not seen from outside."""
    device = Device(desk, alice)
    device.ask("m1")
    agent = Agent(desk, alice, "sync", since=0)
    device.ask("m2")
    agent.slot.forget()
    agent.wake()
    device.ask("m3")
    agent.slot.forget()
    device.ask("m4")
    assert handed(agent) == ["m1", "m2", "m3", "m4"]


# Queue


def test_too_much_that_waits_is_refused(desk: Desk, alice: User, settings: Any) -> None:
    """Nothing is stored then, and the id stays free."""
    settings.HERMES_QUEUE_LIMIT = 2
    device = Device(desk, alice)
    device.ask("m1")
    device.ask("m2")
    with pytest.raises(Offline):
        device.ask("m3")
    assert Message.objects.count() == 2
    Agent(desk, alice)
    assert not device.ask("m3").queued


def test_what_waits_too_long_fails(desk: Desk, alice: User, settings: Any) -> None:
    """With an error to the App; the agent never gets it."""
    device = Device(desk, alice)
    device.ask("m1")
    settings.HERMES_QUEUE_SECONDS = 0
    assert desk.do(Expire()) is False
    assert device.spelled == ["S1 error offline m1"]
    assert statuses(alice) == {"m1": "failed"}
    assert handed(Agent(desk, alice)) == []


# With `sync`


def test_a_sync_agent_is_handed_again_what_has_not_ended(desk: Desk, alice: User) -> None:
    """After its cursor, in order, marked; what has ended is not."""
    device, agent = Device(desk, alice), Agent(desk, alice, "sync", "control")
    for number in range(1, 5):
        device.ask(f"m{number}", f"S{number}")
    agent.start("str_1", "S1", reply_to="m1")
    agent.end("S1")
    agent.start("str_3", "S3", reply_to="m3")
    agent.leave()
    device.ask("m5", "S5")
    again = Agent(desk, alice, "sync", "control", since=1)
    assert [(frame["id"], frame.get("redelivered", False)) for frame in again.heard] == [
        ("m2", True), ("m3", True), ("m4", True), ("m5", False),
    ]  # fmt: skip
    assert [frame["cursor"] for frame in again.heard] == [2, 3, 4, 6]
    assert again.seat.cursor == 6
    assert again.seat.streams == [{"id": "str_3", "session": "S3", "reply_to": "m3", "chars": 0}]


def test_a_sync_agent_without_a_cursor_gets_what_waits(desk: Desk, alice: User) -> None:
    """What it had been handed before is left to its grace time."""
    device, agent = Device(desk, alice), Agent(desk, alice, "sync")
    device.ask("m1")
    agent.leave()
    device.ask("m2", "S2")
    assert handed(Agent(desk, alice, "sync")) == ["m2"]


def test_a_cursor_from_the_future_is_the_newest(desk: Desk, alice: User) -> None:
    """As after a restored database."""
    device, agent = Device(desk, alice), Agent(desk, alice, "sync", since=10**9)
    device.ask("m1")
    assert handed(agent) == ["m1"]
    assert agent.heard[0]["cursor"] == 1


def test_turns_that_a_sync_agent_had_not_begun_go_back_to_the_queue(desk: Desk, alice: User) -> None:
    """After the grace time; those it had begun end interrupted."""
    device, agent = Device(desk, alice), Agent(desk, alice, "sync")
    device.ask("m1", "S1")
    device.ask("m2", "S2")
    device.ask("m3", "S2")
    agent.start("str_1", "S1")
    device.taken()
    agent.leave()
    desk.let(31)
    assert device.spelled == ["S1 error offline m1", "S1 stream_end"]
    assert statuses(alice) == {"m1": "interrupted", "m2": "queued", "m3": "queued"}
    again = Agent(desk, alice, "sync")
    assert [(frame["id"], frame["redelivered"]) for frame in again.heard] == [("m2", True), ("m3", True)]
    assert statuses(alice) == {"m1": "interrupted", "m2": "running", "m3": "queued"}


def test_turns_that_a_plain_agent_had_been_handed_are_over(desk: Desk, alice: User) -> None:
    """Written is delivered: each App gets `offline`, and nothing is handed out again."""
    device, agent = Device(desk, alice), Agent(desk, alice)
    device.ask("m1")
    device.ask("m2")
    agent.leave()
    desk.let(29)
    assert device.spelled == []
    desk.let(2)
    errors = device.taken()
    assert [(frame["data"]["code"], frame["data"]["queued"], frame["reply_to"]) for frame in errors] == [
        ("offline", False, "m1"), ("offline", False, "m2"),
    ]  # fmt: skip
    assert handed(Agent(desk, alice)) == []


def test_an_answer_that_was_given_is_complete_although_its_agent_has_gone(desk: Desk, alice: User) -> None:
    """A text, or a whole stream."""
    device, agent = Device(desk, alice), Agent(desk, alice)
    device.ask("m1")
    agent.say("text", id="t1", reply_to="m1")
    agent.leave()
    desk.timers = [
        timer for timer in desk.timers if isinstance(timer[2], presence.EndStale)
    ]  # as after a restart
    desk.let(31)
    assert statuses(alice) == {"m1": "completed"}
    assert device.spelled == ["S1 text t1 'hello'"]


# Seats


def test_a_name_that_is_taken_over_too_often_is_closed_for_a_while(
    desk: Desk, alice: User, settings: Any
) -> None:
    """Two bridges do not chase each other; a bridge that comes back by itself is no takeover."""
    for _ in range(5):
        Agent(desk, alice).leave()
    agents = [Agent(desk, alice) for _ in range(1 + settings.HERMES_TAKEOVER_LIMIT)]
    assert [agent.closed for agent in agents] == [CloseCode.REPLACED] * settings.HERMES_TAKEOVER_LIMIT + [
        None
    ]
    with pytest.raises(RateLimited) as refusal:
        Agent(desk, alice)
    assert 0 < (refusal.value.retry_after or 0) <= settings.HERMES_TAKEOVER_SECONDS
    assert agents[-1].closed is None
    assert agents[-1].start("str_1") is None
    row = AgentSlot.objects.get()
    row.takeovers = json.dumps(
        [moment - settings.HERMES_TAKEOVER_SECONDS - 1 for moment in json.loads(row.takeovers)]
    )
    row.save()
    assert Agent(desk, alice).closed is None


def test_devices_that_asked_hear_who_comes_and_goes(desk: Desk, alice: User) -> None:
    """Also of two agents; a replaced connection is no departure."""
    device, plain = Device(desk, alice, "events"), Device(desk, alice)
    agent = Agent(desk, alice, name="work")
    newer = Agent(desk, alice, name="work")
    agent.leave()
    newer.leave()
    told = [(frame["data"]["event"], frame["data"]["agent"], frame["from"]) for frame in device.taken()]
    assert told[0] == ("agent.online", "work", "work")
    assert [name for name, _, _ in told].count("agent.offline") == 1
    assert told[-1][0] == "agent.offline"
    assert plain.taken() == []


def test_online_is_who_holds_a_seat_in_a_living_process(desk: Desk, alice: User) -> None:
    """A process that has not renewed its lease counts as dead."""
    Agent(desk, alice)
    assert presence.online_agents(alice.pk) == {"hermes": False}  # its lease is over: nobody has renewed it
    desk.do(processes.Beat())
    assert presence.online_agents(alice.pk) == {"hermes": True}


def test_sockets_are_noted_for_operators(desk: Desk, alice: User) -> None:
    """While they live."""
    desk.do(
        presence.Opened(id=5, user_id=alice.pk, side="app", agent="", caps="", address="::1", user_agent="x")
    )
    assert Connection.objects.get().process == desk.process
    desk.do(presence.Closed(5))
    desk.do(presence.Closed(5))
    assert not Connection.objects.exists()


# Silence


def silence(desk: Desk, agent: Agent, seconds: float) -> None:
    """That long nothing is heard of any turn."""
    for turn in agent.slot.all_turns():
        turn.sign -= seconds
    desk.do(dispatch.Silences([agent.slot]))


def test_a_turn_without_a_sign_of_life_is_told_of_once(desk: Desk, alice: User) -> None:
    """It lives on: a late answer is relayed, and a new silence told of anew."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    silence(desk, agent, 601)
    silence(desk, agent, 601)
    assert device.spelled == ["S1 error timeout m1"]
    agent.start("str_1", reply_to="m1")
    agent.piece("late")
    assert device.spelled == ["S1 stream_start str_1", "S1 stream 'late'"]
    desk.do(dispatch.Silences([agent.slot]))  # the clock finds that something was heard
    silence(desk, agent, 601)
    assert device.spelled == ["S1 error timeout m1"]


def test_waiting_behind_another_turn_is_no_silence(desk: Desk, alice: User) -> None:
    """Only the running one is told of."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    device.ask("m2")
    silence(desk, agent, 601)
    assert device.spelled == ["S1 error timeout m1"]


# Dead processes


def dead_process() -> Desk:
    """Another process, which has died in the middle of its work."""
    other = Desk()
    Process.objects.filter(uuid=other.process).update(lease=timezone.now())
    return other


def test_what_a_dead_process_left_open_is_ended(desk: Desk, alice: User) -> None:
    """C32 (d), C68: interrupted with its text kept; queued runs stay queued, answered ones are complete."""
    other = dead_process()
    agent, author = Agent(other, alice), Device(other, alice)
    author.ask("m1")
    author.ask("m2", "S2")
    agent.start("str_1", reply_to="m1")
    agent.piece("half")
    agent.say("text", "S2", id="t2", reply_to="m2")
    agent.leave()
    author.ask("m3", "S3")
    device = Device(desk, alice)
    device.taken()
    desk.do(processes.EndOrphans(other.process, alice.pk))
    desk.do(processes.Bury(other.process))
    assert device.spelled == ["S1 error offline m1", "S1 stream_end"]
    assert statuses(alice) == {"m1": "interrupted", "m2": "completed", "m3": "queued"}
    assert Message.objects.get(public_id="str_1").data == '{"text":"half","interrupted":true}'
    assert not Process.objects.filter(uuid=other.process).exists()
    assert handed(Agent(desk, alice)) == ["m3"]


def test_an_agent_that_comes_to_another_process_takes_its_turns_along(desk: Desk, alice: User) -> None:
    """Before the dead one is buried: then there is nothing left to end."""
    other = dead_process()
    agent, author = Agent(other, alice), Device(other, alice)
    author.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("one ")
    here, device = Agent(desk, alice), Device(desk, alice)
    desk.do(processes.EndOrphans(other.process, alice.pk))
    desk.do(processes.Bury(other.process))
    here.piece("two")
    here.end()
    assert device.spelled == ["S1 stream_start str_1", "S1 stream 'one '", "S1 stream 'two'", "S1 stream_end"]
    desk.let(1)
    assert statuses(alice) == {"m1": "completed"}


def test_turns_not_begun_of_a_sync_agent_outlive_their_process(desk: Desk, alice: User) -> None:
    """They wait for their agent again."""
    other = dead_process()
    Agent(other, alice, "sync")
    Device(other, alice).ask("m1")
    desk.do(processes.EndOrphans(other.process, alice.pk))
    assert statuses(alice) == {"m1": "queued"}
    again = Agent(desk, alice, "sync", since=0)
    assert [(frame["id"], frame["redelivered"]) for frame in again.heard] == [("m1", True)]


def test_a_turn_that_was_to_stop_does_not_wait_again(desk: Desk, alice: User) -> None:
    """Its process died before the agent could confirm: it is over, for the person wanted it so."""
    other = dead_process()
    Agent(other, alice, "sync", "control")
    author = Device(other, alice)
    author.ask("m1")
    assert author.stop("m1") == "stopping"
    desk.do(processes.EndOrphans(other.process, alice.pk))
    assert statuses(alice) == {"m1": "interrupted"}
    assert handed(Agent(desk, alice, "sync", "control", since=0)) == []


def test_burying_a_process_frees_its_seats_only(desk: Desk, alice: User, bob: User) -> None:
    """And forgets its sockets."""
    other = dead_process()
    Agent(other, alice)
    Agent(desk, bob)
    other.do(
        presence.Opened(id=7, user_id=alice.pk, side="app", agent="", caps="", address="", user_agent="")
    )
    desk.do(processes.Bury(other.process))
    assert dict(AgentSlot.objects.values_list("user__username", "process")) == {
        "alice": None,
        "bob": desk.process,
    }
    assert not Connection.objects.exists()


# Ids of a user's own


def test_a_slot_of_one_user_says_nothing_of_another_s(desk: Desk, alice: User, bob: User) -> None:
    """The same session id, the same message ids, the same agent name."""
    agents = {user.username: Agent(desk, user) for user in (alice, bob)}
    devices = {user.username: Device(desk, user) for user in (alice, bob)}
    for name, device in devices.items():
        device.ask("m1", text=name)
        agents[name].start("str_1", reply_to="m1")
        agents[name].piece(name)
        agents[name].end()
    for name, device in devices.items():
        assert device.spelled == ["S1 stream_start str_1", f"S1 stream '{name}'", "S1 stream_end"]
        assert [frame["data"]["text"] for frame in agents[name].heard] == [name]


def test_a_session_belongs_to_the_agent_of_its_first_message(desk: Desk, alice: User) -> None:
    """Another one is refused, on either side."""
    one, two = Agent(desk, alice, name="one"), Agent(desk, alice, name="two")
    device = Device(desk, alice)
    device.say(agent="one", to="one", id="m1")
    with pytest.raises(Unsupported) as refusal:
        device.say(agent="two", to="two", id="m2")
    assert refusal.value.field == "to"
    error = two.say("text", id="t1")
    assert isinstance(error, Unsupported) and error.field == "session"
    assert one.say("text", id="t1") is None
