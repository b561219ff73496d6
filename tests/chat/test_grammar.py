"""
Any sequence of an agent's frames, against a model of the protocol: what devices see, and what is kept.

Frames are committed one by one or several in one batch, caches are dropped at any moment, the line breaks,
time passes; nothing of it may be seen in what comes out.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from accounts import services
from accounts.models import User
from chat import events as run_events
from chat import runs
from chat.agent_frames import AgentFrame, Pieces
from chat.events import Narrative
from chat.models import JournalRow, Message, Run
from tests.chat.desk import Agent, Desk, Device
from tests.chat.grammar import Model
from tests.chat.wire import decode

EXAMPLES = int(os.environ.get("HERMES_TEST_EXAMPLES", "40"))
_users = itertools.count(1)

sessions = st.sampled_from(["S1", "S1", "S2"])
replies = st.sampled_from([None, None, 0, 1, 2, "unknown"])  # by number: a message asked in that session
pieces = st.sampled_from(["a", "bc ", "é", "\n", "你", "x" * 30])
codes = st.sampled_from(["internal", "timeout", "rate_limited", "upload_failed"])
frames_said = st.one_of(
    st.tuples(st.just("ask"), sessions),
    st.tuples(st.just("start"), sessions, replies),
    st.tuples(st.just("piece"), sessions, pieces),
    st.tuples(st.just("piece"), sessions, pieces),
    st.tuples(st.just("end"), sessions),
    st.tuples(st.just("text"), sessions, replies),
    st.tuples(st.just("error"), sessions, codes, replies),
)
happenings = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0.4, 0.7, 1.5, 12.0])),
    st.tuples(st.just("break"), st.sampled_from([0.0, 5.0, 29.0, 31.0])),
    st.tuples(st.just("forget")),
    st.tuples(st.just("stop"), sessions, st.sampled_from([0, 1])),
    st.tuples(st.just("join")),
)
steps = st.lists(st.lists(frames_said, min_size=1, max_size=5) | happenings, max_size=14)
capabilities = st.sampled_from([(), ("control",), ("sync",), ("sync", "control", "events")])


class Play:
    """One agent, some devices, and the model beside them."""

    def __init__(self, caps: tuple[str, ...]) -> None:
        self.user: User = services.create_user(f"user{next(_users)}", "correct horse battery")
        self.desk = Desk()
        self.caps = caps
        self.agent = Agent(self.desk, self.user, *caps)
        self.model = Model(frozenset(caps))
        self.device = Device(self.desk, self.user)
        self.joined: list[Device] = []
        self.deaf = Device(self.desk, self.user, "sync")  # whose hints are lost
        self.desk.hub.leave(self.deaf.reader)
        self.asked: dict[str, list[str]] = {"S1": [], "S2": []}
        self.known = self.asked
        self.numbers = itertools.count(1)

    def group(self, said: list[tuple[Any, ...]]) -> None:
        """Frames that are committed in one batch; an agent answers only what it has been handed before."""
        self.known = {session: list(asked) for session, asked in self.asked.items()}
        if any(kind == "ask" for kind, *_ in said):
            self.agent.wake()  # else what is asked is handed out only after this batch, and no turn within it
        made = [self._make(one) for one in said]
        noted = self.desk.attempt(*(item for item, _ in made))
        for one, (item, taken), what in zip(noted, made, said, strict=True):
            assert (one.error is None) == taken, (what, one.error)
            if isinstance(item, Pieces | AgentFrame) and taken:
                assert self.agent.slot.known

    def _make(self, said: tuple[Any, ...]) -> tuple[Any, bool]:
        """The item, and whether the model says that it is taken."""
        kind, session, *rest = said
        number = next(self.numbers)
        if kind == "ask":
            message_id = f"m{number}"
            self.asked[session].append(message_id)
            self.model.ask(session, message_id)
            frame = decode("text", id=message_id, session=session, **{"from": self.user.username})
            slots = self.desk.journal.slots
            return runs.Submit(self.user.pk, self.user.username, "hermes", frame, slots), True
        if kind == "piece":
            item = Pieces(self.agent, session)
            item.texts.append(rest[0])
            return item, self.model.piece(session, rest[0])
        if kind == "end":
            return self._frame("stream_end", session), self.model.end(session)
        reply_to = self._reply_to(session, rest[-1])
        if kind == "start":
            made = self._frame("stream_start", session, id=f"str_{number}", reply_to=reply_to)
            return made, self.model.start(session, f"str_{number}", reply_to)
        if kind == "text":
            data = {"text": f"text of t{number}"}
            made = self._frame("text", session, id=f"t{number}", reply_to=reply_to, data=data)
            return made, self.model.text(session, f"t{number}", reply_to)
        data = {"code": rest[0], "text": "x"}
        made = self._frame("error", session, id=f"e{number}", reply_to=reply_to, data=data)
        return made, self.model.error(session, rest[0], reply_to)

    def _frame(self, kind: str, session: str, **changes: Any) -> AgentFrame:
        return AgentFrame(
            self.agent, decode(kind, "agent", session=session, to=self.user.username, **changes)
        )

    def _reply_to(self, session: str, choice: Any) -> str | None:
        if not isinstance(choice, int):
            return choice
        asked = self.known[session]
        return asked[-1 - choice] if choice < len(asked) else "unknown"

    def happen(self, kind: str, *rest: Any) -> None:
        """Something that is no frame of the agent's."""
        if kind == "stop":
            session, choice = rest
            if choice < len(self.asked[session]):
                message_id = self.asked[session][-1 - choice]
                self.device.stop(message_id, session)
                self.model.stop(session, message_id)
            return
        seconds = rest[0] if rest else 0.0
        if kind == "wait":
            self.desk.let(seconds)
            self.model.let(seconds)
        elif kind == "break":
            self.agent.leave()
            self.model.leave()
            self.desk.let(seconds)
            self.model.let(seconds)
            self.agent = Agent(self.desk, self.user, *self.caps)
            self.model.connect()
        elif kind == "forget":
            self.agent.slot.forget()
        else:
            self.joined.append(Device(self.desk, self.user))

    # What must be true at the end

    def check(self) -> None:
        """Everything."""
        self._check_devices()
        self._check_messages()
        self._check_runs()

    def _check_devices(self) -> None:
        for session, one in self.model.sessions.items():
            assert list(shown(self.device.frames, session)) == one.shown
        bubbles = folded(self.device.frames)
        for device in self.joined:
            for place, text in folded(device.frames).items():
                assert bubbles[place] == text, place
        self.deaf.behind = True
        self.deaf.reader._held = []  # type: ignore[assignment]  # as when a hole was seen
        self.deaf.catch_up()
        own = {("S1", message_id) for message_id in self.asked["S1"]} | {
            ("S2", message_id) for message_id in self.asked["S2"]
        }
        caught_up = folded(self.deaf.frames)
        assert own <= set(caught_up)
        assert {place: text for place, text in caught_up.items() if place not in own} == bubbles
        cursors = [frame["cursor"] for frame in self.deaf.frames if "cursor" in frame]
        assert cursors == sorted(cursors)
        newcomer = Device(self.desk, self.user, "sync", since=0)
        assert folded(newcomer.frames) == caught_up

    def _check_messages(self) -> None:
        rows = Message.objects.filter(user=self.user).select_related("session")
        cursors = sorted(row.cursor for row in rows if row.cursor is not None)
        assert cursors == list(range(1, len(cursors) + 1))
        for session, one in self.model.sessions.items():
            kept = {
                row.public_id: (data["text"], data.get("interrupted", False))
                for row in rows
                if row.side == "agent" and row.session.public_id == session and row.cursor is not None
                for data in run_events.load(f"[{row.data}]")
            }
            assert kept == one.kept
            open_rows = [
                row.public_id for row in rows if row.session.public_id == session and row.cursor is None
            ]
            assert open_rows == ([one.stream.id] if one.stream is not None else [])

    def _check_runs(self) -> None:
        for session, one in self.model.sessions.items():
            rows = Run.objects.filter(user=self.user, session__public_id=session).order_by("ordinal")
            assert [row.ordinal for row in rows] == list(range(1, len(rows) + 1))
            live = ("queued", "running", "stopping")
            assert ["live" if row.status in live else row.status for row in rows] == [
                turn.status for turn in one.turns
            ]
            active = [row for row in rows if row.status in ("running", "stopping")]
            assert len(active) <= 1
            delivered = [row for row in rows if row.status == "queued" and row.delivered_at is not None]
            assert active or not delivered  # nothing waits behind nothing
            for row in rows:
                self._check_journal(row)

    def _check_journal(self, run: Run) -> None:
        stored = JournalRow.objects.filter(run=run).order_by("first_seq")
        told = [event for row in stored for event in run_events.load(row.events)]
        assert [event["seq"] for event in told] == list(range(1, len(told) + 1))
        narrative = Narrative()
        for event in told:
            narrative.add(event)
        ends = [
            event["event"] for event in told if event["event"] in {f"run.{end}" for end in run_events.ENDS}
        ]
        if run.ended_at is None:
            assert ends == []
            return
        assert ends == [f"run.{run.status}"]
        assert told[-1]["event"] == "done"
        assert run.last_seq == len(told)
        assert run.transcript == run_events.dump(run_events.transcript(narrative))
        deltas = "".join(event["delta"] for event in told if event["event"] == "assistant.delta")
        assert narrative.text == deltas


