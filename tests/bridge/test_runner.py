"""The bridge between a played gateway and a played agent: turns, order, failures, lost lines, restarts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge import events
from bridge.events import Refused
from bridge.gateway import Gateway, Times
from bridge.runner import Runner
from bridge.state import State
from bridge.turns import Limits
from tests.bridge.fakes import FakeGateway, FakeHermes, running, until

QUICK = Times(backoff=(0.02,), ready=1, close=0.2)
LIMITS = Limits(turns=2, turn_seconds=5, unclaimed_seconds=0.3)
CAPS = frozenset({"sync", "events", "control"})
DONE = events.Completed()


@pytest.fixture(params=["v3", "caps"])
async def gateway(request: pytest.FixtureRequest) -> AsyncIterator[FakeGateway]:
    """A gateway, once with all capabilities and once with none."""
    async with FakeGateway("sync,events,control" if request.param == "caps" else None) as playing:
        yield playing


@pytest.fixture
async def v3() -> AsyncIterator[FakeGateway]:
    async with FakeGateway(None) as playing:
        yield playing


@pytest.fixture
async def full() -> AsyncIterator[FakeGateway]:
    async with FakeGateway("sync,events,control") as playing:
        yield playing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bridge.sqlite3"


@contextlib.asynccontextmanager
async def bridge(
    gateway: FakeGateway, hermes: FakeHermes, path: Path, limits: Limits = LIMITS
) -> AsyncIterator[State]:
    """A bridge at work; leaving the block ends it as a signal does."""
    state = State(path)
    runner = Runner(hermes, state, limits)
    async with running(runner.run(Gateway(gateway.url, "hk_a_b", CAPS, QUICK))):
        yield state
    state.close()


async def test_a_text_is_answered_in_a_stream(gateway: FakeGateway, path: Path):
    """The agent gets the text, and its pieces come back as one stream that answers the message."""
    hermes = FakeHermes()
    async with bridge(gateway, hermes, path):
        connection = await gateway.connection()
        await connection.ask("hello", data={"instructions": "be brief"})
        await until(lambda: hermes.orders)
        hermes.say("run1", "Hi ", "there", DONE)
        await connection.wait_for("stream_end")
        assert connection.text() == "Hi there"
        start = connection.of_type("stream_start")[0]
        assert (start["reply_to"], start["session"], start["from"], start["to"]) == (
            "m1",
            "s1",
            "hermes",
            "alice",
        )
        order = hermes.orders[0]
        assert (order.key, order.text, order.instructions, order.history) == ("m1", "hello", "be brief", ())
        assert "s1" not in order.session_id


async def test_turns_of_a_session_wait_for_each_other_and_know_what_was_said(
    gateway: FakeGateway, path: Path
):
    """The second message of a session is asked after the first has ended, with its question and answer as history."""
    hermes = FakeHermes()
    async with bridge(gateway, hermes, path):
        connection = await gateway.connection()
        await connection.ask("one", id="m1")
        await connection.ask("two", id="m2")
        await connection.ask("other", id="m3", session="s2")
        await until(lambda: len(hermes.orders) == 2)
        assert [order.text for order in hermes.orders] == ["one", "other"]
        hermes.say("run1", "first", DONE)
        await until(lambda: len(hermes.orders) == 3)
        assert [row["content"] for row in hermes.orders[2].history] == ["one", "first"]
        assert hermes.orders[2].session_id == hermes.orders[0].session_id != hermes.orders[1].session_id
        hermes.say("run2", DONE)
        hermes.say("run3", "second", DONE)
        ends = await connection.wait_for("stream_end", 3)
        assert len(ends) == 3


async def test_only_so_many_turns_run_at_once(gateway: FakeGateway, path: Path):
    """More sessions than the cap wait for a place; all are answered."""
    hermes = FakeHermes()
    async with bridge(gateway, hermes, path):
        connection = await gateway.connection()
        for n in range(5):
            await connection.ask("x", id=f"m{n}", session=f"s{n}")
            hermes.say(f"run{n + 1}", f"a{n}")
        await connection.wait_for("stream", 2)
        assert len(hermes.orders) == 2
        for n in range(5):
            hermes.say(f"run{n + 1}", DONE)
        await connection.wait_for("stream_end", 5)
        assert hermes.most_running == 2


@pytest.mark.parametrize("end", ["failed", "refused", "timeout", "broken"])
async def test_a_failure_is_an_error_frame_and_no_answer(gateway: FakeGateway, path: Path, end: str):
    """Whatever goes wrong, the message is answered by one error, nothing of it becomes history, the next one works."""
    hermes = FakeHermes()
    limits = Limits(turn_seconds=0.2) if end == "timeout" else LIMITS
    async with bridge(gateway, hermes, path, limits):
        connection = await gateway.connection()
        if end == "refused":
            hermes.refuse = Refused("not now", "offline", "offline")
        if end == "failed":
            hermes.say("run1", events.Failed("model said 401"))
        if end == "broken":
            hermes.follow = None  # type: ignore[method-assign, assignment]
        await connection.ask("hello")
        error = (await connection.wait_for("error"))[0]
        assert error["reply_to"] == "m1"
        expected = {"failed": "internal", "refused": "offline", "timeout": "timeout", "broken": "internal"}
        assert error["data"]["code"] == expected[end]
        assert error["data"]["text"]
        if end == "broken":
            return
        hermes.refuse = None
        await connection.ask("again", id="m2")
        await until(lambda: len(hermes.orders) == 2)
        assert hermes.orders[1].history == ()
        run_id = "run1" if end == "refused" else "run2"
        hermes.say(run_id, "fine", DONE)
        await connection.wait_for("stream_end")
        assert len(connection.of_type("error")) == 1
        assert hermes.stopped == (["run1"] if end == "timeout" else [])


async def test_a_failure_in_an_open_stream_ends_it(gateway: FakeGateway, path: Path):
    """The error names the message, and nothing of the stream follows it."""
    hermes = FakeHermes()
    async with bridge(gateway, hermes, path):
        connection = await gateway.connection()
        await connection.ask("hello")
        hermes.say("run1", "half", events.Failed("gone", "offline"))
        await connection.wait_for("error")
        assert [f["type"] for f in connection.frames] == ["stream_start", "stream", "error"]


async def test_media_are_refused_with_a_clear_text(gateway: FakeGateway, path: Path):
    """An agent that cannot take a file says so, and is not asked."""
    hermes = FakeHermes()
    async with bridge(gateway, hermes, path):
        connection = await gateway.connection()
        await connection.control("file", id="m1", data={"media": {"id": "med_1", "name": "a.pdf"}})
        error = (await connection.wait_for("error"))[0]
        assert (error["reply_to"], error["data"]["code"]) == ("m1", "unsupported")
        assert "file" in error["data"]["text"]
        assert hermes.orders == []


async def test_the_same_message_twice_is_one_turn(gateway: FakeGateway, path: Path):
    """A repeated id is not run again: while it runs, and after it."""
    hermes = FakeHermes()
    async with bridge(gateway, hermes, path):
        connection = await gateway.connection()
        await connection.ask("hello")
        await connection.ask("hello")
        hermes.say("run1", "Hi", DONE)
        await connection.wait_for("stream_end")
        await connection.ask("hello")
        await connection.ask("next", id="m2")
        hermes.say("run2", DONE)
        await connection.wait_for("stream_end", 2)
        assert [order.text for order in hermes.orders] == ["hello", "next"]


async def test_strange_frames_do_no_harm(gateway: FakeGateway, path: Path):
    """Neither what is no frame nor a frame without its fields stops the bridge."""
    hermes = FakeHermes()
    async with bridge(gateway, hermes, path):
        connection = await gateway.connection()
        for text in ("{", "[]", '{"type":"text"}', '{"type":"stop","from":"alice"}', '{"type":"what"}'):
            await connection.socket.send(text)
        await connection.socket.send(b"\x00\xff")
        await connection.send(type="error", data=None)
        for data in (None, [], {"text": 5}):
            await connection.send(
                type="event", id="e", **{"from": "alice"}, to="hermes", session="s1", ts=1, data=data
            )
        await connection.ask("hello")
        hermes.say("run1", "Hi", DONE)
        await connection.wait_for("stream_end")


async def test_v3_a_lost_line_does_not_end_the_turn(v3: FakeGateway, path: Path):
    """The turn goes on meanwhile; the new connection gets the whole stream anew, with the same reply_to."""
    hermes = FakeHermes()
    async with bridge(v3, hermes, path):
        first = await v3.connection(1)
        await first.ask("hello")
        hermes.say("run1", "one ")
        await first.wait_for("stream")
        await first.cut()
        hermes.say("run1", "two ")
        second = await v3.connection(2)
        await second.wait_for("stream")
        hermes.say("run1", "three", DONE)
        await second.wait_for("stream_end")
        assert second.text() == "one two three"
        (start,) = second.of_type("stream_start")
        assert start["reply_to"] == "m1"
        assert len(hermes.orders) == 1


async def test_v3_an_end_that_nobody_confirmed_is_told_again_under_the_same_id(v3: FakeGateway, path: Path):
    """Whether the end arrived cannot be known: the same stream again, which a gateway that has it leaves aside."""
    hermes = FakeHermes()
    async with bridge(v3, hermes, path):
        first = await v3.connection(1)
        await until(lambda: first.pings)
        v3.answers_pings = False
        await first.ask("hello")
        hermes.say("run1", "Hi", DONE)
        await first.wait_for("stream_end")
        await first.cut()
        v3.answers_pings = True
        second = await v3.connection(2)
        await second.wait_for("stream_end")
        assert second.of_type("stream_start")[0]["id"] == first.of_type("stream_start")[0]["id"]
        assert second.text() == "Hi"


async def test_v3_a_confirmed_end_is_told_once(v3: FakeGateway, path: Path):
    """After the pong that follows it, an answer is not said again on the next connection."""
    hermes = FakeHermes()
    async with bridge(v3, hermes, path) as state:
        first = await v3.connection(1)
        await first.ask("hello")
        hermes.say("run1", "Hi", DONE)
        await first.wait_for("stream_end")
        await until(lambda: not state.unfinished())
        await first.cut()
        second = await v3.connection(2)
        await second.ask("next", id="m2")
        hermes.say("run2", "Ho", DONE)
        await second.wait_for("stream_end")
        assert second.text() == "Ho"


async def test_an_answer_made_while_the_line_was_down_arrives(gateway: FakeGateway, path: Path):
    """A turn that ended without a connection is told on the next one."""
    hermes = FakeHermes()
    async with bridge(gateway, hermes, path) as state:
        first = await gateway.connection(1)
        await first.ask("hello", cursor=1)
        await until(lambda: hermes.orders)
        gateway.refusal = (503, {})
        await first.cut()
        hermes.say("run1", "Hi", DONE)
        await until(lambda: state.unfinished() and state.unfinished()[0].outcome)
        gateway.refusal = None
        second = await gateway.connection(2)
        if gateway.caps:
            await second.ask("hello", cursor=1, redelivered=True)
        await second.wait_for("stream_end")
        assert second.text() == "Hi"


async def test_a_restarted_bridge_takes_a_running_turn_up(gateway: FakeGateway, path: Path):
    """A turn that the agent went on with is not asked again: its end is looked for, and told."""
    hermes = FakeHermes()
    async with bridge(gateway, hermes, path):
        first = await gateway.connection(1)
        await first.ask("hello", cursor=1)
        hermes.say("run1", "par")
        await first.wait_for("stream")
    async with bridge(gateway, hermes, path):
        second = await gateway.connection(2)
        if gateway.caps:
            await second.ask("hello", cursor=1, redelivered=True)
        await until(lambda: hermes.resumed)
        hermes.say("run1", "partial answer", DONE)
        await second.wait_for("stream_end")
        assert second.text() == "partial answer"
        assert (len(hermes.orders), hermes.resumed) == (1, ["run1"])
        assert second.of_type("stream_start")[0]["reply_to"] == "m1"


async def test_sessions_survive_a_restart_of_the_bridge(gateway: FakeGateway, path: Path):
    """The next message goes to the same Hermes session with the same past."""
    hermes = FakeHermes()
    async with bridge(gateway, hermes, path):
        first = await gateway.connection(1)
        await first.ask("my name is Bob")
        hermes.say("run1", "Hello Bob", DONE)
        await first.wait_for("stream_end")
    async with bridge(gateway, hermes, path):
        second = await gateway.connection(2)
        await second.ask("who am I", id="m2")
        await until(lambda: len(hermes.orders) == 2)
        assert hermes.orders[1].session_id == hermes.orders[0].session_id
        assert [row["content"] for row in hermes.orders[1].history] == ["my name is Bob", "Hello Bob"]
        hermes.say("run2", DONE)


async def test_sync_goes_on_where_the_gateway_is(full: FakeGateway, path: Path):
    """A stream that the gateway holds open goes on after its characters, without a new start."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path):
        first = await full.connection(1)
        await first.ask("hello", cursor=1)
        hermes.say("run1", "one ", "two ")
        await until(lambda: first.text() == "one two ")
        stream = first.of_type("stream_start")[0]["id"]
        full.ready = {"streams": [{"id": stream, "session": "s1", "reply_to": "m1", "chars": 6}]}
        await first.cut()
        second = await full.connection(2)
        hermes.say("run1", "three", DONE)
        await second.wait_for("stream_end")
        assert second.text() == "o three"
        assert second.of_type("stream_start") == []


