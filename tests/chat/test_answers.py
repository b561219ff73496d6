"""What an agent's frames do, as a person's devices see it and as the database keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from chat import queries
from chat.answers import Ended
from chat.models import JournalRow, Message, Run
from hermes_site.errors import Unsupported
from tests.chat.desk import Agent, Desk, Device


def runs_of(user: User) -> list[tuple[str, str]]:
    """Status and code of a user's runs, in order."""
    return list(Run.objects.filter(user=user).order_by("created_at", "ordinal").values_list("status", "code"))


def log_of(user: User) -> list[tuple[int, str, Any]]:
    """A user's log: cursor, id, text."""
    return [
        (told.cursor or 0, told.message["id"], told.message["data"].get("text"))
        for told in queries.messages_between(user.pk, 0, 10**6, 1000)
        if told.message is not None
    ]


def test_a_stream_is_shown_as_it_is_told_and_kept_as_one_text(desk: Desk, alice: User) -> None:
    """Under the id of its start; its run ends a second after its end."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("one ")
    agent.piece("two")
    agent.end()
    assert device.spelled == ["S1 stream_start str_1", "S1 stream 'one '", "S1 stream 'two'", "S1 stream_end"]
    assert log_of(alice) == [(1, "m1", "hello"), (2, "str_1", "one two")]
    assert runs_of(alice) == [("running", "")]
    desk.let(1)
    assert runs_of(alice) == [("completed", "")]
    assert device.spelled == []


@pytest.mark.parametrize("cap", ["control", "events"])
def test_an_agent_that_knows_ends_ends_its_turn_with_the_stream(desk: Desk, alice: User, cap: str) -> None:
    """In the same transaction; unless it announces files."""
    agent, device = Agent(desk, alice, cap), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1")
    agent.end()
    assert runs_of(alice) == [("completed", "")]
    device.ask("m2")
    agent.start("str_2")
    agent.end(data={"media": 1})
    assert runs_of(alice) == [("completed", ""), ("running", "")]
    desk.let(9)
    assert runs_of(alice) == [("completed", ""), ("running", "")]
    desk.let(1)
    assert runs_of(alice) == [("completed", "")] * 2


def test_a_status_of_a_stream_s_end_is_the_run_s(desk: Desk, alice: User) -> None:
    """Only one that an agent may say; it is kept in the message for devices with `control`."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice, "control")
    for number, (said, kept) in enumerate(
        [("cancelled", "cancelled"), ("failed", "failed"), ("queued", "completed"), (7, "completed")], 1
    ):
        device.ask(f"m{number}")
        agent.start(f"str_{number}")
        device.taken()
        agent.end(data={"status": said})
        [end] = device.taken()
        assert end.get("data", {}).get("status", "completed") == kept
        assert runs_of(alice)[-1][0] == kept


def test_a_second_start_begins_a_new_bubble_of_the_same_turn(desk: Desk, alice: User) -> None:
    """The first stream ends by it; the run has both texts, apart."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("one")
    agent.start("str_2", reply_to="m1")
    agent.piece("two")
    agent.end()
    assert device.spelled == [
        "S1 stream_start str_1", "S1 stream 'one'", "S1 stream_end", "S1 stream_start str_2", "S1 stream 'two'",
        "S1 stream_end",
    ]  # fmt: skip
    desk.let(1)
    assert runs_of(alice) == [("completed", "")]
    assert [text for _, _, text in log_of(alice)] == ["hello", "one", "two"]
    run = Run.objects.get()
    assert '"content":"one\\n\\ntwo"' in run.transcript


def test_a_start_for_another_turn_ends_the_stream_and_soon_its_turn(desk: Desk, alice: User) -> None:
    """The first turn is not forgotten: a second later it is complete."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    device.ask("m2")
    agent.start("str_1", reply_to="m1")
    agent.start("str_2", reply_to="m2")
    desk.let(1)
    assert runs_of(alice) == [("completed", ""), ("running", "")]


