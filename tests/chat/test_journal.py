"""The writer: one transaction for all that waits, one bad item fails alone, and nothing is written twice."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from accounts.models import User
from chat import journal as journal_module
from chat import runs
from chat.agent_frames import Pieces
from chat.answers import Outdated
from chat.batch import Batch
from chat.journal import Joinable, Journal
from chat.keys import new_key
from chat.models import ChatSession, JournalRow, Message, Process, Run, UserLog
from chat.presence import Quiet
from chat.telling import Told
from hermes_site.errors import Internal, Unavailable, Unsupported
from tests.chat.desk import Agent, Desk, Device
from tests.chat.wire import decode

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SECONDS = 10


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tries."""
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0)


class Writer:
    """A journal with its thread, and what it had told."""

    def __init__(self, process: uuid.UUID) -> None:
        self.told: list[Told] = []
        self.on_tell: Callable[[], None] = lambda: None
        self.journal = Journal(process, self._tell)

    def _tell(self, told: list[Told]) -> None:
        self.told += told
        self.on_tell()

    async def all(self, *items: Any) -> list[Any]:
        """Results and errors of items put in one go."""
        doing = [asyncio.ensure_future(self.journal.do(item)) for item in items]
        return await asyncio.wait_for(asyncio.gather(*doing, return_exceptions=True), PATIENCE_SECONDS)


@pytest.fixture
async def writer() -> AsyncIterator[Writer]:
    """A writer that has started."""
    process = uuid.uuid4()
    now = timezone.now()
    await asyncio.to_thread(
        in_thread, Process.objects.create, uuid=process, host="here", started_at=now, lease=now
    )
    made = Writer(process)
    made.journal.start()
    yield made
    await asyncio.wait_for(made.journal.stop(), PATIENCE_SECONDS)


