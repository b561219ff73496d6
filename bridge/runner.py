"""Ties an agent and the gateway together: what each connection must be told, and what it asks for."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from bridge import events, orders, wire
from bridge.gateway import Closed, Gateway, Link
from bridge.state import State
from bridge.turns import Agent, Limits, Turn, Turns
from bridge.wire import Frame

log = logging.getLogger("bridge.runner")


class Runner:
    """One bridge at work; see `run`."""

    def __init__(self, agent: Agent, state: State, limits: Limits | None = None) -> None:
        self._state = state
        self._limits = limits or Limits()
        self._turns = Turns(agent, state, self._limits, news=self._news_came, may_ask=self._may_ask)
        self._link: Link | None = None
        self._news = asyncio.Event()
        self._loose: deque[Frame] = deque(maxlen=100)  # answers to control frames; they belong to no turn
        self._done: deque[tuple[str, str]] = deque(maxlen=1000)
        self._highest: dict[str, int] = {}  # by user, the highest cursor received

    async def run(self, gateway: Gateway) -> None:
        """
        Work until cancelled.

        Raises:
            ExceptionGroup: Of `gateway.Stopped`, when the gateway refused for good.
        """
        async with asyncio.TaskGroup() as tasks:
            self._turns.start(tasks)
            await gateway.run(self._serve, self._state.since)

    # -- one connection

    async def _serve(self, link: Link) -> None:
        self._link = link
        self._meet(link)
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._tell(link)), tasks.create_task(self._sweep(link))]
            async for frame in link.frames():
                self._receive(link, frame, tasks)
            self._link = None
            for task in beside:
                task.cancel()

    def _meet(self, link: Link) -> None:
        """Decide for every turn what the new connection still has to be told of it."""
        held = _streams(link.ready) if "sync" in link.caps else {}
        for turn in list(self._turns.all.values()):
            turn.mark, turn.held = None, None
            answer = turn.answer
            if _by_cursor(link, turn):
                # What the gateway still waits for it names now or hands out again; the rest has ended there.
                answer.attached = False
                turn.claimed.clear()
                if answer.stream_id in held:
                    turn.held = held[answer.stream_id]
                    _go_on(turn)
                    turn.claimed.set()
                continue
            turn.claimed.set()
            if (answer.end_told or turn.inherited) and isinstance(
                answer.end, events.Failed | events.Cancelled
            ):
                self._settle(turn)  # it was told, or the gateway has told of the lost agent itself
            elif answer.begun and not answer.end_told:
                # Under a new id: if the time of grace is over, it is a late answer of its own.
                answer.begin_anew(wire.new_id())
            else:
                answer.begin_anew()
        if "sync" in link.caps and link.ready.get("truncated") is True:
            self._cursor_lost(link.ready)
        self._news.set()

    def _cursor_lost(self, ready: Frame) -> None:
        """The gateway was put back to an older state: its cursor is the true one."""
        user, cursor = ready.get("user"), ready.get("cursor")
        if isinstance(user, str) and isinstance(cursor, int):
            log.warning("the gateway's log is behind ours: going on from its cursor %s", cursor)
            self._highest[user] = cursor
            self._state.set_since(user, cursor)

    async def _tell(self, link: Link) -> None:
        """Write what there is to say, as fast as the socket takes it."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._loose:
                    await link.send(self._loose[0])
                    self._loose.popleft()
                for turn in list(self._turns.all.values()):
                    _go_on(turn)
                    if turn.answer.attached and turn.answer.owes():
                        for frame in turn.answer.frames(link.caps):
                            await link.send(frame)
                        if turn.answer.end_told:
                            turn.mark = await link.ping()
        except Closed:
            pass

    async def _sweep(self, link: Link) -> None:
        """Give up the turns that a gateway with `sync` did not ask for again."""
        if "sync" not in link.caps:
            return
        await asyncio.sleep(self._limits.unclaimed_seconds)
        for turn in list(self._turns.all.values()):
            if not turn.answer.attached and turn.held is None:
                log.warning("turn %s has ended at the gateway meanwhile: its answer is dropped", turn.key[1])
                self._give_up(turn)

    # -- what comes in

    def _receive(self, link: Link, frame: Frame, tasks: asyncio.TaskGroup) -> None:
        kind = frame["type"]
        if kind == "pong":
            self._ponged(link)
        elif kind == "error":
            self._gateway_error(frame)
        elif kind in ("ready", "ping"):
            pass
        elif link.ready.get("user") not in (None, frame.get("from")):
            self._echoed(frame)
        elif not orders.is_addressed(frame):
            log.warning("the gateway sent a %s frame without id, sender or session; left aside", kind)
        elif kind == "text" or kind in wire.MEDIA_TYPES:
            self._accept(link, frame)
        elif kind == "stop":
            self._stop(frame)
        elif kind == "steer":
            tasks.create_task(self._steer(frame))
        elif kind == "event":
            self._answer_request(frame)
        else:
            log.debug("a %s frame, which is not for us", kind)

    def _accept(self, link: Link, frame: Frame) -> None:
        """A user's message: one turn, however often it comes."""
        key = (frame["from"], frame["id"])
        cursor = frame.get("cursor") if isinstance(frame.get("cursor"), int) else None
        if cursor is not None:
            self._highest[key[0]] = max(cursor, self._highest.get(key[0], 0))
        if (known := self._turns.all.get(key)) is not None:
            if not known.answer.attached and known.held is None:
                known.answer.begin_anew()
                known.claimed.set()
                self._news.set()
            return
        redelivered = "sync" in link.caps and frame.get("redelivered") is True
        record = self._state.turn(*key)
        if not redelivered and (record is not None or key in self._done):
            log.info("message %s came again: it was answered", key[1])
            return
        answer = orders.empty_answer(frame, record.stream_id if record else None)
        self._turns.accept(
            Turn(frame, answer, cursor), record, may_have_run=redelivered and self._state.fresh
        )

    def _stop(self, frame: Frame) -> None:
        turn = self._named(frame)
        if turn is not None:
            self._turns.stop(turn)
            return
        name = frame.get("reply_to")
        if not isinstance(name, str):
            return
        key = (frame["from"], name)
        if key in self._done or self._state.turn(*key) is not None:
            return
        log.info("stop of message %s, which we do not have: confirmed", name)
        end = _back(frame, "stream_end", name) | {"data": {"status": "cancelled"}}
        self._say(end)

    async def _steer(self, frame: Frame) -> None:
        turn = self._named(frame)
        data = frame.get("data")
        text = data.get("text") if isinstance(data, dict) else None
        if turn is None or not isinstance(text, str) or not await self._turns.steer(turn, text):
            self._refuse(frame, "This agent cannot be steered now.")

    def _answer_request(self, frame: Frame) -> None:
        data = frame.get("data")
        if not isinstance(data, dict) or data.get("event") != "approval.response":
            return
        asked = data.get("request_id")
        for turn in self._turns.all.values():
            if asked is not None and turn.request_id == asked and turn.key[0] == frame["from"]:
                self._turns.approve(turn, str(data.get("choice")))
                return
        self._refuse(frame, "That request is not open.")

    def _named(self, frame: Frame) -> Turn | None:
        """The turn a control frame means: by the user's message or by the stream."""
        name = frame.get("reply_to")
        for turn in self._turns.all.values():
            place = (turn.key[0], turn.frame["session"])
            if place == (frame["from"], frame["session"]) and name in (turn.key[1], turn.answer.stream_id):
                return turn
        return None

    def _refuse(self, frame: Frame, text: str) -> None:
        error = _back(frame, "error", frame["id"]) | {"data": {"code": "unsupported", "text": text}}
        self._say(wire.stamped(error))

    def _say(self, frame: Frame) -> None:
        self._loose.append(frame)
        self._news.set()

    # -- what the gateway says of our frames

    def _echoed(self, frame: Frame) -> None:
        """One of ours came back: it is committed."""
        for turn in list(self._turns.all.values()):
            if frame.get("id") == turn.answer.stream_id and turn.answer.end_told:
                self._settle(turn)

    def _ponged(self, link: Link) -> None:
        """The gateway has read what was sent before the ping."""
        for turn in list(self._turns.all.values()):
            if turn.mark is None or link.pongs < turn.mark:
                continue
            # With `sync` a whole answer is settled by its echo, which says more.
            if not _by_cursor(link, turn) or not isinstance(turn.answer.end, events.Completed):
                self._settle(turn)

    def _gateway_error(self, frame: Frame) -> None:
        data = frame.get("data")
        code, text = (data.get("code"), data.get("text")) if isinstance(data, dict) else (None, None)
        log.warning("the gateway says %s: %s", code, text)
        if code == "unsupported":
            for turn in list(self._turns.all.values()):
                if frame.get("reply_to") == turn.answer.stream_id:
                    self._give_up(turn)

    def _settle(self, turn: Turn) -> None:
        """The gateway has the end of this turn."""
        self._turns.all.pop(turn.key, None)
        self._done.append(turn.key)
        self._state.settle(*turn.key)
        user = turn.key[0]
        if user in self._highest:
            open_cursors = [
                other.cursor
                for other in self._turns.all.values()
                if other.cursor is not None and other.key[0] == user
            ]
            self._state.advance(user, self._highest[user], open_cursors)

    def _give_up(self, turn: Turn) -> None:
        """The turn has ended at the gateway: nobody waits for its answer."""
        turn.answer.attached = False
        turn.unclaimed = True
        self._turns.stop(turn)
        turn.claimed.set()
        if turn.over:
            self._settle(turn)

    def _news_came(self) -> None:
        for turn in [turn for turn in self._turns.all.values() if turn.unclaimed and turn.over]:
            self._settle(turn)
        self._news.set()

    def _may_ask(self) -> bool:
        """While there is no connection, the next one may be able to."""
        return self._link is None or "events" in self._link.caps


