"""What a person says: stored under the next number, echoed, repeated, refused; and how devices join."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from accounts.models import User
from chat import joining, queries, runs
from chat.agent_frames import AgentFrame
from chat.models import ChatSession, Message, UserLog
from chat.reader import Reader
from hermes_site.errors import RateLimited, Unsupported, UploadFailed
from media.models import Media, MediaGrant
from tests.chat.desk import Agent, Desk, Device
from tests.chat.wire import MEDIA_TYPES, decode


def picture(user: User, public_id: str = "med_1", **changes: Any) -> Media:
    """A file of a user."""
    values = {
        "public_id": public_id, "owner": user, "name": "a.png", "kind": "image", "type": "image/png", "size": 5,
        "width": 3, "height": 2, "sha256": public_id, "storage_name": public_id,
    }  # fmt: skip
    return Media.objects.create(**(values | changes))


def submit(desk: Desk, user: User, **changes: Any) -> runs.Submit:
    """A message, not put yet."""
    frame = decode("text", **{"from": user.username} | changes)
    return runs.Submit(user.pk, user.username, "hermes", frame, desk.journal.slots)


# Echo and numbers


def test_a_message_is_echoed_to_every_device_that_asked(desk: Desk, alice: User) -> None:
    """The sender's too, with cursor and run; plain devices hear nothing."""
    one, two, plain = Device(desk, alice, "sync"), Device(desk, alice, "sync"), Device(desk, alice)
    one.say(id="m1", data={"text": "hello"}, unknown=1)
    [echo] = one.taken()
    assert two.taken() == [echo]
    assert plain.taken() == []
    assert echo.pop("run") == {
        "id": queries.live_runs(alice.pk)[0][0].public_id,
        "status": "queued",
        "code": None,
    }
    assert echo == {
        "id": "m1", "type": "text", "from": "alice", "to": "hermes", "session": "S1", "ts": 1719123456,
        "data": {"text": "hello"}, "cursor": 1,
    }  # fmt: skip


def test_numbers_have_no_hole_whoever_speaks(desk: Desk, alice: User) -> None:
    """Messages of both sides, in the order of their commits; the log says so too."""
    agent, device = Agent(desk, alice), Device(desk, alice, "sync")
    device.ask("m1")
    agent.start("str_1")
    device.ask("m2", "S2")
    agent.say("text", "S2", id="t1")
    agent.piece("x")
    agent.end()
    device.ask("m3")
    numbered = [(frame["cursor"], frame.get("id")) for frame in device.taken() if "cursor" in frame]
    assert numbered == [(1, "m1"), (2, "m2"), (3, "t1"), (4, "str_1"), (5, "m3")]
    assert UserLog.objects.get().last_cursor == 5


def test_a_repeated_message_is_echoed_again_and_nothing_else(desk: Desk, alice: User) -> None:
    """Under its old number, with the run as it stands; the agent is not told again."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice, "sync")
    device.ask("m1")
    agent.start("str_1")
    agent.end()
    device.taken()
    assert device.ask("m1").repeated
    [echo] = device.taken()
    assert (echo["id"], echo["cursor"], echo["run"]["status"]) == ("m1", 1, "completed")
    assert len(agent.heard) == 1
    assert Message.objects.filter(side="app").count() == 1


def test_an_id_with_other_content_is_refused(desk: Desk, alice: User) -> None:
    """In one batch or later; the first one stands."""
    device = Device(desk, alice)
    first, second = desk.attempt(
        submit(desk, alice, data={"text": "x"}), submit(desk, alice, data={"text": "y"})
    )
    assert first.error is None
    assert isinstance(second.error, Unsupported) and second.error.field == "id"
    with pytest.raises(Unsupported):
        device.say(data={"text": "z"})
    assert Message.objects.get().data == '{"text":"x"}'


def test_the_same_id_of_two_users_is_two_messages(desk: Desk, alice: User, bob: User) -> None:
    """Each with its own first number."""
    results = desk.together(submit(desk, alice), submit(desk, bob))
    assert [result.repeated for result in results] == [False, False]
    assert list(Message.objects.values_list("cursor", flat=True)) == [1, 1]


def test_a_message_sent_twice_at_once_to_an_agent_is_handed_out_once(desk: Desk, alice: User) -> None:
    """The race of two sockets."""
    agent = Agent(desk, alice)
    desk.together(submit(desk, alice), submit(desk, alice))
    assert [frame["id"] for frame in agent.heard] == ["m1"]


# Sessions


def test_the_first_text_is_a_session_s_title(desk: Desk, alice: User) -> None:
    """Shortened, on one line; later ones change nothing."""
    device = Device(desk, alice)
    device.ask("m1", text="  \n ")
    device.ask("m2", text="How\n do  I " + "x" * 200)
    device.ask("m3", text="And then?")
    assert ChatSession.objects.get().title == ("How do I " + "x" * 200)[:80]


def test_a_deleted_session_stays_deleted(desk: Desk, alice: User) -> None:
    """For both sides."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    ChatSession.objects.update(deleted_at=timezone.now())
    with pytest.raises(Unsupported) as refusal:
        device.ask("m2")
    assert refusal.value.field == "session"
    assert isinstance(agent.say("text", id="t1"), Unsupported)


