"""Running turns: one at a time in a session, a few at once, each with exactly one end that is on disk first."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from bridge import events, orders, wire
from bridge.answer import Answer
from bridge.events import Order, Refused
from bridge.state import Record, State
from bridge.wire import Frame

log = logging.getLogger("bridge.turns")


class Agent(Protocol):
    """Who answers: a Hermes API server, or the demo agent. Every method may raise `events.Refused`."""

    takes_media: bool  # whether media frames can be given to it

    async def repeatable(self) -> bool:
        """Whether starting the same order twice makes one turn."""

    async def rereadable(self) -> bool:
        """Whether `follow` gives the events of a resumed turn from the first."""

    async def start(self, order: Order) -> str:
        """Begin a turn and return its run id."""

    def follow(self, run_id: str, *, resumed: bool = False) -> AsyncGenerator[events.Event, None]:
        """The events of a turn, its end last and exactly once; `resumed` after a restart of the bridge."""

    async def stop(self, run_id: str) -> None:
        """Ask for the end of a turn; it comes as an event."""

    async def steer(self, run_id: str, text: str) -> bool:
        """Add a remark to a running turn; False when it cannot be taken."""

    async def approve(self, run_id: str, request_id: str, choice: str) -> None:
        """Answer the open approval request of a turn."""

    async def close(self) -> None:
        """Let go of what it holds; turns go on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the bridge; times in seconds."""

    turns: int = 4
    turn_seconds: float = 1800
    waiting: int = 1000
    unclaimed_seconds: float = 60


@dataclass(slots=True, eq=False)
class Turn:
    """One message of a user on its way to an answer."""

    frame: Frame
    answer: Answer
    cursor: int | None = None
    run_id: str | None = None
    begun: bool = False
    inherited: bool = False  # an earlier bridge left it
    again: bool = False  # an earlier bridge may have given it to the agent
    stopping: bool = False
    request_id: str | None = None  # the approval request that is open
    mark: int | None = None  # the number of the ping that followed its end on this connection
    rereads: bool | None = True  # whether `answer` has its text from the first; None: not known yet
    held: int | None = None  # characters the gateway has of it, until it is known here what follows them
    unclaimed: bool = False  # it has ended at the gateway: nobody waits for the answer
    claimed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def key(self) -> tuple[str, str]:
        """User and message id."""
        return self.frame["from"], self.frame["id"]

    @property
    def over(self) -> bool:
        """Whether the agent ended it."""
        return self.answer.end is not None


class Turns:
    """
    The turns of this bridge, from the message to the end that the gateway has.

    `news` is called whenever an answer has more to say; `may_ask` says whether a request for approval
    can reach a person now.
    """

    def __init__(
        self,
        agent: Agent,
        state: State,
        limits: Limits,
        *,
        news: Callable[[], None],
        may_ask: Callable[[], bool],
    ) -> None:
        self.all: dict[tuple[str, str], Turn] = {}
        self._agent = agent
        self._state = state
        self._limits = limits
        self._news = news
        self._may_ask = may_ask
        self._slots = asyncio.Semaphore(limits.turns)
        self._lanes: dict[tuple[str, str], deque[Turn]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Work in this task group, and take up the turns that an earlier bridge left."""
        self._tasks = tasks
        for record in self._state.unfinished():
            if record.run_id is None and record.outcome is None:
                continue  # if the gateway still waits for it, it hands it out again
            frame = orders.frame_of(record)
            turn = Turn(frame, orders.empty_answer(frame, record.stream_id), record.cursor, record.run_id)
            turn.inherited = True
            turn.answer.attached = False
            self.all[turn.key] = turn
            if record.outcome is not None:
                orders.retell(turn.answer, record)
            else:
                turn.rereads = None
                log.info(
                    "turn %s was running when the bridge stopped: looking for its end", record.message_id
                )
                turn.claimed.set()
                self._queue(turn)

    def accept(self, turn: Turn, record: Record | None, *, may_have_run: bool) -> None:
        """
        Take a message: run it, or say again how it ended, or say that it cannot be run.

        `record` is what the disk knows of it, `may_have_run` that the disk might have known more.
        """
        self.all[turn.key] = turn
        if record is not None and record.outcome is not None:
            orders.retell(turn.answer, record)
            self._news()
        elif record is None and may_have_run:
            self.finish(
                turn, events.Failed("The bridge lost its state: this message may have been run before.")
            )
        elif turn.frame["type"] != "text" and not self._agent.takes_media:
            text = f"This agent cannot take a {turn.frame['type']} yet; please send text."
            self.finish(turn, events.Failed(text, "unsupported"))
        elif len(self.all) > self._limits.waiting:
            text = "Too many messages are waiting for this agent."
            self.finish(turn, events.Failed(text, "rate_limited"))
        else:
            turn.again = record is not None
            turn.claimed.set()
            self._queue(turn)

    def finish(self, turn: Turn, end: events.End) -> None:
        """Give a turn its end, on disk before anybody is told; a second end does nothing."""
        if turn.over:
            return
        turn.request_id = None
        turn.answer.add(end)
        code = end.code if isinstance(end, events.Failed) else None
        text = end.text if isinstance(end, events.Failed) else turn.answer.text
        self._state.finish(*turn.key, end.name.removeprefix("run."), text, code)
        log.info("turn %s ended: %s", turn.key[1], end.name.removeprefix("run."))
        self._news()

    def stop(self, turn: Turn) -> None:
        """End a turn: at once while it waits, else when the agent says so."""
        if turn.over or turn.stopping:
            return
        log.info("stop of turn %s", turn.key[1])
        turn.stopping = True
        if turn.run_id is not None:
            self._spawn(self._stop_run(turn))
        elif not turn.begun:
            self.finish(turn, events.Cancelled())

    async def steer(self, turn: Turn, text: str) -> bool:
        """Add a remark to a running turn; False when it was not taken."""
        taken = False
        if not turn.over and not turn.stopping and turn.run_id is not None:
            try:
                taken = await self._agent.steer(turn.run_id, text)
            except Refused as error:
                log.warning("the agent did not take a remark: %s", error.text)
        if not taken:
            turn.answer.leave(text)
        return taken

    def approve(self, turn: Turn, choice: str) -> None:
        """Answer the open request of a turn."""
        if turn.request_id is not None:
            self._spawn(self._approve(turn, turn.request_id, choice))
        turn.request_id = None
        turn.answer.answered()

    def _queue(self, turn: Turn) -> None:
        """Behind the turns of the same session, if there are any."""
        lane = (turn.frame["from"], turn.frame["session"])
        if lane in self._lanes:
            self._lanes[lane].append(turn)
            return
        self._lanes[lane] = deque([turn])
        self._spawn(self._work(lane))

    async def _work(self, lane: tuple[str, str]) -> None:
        waiting = self._lanes[lane]
        while waiting:
            turn = waiting.popleft()
            await turn.claimed.wait()
            async with self._slots:
                if not turn.over:
                    await self._take(turn)
        del self._lanes[lane]

    async def _take(self, turn: Turn) -> None:
        """Run one turn to its end, which is never missing and never twice."""
        resumed = turn.run_id is not None
        turn.begun = True
        try:
            async with asyncio.timeout(self._limits.turn_seconds):
                if resumed:
                    turn.rereads = await self._agent.rereadable()
                else:
                    await self._begin(turn)
                await self._follow(turn, resumed=resumed)
        except Refused as error:
            log.warning("turn %s failed: %s", turn.key[1], error.text)
            self.finish(turn, events.Failed(error.text, error.code, error.reason))
        except TimeoutError:
            log.warning("turn %s took longer than %g s: stopped", turn.key[1], self._limits.turn_seconds)
            self.finish(turn, events.Failed("The agent took too long.", "timeout"))
            await self._stop_run(turn)
        except Exception:
            log.exception("turn %s failed inside the bridge", turn.key[1])
            self.finish(turn, events.Failed("The bridge failed in this turn."))

    async def _begin(self, turn: Turn) -> None:
        if turn.again and not await self._agent.repeatable():
            raise Refused("The bridge stopped while the agent was taking this message; it may have run.")
        user, session = turn.frame["from"], turn.frame["session"]
        if (past := orders.past(turn.frame)) is not None:
            self._state.rewrite(user, session, past)
        order = orders.order(
            turn.frame, self._state.conversation(user, session), self._state.history(user, session)
        )
        self._state.begin(
            Record(
                user=user,
                message_id=turn.frame["id"],
                session=session,
                agent=turn.frame["to"],
                cursor=turn.cursor,
                stream_id=turn.answer.stream_id,
                question=orders.question(turn.frame),
                begun_at=time.time(),
            )
        )
        log.info("turn %s begins", turn.key[1])
        turn.run_id = await self._agent.start(order)
        self._state.running(*turn.key, turn.run_id)
        if turn.stopping:
            await self._stop_run(turn)

    async def _follow(self, turn: Turn, *, resumed: bool) -> None:
        cleaner = wire.Cleaner()
        async with aclosing(self._agent.follow(turn.run_id or "", resumed=resumed)) as happening:
            async for event in happening:
                match event:
                    case events.Delta(text):
                        self._say(turn, events.Delta(cleaner.feed(text)))
                    case events.Completed() | events.Failed() | events.Cancelled():
                        self._say(turn, events.Delta(cleaner.rest()))
                        self.finish(turn, event)
                        return
                    case events.ApprovalRequest(request_id=request_id):
                        turn.request_id = request_id
                        self._say(turn, event)
                        if not self._may_ask():
                            log.info("the agent asks for approval and nobody can be asked: denied")
                            self.approve(turn, "deny")
                    case _:
                        self._say(turn, event)
        self.finish(turn, events.Failed("The agent's answer broke off."))

    def _say(self, turn: Turn, event: events.Event) -> None:
        turn.answer.add(event)
        self._news()

    async def _stop_run(self, turn: Turn) -> None:
        if turn.run_id is None:
            return
        try:
            await self._agent.stop(turn.run_id)
        except Refused as error:
            log.warning("the agent did not take the stop of turn %s: %s", turn.key[1], error.text)

    async def _approve(self, turn: Turn, request_id: str, choice: str) -> None:
        try:
            await self._agent.approve(turn.run_id or "", request_id, choice)
        except Refused as error:
            log.warning("the agent did not take the answer to its request: %s", error.text)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is None:
            raise RuntimeError("the turns were not started")
        self._tasks.create_task(work)
