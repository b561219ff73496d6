"""
Stop, steer, approvals: what is asked of a live run, whichever process owns it. For the writer.

What is asked of another process' run is a `Command` row first and a hint then; the owner takes the rows of
its runs when it hears the hint, and looks for missed ones every second.
"""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings

from chat import agents, ends, frames, queries
from chat.batch import Batch
from chat.keys import new_key
from chat.models import LIVE, Command, Message, Run, RunStatus
from chat.presence import Quiet
from chat.telling import Told
from chat.turns import Slot, Turn
from hermes_site.errors import Conflict, Unsupported

Slots = dict[tuple[int, str], Slot]
STOP, STEER, ANSWER, APPROVAL = "stop", "steer", "answer", "approval"


class ForRun(Quiet):
    """Something asked of a run; it reads rows, so it is alone in its transaction."""

    alone = True

    def __init__(self, user_id: int, slots: Slots) -> None:
        self.user_id = user_id
        self.slots = slots

    def load(self, batch: Batch) -> None:
        """The user's numbers, and the turns of the user's agents here."""
        batch.want_log(self.user_id)
        for (user_id, _), slot in self.slots.items():
            if user_id == self.user_id:
                batch.want_turns(slot)

    def apply(self, batch: Batch) -> Any:
        """Do it."""
        raise NotImplementedError

    def by_message(self, session: str, message_id: str) -> Run:
        """
        The run that a user message started, or an agent's message belongs to.

        Raises:
            Unsupported: If there is none.
        """
        messages = Message.objects.filter(
            user_id=self.user_id, session__public_id=session, session__deleted_at=None, public_id=message_id
        ).select_related("run__session", "run__user_message", "run__user")
        run = next((message.run for message in messages.order_by("-side")), None)
        if run is None:
            raise Unsupported("reply_to: no such message in this session", field="reply_to")
        return run

    def here(self, batch: Batch, run: Run) -> tuple[Slot, Turn] | None:
        """Slot and turn of a run that this process owns."""
        if run.owner != batch.process:
            return None
        slot = self.slots.get((run.user_id, run.agent))
        turn = slot.get(run.pk) if slot is not None else None
        return (slot, turn) if slot is not None and turn is not None else None


class Stop(ForRun):
    """
    Ask for the end of a run. The result is its status then.

    Raises:
        Unsupported: If there is no such run.
    """

    def __init__(self, user_id: int, slots: Slots, session: str, message_id: str) -> None:
        super().__init__(user_id, slots)
        self.session = session
        self.message_id = message_id

    def find(self) -> Run:
        """The run that is meant."""
        return self.by_message(self.session, self.message_id)

    def apply(self, batch: Batch) -> str:
        """Stop it here, or have its owner stop it."""
        run = self.find()
        if run.status not in LIVE:
            return str(run.status)
        if run.delivered_at is None:
            slot, turn = waiting_turn(run)
            batch.claim(turn)
            ends.end_turn(batch, slot, turn, "cancelled")
            return "cancelled"
        found = self.here(batch, run)
        if found is not None:
            return stop_here(batch, *found)
        if run.status == RunStatus.RUNNING:
            Run.objects.filter(pk=run.pk, status=RunStatus.RUNNING).update(status=RunStatus.STOPPING)
        command(batch, run, STOP, {})
        return "stopping"


class StopRun(Stop):
    """The same, for a run by its key."""

    def __init__(self, user_id: int, slots: Slots, key: int) -> None:
        super().__init__(user_id, slots, "", "")
        self.key = key

    def find(self) -> Run:
        """The run that is meant."""
        return by_key(self.key)


class Steer(ForRun):
    """
    Add a remark to a running turn.

    Raises:
        Unsupported: If there is no such run, or its agent does not take remarks.
        Conflict: If the run is not running.
    """

    def __init__(self, user_id: int, slots: Slots, session: str, message_id: str, text: str) -> None:
        super().__init__(user_id, slots)
        self.session = session
        self.message_id = message_id
        self.text = text

    def find(self) -> Run:
        """The run that is meant."""
        return self.by_message(self.session, self.message_id)

    def apply(self, batch: Batch) -> None:
        """Steer it here, or have its owner do it."""
        run = self.find()
        if not agents.takes_remarks(queries.agent_caps(self.user_id, run.agent)):
            raise Unsupported("type: this agent does not take remarks", field="type")
        if run.status != RunStatus.RUNNING:
            raise Conflict("reply_to: this turn is not running", api_code="run_not_accepting_steer")
        found = self.here(batch, run)
        if found is not None and found[0].peer is None:
            raise Conflict("the agent is away", api_code="run_not_accepting_steer")
        if found is not None:
            steer_here(batch, *found, self.text)
        else:
            command(batch, run, STEER, {"text": self.text})