def test_streams_of_two_sessions_interleave(desk: Desk, alice: User) -> None:
    """C30: each text is its own session's."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    for session, message_id in (("S1", "m1"), ("S2", "m2")):
        device.ask(message_id, session)
        agent.start(f"str_{session}", session, reply_to=message_id)
    for session, text in (("S1", "1"), ("S2", "x"), ("S1", "2"), ("S2", "y")):
        agent.piece(text, session)
    agent.end("S1")
    agent.piece("z", "S2")
    agent.end("S2")
    assert {(key, text) for _, key, text in log_of(alice)} == {
        ("m1", "hello"), ("m2", "hello"), ("str_S1", "12"), ("str_S2", "xyz"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["piece", "end"])
def test_a_stream_that_is_not_open_cannot_go_on(desk: Desk, alice: User, kind: str) -> None:
    """It is `unsupported`, and nothing else happens."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    error = agent.piece("x") if kind == "piece" else agent.end()
    assert isinstance(error, Unsupported) and not isinstance(error, Ended)
    assert device.taken() == []
    assert not Run.objects.exists()


def test_half_a_character_waits_for_its_other_half(desk: Desk, alice: User) -> None:
    """And becomes U+FFFD when none comes."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    agent.start("str_1")
    agent.piece("a\ud83d")
    agent.piece("\ude00")
    agent.piece("\ud83d")
    agent.end()
    assert device.spelled == [
        "S1 stream_start str_1",
        "S1 stream 'a'",
        "S1 stream '😀'",
        "S1 stream '\ufffd'",
        "S1 stream_end",
    ]
    assert log_of(alice) == [(1, "str_1", "a😀\ufffd")]


def test_a_stream_that_is_too_long_fails(desk: Desk, alice: User, settings: Any) -> None:
    """What it had said is kept and marked; what still comes is dropped, told once."""
    settings.HERMES_STREAM_BYTES = 10
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("0123456789")
    assert agent.piece("é") is None
    desk.let(0)
    assert device.spelled[-2:] == ["S1 error unsupported m1", "S1 stream_end"]
    assert Message.objects.get(side="agent").data == '{"text":"0123456789","interrupted":true}'
    assert runs_of(alice) == [("failed", "unsupported")]
    assert [type(agent.piece("x")) for _ in range(3)].count(Ended) == 1
    agent.end()
    assert agent.start("str_2") is None


# Which turn a frame answers


def test_without_reply_to_the_oldest_live_turn_is_answered(desk: Desk, alice: User) -> None:
    """Of that session; with it, the one it names."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice, "sync")
    for message_id in ("m1", "m2", "m3"):
        device.ask(message_id)
    agent.start("str_2", reply_to="m2")
    agent.end()
    agent.start("str_1")
    agent.end()
    ended = {
        run.user_message.public_id: run.status
        for run in Run.objects.select_related("user_message")
        if run.user_message
    }
    assert ended == {"m1": "completed", "m2": "completed", "m3": "running"}


def test_what_answers_nothing_live_is_a_turn_of_its_own(desk: Desk, alice: User) -> None:
    """A proactive message, or a late answer; it has no user message."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    agent.say("text", id="t1", data={"text": "good morning"})
    desk.let(1)
    agent.say("text", id="t2", reply_to="unknown", data={"text": "about that"})
    desk.let(1)
    assert device.spelled == ["S1 text t1 'good morning'", "S1 text t2 'about that'"]
    assert list(Run.objects.values_list("user_message", "status")) == [(None, "completed")] * 2


def test_a_text_while_a_stream_is_open_is_relayed_and_does_not_end_it(desk: Desk, alice: User) -> None:
    """The stream goes on."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("a")
    agent.say("text", id="t1", reply_to="m1", data={"text": "by the way"})
    desk.let(1)
    agent.piece("b")
    agent.end()
    assert device.spelled == [
        "S1 stream_start str_1", "S1 stream 'a'", "S1 text t1 'by the way'", "S1 stream 'b'", "S1 stream_end",
    ]  # fmt: skip
    assert [(cursor, key, text) for cursor, key, text in log_of(alice)][1:] == [
        (2, "t1", "by the way"),
        (3, "str_1", "ab"),
    ]