def shown(frames: list[dict[str, Any]], session: str) -> Iterator[str]:
    """What a device saw of a session, in the model's words."""
    text = ""
    for frame in frames:
        if frame["session"] != session:
            continue
        if frame["type"] == "stream":
            text += frame["data"]["text"]
            continue
        if text:
            yield f"piece {text}"
            text = ""
        if frame["type"] == "stream_start":
            yield f"start {frame['id']} {frame.get('reply_to')}"
        elif frame["type"] == "stream_end":
            yield "end"
        elif frame["type"] == "text":
            yield f"text {frame['id']}"
        else:
            yield f"error {frame['data']['code']} {frame.get('reply_to')}"
    if text:
        yield f"piece {text}"


def folded(frames: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[str, bool]]:
    """The bubbles an App has drawn at the end: their text, and whether they are still open."""
    bubbles: dict[tuple[str, str], tuple[str, bool]] = {}
    open_streams: dict[str, str] = {}
    for frame in frames:
        session = frame["session"]
        if frame["type"] == "stream_start":
            open_streams[session] = frame["id"]
            bubbles[session, frame["id"]] = ("", True)
        elif frame["type"] == "stream":
            place = session, open_streams[session]
            bubbles[place] = (bubbles[place][0] + frame["data"]["text"], True)
        elif frame["type"] == "stream_end":
            place = session, open_streams.pop(session)
            assert frame.get("id", place[1]) == place[1]
            bubbles[place] = (bubbles[place][0], False)
        elif frame["type"] == "text":
            bubbles[session, frame["id"]] = (frame["data"]["text"], False)
    return bubbles


class _Undone(Exception):
    """What an example wrote is taken back."""


@pytest.mark.django_db
@given(capabilities, steps)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_grammar_of_streams_and_turns(caps: tuple[str, ...], steps: list[Any]) -> None:
    """Whatever an agent says, in whatever batches, with whatever breaks, comes out as the protocol has it."""
    note(f"{caps} {steps}")
    try:
        with transaction.atomic():
            play = Play(caps)
            for step in steps:
                if isinstance(step, list):
                    play.group(step)
                else:
                    play.happen(*step)
            play.check()
            raise _Undone
    except _Undone:
        pass