class SteerRun(Steer):
    """The same, for a run by its key; an agent that takes no remarks does not accept this one."""

    def __init__(self, user_id: int, slots: Slots, key: int, text: str) -> None:
        super().__init__(user_id, slots, "", "", text)
        self.key = key

    def find(self) -> Run:
        """The run that is meant."""
        return by_key(self.key)

    def apply(self, batch: Batch) -> None:
        """
        As for a frame.

        Raises:
            Conflict: If the run does not take remarks, for whatever reason.
        """
        try:
            super().apply(batch)
        except Unsupported as error:
            raise Conflict(error.text, api_code="run_not_accepting_steer") from None


class Approve(ForRun):
    """
    The answer of a person to an open request for approval; the first of several devices wins.

    Raises:
        Unsupported: If the request is not open, or the choice is none of its choices.
    """

    def __init__(self, user_id: int, slots: Slots, frame: frames.Event) -> None:
        super().__init__(user_id, slots)
        self.frame = frame

    def apply(self, batch: Batch) -> None:
        """Take the request, pass the answer on, tell all devices."""
        data = self.frame.data or {}
        request_id, choice = data.get("request_id"), data.get("choice")
        row = next(
            (row for row in open_approvals(self.user_id) if _asked(row).get("request_id") == request_id), None
        )
        if row is None:
            raise Unsupported("data.request_id: no such request is open", field="data.request_id")
        choices = _asked(row).get("choices")
        if isinstance(choices, list) and choice not in choices:
            raise Unsupported("data.choice: is none of the choices", field="data.choice")
        Command.objects.filter(pk=row.pk).update(taken_at=batch.now)
        run = row.run
        answer = frames.message_frame(
            message_id=self.frame.id,
            kind="event",
            sender=run.user.username,
            to=run.agent,
            session=run.session.public_id,
            reply_to=run.user_message.public_id if run.user_message else None,
            ts=int(self.frame.ts),
            data={"event": "approval.response", "request_id": request_id, "choice": choice},
        )
        found = self.here(batch, run)
        if found is not None:
            batch.push(found[0], frames.encode(answer))
        else:
            command(batch, run, ANSWER, answer)
        resolved = {**answer, "id": frames.new_id(), "from": run.agent, "to": run.user.username}
        resolved["data"] = {"event": "approval.resolved", "request_id": request_id, "choice": choice}
        batch.tell(Told(self.user_id, notice=resolved))


class TakeCommands(Quiet):
    """Do what other processes asked of this one's runs."""

    alone = True

    def __init__(self, slots: Slots) -> None:
        self.slots = slots

    def load(self, batch: Batch) -> None:
        """The rows, their users' numbers, their agents' turns."""
        self.commands = list(
            Command.objects.filter(
                taken_at=None, kind__in=(STOP, STEER, ANSWER), run__owner=batch.process, run__status__in=LIVE
            )
            .select_related("run")
            .order_by("created_at", "pk")[:100]
        )
        for row in self.commands:
            slot = self.slots.get((row.run.user_id, row.run.agent))
            batch.want_log(row.run.user_id)
            if slot is not None:
                batch.want_turns(slot)

    def apply(self, batch: Batch) -> None:
        """One after the other."""
        left: list[int] = []
        for row in self.commands:
            slot = self.slots.get((row.run.user_id, row.run.agent))
            turn = slot.get(row.run_id) if slot is not None else None
            if slot is None or turn is None:
                continue
            if row.kind == STOP:
                stop_here(batch, slot, turn)
            elif row.kind == STEER and slot.peer is None:
                left.append(row.pk)  # the agent may come back; else it goes on the terminal event
            elif row.kind == STEER:
                steer_here(batch, slot, turn, json.loads(row.payload)["text"])
            else:
                batch.push(slot, row.payload)
        Command.objects.filter(pk__in=[row.pk for row in self.commands]).exclude(pk__in=left).update(
            taken_at=batch.now
        )


