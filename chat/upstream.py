"""
The gateway as an agent: it answers, by a Hermes API server, users who have no agent of that name themselves.

`Upstream` looks for runs that wait, in all processes together no more at once than one Hermes may have. For
each of their users `UpstreamAgent` takes the user's place as an agent's socket would, is handed the same
frames, and puts back the same items: journal, history, stop and approvals do not know the difference.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import Error as DatabaseProblem

from bridge import wire
from bridge.events import Refused
from bridge.hermes import Hermes
from chat import agents, claims, frames, queries
from chat.agent_frames import AgentFrame, Pieces
from chat.answers import Outdated
from chat.asking import Work
from chat.telling import Told
from chat.turns import Slot
from hermes_site.errors import CloseCode, Conflict, GatewayError

if TYPE_CHECKING:
    from chat.gateway import Gateway

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1
LAST_STOPS_SECONDS = 2  # for Hermes to take the stops of a process that ends


class Upstream:
    """One process' share of answering by the upstream. `client` is the way to it."""

    def __init__(self, here: Gateway, client: Hermes | None = None) -> None:
        self.here = here
        self.client = client or Hermes(
            settings.HERMES_UPSTREAM_URL,
            settings.HERMES_UPSTREAM_KEY,
            wait_seconds=settings.HERMES_UPSTREAM_WAIT_SECONDS,
        )
        self.agents: dict[int, UpstreamAgent] = {}  # by user
        self._woken = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped: set[int] = set()  # runs whose left-over at Hermes is being stopped

    def start(self) -> None:
        """Answer from now on."""
        self._looking = asyncio.get_running_loop().create_task(self._look_on())

    async def stop(self) -> None:
        """Answer no more: what is under way is stopped, as far as Hermes can be reached, and interrupted."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self.abandon()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()

    async def abandon(self) -> None:
        """Let all places go."""
        for agent in list(self.agents.values()):
            agent.close(CloseCode.GOING_AWAY)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_STOPS_SECONDS)

    def wake(self) -> None:
        """Look whether anything may begin."""
        self._woken.set()

    def told(self, told: list[Told]) -> None:
        """What was committed here: a question that waits for the upstream is looked for, in every process."""
        if any(map(_waits, told)):
            self.wake()
            self.here.say({"kind": "asked"})

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done beside; it answers its own failure."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_on(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._look()
            except (GatewayError, DatabaseProblem) as problem:
                logger.warning("the upstream's turns could not be looked for: %s", type(problem).__name__)
            except Exception:
                logger.exception("the upstream's turns could not be looked for")
            try:
                async with asyncio.timeout(settings.HERMES_POSITION_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        """Begin what may begin; let go of places nobody needs; stop what a dead process left running."""
        here = self.here
        if here.draining or here.journal.lost:
            return
        now = time.monotonic()
        for agent in list(self.agents.values()):
            if not agent.works and now - agent.idle_since > settings.HERMES_UPSTREAM_IDLE_SECONDS:
                agent.close(CloseCode.GOING_AWAY)
        for left in await queries.pool.read(claims.left_over):
            self._stop_left_over(left)
        under_way = sum(len(agent.works) for agent in self.agents.values())
        room = settings.HERMES_UPSTREAM_TURNS - under_way  # some may have ended here and not at Hermes
        waiting = (await queries.pool.read(claims.waiting, here.process))[: max(0, room)]
        for one in waiting:
            await self._seat(one)
        ready = {user_id: agent.generation for user_id, agent in self.agents.items() if agent.ready}
        if waiting:
            keys = [one.key for one in waiting]
            await here.journal.do(claims.Claim(here.journal.slots, ready, keys))

    async def _seat(self, one: claims.Waiting) -> None:
        """Take the place of a user's agent, unless this process has it, or somebody else."""
        if one.user_id in self.agents:
            return
        journal, name = self.here.journal, settings.HERMES_UPSTREAM_AGENT
        slot = journal.slots.get((one.user_id, name)) or Slot(0, one.user_id, one.username, name)
        journal.keep(slot)
        agent = UpstreamAgent(self, slot)
        try:
            await agent.sit()
        except Conflict as error:
            logger.info("the upstream does not answer user %s: %s", one.user_id, error.text)
            return
        journal.keep(slot)  # again: an old grace time may have let it go meanwhile
        self.agents[one.user_id] = agent
        logger.info("the upstream answers user %s from here", one.user_id)

    def _stop_left_over(self, left: claims.LeftOver) -> None:
        if left.run in self._stopped or any(
            work.run == left.run for agent in self.agents.values() for work in agent.works.values()
        ):
            return
        self._stopped.add(left.run)
        self.spawn(self._stop(left))

    async def _stop(self, left: claims.LeftOver) -> None:
        """Stop what goes on at Hermes for a run that has ended; once, as well as it can be."""
        try:
            if left.hermes_id is not None:
                logger.info("run %s has ended, but not at the upstream: stopping it", left.run)
                await self.client.stop(left.hermes_id)
        except Refused as error:
            logger.warning("the upstream did not take a stop: %s", error.text)
        self.here.journal.put(claims.Settled(left.run, lambda error: self._stopped.discard(left.run)))


