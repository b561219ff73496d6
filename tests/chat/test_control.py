"""Stop, steer, approvals, replacing: what a person may ask of a turn, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from chat import control, queries
from chat.answers import Ended, Outdated
from chat.models import Command, JournalRow, Message, Run
from hermes_site.errors import Conflict, Unsupported
from tests.chat.desk import Agent, Desk, Device
from tests.chat.wire import decode


def states(user: User) -> list[tuple[str, str]]:
    """Status and code of each run, in order."""
    return list(
        Run.objects.filter(user=user).order_by("session__public_id", "ordinal").values_list("status", "code")
    )


def asked(agent: Agent, kind: str) -> list[dict[str, Any]]:
    """The control frames an agent got."""
    return [frame for frame in agent.heard if frame["type"] == kind]


# Stop


@pytest.mark.parametrize("named", ["m1", "str_1"])
def test_a_stop_is_asked_of_the_agent_and_confirmed_by_it(desk: Desk, alice: User, named: str) -> None:
    """By the user's message or by the stream; accepting is not having stopped."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice, "control")
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("half")
    assert device.stop(named) == "stopping"
    assert device.stop(named) == "stopping"
    [stop] = asked(agent, "stop")
    assert (stop["reply_to"], stop["session"], stop["from"], stop["to"]) == ("m1", "S1", "alice", "hermes")
    assert agent.piece(" more") is None
    agent.end(data={"status": "cancelled"})
    assert states(alice) == [("cancelled", "")]
    assert device.taken()[-1]["data"] == {"status": "cancelled"}
    assert device.stop("m1") == "cancelled"


def test_a_turn_that_had_not_begun_is_confirmed_by_an_end_without_a_stream(desk: Desk, alice: User) -> None:
    """With the `reply_to` of the message: that is no error."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice)
    device.ask("m1")
    device.stop("m1")
    assert agent.end(reply_to="m1", data={"status": "cancelled"}) is None
    assert states(alice) == [("cancelled", "")]


def test_a_turn_that_finishes_first_is_complete(desk: Desk, alice: User) -> None:
    """The late time-out of the stop changes nothing."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    device.stop("m1")
    agent.end()
    desk.let(60)
    assert states(alice) == [("completed", "")]


def test_a_stop_that_is_not_confirmed_ends_the_turn_all_the_same(desk: Desk, alice: User) -> None:
    """After 30 s; what still comes is dropped, and the next turn of the session moves up."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice)
    device.ask("m1")
    device.ask("m2")
    agent.start("str_1", reply_to="m1")
    agent.piece("half")
    device.stop("m1")
    desk.let(30)
    assert states(alice) == [("interrupted", "stop_unconfirmed"), ("running", "")]
    assert isinstance(agent.piece("x"), Ended)
    assert isinstance(agent.piece("x"), Outdated)
    assert Message.objects.get(public_id="str_1").data == '{"text":"half","interrupted":true}'


def test_an_agent_without_control_is_not_asked(desk: Desk, alice: User) -> None:
    """The stream ends for the devices at once, and what still comes of it is dropped up to its end."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("half")
    assert device.stop("m1") == "interrupted"
    assert device.spelled == ["S1 stream_start str_1", "S1 stream 'half'", "S1 stream_end"]
    refusals = [agent.piece("x"), agent.piece("y"), agent.end()]
    assert [type(one) for one in refusals] == [Ended, Outdated, Outdated]
    assert device.taken() == []
    assert asked(agent, "stop") == []
    assert agent.start("str_2") is None


def test_a_plain_agent_s_answer_to_a_stopped_turn_is_dropped(desk: Desk, alice: User) -> None:
    """Also when it had not begun: a stream and its pieces, or a text."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    for message_id in ("m1", "m2"):
        device.ask(message_id)
        device.stop(message_id)
    first = [agent.start("str_1", reply_to="m1"), agent.piece("x"), agent.end()]
    assert [type(one) for one in first] == [Ended, Outdated, Outdated]
    assert [type(agent.say("text", id=f"t{number}", reply_to="m2")) for number in range(2)] == [
        Ended,
        Outdated,
    ]
    assert device.taken() == []


def test_a_turn_that_waits_is_cancelled_at_once(desk: Desk, alice: User) -> None:
    """Behind another one, the agent is told; in the queue of an agent that is away, it never hears of it."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice, "events")
    device.ask("m1")
    device.ask("m2")
    assert device.stop("m2") == "cancelled"
    assert [stop["reply_to"] for stop in asked(agent, "stop")] == ["m2"]
    agent.leave()
    device.ask("m3", "S3")
    device.taken()
    assert device.stop("m3", "S3") == "cancelled"
    assert device.spelled == ["S3 event run.cancelled"]
    assert [frame["id"] for frame in Agent(desk, alice, "control").heard] == []