@pytest.mark.parametrize("rereads", [True, False], ids=["0.22", "0.19"])
async def test_sync_a_restarted_bridge_goes_on_in_the_stream_that_is_open(
    full: FakeGateway, path: Path, rereads: bool
):
    """Events that come again from the first: the rest, when the gateway's characters were read; else all, anew."""
    hermes = FakeHermes(idempotent=rereads)
    async with bridge(full, hermes, path):
        first = await full.connection(1)
        await first.ask("hello", cursor=1)
        hermes.say("run1", "one ", "two ")
        await until(lambda: first.text() == "one two ")
        stream = first.of_type("stream_start")[0]["id"]
    full.ready = {"streams": [{"id": stream, "session": "s1", "reply_to": "m1", "chars": 6}]}
    async with bridge(full, hermes, path):
        second = await full.connection(2)
        await second.ask("hello", cursor=1, redelivered=True)
        await until(lambda: hermes.resumed)
        hermes.say("run1", "one ")
        await asyncio.sleep(0)
        assert second.of_type("stream_start", "stream") == []
        hermes.say("run1", "two ", "three", DONE)
        await second.wait_for("stream_end")
        assert second.text() == ("o three" if rereads else "one two three")
        starts = [frame["id"] for frame in second.of_type("stream_start")]
        assert starts == ([] if rereads else [stream])


