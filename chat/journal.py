"""
The one writer of this process: it gathers what waits, commits it together, then has it told.

Items are put from the event loop and written by a thread of its own with a connection of its own. While one
batch is being committed the next one gathers; there is no other delay. A batch that fails is tried again item
by item, so one bad item fails alone.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseProblem
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.utils import InterfaceError

from chat import rows, turnstore
from chat.answers import Outdated
from chat.batch import Batch, HeldForDead, Item, NotOurs, Postponed, wrote_commit
from chat.telling import Told
from chat.turns import Slot
from hermes_site.errors import GatewayError, Internal, Unavailable

logger = logging.getLogger(__name__)

TRIES = 3
RETRY_SECONDS = 0.1
INSIST_SECONDS = 1.0
KNOW_SECONDS = 5.0  # how long the database may be away while it alone can tell whether a commit happened
Outcome = tuple[Item, Any, BaseException | None]


class InDoubt(Exception):
    """The answer to a commit was lost, and the database does not come back to tell whether it happened."""


class Committed:
    """What a batch left: what to tell, whom to hand frames, and how each item fared."""

    def __init__(self, batch: Batch | None, outcomes: list[Outcome]) -> None:
        self.batch = batch
        self.outcomes = outcomes


class Waiting:
    """An item somebody waits for."""

    def __init__(self, item: Item, future: asyncio.Future[Any]) -> None:
        self.item = item
        self.future = future
        self.alone = getattr(item, "alone", False)

    def load(self, batch: Batch) -> None:
        """As the item does."""
        self.item.load(batch)

    def apply(self, batch: Batch) -> Any:
        """As the item does."""
        return self.item.apply(batch)

    def done(self, result: Any, error: BaseException | None) -> None:
        """Let the waiting one go on."""
        self.item.done(result, error)
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Joinable:
    """An item that may be added to until it is `taken`."""

    taken: bool


class Journal:
    """See the module. `tell` is handed all that a commit has to say, in order, in the event loop."""

    def __init__(self, process: uuid.UUID, tell: Callable[[list[Told]], None]) -> None:
        self.process = process
        self.slots: dict[tuple[int, str], Slot] = {}  # agents whose socket, or grace time, is here
        self.slots_of_user: dict[int, list[Slot]] = defaultdict(list)
        self.has_apps: Callable[[int], bool] = lambda user_id: (
            False
        )  # whether an App of this user follows here
        self.say: Callable[[dict[str, Any]], None] = lambda word: None  # to all processes
        self.lost = False  # others hold this process for dead: it writes no more
        self._tell = tell
        self._waiting: list[Item] = []
        self._most_waiting = 0  # read at each hand-over
        self._busy = False
        self._work: queue.SimpleQueue[list[Item] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._commits = 0

    def start(self) -> None:
        """Begin to write. Call in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Write what waits, then end; timers that have not run out are dropped."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        await self._idle.wait()
        self._work.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def put(self, item: Item) -> None:
        """Have an item written; it hears the outcome by its `done`."""
        self._waiting.append(item)
        if not self._busy:
            self._busy = True
            self._idle.clear()
            assert self._loop is not None
            self._loop.call_soon(self._hand_over)
        elif len(self._waiting) >= self._most_waiting:
            self._room.clear()

    async def do(self, item: Item) -> Any:
        """
        Have an item written and wait for its result; the wait may be cancelled, the write is not.

        Raises:
            GatewayError: If it was refused, or could not be written.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.put(Waiting(item, future))
        return await future

    @property
    def full(self) -> bool:
        """Whether so much waits that writers should wait for `room`."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until the writer has caught up a little."""
        await self._room.wait()

    def later(self, seconds: float, item: Item) -> None:
        """Have an item put that much later."""
        assert self._loop is not None
        timer: asyncio.TimerHandle

        def due() -> None:
            self._timers.discard(timer)
            self.put(item)

        timer = self._loop.call_later(seconds, due)
        self._timers.add(timer)

    def begin_anew(self, process: uuid.UUID) -> None:
        """Go on under another name: nothing that was this process' is its own any more."""
        self.process, self.lost, self._commits = process, False, 0
        for slot in list(self.slots.values()):
            slot.forget()
            slot.before = {}

    def keep(self, slot: Slot) -> None:
        """Remember a slot whose agent connects here."""
        self.slots[slot.user_id, slot.name] = slot
        if slot not in self.slots_of_user[slot.user_id]:
            self.slots_of_user[slot.user_id].append(slot)

    def drop(self, slot: Slot) -> None:
        """Let go of a slot that is somebody else's, or nobody's."""
        if self.slots.get((slot.user_id, slot.name)) is slot:
            del self.slots[slot.user_id, slot.name]
        slots = self.slots_of_user.get(slot.user_id, [])
        if slot in slots:
            slots.remove(slot)
        if not slots:
            self.slots_of_user.pop(slot.user_id, None)

    # In the event loop

    def _hand_over(self) -> None:
        items, self._waiting = self._waiting, []
        for item in items:
            if isinstance(item, Joinable):
                item.taken = True
        self._most_waiting = settings.HERMES_WRITER_ITEMS
        self._room.set()
        self._work.put(items)

    def _after(self, done: list[Committed]) -> None:
        if self._waiting:
            self._hand_over()
        else:
            self._busy = False
            self._idle.set()
        for committed in done:
            batch = committed.batch
            if batch is not None:
                for slot, text in batch.pushes:  # first: what is handed out may have ended in this very batch
                    if slot.peer is not None:
                        slot.peer.push(text)
                self._tell(batch.told)
                for seconds, item in batch.timers:
                    self.later(seconds, item)
                for call in batch.calls:
                    call()
                for word in batch.words:
                    self.say(word)
                for slot in batch.idle:
                    if slot.peer is None and not slot.turns:
                        self.drop(slot)
            for item, result, error in committed.outcomes:
                if isinstance(error, Postponed):
                    self.put(item)
                    continue
                if isinstance(error, Unavailable) and getattr(item, "insists", False):
                    self.later(INSIST_SECONDS, item)
                    continue
                try:
                    item.done(result, error)
                except Exception:
                    logger.exception("an item could not take its outcome")

    # In the writer's thread

    def _run(self) -> None:
        while (items := self._work.get()) is not None:
            done = self.write(items)
            assert self._loop is not None
            try:
                self._loop.call_soon_threadsafe(self._after, done)
            except RuntimeError:  # the loop has been closed under us
                break
        connection.close()

    def write(self, items: list[Item]) -> list[Committed]:
        """
        Commit items in order: together, but those that must see the database as it is by themselves.

        Returns what is to be told and who is to hear what, which is the caller's to do.
        """
        done: list[Committed] = []
        together: list[Item] = []
        for item in items:
            if not getattr(item, "alone", False):
                together.append(item)
                continue
            if together:
                done.extend(self._commit(together))
                together = []
            done.append(self._alone(item))
        if together:
            done.extend(self._commit(together))
        return done

    def _commit(self, items: list[Item]) -> list[Committed]:
        """Commit items together; if that fails by their own fault, each by itself."""
        for attempt in range(TRIES):
            try:
                return [self._attempt(items)]
            except InDoubt:
                break
            except Exception as error:
                if not self._lost_connection(error):
                    if len(items) > 1:
                        logger.info(
                            "a batch of %d failed (%s): each by itself", len(items), type(error).__name__
                        )
                    return [self._alone(item) for item in items]
                time.sleep(RETRY_SECONDS * (attempt + 1))
        return [_failed(items, Unavailable("the database does not answer"))]

    def _alone(self, item: Item) -> Committed:
        """Commit one item by itself; what it meets is its own."""
        error: BaseException = Internal("could not be stored")
        for attempt in range(TRIES):
            try:
                return self._attempt([item])
            except HeldForDead:
                self.lost = True
                error = Unavailable("this process has to begin anew")
                break
            except InDoubt:
                error = Unavailable("the database does not answer")
                break
            except NotOurs:
                error = Outdated()  # taken over: what was cached is forgotten, so it sees the truth now
            except IntegrityError:
                error = Internal("somebody else was first")  # the same; and it reads again what is taken
            except Exception as problem:
                if not isinstance(problem, OperationalError | InterfaceError):
                    logger.exception("an item failed")
                    break
                self._lost_connection(problem)
                error = Unavailable("the database does not answer")
                time.sleep(RETRY_SECONDS * (attempt + 1))
        return _failed([item], error)

    def _attempt(self, items: list[Item]) -> Committed:
        if self.lost:
            raise HeldForDead("this process is held for dead")
        batch = Batch(self.process, turnstore.load_turns)
        batch.slots_of_user = self.slots_of_user
        batch.has_apps = self.has_apps
        outcomes: list[Outcome] = []
        number = self._commits + 1
        committing = False
        try:
            with transaction.atomic():
                rows.prepare_transaction(settings.HERMES_LOCK_TIMEOUT_SECONDS)
                for item in items:
                    item.load(batch)
                batch.fetch()
                for item in items:
                    try:
                        outcomes.append((item, item.apply(batch), None))
                    except (GatewayError, Outdated, Postponed) as refusal:
                        outcomes.append((item, None, refusal))
                batch.flush()
                batch.count_commit(number)
                committing = True
        except BaseException as error:
            for slot in batch.slots:
                slot.forget()
            known: bool | None = False
            if committing and isinstance(error, OperationalError | InterfaceError):
                known = self._was_committed(number)
                if known is not False:
                    self._commits = number
                if known:
                    return Committed(batch, outcomes)
            for undo in reversed(batch.undoings):
                undo()
            if known is None:
                raise InDoubt from error
            raise
        self._commits = number
        return Committed(batch, outcomes)

    def _was_committed(self, number: int) -> bool | None:
        """Whether a commit whose answer was lost has happened; None: the database does not come back to tell."""
        deadline = time.monotonic() + KNOW_SECONDS
        while True:
            try:
                connection.close()
                return wrote_commit(self.process, number)
            except DatabaseProblem:
                if time.monotonic() > deadline:
                    return None
                time.sleep(RETRY_SECONDS)

    def _lost_connection(self, error: Exception) -> bool:
        """Whether the database went away under a batch; the next try makes a new connection then."""
        if not isinstance(error, OperationalError | InterfaceError) or rows.is_contention(error):
            return False
        logger.warning("the database went away: %s", type(error).__name__)
        connection.close()
        return True


def _failed(items: list[Item], error: BaseException) -> Committed:
    """Items that could not be written; the next batch may wait already, so those that have to know know now."""
    for item in items:
        if (failed := getattr(item, "failed", None)) is not None:
            failed(error)
    return Committed(None, [(item, None, error) for item in items])
