"""
The writer without its thread: items are committed when they are put, timers run out when they are told to.

What a commit has to say is told through a real hub to devices that follow, and pushed to the fake sockets of
agents.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

from django.utils import timezone

from accounts.models import User
from chat import control, dispatch, joining, presence, queries, runs
from chat.agent_frames import AgentFrame, Pieces
from chat.answers import Outdated
from chat.batch import Batch, Item, Postponed
from chat.hub import Hub
from chat.journal import Journal
from chat.models import Process
from chat.reader import Reader
from chat.telling import CAP_BITS, Told, piece_frame, piece_head, start_frame
from chat.turns import Slot
from tests.chat.wire import decode

_numbers = itertools.count(1)


class Noted:
    """An item whose outcome is kept."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.alone = getattr(item, "alone", False)
        self.result: Any = None
        self.error: BaseException | None = None

    def load(self, batch: Batch) -> None:
        """As the item does."""
        self.item.load(batch)

    def apply(self, batch: Batch) -> Any:
        """As the item does."""
        return self.item.apply(batch)

    def done(self, result: Any, error: BaseException | None) -> None:
        """Keep it."""
        self.result, self.error = result, error
        self.item.done(result, error)


class Desk:
    """One process: its journal, its hub, its clock."""

    def __init__(self) -> None:
        self.process = uuid.uuid4()
        now = timezone.now()
        Process.objects.create(uuid=self.process, host="here", started_at=now, lease=now)
        self.hub = Hub()
        self.journal = Journal(self.process, self.hub.publish)
        self.journal.has_apps = self.hub.has_apps
        self.words: list[dict[str, Any]] = []
        self.now = 0.0
        self.timers: list[tuple[float, int, Item]] = []
        self.told: list[Told] = []
        self._queue: deque[Item] = deque()

    def do(self, item: Item) -> Any:
        """Commit one item and what follows from it; returns its result or raises its refusal."""
        return self.together(item)[0]

    def together(self, *items: Item) -> list[Any]:
        """Commit items in one batch; returns their results, raises the first refusal."""
        noted = self.attempt(*items)
        for one in noted:
            if one.error is not None:
                raise one.error
        return [one.result for one in noted]

    def attempt(self, *items: Item) -> list[Noted]:
        """The same, with refusals as values."""
        noted = [Noted(item) for item in items]
        self._commit(list(noted))
        while self._queue:
            self._commit([self._queue.popleft()])
        return noted

    def put(self, item: Item) -> None:
        """Have an item committed after what is being done."""
        self._queue.append(item)

    def let(self, seconds: float) -> None:
        """Have time pass: what is due meanwhile is committed in order of its time."""
        end = self.now + seconds
        while due := sorted(one for one in self.timers if one[0] <= end):
            self.timers.remove(due[0])
            self.now = due[0][0]
            self.attempt(due[0][2])
        self.now = end

    def _commit(self, items: list[Item]) -> None:
        for committed in self.journal.write(items):
            batch = committed.batch
            if batch is not None:
                self.told += batch.told
                self.hub.publish(batch.told)
                for slot, text in batch.pushes:
                    if slot.peer is not None:
                        slot.peer.push(text)
                for seconds, item in batch.timers:
                    self.timers.append((self.now + seconds, next(_numbers), item))
                for call in batch.calls:
                    call()
                self.words += batch.words
            for item, result, error in committed.outcomes:
                if isinstance(error, Postponed):
                    self.put(item)
                else:
                    item.done(result, error)


class Agent:
    """An agent's connection."""

    def __init__(
        self, desk: Desk, user: User, *caps: str, name: str = "hermes", since: int | None = None
    ) -> None:
        self.desk = desk
        self.user = user
        self.heard: list[dict[str, Any]] = []
        self.errors: list[BaseException] = []
        self.closed: int | None = None
        self.unwritten = 0
        journal = desk.journal
        self.slot = journal.slots.get((user.pk, name)) or Slot(0, user.pk, user.username, name)
        journal.keep(self.slot)
        self.seat: presence.Seat = desk.do(presence.Connect(self.slot, self, frozenset(caps), since))
        self.generation = self.seat.generation
        self.user_id, self.is_app = user.pk, False
        desk.hub.join(self)
        self.wake()

    # What the gateway does with it

    def tell(self, told: Told) -> None:
        """Hear of a message that was only stored."""
        if told.side == "app" and (told.cursor or 0) > self.slot.handed:
            self.desk.put(_Look(self))

    def position(self, cursor: int, runs: dict[int, int]) -> None:
        """There are no other processes."""

    def push(self, text: str) -> None:
        """Be handed a frame."""
        self.heard.append(json.loads(text))

    def close(self, code: int) -> None:
        """Be closed."""
        self.closed = code

    def wake(self) -> None:
        """Look for what waits."""
        self.desk.put(_Look(self))
        self.desk.attempt()

    def judge(self, error: BaseException | None, session: str | None, reply_to: str | None) -> None:
        """Hear how a frame fared."""
        if error is not None:
            self.errors.append(error)

    # What it does

    def say(self, kind: str, session: str = "S1", **changes: Any) -> BaseException | None:
        """Send a frame; returns its refusal."""
        frame = decode(
            kind, "agent", session=session, **{"from": self.slot.name, "to": self.user.username} | changes
        )
        before = len(self.errors)
        if kind == "stream":
            pieces = Pieces(self, session)
            pieces.texts.append(frame.data.text)
            self.desk.attempt(pieces)
        else:
            self.desk.attempt(AgentFrame(self, frame))
        return self.errors[-1] if len(self.errors) > before else None

    def start(self, stream_id: str, session: str = "S1", reply_to: str | None = None) -> BaseException | None:
        """Begin a stream."""
        return self.say("stream_start", session, id=stream_id, reply_to=reply_to)

    def piece(self, text: str, session: str = "S1") -> BaseException | None:
        """The next piece."""
        return self.say("stream", session, data={"text": text})

    def end(self, session: str = "S1", **changes: Any) -> BaseException | None:
        """End the stream."""
        return self.say("stream_end", session, **changes)

    def leave(self) -> None:
        """The connection is gone."""
        self.desk.hub.leave(self)
        if self.slot.peer is self:
            self.slot.peer = None
        self.desk.do(presence.Disconnect(self.slot, self.generation))