async def test_sync_an_echo_settles_an_answer_and_moves_the_cursor(full: FakeGateway, path: Path):
    """Until its end has come back with a cursor, a turn is unfinished; `since` stays below it."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path) as state:
        first = await full.connection(1)
        await first.ask("hello", cursor=4)
        hermes.say("run1", "Hi", DONE)
        await first.wait_for("stream_end")
        stream = first.of_type("stream_start")[0]["id"]
        await until(lambda: first.pings >= 2)
        assert state.unfinished()
        await first.send(
            type="stream_end", id=stream, **{"from": "hermes"}, to="alice", session="s1", cursor=5
        )
        await until(lambda: not state.unfinished())
        assert state.since("alice") == 3  # a turn that ended just now may still be handed out again
        await first.cut()
        second = await full.connection(2)
        assert second.query["since"] == "3"
        await second.ask("hello", cursor=4, redelivered=True)
        await second.wait_for("stream_end")
        assert (second.text(), len(hermes.orders)) == ("Hi", 1)


async def test_sync_a_turn_that_was_not_handed_out_again_is_given_up(full: FakeGateway, path: Path):
    """It has ended at the gateway: the agent is stopped, nothing of it is told, and the bridge forgets it."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path) as state:
        first = await full.connection(1)
        await first.ask("hello", cursor=1)
        hermes.say("run1", "one ")
        await first.wait_for("stream")
        await first.ask("waiting", id="m2", cursor=2)
        await first.cut()
        second = await full.connection(2)
        await until(lambda: hermes.stopped == ["run1"])
        await until(lambda: not state.unfinished())
        await second.ask("next", id="m3", cursor=3)
        await until(lambda: len(hermes.orders) == 2)
        hermes.say("run2", "Ho", DONE)
        await second.wait_for("stream_end")
        assert second.text() == "Ho"
        assert [order.text for order in hermes.orders] == ["hello", "next"]