def test_a_turn_is_over_a_second_after_the_last_of_it(desk: Desk, alice: User) -> None:
    """So that what follows soon belongs to it; later frames are a turn of their own."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.say("text", id="t1", reply_to="m1", data={"text": "I'm on it"})
    desk.let(0.7)
    agent.say("text", id="t2", data={"text": "done"})
    desk.let(0.7)
    assert runs_of(alice) == [("running", "")]
    desk.let(0.4)
    assert runs_of(alice) == [("completed", "")]
    agent.say("text", id="t3", reply_to="m1", data={"text": "late"})
    assert runs_of(alice) == [("completed", ""), ("running", "")]
    assert Message.objects.get(public_id="t3").run.user_message is None


def test_the_next_turn_of_a_session_runs_when_the_one_before_it_ends(desk: Desk, alice: User) -> None:
    """One runs at a time; both were handed out at once."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice)
    device.ask("m1")
    device.ask("m2")
    assert [frame["id"] for frame in agent.heard] == ["m1", "m2"]
    assert runs_of(alice) == [("running", ""), ("queued", "")]
    agent.start("str_1", reply_to="m1")
    agent.end()
    assert runs_of(alice) == [("completed", ""), ("running", "")]


def test_what_was_said_stays_apart_whatever_is_forgotten(desk: Desk, alice: User) -> None:
    """Texts and streams of one turn have a blank line between them in history, also after a failed commit."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    said = (
        lambda: agent.say("text", id="t1", data={"text": "one"}), lambda: agent.say("text", id="t2", data={"text": "two"}),
        lambda: agent.start("str_1"), lambda: agent.piece("three"), lambda: agent.piece(" more"),
        lambda: agent.say("text", id="t3", data={"text": "four"}), lambda: agent.piece("five"), agent.end,
    )  # fmt: skip
    for one in said:
        assert one() is None
        agent.slot.forget()
    desk.let(1)
    assert '"content":"one\\n\\ntwo\\n\\nthree more\\n\\nfour\\n\\nfive"' in Run.objects.get().transcript
    assert "three morefive" in Message.objects.get(public_id="str_1").data


# Ids


@pytest.mark.parametrize("caps", [(), ("sync",)])
def test_the_same_message_again_is_stored_once(desk: Desk, alice: User, caps: tuple[str, ...]) -> None:
    """An agent with `sync` is told again that it is there; other content is refused."""
    agent, device = Agent(desk, alice, *caps), Device(desk, alice)
    first = {"id": "t1", "data": {"text": "x"}}
    assert agent.say("text", **first) is None
    agent.heard.clear()
    assert agent.say("text", **first, ts=5) is None
    assert [(frame["id"], frame["cursor"]) for frame in agent.heard] == ([("t1", 1)] if caps else [])
    error = agent.say("text", id="t1", data={"text": "y"})
    assert isinstance(error, Unsupported) and error.field == "id"
    assert device.spelled == ["S1 text t1 'x'"]
    assert len(log_of(alice)) == 1


def test_a_stream_s_id_that_is_taken_is_refused_with_all_its_pieces(desk: Desk, alice: User) -> None:
    """Nobody sees them, and only the start is answered."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    agent.say("text", id="t1", data={"text": "x"})
    error = agent.start("t1")
    assert isinstance(error, Unsupported) and error.field == "id"
    assert not isinstance(agent.piece("a"), Unsupported)
    assert not isinstance(agent.end(), Unsupported)
    assert device.spelled == ["S1 text t1 'x'"]
    assert agent.start("t2") is None


def test_ids_of_an_app_and_of_its_agent_do_not_meet(desk: Desk, alice: User, bob: User) -> None:
    """Nor do those of two users, with the same sessions."""
    for user in (alice, bob):
        agent, device = Agent(desk, user), Device(desk, user)
        device.ask("x1")
        agent.start("x1", reply_to="x1")
        agent.piece(user.username)
        agent.end()
    assert log_of(alice) == [(1, "x1", "hello"), (2, "x1", "alice")]
    assert log_of(bob) == [(1, "x1", "hello"), (2, "x1", "bob")]


def test_more_streams_than_one_agent_may_have_are_refused(desk: Desk, alice: User, settings: Any) -> None:
    """Those that are open go on."""
    settings.HERMES_OPEN_STREAMS = 2
    agent = Agent(desk, alice)
    assert [agent.start(f"str_{session}", session) for session in ("S1", "S2")] == [None, None]
    assert isinstance(agent.start("str_3", "S3"), Unsupported)
    assert agent.start("str_4", "S2") is None
    agent.end("S1")
    agent.end("S3")
    assert agent.start("str_5", "S3") is None