class _Look(dispatch.Dispatch):
    def __init__(self, agent: Agent) -> None:
        super().__init__(agent.slot, agent.generation)
        self.agent = agent

    def done(self, result: Any, error: BaseException | None) -> None:
        if result:
            self.agent.desk.put(_Look(self.agent))


class Device:
    """A person's device: it joins, reads what it lacks, and follows, as the App's socket does."""

    def __init__(self, desk: Desk, user: User, *caps: str, since: int | None = None) -> None:
        self.desk = desk
        self.user = user
        self.bits = sum(CAP_BITS[cap] for cap in caps)
        self.frames: list[dict[str, Any]] = []
        self.behind = False
        self.reader = Reader(desk.hub, user.pk, self._emit, self._fall_behind)
        self.reader.join()
        sync = "sync" in caps
        place: joining.Place = desk.do(joining.Join(user.pk, self.reader, claims=not sync))
        if sync and since is not None:
            self._replay(since, place.cursor, agent_only=False)
        elif not sync:
            self._replay(place.app_cursor, place.cursor, agent_only=True)
        self.reader.start(place.cursor, place.runs, self._open_streams(place))
        self.reader.follow()

    def say(self, kind: str = "text", **changes: Any) -> runs.Submitted:
        """Send a message; raises its refusal."""
        agent = changes.pop("agent", "hermes")
        frame = decode(kind, "app", **{"from": self.user.username} | changes)
        submitted: runs.Submitted = self.desk.do(
            runs.Submit(self.user.pk, self.user.username, agent, frame, self.desk.journal.slots)
        )
        return submitted

    def ask(self, message_id: str, session: str = "S1", text: str = "hello") -> runs.Submitted:
        """Send a text."""
        return self.say(id=message_id, session=session, data={"text": text})

    def stop(self, message_id: str, session: str = "S1") -> str:
        """Ask for the end of a turn; returns its status then."""
        status: str = self.desk.do(control.Stop(self.user.pk, self.desk.journal.slots, session, message_id))
        return status

    def steer(self, message_id: str, text: str, session: str = "S1") -> None:
        """Add a remark."""
        self.desk.do(control.Steer(self.user.pk, self.desk.journal.slots, session, message_id, text))

    def leave(self) -> None:
        """The device is gone."""
        self.reader.leave()

    def catch_up(self) -> None:
        """Read what was missed."""
        while self.behind:
            self.behind = False
            self.reader.resume(self.reader.missed()())

    def taken(self) -> list[dict[str, Any]]:
        """What it saw since this was asked last."""
        frames, self.frames = self.frames, []
        return frames

    @property
    def spelled(self) -> list[str]:
        """What it saw since it was asked last, each frame in a few letters."""
        return [spell(frame) for frame in self.taken()]

    def _emit(self, told: Told) -> None:
        for out in told.render(self.bits):
            self.frames.append(json.loads(out.text))

    def _fall_behind(self) -> None:
        self.behind = True

    def _replay(self, after: int, up_to: int, *, agent_only: bool) -> None:
        for told in queries.messages_between(self.user.pk, after, up_to, 1000):
            if not (agent_only and told.side == "app"):
                self._emit(told.copy(events=None))

    def _open_streams(self, place: joining.Place) -> set[str]:
        known = {ref.key: (ref, seq) for ref, seq in place.runs}
        told: set[str] = set()
        for key in place.streaming:
            ref, seq = known[key]
            found = queries.stream_so_far(key, seq)
            assert found is not None
            start, text = found
            told.add(start["id"])
            self.frames.append(start_frame(ref, start, ref.agent))
            if text:
                self.frames.append(
                    json.loads(piece_frame(piece_head(ref.agent, ref.user, ref.session), text))
                )
        return told


def spell(frame: dict[str, Any]) -> str:
    """`S1 stream_start str_1`, `S1 stream 'text'`, `S1 text m1 'text'`, `S1 error offline m1`, `S1 event name`."""
    kind, data = frame["type"], frame.get("data") or {}
    words = [frame["session"], kind]
    if kind == "error":
        words += [data["code"], str(frame.get("reply_to"))]
    elif kind == "event":
        words.append(data["event"])
    else:
        words += [frame["id"]] if kind in ("stream_start", "text", "image", "voice", "video", "file") else []
        words += [repr(data["text"])] if data.get("text") is not None else []
    return " ".join(words)


Spoken = Callable[[], BaseException | None]
__all__ = ["Agent", "Desk", "Device", "Noted", "Outdated", "Spoken", "spell"]