def _go_on(turn: Turn) -> None:
    """Tell a turn on from where the gateway is, once it is known here what follows: an inherited one is read again."""
    answer, chars = turn.answer, turn.held
    if chars is None:
        return
    if turn.inherited and not turn.over and not (turn.rereads and len(answer.text) >= chars):
        return
    turn.held = None
    if turn.over and not isinstance(answer.end, events.Completed):
        answer.go_on(min(chars, len(answer.text)))  # what was said is there; only the end is missing
    elif turn.rereads:
        answer.go_on(chars)
    else:
        answer.begin_anew()


def _by_cursor(link: Link, turn: Turn) -> bool:
    """Whether the gateway keeps account of this turn by `sync`; what came without a cursor it cannot hand out again."""
    return "sync" in link.caps and turn.cursor is not None


def _streams(ready: Frame) -> dict[str, int]:
    """By stream id, the characters that the gateway has of each open stream."""
    streams = ready.get("streams")
    return {
        stream["id"]: stream["chars"]
        for stream in (streams if isinstance(streams, list) else [])
        if isinstance(stream, dict)
        and isinstance(stream.get("chars"), int)
        and isinstance(stream.get("id"), str)
    }


def _back(frame: Frame, kind: str, reply_to: str) -> Frame:
    """The outer fields of an answer to a frame."""
    return wire.envelope(
        kind, sender=frame["to"], to=frame["from"], session=frame["session"], reply_to=reply_to
    )
