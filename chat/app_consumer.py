"""An App's socket: a person's device. It reads frames, calls one verb, shapes the answer."""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseProblem

from chat import control, frames, joining, queries, runs
from chat.agents import agent_names
from chat.batch import Item
from chat.reader import Reader
from chat.sockets import PONG, ChatSocket, LookAgain
from chat.telling import ALIAS, CAP_BITS, Told, piece_frame, piece_head, start_frame
from hermes_site.errors import CloseCode, RateLimited

NAMES_SECONDS = 1  # what a user's agents are called is looked up again, but no oftener


class AppConsumer(ChatSocket):
    """A person's device."""

    SIDE = "app"

    async def admit(self) -> None:
        """A bounded number of sockets; whom this person may write to."""
        user_id = self.principal.user_id
        if settings.HERMES_RATE_LIMIT and self.gateway.apps[user_id] >= settings.HERMES_APP_SOCKETS:
            raise RateLimited("too many sockets of this user are open", retry_after=5)
        self._bits = sum(bit for cap, bit in CAP_BITS.items() if cap in self.caps)
        self.peer_to = self.principal.username
        await self._read_names()
        self._catching_up: Any = None
        self._unmoved: list[Told] = []
        self._asking: set[asyncio.Future[Any]] = set()
        self.reader = Reader(self.gateway.hub, user_id, self._emit, self._fall_behind)

    async def look_again(self) -> None:
        """Read the names; while the database is away the old ones will do, for the writer says so with the frame's id."""
        try:
            await self._read_names()
        except DatabaseProblem:
            self._looked = self._loop.time()

    async def _read_names(self) -> None:
        """Which agents this person has now, and what the default one is called here."""
        self.default_agent, self.agents = await agent_names(self.principal.user_id)
        self._looked = self._loop.time()
        self._alias = 0 if self.caps or self.default_agent == "hermes" else ALIAS
        self.peer_from = "hermes" if self._alias else self.default_agent

    async def opened(self) -> None:
        """Join, read, follow."""
        self.reader.join()
        await self.gateway.hub.joined(self.principal.user_id)
        sync = "sync" in self.caps
        join = joining.Join(self.principal.user_id, self.reader, claims=not sync)
        place: joining.Place = await self.gateway.journal.do(join)
        if self.caps:
            await self._greet(place)
        elif place.app_cursor < place.cursor:
            await self._replay(place.app_cursor, place.cursor, agent_only=True)
        streams = await self._open_streams(place)
        self.reader.start(place.cursor, place.runs, streams)
        self.reader.follow()
        self.let_out()

    def close(self, code: int) -> None:
        """End the socket; from now on it is no App that is told: what comes waits for the next one."""
        super().close(code)
        self.reader.leave()

    def ended(self) -> None:
        """Be told no more."""
        self.reader.leave()
        if self._catching_up is not None:
            self._catching_up.cancel()

    def take(self, text: str) -> None:
        """One frame of the person."""
        frame = frames.decode(text, "app", data_bytes=self.data_bytes)
        if isinstance(frame, frames.Ping):
            self.good()
            self.push(PONG)
            return
        if isinstance(frame, frames.Pong):
            self.good()
            return
        if frame.sender != self.principal.username:
            raise frames.BadFrame(
                "from", "is not you", frame_id=getattr(frame, "id", None), session=frame.session
            )
        if self.last_frame - self._looked >= NAMES_SECONDS:
            raise LookAgain  # a key may have been made or revoked since; before the frame is counted
        self.pace(self.gateway.app_frames, self.principal.user_id, frame)
        if isinstance(frame, frames.Message):
            self._submit(frame)
        elif isinstance(frame, frames.Error):
            self._pass_error(frame)
        elif isinstance(frame, frames.Stop | frames.Steer) and "control" in self.caps:
            self._control(frame)
        elif isinstance(frame, frames.Event) and "events" in self.caps:
            if (frame.data or {}).get("event") != "approval.response":
                raise frames.BadFrame(
                    "data.event", "may not be sent by an App", frame_id=frame.id, session=frame.session
                )
            slots = self.gateway.journal.slots
            self._ask(control.Approve(self.principal.user_id, slots, frame), frame)
        else:
            kind = type(frame).__struct_config__.tag
            raise frames.BadFrame(
                "type",
                f"{kind} is not taken on this connection",
                frame_id=getattr(frame, "id", None),
                session=frame.session,
            )

    def _submit(self, frame: frames.Message) -> None:
        agent = self._agent(frame)
        item = _Submit(self, agent, frame)
        self.gateway.journal.put(item)

    def _control(self, frame: frames.Stop | frames.Steer) -> None:
        self._agent(frame)
        user_id, slots = self.principal.user_id, self.gateway.journal.slots
        reply_to = frame.reply_to or ""
        if isinstance(frame, frames.Stop):
            self._ask(control.Stop(user_id, slots, frame.session, reply_to), frame)
        else:
            text = str((frame.data or {}).get("text"))
            self._ask(control.Steer(user_id, slots, frame.session, reply_to, text), frame)

    def _ask(self, item: Item, frame: frames.Envelope) -> None:
        """Have something asked of a run; only a refusal is answered."""

        def answered(asking: asyncio.Future[Any]) -> None:
            self._asking.discard(asking)
            if asking.cancelled():
                return
            error = asking.exception()
            if error is None:
                self.good()
            else:
                self.refused(error, frame.session, frame.id)

        asking = asyncio.ensure_future(self.gateway.journal.do(item))
        self._asking.add(asking)
        asking.add_done_callback(answered)

    def _pass_error(self, frame: frames.Error) -> None:
        """An App's `error` goes to its agent, wherever that is connected; it is not stored."""
        notice = frames.message_frame(
            message_id=frame.id,
            kind="error",
            sender=frame.sender,
            to=self._agent(frame),
            session=frame.session,
            reply_to=frame.reply_to,
            ts=int(frame.ts),
            data=frame.data or {},
        )
        self.good()
        told = Told(self.principal.user_id, notice=notice, side="app")
        self.gateway.hub.tell([told])
        self.gateway.say({"kind": "notice", "told": told.pack()})

    def _agent(self, frame: frames.Envelope) -> str:
        name = self.default_agent if frame.to == "hermes" else frame.to
        if name != self.default_agent and name not in self.agents:
            raise frames.BadFrame("to", "is no agent of yours", frame_id=frame.id, session=frame.session)
        return name

    def _emit(self, told: Told) -> None:
        """Show it; an agent's message that another process committed only once it counts as handed."""
        if self.closing is not None:
            return
        if self._unmoved or (told.away and told.side == "agent" and told.message is not None):
            self._unmoved.append(told)
            if len(self._unmoved) == 1:
                self._move()
            return
        self._show(told)

    def _move(self) -> None:
        cursor = max(told.cursor or 0 for told in self._unmoved)
        self.gateway.journal.put(_Move(self, cursor, len(self._unmoved)))

    def moved(self, count: int, error: BaseException | None) -> None:
        """The first so many of what waits may be shown."""
        if error is not None:
            self.close(CloseCode.INTERNAL)
            return
        shown, self._unmoved = self._unmoved[:count], self._unmoved[count:]
        for told in shown:
            self._show(told)
        if self._unmoved:
            self._move()

    def _show(self, told: Told) -> None:
        bits = self._bits
        if self._alias and _agent_of(told) == self.default_agent:
            bits |= ALIAS
        for out in told.render(bits):
            self.put(out)

    def _fall_behind(self) -> None:
        self._catching_up = self._loop.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            await self.reader.catch_up()
        except Exception:
            self.close(CloseCode.INTERNAL)
            raise

    async def _greet(self, place: joining.Place) -> None:
        """The `ready` frame, then what a `sync` App missed."""
        from chat.presence import online_agents

        since, truncated = self.since, False
        cursors: list[int] = []
        if "sync" in self.caps and since is not None:
            if since > place.cursor:
                truncated = True
            else:
                cursors, truncated = await queries.pool.read(
                    queries.newest_between, self.principal.user_id, since, place.cursor,
                    settings.HERMES_REPLAY_LIMIT, settings.HERMES_REPLAY_BYTES,
                )  # fmt: skip
        online = await queries.pool.read(online_agents, self.principal.user_id)
        data = {
            "user": self.principal.username,
            "caps": sorted(self.caps),
            "cursor": place.cursor,
            "truncated": truncated,
            "agents": [{"name": name, "online": is_online} for name, is_online in online.items()],
        }
        await self.write(frames.encode({"type": "ready", "data": data}))
        if cursors:
            await self._replay(cursors[0] - 1, place.cursor, agent_only=False)
        if "events" in self.caps:
            for payload in await queries.pool.read(_open_approvals, self.principal.user_id):
                await self.write(payload)

    async def _replay(self, after: int, up_to: int, *, agent_only: bool) -> None:
        """Stored messages of a range of cursors, a page at a time, as fast as the peer reads."""
        while after < up_to:
            page = await queries.pool.read(
                queries.messages_between, self.principal.user_id, after, up_to, 100
            )
            for told in page:
                if agent_only and told.side == "app":
                    continue
                bits = self._bits | (self._alias if _agent_of(told) == self.default_agent else 0)
                for out in told.copy(events=None).render(bits):
                    await self.write(out.text)
            if len(page) < 100 or page[-1].cursor is None:
                return
            after = page[-1].cursor

    async def _open_streams(self, place: joining.Place) -> set[str]:
        """Streams that are open: each start again, and its text so far as one piece."""
        seqs = {ref.key: (ref, seq) for ref, seq in place.runs}
        told: set[str] = set()
        for key in place.streaming:
            if key not in seqs:
                continue
            ref, seq = seqs[key]
            found = await queries.pool.read(queries.stream_so_far, key, seq)
            if found is None:
                continue
            start, text = found
            sender = "hermes" if self._alias and ref.agent == self.default_agent else ref.agent
            told.add(start["id"])
            await self.write(frames.encode(start_frame(ref, start, sender)))
            if text:
                await self.write(piece_frame(piece_head(sender, ref.user, ref.session), text))
        return told