def test_new_sessions_are_bounded(desk: Desk, alice: User, bob: User, settings: Any) -> None:
    """By the minute and in all; nothing is stored of what is refused, and other users are not held up."""
    settings.HERMES_NEW_SESSIONS_PER_MINUTE = 2
    device = Device(desk, alice)
    device.ask("m1", "S1")
    device.ask("m2", "S2")
    with pytest.raises(RateLimited) as refusal:
        device.ask("m3", "S3")
    assert refusal.value.retry_after == 60
    device.ask("m4", "S1")
    Device(desk, bob).ask("m1", "S3")
    settings.HERMES_NEW_SESSIONS_PER_MINUTE, settings.HERMES_SESSIONS = 100, 2
    with pytest.raises(RateLimited):
        device.ask("m3", "S3")
    settings.HERMES_RATE_LIMIT = False
    device.ask("m3", "S3")
    assert Message.objects.filter(user=alice).count() == 4


# Media


@pytest.mark.parametrize("kind", MEDIA_TYPES)
def test_a_file_arrives_with_its_true_values(desk: Desk, alice: User, kind: str) -> None:
    """Whatever the sender said of it, and under the type that fits; the agent may have it from then on."""
    media = picture(alice)
    agent, device = Agent(desk, alice), Device(desk, alice, "sync")
    lie = {"id": "med_1", "name": "x.exe", "size": 10**9, "path": "/etc"}
    device.say(kind, id="m1", data={"media": lie, "text": "look"})
    true = {"id": "med_1", "name": "a.png", "type": "image/png", "size": 5, "width": 3, "height": 2}
    for frame in (agent.heard[0], device.taken()[0]):
        assert (frame["type"], frame["data"]) == ("image", {"media": true, "text": "look"})
    assert list(MediaGrant.objects.values_list("media", "agent")) == [(media.pk, "hermes")]
    device.say(kind, id="m2", data={"media": {"id": "med_1"}})
    assert MediaGrant.objects.count() == 1


@pytest.mark.parametrize("public_id", ["med_9", "med_bob"])
def test_a_file_that_is_not_one_s_own_is_no_file(desk: Desk, alice: User, bob: User, public_id: str) -> None:
    """C42: another user's is like an unknown one, on both sides."""
    picture(bob, "med_bob")
    agent, device = Agent(desk, alice), Device(desk, alice)
    with pytest.raises(UploadFailed):
        device.say("image", data={"media": {"id": public_id}})
    assert isinstance(agent.say("file", data={"media": {"id": public_id}}), UploadFailed)
    assert not Message.objects.exists()
    assert not MediaGrant.objects.exists()


def test_an_agent_s_file_is_part_of_its_turn(desk: Desk, alice: User) -> None:
    """In history it is a Markdown link, with its name escaped."""
    picture(alice, name="a](x).png")
    agent, device = Agent(desk, alice, "control"), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    agent.piece("here")
    agent.end(data={"media": 1})
    agent.say("image", id="f1", reply_to="m1", data={"media": {"id": "med_1"}})
    run = Message.objects.get(public_id="f1").run
    assert run.status == "completed"
    assert "here\\n\\n![a\\\\]\\\\(x\\\\).png](" in run.transcript
    assert device.spelled[-1] == "S1 image f1"


# Joining


def test_a_plain_device_takes_what_no_app_was_given(desk: Desk, alice: User) -> None:
    """In order, once: a streamed answer as one text. The next device gets nothing of it."""
    agent = Agent(desk, alice)
    agent.say("text", id="t1", data={"text": "one"})
    agent.start("str_1")
    agent.piece("two")
    agent.end()
    device = Device(desk, alice)
    assert device.spelled == ["S1 text t1 'one'", "S1 text str_1 'two'"]
    assert Device(desk, alice).spelled == []
    agent.say("text", id="t2", data={"text": "three"})
    assert device.spelled == ["S1 text t2 'three'"]
    device.leave()
    assert Device(desk, alice).spelled == []