def test_nobody_stops_what_is_not_theirs(desk: Desk, alice: User, bob: User) -> None:
    """Another user's turn, or one of another session, is like an unknown one."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice)
    device.ask("m1")
    for who, message_id, session in (
        (Device(desk, bob), "m1", "S1"),
        (device, "m9", "S1"),
        (device, "m1", "S2"),
    ):
        with pytest.raises(Unsupported) as refusal:
            who.stop(message_id, session)
        assert refusal.value.field == "reply_to"
    assert asked(agent, "stop") == []


# In another process


def test_a_stop_reaches_the_process_that_has_the_agent(desk: Desk, alice: User) -> None:
    """By a row and a word; the word may get lost, for the row is looked for."""
    elsewhere = Desk()
    agent = Agent(elsewhere, alice, "control")
    device = Device(desk, alice)
    device.ask("m1")
    agent.wake()
    assert device.stop("m1") == "stopping"
    assert desk.words == [{"kind": "command", "owner": elsewhere.process.hex}]
    assert asked(agent, "stop") == []
    elsewhere.do(control.TakeCommands(elsewhere.journal.slots))
    elsewhere.do(control.TakeCommands(elsewhere.journal.slots))
    assert [stop["reply_to"] for stop in asked(agent, "stop")] == ["m1"]
    agent.end(reply_to="m1", data={"status": "cancelled"})
    assert states(alice) == [("cancelled", "")]


def test_a_remark_reaches_it_too(desk: Desk, alice: User) -> None:
    """In the order they were made."""
    elsewhere = Desk()
    agent = Agent(elsewhere, alice, "control")
    device = Device(desk, alice)
    device.ask("m1")
    agent.wake()
    for text in ("one", "two"):
        device.steer("m1", text)
    elsewhere.do(control.TakeCommands(elsewhere.journal.slots))
    assert [steer["data"]["text"] for steer in asked(agent, "steer")] == ["one", "two"]
    assert not Command.objects.filter(taken_at=None).exists()


# Steer


def test_a_remark_is_passed_on_and_noted_in_the_run(desk: Desk, alice: User) -> None:
    """Devices with `events` see that it was taken."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice, "events")
    device.ask("m1")
    device.taken()
    device.steer("m1", "in French, please")
    [steer] = asked(agent, "steer")
    assert (steer["reply_to"], steer["data"]) == ("m1", {"text": "in French, please"})
    assert device.spelled == ["S1 event run.steered"]