class UpstreamAgent:
    """The agent of one user, as an agent's socket is; see `chat.turns.Peer` and `chat.agent_frames.Speaker`."""

    def __init__(self, upstream: Upstream, slot: Slot) -> None:
        self.slot = slot
        self.user_id = slot.user_id
        self.generation = 0
        self.unwritten = 0
        self.works: dict[str, Work] = {}  # by message
        self.idle_since = time.monotonic()
        self._upstream = upstream
        self._journal = upstream.here.journal
        self._joining: dict[str, Pieces] = {}
        self._seated = 0  # the generation of the place it has, or had
        self._closed = False
        self._recovering = False

    @property
    def ready(self) -> bool:
        """Whether messages may be handed to it."""
        return not self._closed and not self._recovering

    async def sit(self) -> None:
        """
        Take the user's place.

        Raises:
            Conflict: If it is somebody else's.
            GatewayError: If it could not be written.
        """
        sitting = claims.Sit(self.slot, self, lambda: tuple(self.works))
        seat = await self._journal.do(sitting)
        self.generation = self._seated = seat.generation
        self._held = sitting.held

    # As the gateway sees an agent

    def push(self, text: str) -> None:
        """One frame of the gateway."""
        frame = json.loads(text)
        match frame["type"]:
            case "text" | "image" | "voice" | "video" | "file":
                self._accept(frame)
            case "stop":
                for work in self._named(frame):
                    self._upstream.spawn(work.stop())
            case "steer":
                self._upstream.spawn(self._steer(frame))
            case "event":
                self._answer_request(frame)

    def close(self, code: int) -> None:
        """Let the place go; a newer connection's stays its own. What is under way is stopped."""
        if self._closed:
            return
        self._closed = True
        self._upstream.agents.pop(self.user_id, None)
        if self.slot.peer is self:
            self.slot.peer = None
        for work in list(self.works.values()):
            self._lose(work, "its place is let go")
        self._journal.put(claims.Leave(self.slot, self._seated))

    def wake(self) -> None:
        """Look for messages that wait."""
        self._upstream.wake()

    def judge(self, error: BaseException | None, session: str | None, reply_to: str | None) -> None:
        """How a frame fared with the writer: what the gateway has ended is dropped, what was lost is told again."""
        if error is None or isinstance(error, Outdated) or self._closed:
            return
        if isinstance(error, GatewayError) and error.wire_code != "internal":
            for work in list(self.works.values()):
                if work.session == session and work.answer.attached:
                    self._lose(work, error.text)
        elif not self._recovering:
            self._recovering = True
            self.generation = -1  # what still waits is void: the journal says what is there
            for work in self.works.values():
                work.answer.attached = False
            self._upstream.spawn(self._recover())

    # As its turns see it

    def tell(self, work: Work) -> None:
        """Put what a turn has to say; its end is over when it is written."""
        answer = work.answer
        if not answer.attached:
            return
        for frame in answer.frames(agents.UPSTREAM_CAPS):
            self._put(work, frame)
        if answer.end_told and work.run is not None:
            self._journal.put(claims.Settled(work.run, lambda error: self._settled(work, error)))
        elif answer.end_told:
            self._forget(work)

    def _settled(self, work: Work, error: BaseException | None) -> None:
        if work.answer.attached and work.answer.end_told:
            self._forget(work)

    def _forget(self, work: Work) -> None:
        if self.works.get(work.message_id) is work:
            del self.works[work.message_id]
        self.idle_since = time.monotonic()
        self._upstream.wake()  # there is room again

    def _put(self, work: Work, said: dict[str, Any]) -> None:
        try:
            frame = frames.decode(wire.encode(said), "agent", data_bytes=settings.HERMES_DATA_BYTES)
        except frames.BadFrame as error:
            logger.warning("the upstream said what cannot be told: %s", error.text)
            if said["type"] != "event":
                self._lose(work, error.text)
            return
        if isinstance(frame, frames.Stream):
            pieces = self._joining.get(work.session)
            if pieces is None or pieces.taken:
                pieces = self._joining[work.session] = Pieces(self, work.session)
                self._journal.put(pieces)
            pieces.texts.append(frame.data.text)
            self.unwritten += len(frame.data.text)
            return
        self._joining.pop(work.session, None)
        self._journal.put(AgentFrame(self, frame))

    # Inside

    def _accept(self, frame: dict[str, Any]) -> None:
        """A message of the person: one turn."""
        for earlier in list(self.works.values()):
            if earlier.session == frame["session"]:
                self._drop(earlier)  # its turn has ended, or this one could not begin
        work = Work(self, self._upstream.client, self._journal, frame)
        work.answer.attached = self.ready
        self.works[work.message_id] = work
        self._upstream.spawn(self._work(work))

    async def _work(self, work: Work) -> None:
        await work.work()
        if work.dropped:
            if work.run is not None:
                self._journal.put(claims.Settled(work.run))
            self._forget(work)

    def _lose(self, work: Work, why: str) -> None:
        """Nothing more of a turn can be told: it ends here, if it has not, and at Hermes."""
        logger.info("a turn of the upstream is dropped: %s", why)
        self._journal.put(claims.Lose(self.slot, work.session, work.message_id))
        self._drop(work)

    def _drop(self, work: Work) -> None:
        """Nobody waits for what a turn still says; it goes when Hermes has ended it, too."""
        work.dropped = True
        work.answer.attached = False
        if work.over:
            self._forget(work)
        else:
            self._upstream.spawn(work.stop_hermes())

    async def _recover(self) -> None:
        """Something could not be written: sit down anew, and go on from what is there."""
        logger.warning("what the upstream said could not be written: going on from what is there")
        begun = time.monotonic()
        while not self._closed:
            try:
                await self.sit()
                break
            except Conflict:
                self.close(CloseCode.REPLACED)
            except GatewayError:
                if time.monotonic() - begun > settings.HERMES_STREAM_GRACE_SECONDS:
                    self.close(CloseCode.INTERNAL)
                await asyncio.sleep(RETRY_SECONDS)
        self._recovering = False
        self._joining.clear()
        for work in list(self.works.values()):
            if self._closed or work.dropped:
                continue
            answer = work.answer
            stream_id, text = self._held.get(work.message_id, ("", ""))
            if stream_id is None:
                answer.begin_anew()
            elif stream_id == answer.stream_id and answer.text.startswith(text):
                answer.go_on(len(text))
            else:  # it has ended meanwhile, or a piece is missing in the middle
                self._lose(work, "it could not be written")
            self.tell(work)

    def _named(self, frame: dict[str, Any]) -> list[Work]:
        """The turn a control frame means: by the person's message or by the stream."""
        return [
            work
            for work in self.works.values()
            if work.session == frame["session"]
            and frame.get("reply_to") in (work.message_id, work.answer.stream_id)
        ]

    async def _steer(self, frame: dict[str, Any]) -> None:
        text = str((frame.get("data") or {}).get("text") or "")
        for work in self._named(frame):
            if not await work.steer(text):
                data = {"code": "unsupported", "text": "This agent cannot be steered now."}
                error = wire.envelope(
                    "error",
                    sender=frame["to"],
                    to=frame["from"],
                    session=frame["session"],
                    reply_to=frame["id"],
                )
                self._put(work, wire.stamped(error | {"data": data}))

    def _answer_request(self, frame: dict[str, Any]) -> None:
        data = frame.get("data") or {}
        asked = data.get("request_id")
        for work in self.works.values():
            if asked is not None and work.request_id == asked:
                self._upstream.spawn(work.approve(str(data.get("choice"))))


def _waits(one: Told) -> bool:
    """Whether this is a question to the upstream, or to an agent of its name, that nobody was handed yet."""
    if one.side != "app" or one.message is None or one.run is None or one.status is None:
        return False
    return bool(one.run.agent == settings.HERMES_UPSTREAM_AGENT and one.status["status"] == "queued")