def in_thread(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call it and close the connection that this thread made."""
    try:
        return function(*arguments, **named)
    finally:
        connection.close()


async def read(function: Callable[[], Any]) -> Any:
    """Read the database from outside the event loop."""
    return await asyncio.to_thread(in_thread, function)


def say(user: User, message_id: str, text: str = "hello") -> runs.Submit:
    """A person's message to an agent that is away."""
    frame = decode("text", id=message_id, data={"text": text})
    return runs.Submit(user.pk, user.username, "hermes", frame, {})


class Refused(Quiet):
    """An item that is refused after its look."""

    def load(self, batch: Batch) -> None:
        pass

    def apply(self, batch: Batch) -> None:
        raise Unsupported("not this")


class Broken(Quiet):
    """An item that fails by a mistake of ours, once it has staged something."""

    def __init__(self, user: User, error: Exception | None = None) -> None:
        self.user = user
        self.error = error or RuntimeError("a mistake")
        self.tries = 0

    def load(self, batch: Batch) -> None:
        batch.want_log(self.user.pk)
        batch.want_session(self.user.pk, "broken")

    def apply(self, batch: Batch) -> None:
        self.tries += 1
        session = batch.session(self.user.pk, "broken") or batch.new_session(self.user.pk, "broken", "hermes")
        batch.next_cursor(self.user.pk)
        batch.new_run(session, self.user.username, status="queued", slot=None)
        raise self.error


class Doubled(Quiet):
    """An item whose row the database does not take."""

    def __init__(self, user: User, message_id: str) -> None:
        self.user = user
        self.message_id = message_id
        self.tries = 0

    def load(self, batch: Batch) -> None:
        batch.want_log(self.user.pk)
        batch.want_session(self.user.pk, "S1")

    def apply(self, batch: Batch) -> None:
        self.tries += 1
        session = batch.session(self.user.pk, "S1")
        assert session is not None
        turn = batch.new_run(session, self.user.username, status="queued", slot=None)
        batch.insert_message(
            key=new_key(), session=session, run=turn.key, side="app", public_id=self.message_id,
            cursor=batch.next_cursor(self.user.pk), kind="text", reply_to=None, ts=1, data={"text": "x"}, digest="x",
        )  # fmt: skip


class Blocked(Quiet):
    """Holds the writer until it is let go."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()

    def load(self, batch: Batch) -> None:
        pass

    def apply(self, batch: Batch) -> None:
        self.began.set()
        assert self.go.wait(PATIENCE_SECONDS)


def log_of(user: User) -> list[tuple[int, str]]:
    """Cursors and ids, by cursor."""
    rows = Message.objects.filter(user=user).order_by("cursor").values_list("cursor", "public_id")
    return [(cursor or 0, public_id) for cursor, public_id in rows]


def commits(process: uuid.UUID) -> int:
    """How many batches were committed."""
    return Process.objects.get(uuid=process).commits


# Together


async def test_what_waits_is_committed_together(writer: Writer, alice: User) -> None:
    """Whatever comes while a commit is under way is one transaction."""
    blocked = Blocked()
    first = asyncio.ensure_future(writer.journal.do(blocked))
    await asyncio.to_thread(blocked.began.wait, PATIENCE_SECONDS)
    rest = asyncio.ensure_future(writer.all(*(say(alice, f"m{number}") for number in range(50))))
    await asyncio.sleep(0)
    blocked.go.set()
    await first
    assert all(isinstance(one, runs.Submitted) for one in await rest)
    assert await read(lambda: commits(writer.journal.process)) == 2
    assert await read(lambda: log_of(alice)) == [(number + 1, f"m{number}") for number in range(50)]


async def test_nothing_is_told_before_it_is_committed(writer: Writer, alice: User) -> None:
    """Whoever is told finds it in the database, by another connection."""
    found: list[int] = []

    def look() -> None:
        thread = threading.Thread(target=lambda: found.append(in_thread(lambda: len(log_of(alice)))))
        thread.start()
        thread.join()

    writer.on_tell = look
    for number in range(3):
        await writer.all(say(alice, f"m{number}"))
    assert found == [1, 2, 3]
    assert [told.cursor for told in writer.told] == [1, 2, 3]


async def test_a_refused_item_leaves_nothing_and_disturbs_nobody(writer: Writer, alice: User) -> None:
    """It is told why; its batch is committed."""
    results = await writer.all(
        say(alice, "m1"), Refused(), say(alice, "m2"), say(alice, "m1", "other content")
    )
    assert [type(one) for one in results] == [runs.Submitted, Unsupported, runs.Submitted, Unsupported]
    assert await read(lambda: log_of(alice)) == [(1, "m1"), (2, "m2")]
    assert await read(lambda: commits(writer.journal.process)) == 1


# One bad item


async def test_a_failing_item_fails_alone(
    writer: Writer, alice: User, caplog: pytest.LogCaptureFixture
) -> None:
    """The others of its batch are stored in their order, without a hole in the numbers."""
    broken = Broken(alice)
    with caplog.at_level(logging.ERROR):
        results = await writer.all(say(alice, "m1"), broken, say(alice, "m2"))
    assert [type(one) for one in results] == [runs.Submitted, Internal, runs.Submitted]
    assert await read(lambda: log_of(alice)) == [(1, "m1"), (2, "m2")]
    assert not await read(lambda: ChatSession.objects.filter(public_id="broken").exists())
    assert broken.tries == 2
    assert [record.message for record in caplog.records] == ["an item failed"]


async def test_a_row_that_the_database_refuses_fails_alone(writer: Writer, alice: User) -> None:
    """After a few looks, for somebody else might have been first."""
    await writer.all(say(alice, "m1"))
    doubled = Doubled(alice, "m1")
    results = await writer.all(say(alice, "m2"), doubled, say(alice, "m3"))
    assert [type(one) for one in results] == [runs.Submitted, Internal, runs.Submitted]
    assert doubled.tries == 1 + journal_module.TRIES
    assert await read(lambda: log_of(alice)) == [(1, "m1"), (2, "m2"), (3, "m3")]
    assert await read(lambda: UserLog.objects.get().last_cursor) == 3
    assert await read(lambda: Run.objects.count()) == 3


async def test_many_bad_items_do_not_stop_the_writer(writer: Writer, alice: User) -> None:
    """Every good one is stored, once and in order; every number is used."""
    items = [
        Broken(alice, IntegrityError("x")) if number % 3 == 1 else say(alice, f"m{number}")
        for number in range(30)
    ]
    results = await writer.all(*items)
    assert [isinstance(one, Internal) for one in results] == [number % 3 == 1 for number in range(30)]
    stored = await read(lambda: log_of(alice))
    assert [cursor for cursor, _ in stored] == list(range(1, 21))
    assert [public_id for _, public_id in stored] == [f"m{number}" for number in range(30) if number % 3 != 1]
    told = [told.cursor for told in writer.told]
    assert told == sorted(told) and len(told) == 20


async def test_an_item_that_cannot_take_its_outcome_disturbs_nobody(
    writer: Writer, alice: User, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one hears its own."""

    class Deaf(Refused):
        def done(self, result: Any, error: BaseException | None) -> None:
            raise RuntimeError("gone")

    writer.journal.put(Deaf())
    [result] = await writer.all(say(alice, "m1"))
    assert isinstance(result, runs.Submitted)
    assert [record.message for record in caplog.records] == ["an item could not take its outcome"]


# The database goes away


class Trouble:
    """Commits that fail: `before` it happened, or with an answer that gets lost `after` it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before = 0
        self.after = 0
        commit = BaseDatabaseWrapper._commit  # type: ignore[attr-defined]

        def troubled(wrapper: BaseDatabaseWrapper) -> None:
            if self.before:
                self.before -= 1
                raise OperationalError("the server closed the connection")
            commit(wrapper)
            if self.after:
                self.after -= 1
                raise OperationalError("the server closed the connection")

        monkeypatch.setattr(BaseDatabaseWrapper, "_commit", troubled)


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Trouble:
    """None at first."""
    return Trouble(monkeypatch)


async def test_a_commit_whose_answer_was_lost_is_not_done_again(
    writer: Writer, alice: User, trouble: Trouble
) -> None:
    """It is told as if nothing had happened, and the numbers go on."""
    await writer.all(say(alice, "m1"))
    trouble.after = 1
    results = await writer.all(say(alice, "m2"), say(alice, "m3"))
    results += await writer.all(say(alice, "m4"))
    assert all(isinstance(one, runs.Submitted) and not one.repeated for one in results)
    assert await read(lambda: log_of(alice)) == [(1, "m1"), (2, "m2"), (3, "m3"), (4, "m4")]
    assert [told.cursor for told in writer.told] == [1, 2, 3, 4]
    assert await read(lambda: commits(writer.journal.process)) == 3


async def test_a_commit_that_did_not_happen_is_done_again(
    writer: Writer, alice: User, trouble: Trouble
) -> None:
    """Under the same numbers, which nobody had seen."""
    trouble.before = 1
    results = await writer.all(say(alice, "m1"), say(alice, "m2"))
    assert all(isinstance(one, runs.Submitted) for one in results)
    assert await read(lambda: log_of(alice)) == [(1, "m1"), (2, "m2")]
    assert [told.cursor for told in writer.told] == [1, 2]


async def test_a_database_that_stays_away_is_said_so(writer: Writer, alice: User, trouble: Trouble) -> None:
    """Nothing is stored; when it is back, everything works again."""
    trouble.before = 1000
    results = await writer.all(say(alice, "m1"), say(alice, "m2"))
    assert [type(one) for one in results] == [Unavailable, Unavailable]
    trouble.before = 0
    assert writer.told == []
    assert await read(lambda: log_of(alice)) == []
    await writer.all(say(alice, "m2"))
    assert await read(lambda: log_of(alice)) == [(1, "m2")]


def test_event_numbers_are_not_used_twice_after_a_failed_commit(
    desk: Desk, alice: User, trouble: Trouble
) -> None:
    """What was counted in memory is read again."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    agent.start("str_1")
    agent.piece("a")
    for before, after, text in ((1, 0, "b"), (0, 1, "c"), (1000, 0, "lost"), (0, 0, "d")):
        trouble.before, trouble.after = before, after
        agent.piece(text)
        trouble.before = trouble.after = 0
    assert [type(error) for error in agent.errors] == [Unavailable]
    agent.end()
    desk.let(1)
    rows = list(JournalRow.objects.order_by("first_seq").values_list("first_seq", "last_seq"))
    assert [row[0] for row in rows] == [1, *(last + 1 for _, last in rows[:-1])]
    assert rows[-1][1] == Run.objects.get().last_seq
    assert Message.objects.get().data == '{"text":"abcd"}'
    assert [frame["data"]["text"] for frame in device.taken() if frame["type"] == "stream"] == [
        "a",
        "b",
        "c",
        "d",
    ]


def test_an_agent_is_not_deaf_after_a_commit_that_failed_for_another(
    desk: Desk, alice: User, trouble: Trouble
) -> None:
    """Of two agents of one user, each is handed what is for it."""
    one, two = Agent(desk, alice, name="one"), Agent(desk, alice, name="two")
    device = Device(desk, alice)
    device.say(agent="one", id="m1", to="one", session="S1")
    trouble.before = 1000
    with pytest.raises(Unavailable):
        device.say(agent="one", id="m2", to="one", session="S1")
    trouble.before = 0
    device.say(agent="two", id="m3", to="two", session="S2")
    one.wake()
    two.wake()
    assert [frame["id"] for frame in one.heard] == ["m1"]
    assert [frame["id"] for frame in two.heard] == ["m3"]


def test_a_connection_that_could_not_be_seated_leaves_the_old_one_its_seat(
    desk: Desk, alice: User, trouble: Trouble
) -> None:
    """What it says is still heard."""
    agent, device = Agent(desk, alice, "control"), Device(desk, alice)
    agent.start("str_1")
    trouble.before = 1000
    with pytest.raises(Unavailable):
        Agent(desk, alice)
    trouble.before = 0
    assert agent.piece("still here") is None
    assert agent.closed is None
    agent.end()
    assert [frame["type"] for frame in device.taken()] == ["stream_start", "stream", "stream_end"]
    assert Run.objects.get().status == "completed"


def test_a_stop_that_was_not_committed_drops_nothing(desk: Desk, alice: User, trouble: Trouble) -> None:
    """The turn lives, so its answer is taken."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    device.ask("m2", "S2")
    agent.start("str_2", "S2", reply_to="m2")
    trouble.before = 1000
    for message_id, session in (("m1", "S1"), ("m2", "S2")):
        with pytest.raises(Unavailable):
            device.stop(message_id, session)
    trouble.before = 0
    assert agent.start("str_1", reply_to="m1") is None
    assert agent.piece("x", "S2") is None


# Owners


def test_what_belongs_to_another_process_is_not_written(desk: Desk, alice: User) -> None:
    """A run that was taken over: nothing of what this process says of it is stored or told."""
    agent, device = Agent(desk, alice), Device(desk, alice)
    device.ask("m1")
    agent.start("str_1", reply_to="m1")
    before = JournalRow.objects.count()
    device.taken()
    other = uuid.uuid4()
    Run.objects.update(owner=other)
    refusals = [agent.piece("late"), agent.end()]
    assert {type(refusal) for refusal in refusals} == {Outdated}  # the agent's newest connection is elsewhere
    desk.let(60)
    assert device.taken() == []
    assert JournalRow.objects.count() == before
    run = Run.objects.get()
    assert (run.owner, run.status) == (other, "running")
    assert Message.objects.get(side="agent").cursor is None


def test_of_a_batch_only_what_is_another_s_is_thrown_away(desk: Desk, alice: User, bob: User) -> None:
    """The rest is written."""
    agents = [Agent(desk, user) for user in (alice, bob)]
    for agent in agents:
        agent.start("str_1")
    Run.objects.filter(user=alice).update(owner=uuid.uuid4())
    pieces = []
    for agent in agents:
        pieces.append(Pieces(agent, "S1"))
        pieces[-1].texts.append("x")
    desk.attempt(*pieces)
    assert [len(agent.errors) for agent in agents] == [1, 0]
    written = JournalRow.objects.order_by("run__user_id").values_list("run__user_id", "last_seq")
    assert list(written) == [(alice.pk, 2), (bob.pk, 2), (bob.pk, 3)]


async def test_a_process_that_is_held_for_dead_writes_no_more(writer: Writer, alice: User) -> None:
    """Until it begins anew under another name."""
    await writer.all(say(alice, "m1"))
    await read(lambda: Process.objects.all().delete())
    for message_id in ("m2", "m3"):
        [result] = await writer.all(say(alice, message_id))
        assert isinstance(result, Unavailable)
    assert writer.journal.lost
    fresh, now = uuid.uuid4(), timezone.now()
    await read(lambda: Process.objects.create(uuid=fresh, host="here", started_at=now, lease=now))
    writer.journal.begin_anew(fresh)
    await writer.all(say(alice, "m4"))
    assert await read(lambda: log_of(alice)) == [(1, "m1"), (2, "m4")]


# Order and waiting


async def test_an_item_that_reads_rows_has_a_transaction_of_its_own(writer: Writer, alice: User) -> None:
    """In its place among the others, whose rows it sees."""
    seen: list[list[tuple[int, str]]] = []

    class Alone(Refused):
        alone = True

        def apply(self, batch: Batch) -> None:
            seen.append(log_of(alice))

    await writer.all(say(alice, "m1"), say(alice, "m2"), Alone(), say(alice, "m3"), Alone())
    assert seen == [[(1, "m1"), (2, "m2")], [(1, "m1"), (2, "m2"), (3, "m3")]]
    assert await read(lambda: commits(writer.journal.process)) == 4


async def test_an_id_sent_twice_at_once_is_stored_once_and_echoed_again(writer: Writer, alice: User) -> None:
    """The second waits for the next batch, where it can read the first."""
    first, second = await writer.all(say(alice, "m1"), say(alice, "m1"))
    assert (first.repeated, second.repeated) == (False, True)
    assert [told.message["id"] for told in writer.told if told.message] == ["m1", "m1"]
    assert await read(lambda: log_of(alice)) == [(1, "m1")]


async def test_a_wait_that_is_cancelled_does_not_cancel_the_write(writer: Writer, alice: User) -> None:
    """The socket may be gone; the message is not."""
    blocked = Blocked()
    writer.journal.put(blocked)
    await asyncio.to_thread(blocked.began.wait, PATIENCE_SECONDS)
    waiting = asyncio.ensure_future(writer.journal.do(say(alice, "m1")))
    await asyncio.sleep(0)
    waiting.cancel()
    blocked.go.set()
    await writer.all(say(alice, "m2"))
    assert await read(lambda: log_of(alice)) == [(1, "m1"), (2, "m2")]


async def test_a_writer_that_cannot_keep_up_says_so(writer: Writer, alice: User, settings: Any) -> None:
    """So that sockets are not read meanwhile; there is room again when it has taken what waited."""
    settings.HERMES_WRITER_ITEMS = 3
    blocked = Blocked()
    writer.journal.put(blocked)
    await asyncio.to_thread(blocked.began.wait, PATIENCE_SECONDS)
    assert not writer.journal.full
    for number in range(4):
        writer.journal.put(say(alice, f"m{number}"))
    assert writer.journal.full
    blocked.go.set()
    await asyncio.wait_for(writer.journal.room(), PATIENCE_SECONDS)
    assert not writer.journal.full


async def test_an_item_is_added_to_until_it_is_taken(writer: Writer) -> None:
    """Pieces join while they wait, not later."""

    class Growing(Joinable, Refused):
        taken = False

    blocked, growing = Blocked(), Growing()
    writer.journal.put(blocked)
    await asyncio.to_thread(blocked.began.wait, PATIENCE_SECONDS)
    writer.journal.put(growing)
    assert not growing.taken
    blocked.go.set()
    await writer.all(Refused())
    assert growing.taken


async def test_an_item_may_be_put_later(writer: Writer, alice: User) -> None:
    """After its time; what has not run out is dropped at the end."""
    heard = asyncio.Event()

    class Timed(Refused):
        def done(self, result: Any, error: BaseException | None) -> None:
            heard.set()

    writer.journal.later(0.01, Timed())
    await asyncio.wait_for(heard.wait(), PATIENCE_SECONDS)
    writer.journal.later(3600, Timed())


async def test_the_end_waits_for_what_was_put(alice: User) -> None:
    """Nothing that was taken is lost by an orderly stop."""
    process, now = uuid.uuid4(), timezone.now()
    await read(lambda: Process.objects.create(uuid=process, host="here", started_at=now, lease=now))
    writer = Writer(process)
    writer.journal.start()
    for number in range(20):
        writer.journal.put(say(alice, f"m{number}"))
    await asyncio.wait_for(writer.journal.stop(), PATIENCE_SECONDS)
    assert len(await read(lambda: log_of(alice))) == 20
    assert len(writer.told) == 20
