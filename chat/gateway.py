"""The parts of chat that live as long as the process: hub, journal, live sockets."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

from django.conf import settings

from chat.control import TakeCommands
from chat.hub import Hub
from chat.journal import Journal
from chat.limits import Buckets
from chat.telling import Told
from hermes_site.errors import CloseCode

if TYPE_CHECKING:
    from chat.sockets import ChatSocket
    from chat.sse import EventStream
    from chat.upstream import Upstream


class Gateway:
    """One process' share of the gateway."""

    def __init__(self) -> None:
        self.process = uuid.uuid4()
        self.hub = Hub()
        self.upstream: Upstream | None = None  # this process' share of answering for itself
        self.journal = Journal(self.process, self.publish)
        self.journal.has_apps = self.hub.has_apps
        self.journal.say = self.say
        self.sockets: set[ChatSocket] = set()
        self.apps: Counter[int] = Counter()  # of each user, among these
        self.streams: set[EventStream] = set()  # open event streams over HTTP
        self.stopping: set[asyncio.Future[Any]] = set()  # stops asked for by viewers that left
        self.app_frames = Buckets(settings.HERMES_APP_FRAMES_PER_SECOND, settings.HERMES_APP_FRAMES_BURST)
        self.agent_frames = Buckets(
            settings.HERMES_AGENT_FRAMES_PER_SECOND, settings.HERMES_AGENT_FRAMES_BURST
        )
        minute = settings.HERMES_AGENT_BYTES_PER_MINUTE
        self.agent_bytes = Buckets(minute / 60, minute)
        self.draining = False
        self.steady_since: float | None = (
            None  # since when, by the monotonic clock, its lease is renewed unbroken
        )

    def enter(self, socket: ChatSocket) -> None:
        """A socket is let in."""
        self.sockets.add(socket)
        if socket.SIDE == "app":
            self.apps[socket.principal.user_id] += 1

    def leave(self, socket: ChatSocket) -> None:
        """It is gone."""
        self.sockets.discard(socket)
        if socket.SIDE == "app":
            user_id = socket.principal.user_id
            self.apps[user_id] -= 1
            if not self.apps[user_id]:
                del self.apps[user_id]

    def publish(self, told: list[Told]) -> None:
        """Tell what this process has committed."""
        self.hub.publish(told)
        if self.upstream is not None:
            self.upstream.told(told)

    def wake_agents(self, user_id: int) -> None:
        """Something may wait for the agents of a user that are connected here."""
        for slot in self.journal.slots_of_user.get(user_id, ()):
            if slot.peer is not None:
                slot.peer.wake()

    def heard(self, word: dict[str, Any]) -> None:
        """Another process has said something that is not about what was told."""
        if word["kind"] == "seated":
            slot = self.journal.slots.get((word["user"], word["agent"]))
            if slot is not None and slot.generation < word["generation"] and slot.peer is not None:
                slot.peer.close(CloseCode.REPLACED)
        elif word["kind"] == "notice":
            self.hub.tell([Told.unpack(word["told"])])
        elif word["kind"] == "asked" and self.upstream is not None:
            self.upstream.wake()
        elif word["kind"] == "command" and word["owner"] == self.process.hex:
            self.journal.put(TakeCommands(self.journal.slots))

    def say(self, word: dict[str, Any]) -> None:
        """Say something to all processes."""
        if self.hub.beyond is not None:
            self.hub.beyond.say(word)

    def layer_lost(self) -> None:
        """Nothing of other processes can be heard: peers do better elsewhere, or later."""
        for socket in list(self.sockets):
            socket.close(CloseCode.INTERNAL)

    def peers(self) -> list[ChatSocket | EventStream]:
        """Everybody who is connected: sockets and event streams."""
        return [*self.sockets, *self.streams]

    async def close_all(self, code: int, timeout_seconds: float) -> None:
        """Close every socket and wait until they are gone, or the time is over."""
        for peer in self.peers():
            peer.close(code)
        end = asyncio.get_running_loop().time() + timeout_seconds
        while self.sockets and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110  # each goes in its own time
            await asyncio.sleep(0.02)


_running: Gateway | None = None


def running() -> Gateway:
    """
    The gateway of this process.

    Raises:
        RuntimeError: Before start-up and after the end.
    """
    if _running is None:
        raise RuntimeError("the gateway has not been started")
    return _running


def set_running(gateway: Gateway | None) -> None:
    """Called by start-up and by the end."""
    global _running
    _running = gateway