async def test_sync_a_turn_cut_off_between_disk_and_agent_is_not_run_twice(full: FakeGateway, path: Path):
    """A bridge that died while giving a turn to the agent cannot know: one error, no second run."""
    hermes = FakeHermes()
    started = asyncio.Event()

    async def never(order: object) -> str:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    hermes.start = never  # type: ignore[method-assign]
    async with bridge(full, hermes, path):
        first = await full.connection(1)
        await first.ask("hello", cursor=1)
        await started.wait()
    again = FakeHermes()
    async with bridge(full, again, path):
        second = await full.connection(2)
        await second.ask("hello", cursor=1, redelivered=True)
        error = (await second.wait_for("error"))[0]
        assert (error["data"]["code"], error["reply_to"]) == ("internal", "m1")
        assert again.orders == []


async def test_sync_an_agent_that_knows_the_key_is_asked_again(full: FakeGateway, path: Path):
    """Where the same order twice makes one turn, a turn cut off that way is simply asked again."""
    hermes = FakeHermes()

    async def never(order: object) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    hermes.start = never  # type: ignore[method-assign]
    async with bridge(full, hermes, path) as state:
        first = await full.connection(1)
        await first.ask("hello", cursor=1)
        await until(state.unfinished)
    again = FakeHermes(idempotent=True)
    async with bridge(full, again, path):
        second = await full.connection(2)
        await second.ask("hello", cursor=1, redelivered=True)
        again.say("run1", "Hi", DONE)
        await second.wait_for("stream_end")
        assert again.orders[0].key == "m1"