# Errors


@pytest.mark.parametrize("reply_to", [None, "m1"])
def test_an_error_ends_the_open_stream(desk: Desk, alice: User, reply_to: str | None) -> None:
    """First the error, then the end; the run has failed."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("half")
    agent.say("error", id="e1", reply_to=reply_to, data={"code": "internal", "text": "broke"})
    assert device.spelled[-2:] == [f"S1 error internal {reply_to}", "S1 stream_end"]
    assert runs_of(alice) == [("failed", "internal")]
    assert log_of(alice)[-1] == (2, "str_1", "half")


@pytest.mark.parametrize("code", ["upload_failed", "file_too_large", "rate_limited"])
def test_errors_of_one_file_or_of_a_pace_never_end_a_stream(desk: Desk, alice: User, code: str) -> None:
    """They are shown."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.say("error", reply_to="m1", data={"code": code, "text": "x"})
    assert agent.piece("more") is None
    assert device.spelled == ["S1 stream_start str_1", f"S1 error {code} m1", "S1 stream 'more'"]


@pytest.mark.parametrize("code", ["internal", "rate_limited", "timeout"])
def test_an_error_without_a_stream_ends_the_turn_it_names(desk: Desk, alice: User, code: str) -> None:
    """Whatever its code."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    device.ask("m2")
    agent.say("error", reply_to="m1", data={"code": code, "text": "x"})
    assert device.spelled == [f"S1 error {code} m1"]
    assert runs_of(alice) == [("failed", code), ("running", "")]


def test_an_error_that_names_no_turn_is_passed_on(desk: Desk, alice: User) -> None:
    """And ends nothing."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.say("error", data={"code": "internal", "text": "x"})
    agent.say("error", reply_to="unknown", data={"code": "internal", "text": "x"})
    agent.say("error", session="S9", reply_to="m1", data={"code": "internal", "text": "x"})
    assert device.spelled == ["S1 error internal None", "S1 error internal unknown", "S9 error internal m1"]
    assert runs_of(alice) == [("running", "")]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("llm_down", "llm_down"),
        ("x" * 65, "internal"),
        ("a\x00b", "internal"),
        ("two words", "internal"),
        (5, "internal"),
        ("", "internal"),
    ],
)
def test_an_error_may_give_a_reason(desk: Desk, alice: User, reason: Any, code: str) -> None:
    """A bare token of 64 characters at most becomes the run's code; anything else is shown only."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.say("error", reply_to="m1", data={"code": "internal", "text": "x", "reason": reason})
    assert device.taken()[-1]["data"]["reason"] == reason
    assert runs_of(alice) == [("failed", code)]


# Events


def test_tools_are_numbered_events_of_their_turn(desk: Desk, alice: User) -> None:
    """What is left open when the turn ends has failed."""
    agent, device = Agent(desk, alice, "events"), Device(desk, alice, "events")
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.say(
        "event", reply_to="m1", data={"event": "tool.started", "tool_name": "a", "seq": 99, "run_id": "mine"}
    )
    agent.end()
    seen = [
        frame["data"] for frame in device.taken() if frame["type"] == "event" and frame["session"] == "S1"
    ]
    assert [one["event"] for one in seen] == ["run.started", "tool.started", "tool.failed", "run.completed"]
    assert [one["seq"] for one in seen] == [1, 3, 4, 6]
    assert {one["run_id"] for one in seen} == {Run.objects.get().public_id}


def test_events_of_other_names_are_passed_on_unnumbered(desk: Desk, alice: User) -> None:
    """And are not kept."""
    agent, device = Agent(desk, alice, "events"), Device(desk, alice, "events")
    device.ask("m1")
    agent.say("event", reply_to="m1", data={"event": "mood.changed", "mood": "good"})
    assert device.taken()[-1]["data"] == {"event": "mood.changed", "mood": "good"}
    assert JournalRow.objects.count() == 1


# The end of a connection


def test_an_agent_that_comes_back_in_time_goes_on(desk: Desk, alice: User) -> None:
    """One text; without `sync` it is marked, for pieces may be missing."""
    for caps, data in (((), '{"text":"ab","interrupted":true}'), (("sync",), '{"text":"ab"}')):
        device = Device(desk, alice)
        stream = f"str_{len(caps)}"
        agent = Agent(desk, alice, *caps)
        agent.start(stream, stream)
        agent.piece("a", stream)
        agent.leave()
        desk.let(29)
        again = Agent(desk, alice, *caps)
        assert again.piece("b", stream) is None
        desk.let(10)
        again.end(stream)
        device.leave()
        assert Message.objects.get(public_id=stream).data == data


def test_an_agent_that_begins_anew_gives_one_answer(desk: Desk, alice: User) -> None:
    """C32: under the id that devices know, without the partial text."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("one ")
    agent.leave()
    again = Agent(desk, alice)
    again.start("str_2", reply_to="m1")
    again.piece("all ")
    again.piece("of it")
    again.end()
    assert device.spelled == [
        "S1 stream_start str_1", "S1 stream 'one '", "S1 stream_start str_1", "S1 stream 'all '", "S1 stream 'of it'",
        "S1 stream_end",
    ]  # fmt: skip
    assert log_of(alice) == [(1, "m1", "hello"), (2, "str_1", "all of it")]