class StopUnconfirmed(Quiet):
    """The agent has not confirmed a stop in time: the run is interrupted, what still comes is dropped."""

    insists = True

    def __init__(self, slot: Slot, turn: Turn) -> None:
        self.slot = slot
        self.turn = turn

    def load(self, batch: Batch) -> None:
        """The user's numbers and the agent's turns."""
        batch.want_log(self.slot.user_id)
        batch.want_turns(self.slot)

    def apply(self, batch: Batch) -> None:
        """End it, if it still stops."""
        turn = self.slot.get(self.turn.key)
        if turn is not None and turn.asked_stop:
            end_unconfirmed(batch, self.slot, turn)


def stop_here(batch: Batch, slot: Slot, turn: Turn) -> str:
    """Stop a turn of this process; returns its status then."""
    if "control" not in slot.caps or slot.peer is None:
        end_unconfirmed(batch, slot, turn)
        return "interrupted"
    frame = _to_agent(batch, slot, turn, "stop")
    if turn.status == RunStatus.QUEUED and not turn.begun:
        if turn.ref.reply_to is not None:
            batch.drop_answers(slot, turn.ref.reply_to)
        ends.end_turn(batch, slot, turn, "cancelled")
        batch.push(slot, frames.encode(frame))
        return "cancelled"
    if not turn.asked_stop:
        turn.asked_stop = True
        if (
            turn.status == RunStatus.RUNNING
        ):  # else it is begun behind another, and is stopping when it moves up
            turn.status = RunStatus.STOPPING
            batch.update_run(turn.key, status=RunStatus.STOPPING)
        batch.push(slot, frames.encode(frame))
        batch.later(settings.HERMES_STOP_CONFIRM_SECONDS, StopUnconfirmed(slot, turn))
    return "stopping"


def steer_here(batch: Batch, slot: Slot, turn: Turn, text: str) -> None:
    """Pass a remark on, and note in the run that it was taken."""
    batch.push(slot, frames.encode({**_to_agent(batch, slot, turn, "steer"), "data": {"text": text}}))
    one = batch.event(turn, "run.steered", accepted=True)
    batch.tell(Told(slot.user_id, run=turn.ref, first=one["seq"], last=one["seq"], events=[one]))


def end_unconfirmed(batch: Batch, slot: Slot, turn: Turn) -> None:
    """End a stopped turn whose agent cannot say that it has stopped."""
    if turn.stream is not None:
        batch.drop_frames(slot, turn.ref.session)
    elif turn.ref.reply_to is not None:
        batch.drop_answers(slot, turn.ref.reply_to)
    ends.end_turn(
        batch, slot, turn, "interrupted", code="stop_unconfirmed", text="stopped; the agent did not confirm it",
        interrupted=True,
    )  # fmt: skip


def by_key(key: int) -> Run:
    """A run with all that is needed to end it."""
    return Run.objects.select_related("session", "user_message", "user").get(pk=key)


def waiting_turn(run: Run) -> tuple[Slot, Turn]:
    """A run that was never handed out, as a turn of an agent that is not here."""
    slot = Slot(0, run.user_id, run.user.username, run.agent)
    turn = Turn(
        run.pk, queries.run_ref(run, run.session.public_id, run.user.username), run.session_id, run.ordinal,
        run.status, 0,
    )  # fmt: skip
    turn.take_narrative(queries.events_after(run.pk, 0))
    slot.add(turn)
    return slot, turn


def command(batch: Batch, run: Run, kind: str, payload: dict[str, Any]) -> None:
    """Ask it of the process that owns the run."""
    Command.objects.create(
        id=new_key(), run=run, kind=kind, payload=json.dumps(payload), created_at=batch.now
    )
    batch.words.append({"kind": "command", "owner": run.owner.hex if run.owner else ""})


def open_approvals(user_id: int) -> list[Command]:
    """The requests for approval of a user's live runs that nobody has answered."""
    return list(
        Command.objects.filter(kind=APPROVAL, taken_at=None, run__user_id=user_id, run__status__in=LIVE)
        .select_related("run__session", "run__user_message", "run__user")
        .order_by("created_at", "pk")
    )


def _asked(row: Command) -> dict[str, Any]:
    data = json.loads(row.payload).get("data")
    return data if isinstance(data, dict) else {}


def _to_agent(batch: Batch, slot: Slot, turn: Turn, kind: str) -> dict[str, Any]:
    reply_to = turn.ref.reply_to or (turn.stream.public_id if turn.stream is not None else None)
    return {
        "id": frames.new_id(), "type": kind, "from": slot.username, "to": slot.name, "session": turn.ref.session,
        "reply_to": reply_to, "ts": int(batch.ts),
    }  # fmt: skip
