"""An agent's socket. It reads frames, hands them to the writer, and is handed what people say."""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings

from accounts.auth import agent_names
from chat import dispatch, frames, presence
from chat.agent_frames import AgentFrame, Pieces
from chat.answers import Outdated
from chat.events import FROM_GATEWAY
from chat.sockets import PONG, ChatSocket
from chat.telling import SYNC, Told
from chat.turns import Slot
from hermes_site.errors import CloseCode, GatewayError

UNWRITTEN_SECONDS = 0.005  # between looks whether the writer has caught up with a fast agent


class AgentConsumer(ChatSocket):
    """An agent: usually the bridge in front of a Hermes Agent."""

    SIDE = "agent"
    is_app = False

    async def admit(self) -> None:
        """Take the slot: the newest connection wins."""
        who = self.principal
        self.user_id = who.user_id
        name = who.agent or "hermes"
        default, _ = await agent_names(who.user_id)
        self.names = {name, "hermes"} if name == default and not self.caps else {name}
        journal = self.gateway.journal
        slot = journal.slots.get((who.user_id, name)) or Slot(0, who.user_id, who.username, name)
        journal.keep(slot)
        self.slot = slot
        self.peer_from, self.peer_to = who.username, name
        self._joining: dict[str, Pieces] = {}
        self._dispatching = False
        self._again = False
        self._let_go = False
        self.unwritten = 0  # characters of pieces that are not committed yet
        self.most_unwritten = settings.HERMES_OUTBOX_BYTES
        self.generation: int = 0
        connect = presence.Connect(slot, self, self.caps, self.since)
        connecting = asyncio.ensure_future(journal.do(connect))
        try:
            self.seat: presence.Seat = await asyncio.shield(connecting)
        except asyncio.CancelledError:  # the peer left while the slot was being taken: give it back
            connecting.add_done_callback(self._give_back)
            raise
        self.generation = self.seat.generation
        journal.keep(slot)  # again: an old grace time may have let it go meanwhile
        if self.gateway.hub.beyond is not None:
            self.gateway.hub.beyond.say(
                {"kind": "seated", "user": who.user_id, "agent": name, "generation": self.generation}
            )

    def _give_back(self, connecting: asyncio.Future[presence.Seat]) -> None:
        if not connecting.cancelled() and connecting.exception() is None:
            self.generation = connecting.result().generation
            self.ended()

    async def opened(self) -> None:
        """Greet, then hand out what waits."""
        self.gateway.hub.join(self)
        await self.gateway.hub.joined(self.user_id)
        if self.caps:
            data = {
                "user": self.principal.username,
                "caps": sorted(self.caps),
                "cursor": self.seat.cursor,
                "agents": [{"name": self.slot.name, "online": True}],
                "truncated": (self.since or 0) > self.seat.cursor,
                "streams": self.seat.streams if "sync" in self.caps else [],
            }
            await self.write(frames.encode({"type": "ready", "data": data}))
        self.let_out()
        self.wake()

    def close(self, code: int) -> None:
        """End the socket; what comes while the peer takes its time to follow waits for the next one."""
        super().close(code)
        self.ended()

    def ended(self) -> None:
        """Let the slot go, once; what it had been handed has a grace time."""
        if self._let_go:
            return
        self._let_go = True
        self.gateway.hub.leave(self)
        if self.slot.peer is self:
            self.slot.peer = None
        self.gateway.journal.put(presence.Disconnect(self.slot, self.generation))

    def silent_for(self, now: float) -> float:
        """A pong to a ping of the server counts for agents, where the server shows it."""
        heard = (
            self.last_frame if self._transport is None else max(self.last_frame, self._transport.last_heard)
        )
        return now - heard

    def take(self, text: str) -> None:
        """One frame of the agent."""
        frame = frames.decode(text, "agent", data_bytes=self.data_bytes)
        if isinstance(frame, frames.Ping):
            self.good()
            self.push(PONG)
            return
        if isinstance(frame, frames.Pong):
            self.good()
            return
        if frame.to != self.principal.username or frame.sender not in self.names:
            field, why = (
                ("to", "is not the user of your key")
                if frame.sender in self.names
                else ("from", "is not you")
            )
            raise frames.BadFrame(field, why, frame_id=getattr(frame, "id", None), session=frame.session)
        session = frame.session
        if isinstance(frame, frames.Stream):
            pieces = self._joining.get(session)
            if pieces is None or pieces.taken:
                pieces = self._joining[session] = Pieces(self, session)
                self.gateway.journal.put(pieces)
            pieces.texts.append(frame.data.text)
            self.unwritten += len(frame.data.text)
            return
        self._joining.pop(session, None)
        self.pace(self.gateway.agent_frames, (self.user_id, self.slot.name), frame)
        if isinstance(frame, frames.Stop | frames.Steer):
            raise frames.BadFrame("type", "is not for this direction", frame_id=frame.id, session=session)
        if isinstance(frame, frames.Event) and (
            "events" not in self.caps or (frame.data or {}).get("event") in FROM_GATEWAY
        ):
            raise frames.BadFrame("data.event", "may not be sent by you", frame_id=frame.id, session=session)
        self.gateway.journal.put(AgentFrame(self, frame))

    def pause(self, text: str | None) -> float:
        """An agent is read no faster than it is written, and no more than its bytes a minute."""
        if self.unwritten > self.most_unwritten:
            return UNWRITTEN_SECONDS
        if not self.paced:
            return 0.0
        key, size = (self.user_id, self.slot.name), len(text or "")
        return self.gateway.agent_bytes.take(key, size, self.last_frame)

    def tell(self, told: Told) -> None:
        """A message that was only stored may be for this agent; its own are echoed to a `sync` agent."""
        if told.side == "app":
            if told.notice is not None and told.notice["to"] == self.slot.name:
                self.push(frames.encode(told.notice))
            elif (
                told.away or (told.cursor or 0) > self.slot.handed
            ):  # it was not handed out in its own commit
                self.wake()
            return
        own = told.run is not None and told.run.agent == self.slot.name
        if own and told.message is not None and "sync" in self.caps:
            for out in told.copy(events=None).render(SYNC):
                self.push(out.text)

    def position(self, cursor: int, runs: dict[int, int]) -> None:
        """Another process is further than this one knows."""
        if cursor > self.slot.handed:
            self.wake()

    def wake(self) -> None:
        """Look for messages that wait for this agent."""
        if self.closing is not None or not self._open:
            return
        if self._dispatching:
            self._again = True
            return
        self._dispatching = True
        self.gateway.journal.put(_Dispatch(self))

    def dispatched(self, more: bool) -> None:
        """A look is over."""
        self._dispatching = False
        if more or self._again:
            self._again = False
            self.wake()

    def judge(self, error: BaseException | None, session: str | None, reply_to: str | None) -> None:
        """How one of this agent's frames fared with the writer."""
        if error is None:
            self.good()
        elif isinstance(error, Outdated):
            return
        elif isinstance(error, GatewayError) and error.wire_code != "internal":
            self.refused(error, session, reply_to)
        else:  # it could not be written: the agent comes back and goes on from what was
            self.close(CloseCode.INTERNAL)


class _Dispatch(dispatch.Dispatch):
    """A look for what waits; its outcome comes back to the socket."""

    insists = True

    def __init__(self, socket: AgentConsumer) -> None:
        super().__init__(socket.slot, socket.generation)
        self.socket = socket

    def done(self, result: Any, error: BaseException | None) -> None:
        self.socket.dispatched(bool(result))