def _open_approvals(user_id: int) -> list[str]:
    return [row.payload for row in control.open_approvals(user_id)]


def _agent_of(told: Told) -> str:
    if told.run is not None:
        return told.run.agent
    return str((told.notice or {}).get("from", ""))


class _Submit(runs.Submit):
    """A message of this socket: its outcome comes back here."""

    def __init__(self, socket: AppConsumer, agent: str, frame: frames.Message) -> None:
        who = socket.principal
        super().__init__(who.user_id, who.username, agent, frame, socket.gateway.journal.slots)
        self.socket = socket

    def done(self, result: Any, error: BaseException | None) -> None:
        """Refused, queued for an agent that is away, or taken."""
        if error is not None:
            self.socket.refused(error, self.frame.session, self.frame.id)
            return
        self.socket.good()
        if result.queued:
            frame = {
                "id": frames.new_id(), "type": "error", "from": self.socket.peer_from, "to": self.username,
                "session": self.frame.session, "reply_to": self.frame.id, "ts": self.socket.now(),
                "data": {
                    "code": "offline",
                    "text": "the agent is not connected; it gets the message when it comes",
                    "queued": True,
                },
            }  # fmt: skip
            self.socket.push(frames.encode(frame))


class _Move(joining.MoveAppCursor):
    """Messages committed elsewhere count as handed before they are shown."""

    def __init__(self, socket: AppConsumer, cursor: int, count: int) -> None:
        super().__init__(socket.principal.user_id, cursor)
        self.socket = socket
        self.count = count

    def done(self, result: Any, error: BaseException | None) -> None:
        """Go on showing."""
        self.socket.moved(self.count, error)