def test_a_remark_is_refused_where_nobody_takes_it(desk: Desk, alice: User) -> None:
    """C53: an agent without `control`, a turn that waits, stops, or has ended."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m0", "S0")
    with pytest.raises(Unsupported):
        device.steer("m0", "x", "S0")
    agent = Agent(desk, alice, "control")
    device.ask("m1")
    device.ask("m2")
    with pytest.raises(Conflict):
        device.steer("m2", "x")
    device.stop("m1")
    with pytest.raises(Conflict):
        device.steer("m1", "x")
    agent.end(reply_to="m1", data={"status": "cancelled"})
    with pytest.raises(Conflict):
        device.steer("m1", "x")
    assert asked(agent, "steer") == []


# Approvals


def approve(device: Device, request_id: str = "r1", choice: Any = "once", message_id: str = "a1") -> None:
    """Answer a request."""
    data = {"event": "approval.response", "request_id": request_id, "choice": choice}
    frame = decode("event", **{"from": device.user.username}, id=message_id, reply_to="m1", data=data)
    device.desk.do(control.Approve(device.user.pk, device.desk.journal.slots, frame))


def request(agent: Agent) -> None:
    """Ask for approval."""
    agent.say(
        "event", reply_to="m1", id="q1",
        data={"event": "approval.request", "request_id": "r1", "command": "rm", "choices": ["once", "deny"]},
    )  # fmt: skip


def test_the_first_answer_to_a_request_counts(desk: Desk, alice: User) -> None:
    """It goes to the agent; all devices hear that it is settled; a second one is refused."""
    agent = Agent(desk, alice, "events")
    one, two = Device(desk, alice, "events"), Device(desk, alice, "events")
    one.ask("m1")
    request(agent)
    assert one.taken()[-1]["data"]["request_id"] == "r1"
    assert [row.kind for row in control.open_approvals(alice.pk)] == ["approval"]
    two.taken()
    approve(one)
    with pytest.raises(Unsupported):
        approve(two, choice="deny", message_id="a2")
    answer = agent.heard[-1]
    assert (answer["from"], answer["reply_to"]) == ("alice", "m1")
    assert answer["data"] == {"event": "approval.response", "request_id": "r1", "choice": "once"}
    assert two.spelled == ["S1 event approval.resolved"]
    assert control.open_approvals(alice.pk) == []


def test_an_answer_fits_an_open_request_of_one_s_own(desk: Desk, alice: User, bob: User) -> None:
    """One of its choices, of that user, while the turn lives."""
    agent, device = Agent(desk, alice, "events"), Device(desk, alice)
    device.ask("m1")
    request(agent)
    for who, request_id, choice in (
        (Device(desk, bob), "r1", "once"),
        (device, "r9", "once"),
        (device, "r1", "always"),
        (device, "r1", None),
    ):
        with pytest.raises(Unsupported):
            approve(who, request_id, choice)
    agent.say("error", reply_to="m1", data={"code": "internal", "text": "x"})
    with pytest.raises(Unsupported):
        approve(device)
    assert [frame["type"] for frame in agent.heard] == ["text"]


# Replacing


def conversation(desk: Desk, user: User, *caps: str) -> tuple[Agent, Device]:
    """Two questions and their answers."""
    agent, device = Agent(desk, user, *caps), Device(desk, user, "sync", "events")
    for number in (1, 2):
        device.ask(f"m{number}", text=f"question {number}")
        agent.start(f"str_{number}", reply_to=f"m{number}")
        agent.piece(f"answer {number}")
        agent.end()
    desk.let(1)
    device.taken()
    agent.heard.clear()
    return agent, device


def log_of(user: User) -> list[Any]:
    """The log as it stands."""
    return queries.messages_between(user.pk, 0, 1000, 1000)


def test_replacing_takes_away_the_message_and_all_after_it(desk: Desk, alice: User) -> None:
    """The agent gets the conversation before it; devices hear what to take off the screen."""
    agent, device = conversation(desk, alice, "control")
    device.say(id="m3", data={"text": "question 2, better"}, replace_from="m2")
    [frame] = agent.heard
    assert frame["replace_from"] == "m2"
    assert frame["data"]["history"] == [
        {"role": "user", "content": "question 1", "id": "m1"},
        {"role": "assistant", "content": "answer 1", "id": "str_1"},
    ]
    seen = device.taken()
    assert [one["replace_from"] for one in seen if one.get("id") == "m3"] == ["m2"]
    [notice] = [one for one in seen if one["type"] == "event" and one["data"]["event"] == "message.replaced"]
    assert (notice["reply_to"], notice["data"]["message_id"]) == ("m2", "m2")
    assert [told.message["id"] for told in log_of(alice)] == ["m1", "str_1", "m3"]
    assert [told.cursor for told in log_of(alice)] == [1, 2, 5]


def test_replacing_the_first_message_leaves_no_history(desk: Desk, alice: User) -> None:
    """An empty list says so."""
    agent, device = conversation(desk, alice, "control")
    device.say(id="m3", data={"text": "anew"}, replace_from="m1")
    assert agent.heard[0]["data"]["history"] == []
    assert [told.message["id"] for told in log_of(alice)] == ["m3"]


def test_what_was_replaced_cannot_be_replaced_and_its_ids_stay_taken(desk: Desk, alice: User) -> None:
    """They are gone from every read."""
    agent, device = conversation(desk, alice, "control")
    device.say(id="m3", data={"text": "anew"}, replace_from="m1")
    agent.start("str_3", reply_to="m3")
    agent.end()
    with pytest.raises(Unsupported):
        device.say(id="m4", data={"text": "x"}, replace_from="m2")
    with pytest.raises(Unsupported):
        device.ask("m2", text="something else")
    assert isinstance(agent.say("text", id="str_1"), Unsupported)


def test_replacing_is_refused_where_it_cannot_be_done(desk: Desk, alice: User, bob: User) -> None:
    """An unknown message, an agent's, another session's, another user's; while a turn lives; an agent without `control`."""
    agent, device = conversation(desk, alice, "control")
    conversation(desk, bob, "control")
    for target, session in (("m9", "S1"), ("str_1", "S1"), ("m1", "S2")):
        with pytest.raises(Unsupported) as refusal:
            device.say(id="m3", session=session, data={"text": "x"}, replace_from=target)
        assert refusal.value.field == "replace_from"
    device.ask("m4")
    with pytest.raises(Unsupported):
        device.say(id="m3", data={"text": "x"}, replace_from="m1")
    agent.start("str_4", reply_to="m4")
    agent.end()
    Agent(desk, alice)
    with pytest.raises(Unsupported):
        device.say(id="m3", data={"text": "x"}, replace_from="m1")
    assert len(log_of(alice)) == 6
    assert len(log_of(bob)) == 4


def test_a_run_that_was_replaced_keeps_its_journal(desk: Desk, alice: User) -> None:
    """Rows are not taken away, only left out."""
    _, device = conversation(desk, alice, "control")
    rows = JournalRow.objects.count()
    device.say(id="m3", data={"text": "anew"}, replace_from="m1")
    assert JournalRow.objects.count() == rows + 1
    assert Run.objects.filter(replaced_by__isnull=False).count() == 2