def test_of_devices_that_join_at_once_only_one_takes_what_was_missed(desk: Desk, alice: User) -> None:
    """Two tabs that come back in the same moment; what is said in that moment both are told."""
    agent = Agent(desk, alice)
    agent.say("text", id="t1")
    readers = [Reader(desk.hub, alice.pk, lambda told: None, lambda: None) for _ in range(3)]
    said = AgentFrame(agent, decode("text", "agent", id="t2"))
    joins = [joining.Join(alice.pk, reader, claims=True) for reader in readers]
    places = desk.together(joins[0], said, joins[1], joins[2])
    assert [(place.app_cursor, place.cursor) for place in (places[0], *places[2:])] == [
        (0, 1),
        (1, 1),
        (1, 1),
    ]
    assert Device(desk, alice).taken() == []


def test_a_sync_device_takes_nothing_from_a_plain_one(desk: Desk, alice: User) -> None:
    """It has its cursor; while it follows, agent messages count as handed."""
    agent = Agent(desk, alice)
    agent.say("text", id="t1", data={"text": "one"})
    synced = Device(desk, alice, "sync")
    assert synced.taken() == []
    assert Device(desk, alice).spelled == ["S1 text t1 'one'"]
    agent.say("text", id="t2", data={"text": "two"})
    assert Device(desk, alice).spelled == []


def test_a_device_that_joins_during_a_stream_gets_it_from_its_start(desk: Desk, alice: User) -> None:
    """Its start with the same id, one piece with all so far, then the rest live."""
    agent, first = Agent(desk, alice), Device(desk, alice)
    agent.start("str_1")
    agent.piece("one ")
    agent.piece("two ")
    second, synced = Device(desk, alice), Device(desk, alice, "sync", since=0)
    agent.piece("three")
    agent.end()
    assert len(first.spelled) == 5
    expected = ["S1 stream_start str_1", "S1 stream 'one two '", "S1 stream 'three'", "S1 stream_end"]
    assert second.spelled == expected
    assert synced.spelled == expected


def test_after_any_cursor_the_same_messages_are_replayed(desk: Desk, alice: User) -> None:
    """Replay equals live: byte for byte but for the spelling of streams, and the present status of runs."""
    agent, live = Agent(desk, alice, "control"), Device(desk, alice, "sync")
    for number in range(4):
        live.ask(f"m{number}", text=f"question {number}")
        agent.start(f"str_{number}", reply_to=f"m{number}")
        agent.piece(f"answer {number}")
        agent.end()
    own = [frame for frame in live.taken() if frame["type"] == "text"]
    for since in range(9):
        replayed = Device(desk, alice, "sync", since=since).taken()
        assert [frame["cursor"] for frame in replayed] == list(range(since + 1, 9))
        for frame in replayed:
            if frame["from"] == "alice":
                [same] = [one for one in own if one["id"] == frame["id"]]
                assert frame == {**same, "run": {**same["run"], "status": "completed"}}
            else:
                number = frame["id"].removeprefix("str_")
                assert (frame["type"], frame["data"]) == ("text", {"text": f"answer {number}"})


def test_pages_go_back_through_the_log(desk: Desk, alice: User, bob: User) -> None:
    """The newest first page, each oldest first, of one session or of all; another user's log is empty."""
    device = Device(desk, alice)
    for number in range(1, 8):
        device.ask(f"m{number}", f"S{number % 2}")

    def page(*arguments: Any) -> tuple[list[str], bool]:
        told, more = queries.page(alice.pk, *arguments)
        return [one.message["id"] for one in told if one.message is not None], more

    assert page(None, None, 3) == (["m5", "m6", "m7"], True)
    assert page(None, 5, 3) == (["m2", "m3", "m4"], True)
    assert page(None, 2, 3) == (["m1"], False)
    assert page("S1", None, 3) == (["m3", "m5", "m7"], True)
    assert page("S9", None, 3) == ([], False)
    assert queries.page(bob.pk, None, None, 3) == ([], False)


@pytest.mark.parametrize(
    ("limit", "size", "expected"),
    [(3, 10**6, [5, 6, 7]), (100, 10**6, [1, 2, 3, 4, 5, 6, 7]), (100, 60, [5, 6, 7]), (100, 1, [7])],
)
def test_a_replay_is_the_newest_that_fit(
    desk: Desk, alice: User, limit: int, size: int, expected: list[int]
) -> None:
    """By number and by size, at least one; it says whether something was left out."""
    device = Device(desk, alice)
    for number in range(1, 8):
        device.ask(f"m{number}", text="12345")
    assert len('{"text":"12345"}') == 16
    found, truncated = queries.newest_between(alice.pk, 0, 7, limit, size)
    assert (found, truncated) == (expected, len(expected) < 7)