async def test_sync_after_the_state_was_lost_nothing_runs_that_may_have_run(full: FakeGateway, path: Path):
    """With an empty folder a message that was handed out before is answered with an error; a new one runs."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path):
        connection = await full.connection()
        assert connection.query["since"] == "0"
        await connection.ask("hello", cursor=1, redelivered=True)
        error = (await connection.wait_for("error"))[0]
        assert (error["data"]["code"], error["reply_to"]) == ("internal", "m1")
        await connection.ask("new", id="m2", cursor=2)
        hermes.say("run1", "Hi", DONE)
        await connection.wait_for("stream_end")
        assert [order.text for order in hermes.orders] == ["new"]


async def test_sync_a_message_that_never_began_runs_after_a_restart(full: FakeGateway, path: Path):
    """Handed out before, but never begun by the bridge's own record: it runs, once."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path):
        await full.connection(1)
    async with bridge(full, hermes, path):
        second = await full.connection(2)
        await second.ask("hello", cursor=1, redelivered=True)
        hermes.say("run1", "Hi", DONE)
        await second.wait_for("stream_end")
        assert len(hermes.orders) == 1


async def test_sync_a_finished_answer_is_told_again_after_a_restart(full: FakeGateway, path: Path):
    """An answer the gateway never got is on disk, whole; a failure too."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path) as state:
        first = await full.connection(1)
        await first.ask("hello", cursor=1)
        hermes.say("run1", "Hi", DONE)
        await first.ask("bad", id="m2", session="s2", cursor=2)
        hermes.say("run2", events.Failed("no", "timeout"))
        await until(lambda: all(r.outcome for r in state.unfinished()) and len(hermes.orders) == 2)
        await first.wait_for("error")
        await first.wait_for("stream_end")
    async with bridge(full, hermes, path):
        second = await full.connection(2)
        await second.ask("hello", cursor=1, redelivered=True)
        await second.ask("bad", id="m2", session="s2", cursor=2, redelivered=True)
        await second.wait_for("stream_end")
        error = (await second.wait_for("error"))[0]
        assert second.text() == "Hi"
        assert (error["data"]["code"], error["data"]["text"]) == ("timeout", "no")
        assert len(hermes.orders) == 2


async def test_sync_a_gateway_put_back_in_time_is_believed(full: FakeGateway, path: Path):
    """A cursor ahead of the gateway's is dropped for the gateway's own."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path) as state:
        state.set_since("alice", 99)
        full.ready = {"truncated": True, "cursor": 10}
        first = await full.connection(1)
        await until(lambda: state.since("alice") == 10)
        await first.cut()
        second = await full.connection(2)
        assert second.query["since"] == "10"