def test_a_device_that_missed_a_new_beginning_has_one_answer(desk: Desk, alice: User) -> None:
    """Whatever of it the device had seen: no bubble stays open."""
    for number, lost in enumerate(("all", "the end")):
        session = f"S{number}"
        agent, device = Agent(desk, alice), Device(desk, alice)
        device.taken()
        if lost == "all":
            desk.hub.leave(device.reader)
        device.ask(f"m{number}", session)
        agent.start(f"str_{number}", session, reply_to=f"m{number}")
        agent.piece("one ", session)
        desk.hub.leave(device.reader)
        agent.leave()
        again = Agent(desk, alice)
        again.start("other", session, reply_to=f"m{number}")
        again.piece("all", session)
        again.end(session)
        desk.let(1)
        device.reader.position(10**6, {})
        device.catch_up()
        spelled = [spell.removeprefix(f"{session} ") for spell in device.spelled]
        assert spelled[-3:] == [f"stream_start str_{number}", "stream 'all'", "stream_end"]
        assert len(spelled) == (3 if lost == "all" else 5)
        again.leave()
        desk.let(31)


def test_an_agent_that_stays_away_leaves_an_interrupted_answer(desk: Desk, alice: User) -> None:
    """After the grace time: an error, the end, the text so far, marked."""
    agent, device = Agent(desk, alice), Device(desk, alice, "events")
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("half")
    device.taken()
    agent.leave()
    assert device.spelled == ["- event agent.offline"]
    desk.let(30)
    assert device.spelled == ["S1 error offline m1", "S1 stream_end", "S1 event run.interrupted"]
    assert Message.objects.get(public_id="str_1").data == '{"text":"half","interrupted":true}'
    assert runs_of(alice) == [("interrupted", "agent_gone")]


def test_what_comes_too_late_is_answered_once_and_then_dropped(desk: Desk, alice: User) -> None:
    """Up to its `stream_end`; a new stream is taken."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.leave()
    desk.let(30)
    again = Agent(desk, alice)
    device.taken()
    refusals = [again.piece("x"), again.piece("y"), again.end()]
    assert isinstance(refusals[0], Ended)
    assert not any(isinstance(one, Unsupported) for one in refusals[1:])
    assert device.taken() == []
    assert again.start("str_2") is None


def test_frames_of_a_connection_that_was_replaced_are_nobody_s(desk: Desk, alice: User) -> None:
    """The newest connection wins, the old one is closed with 4409."""
    old, device = Agent(desk, alice), Device(desk, alice)
    old.start("str_1")
    new = Agent(desk, alice)
    assert (old.closed, new.closed) == (4409, None)
    old.piece("from the old")
    old.end()
    new.piece("from the new")
    new.end()
    assert [spelled for spelled in device.spelled if "'" in spelled] == ["S1 stream 'from the new'"]


def test_a_late_goodbye_of_the_old_connection_changes_nothing(desk: Desk, alice: User) -> None:
    """The new one stays seated, and its turns live on after the old one's grace time."""
    old, device = Agent(desk, alice), Device(desk, alice)
    new = Agent(desk, alice)
    device.ask("m1")
    old.leave()
    desk.let(31)
    assert runs_of(alice) == [("running", "")]
    assert new.start("str_1", reply_to="m1") is None