@pytest.mark.parametrize("named", ["message", "stream"])
async def test_control_stop_ends_a_running_turn(full: FakeGateway, path: Path, named: str):
    """Stop reaches the agent, by the message's or the stream's id; the end says cancelled, what was said stays."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path):
        connection = await full.connection()
        await connection.ask("hello")
        hermes.say("run1", "half ")
        stream = (await connection.wait_for("stream_start"))[0]["id"]
        await connection.control("stop", reply_to="m1" if named == "message" else stream)
        await connection.control("stop", id="c2", reply_to="m1")
        end = (await connection.wait_for("stream_end"))[0]
        assert (end["data"], hermes.stopped) == ({"status": "cancelled"}, ["run1"])
        await connection.ask("next", id="m2")
        await until(lambda: len(hermes.orders) == 2)
        assert [row["content"] for row in hermes.orders[1].history] == ["hello", "half "]
        hermes.say("run2", DONE)


async def test_control_stop_ends_a_waiting_turn_at_once(full: FakeGateway, path: Path):
    """A turn that waits behind another is never given to the agent; one that is unknown is confirmed, too."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path):
        connection = await full.connection()
        await connection.ask("first")
        await connection.ask("second", id="m2")
        await until(lambda: hermes.orders)
        await connection.control("stop", reply_to="m2")
        await connection.control("stop", id="c2", reply_to="m99")
        ends = await connection.wait_for("stream_end", 2)
        assert {(end["reply_to"], end["data"]["status"]) for end in ends} == {
            ("m2", "cancelled"),
            ("m99", "cancelled"),
        }
        hermes.say("run1", DONE)
        await connection.wait_for("stream_end", 3)
        assert [order.text for order in hermes.orders] == ["first"]


async def test_control_steer_reaches_an_agent_that_can_be_steered(full: FakeGateway, path: Path):
    """The remark goes to the run; one that cannot be taken: `unsupported`, and it rides on the end of the turn."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path):
        connection = await full.connection()
        await connection.ask("hello")
        hermes.say("run1", "a")
        await connection.wait_for("stream")
        await connection.control("steer", id="c1", reply_to="m1", data={"text": "shorter"})
        error = (await connection.wait_for("error"))[0]
        assert (error["data"]["code"], error["reply_to"]) == ("unsupported", "c1")
        hermes.can_steer = True
        await connection.control("steer", id="c2", reply_to="m1", data={"text": "longer"})
        await until(lambda: len(hermes.steered) == 2)
        hermes.say("run1", "b", DONE)
        (end,) = await connection.wait_for("stream_end")
        assert end["data"] == {"pending_steer": "shorter"}
        assert hermes.steered == [("run1", "shorter"), ("run1", "longer")]
        assert len(connection.of_type("error")) == 1


async def test_control_a_replaced_message_brings_its_own_past(full: FakeGateway, path: Path):
    """`replace_from` with a history makes that the conversation, in a Hermes session of its own."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path):
        connection = await full.connection()
        await connection.ask("one")
        hermes.say("run1", "first", DONE)
        await connection.wait_for("stream_end")
        history = [
            {"role": "user", "content": "zero", "id": "m0"},
            {"role": "assistant", "content": "nought", "id": "a0"},
        ]
        await connection.ask("one, again", id="m2", replace_from="m1", data={"history": history})
        await until(lambda: len(hermes.orders) == 2)
        order = hermes.orders[1]
        assert [row["content"] for row in order.history] == ["zero", "nought"]
        assert order.rewritten
        assert order.session_id != hermes.orders[0].session_id
        hermes.say("run2", DONE)


async def test_events_tell_of_tools_and_carry_approvals(full: FakeGateway, path: Path):
    """Tools are told as events of the message; an answer to a request reaches the agent once, foreign ones never."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path):
        connection = await full.connection()
        await connection.ask("hello")
        tool = events.ToolStarted("terminal", "call_1", "rm x", {"command": "rm x"})
        request = events.ApprovalRequest("r1", "rm x", "deletes", ("once", "deny"))
        hermes.say("run1", tool, request)
        told = await connection.wait_for("event", 2)
        assert told[0]["data"] == {"event": "tool.started", **tool.data()}
        assert told[1]["data"] == {"event": "approval.request", **request.data()}
        assert {event["reply_to"] for event in told} == {"m1"}
        answer = {"event": "approval.response", "request_id": "r1", "choice": "once"}
        await connection.control("event", id="e1", reply_to="m1", data=answer | {"request_id": "r2"})
        await connection.control("event", id="e2", reply_to="m1", data=answer)
        await connection.control("event", id="e3", reply_to="m1", data=answer)
        await connection.wait_for("error", 2)
        assert hermes.approved == [("r1", "once")]
        hermes.say("run1", events.ToolEnded("terminal", "call_1", failed=True), DONE)
        await connection.wait_for("stream_end")
        assert connection.of_type("event")[2]["data"]["event"] == "tool.failed"


async def test_v3_hears_no_events_and_a_request_nobody_sees_is_denied(v3: FakeGateway, path: Path):
    """Without `events` tools are not told, and the agent is not left waiting for an answer."""
    hermes = FakeHermes()
    async with bridge(v3, hermes, path):
        connection = await v3.connection()
        await connection.ask("hello")
        request = events.ApprovalRequest("r1", "rm x", "deletes", ("once", "deny"))
        hermes.say("run1", events.ToolStarted("terminal", "call_1"), request)
        await until(lambda: hermes.approved == [("r1", "deny")])
        hermes.say("run1", "no", DONE)
        await connection.wait_for("stream_end")
        assert {frame["type"] for frame in connection.frames} == {"stream_start", "stream", "stream_end"}


async def test_a_busy_socket_gets_bigger_pieces(full: FakeGateway, path: Path):
    """What gathers while nothing is read leaves joined: whole, in order, in fewer frames."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path):
        connection = await full.connection()
        await connection.ask("hello")
        words = [f"{n} " for n in range(20_000)]
        hermes.say("run1", *words, DONE)
        await connection.wait_for("stream_end")
        assert connection.text() == "".join(words)
        assert len(connection.of_type("stream")) < len(words) / 2


async def test_a_stream_that_the_gateway_refuses_stops_the_agent(full: FakeGateway, path: Path):
    """`unsupported` for the stream itself means that nobody waits for the answer any more."""
    hermes = FakeHermes()
    async with bridge(full, hermes, path) as state:
        connection = await full.connection()
        await connection.ask("hello")
        hermes.say("run1", "a")
        stream = (await connection.wait_for("stream_start"))[0]["id"]
        data = {"code": "unsupported", "text": "that turn has ended"}
        await connection.send(type="error", id="x", reply_to=stream, data=data)
        await until(lambda: hermes.stopped == ["run1"])
        await until(lambda: not state.unfinished())


async def test_a_gateway_that_lost_its_capabilities_still_gets_every_turn(path: Path):
    """A waiting turn does not wait for a `sync` gateway that comes back as plain v3."""
    hermes = FakeHermes()
    async with FakeGateway("sync,events,control") as gateway, bridge(gateway, hermes, path):
        first = await gateway.connection(1)
        await first.ask("one", cursor=1)
        await first.ask("two", id="m2", cursor=2)
        await until(lambda: hermes.orders)
        gateway.caps = None
        await first.cut()
        second = await gateway.connection(2)
        hermes.say("run1", "a", DONE)
        hermes.say("run2", "b", DONE)
        await second.wait_for("stream_end", 2)
        assert second.text() == "ab"


async def test_v3_an_inherited_failure_is_not_told(v3: FakeGateway, path: Path):
    """The gateway has told of the lost agent itself: a failure that the earlier bridge left on disk is dropped."""
    hermes = FakeHermes()
    async with bridge(v3, hermes, path):
        first = await v3.connection(1)
        await until(lambda: first.pings)
        v3.answers_pings = False
        await first.ask("hello")
        hermes.say("run1", events.Failed("no"))
        await first.wait_for("error")
    v3.answers_pings = True
    async with bridge(v3, hermes, path) as state:
        second = await v3.connection(2)
        await until(lambda: not state.unfinished())
        await second.ask("next", id="m2")
        hermes.say("run2", "Hi", DONE)
        await second.wait_for("stream_end")
        assert second.of_type("error") == []


async def test_sync_a_message_without_cursor_is_treated_as_in_v3(path: Path):
    """A gateway that learned `sync` while a turn ran cannot hand it out again: the answer is told anew, and settled."""
    hermes = FakeHermes()
    async with FakeGateway(None) as gateway, bridge(gateway, hermes, path) as state:
        first = await gateway.connection(1)
        await first.ask("hello")
        hermes.say("run1", "one ")
        await first.wait_for("stream")
        gateway.caps = "sync,events,control"
        await first.cut()
        second = await gateway.connection(2)
        hermes.say("run1", "two", DONE)
        await second.wait_for("stream_end")
        assert second.text() == "one two"
        await until(lambda: not state.unfinished())
