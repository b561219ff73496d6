"""What waits for an agent that has just gone: whoever said it to a connected agent hears now that it waits. For the writer."""

from __future__ import annotations

from django.db.models import F

from chat import agents, ends
from chat.batch import Batch
from chat.models import AgentSlot, Run, RunStatus
from chat.telling import Told
from chat.turns import Slot

TEXT = "the agent went away; it gets the message when it comes back"


class TellWaiting:
    """
    Tell Apps of the messages that were taken while the agent was connected, and had not been handed to it.

    It takes its turn behind every message that still found the agent connected: the user's numbers are locked.
    """

    insists = True

    def __init__(self, user_id: int, username: str, agent: str) -> None:
        self.slot = Slot(0, user_id, username, agent)

    def load(self, batch: Batch) -> None:
        """The user's numbers."""
        batch.want_log(self.slot.user_id)

    def apply(self, batch: Batch) -> None:
        """Unless somebody is there again, who is handed them, or the gateway itself asks for them."""
        slot = self.slot
        if agents.is_upstream(slot.user_id, slot.name):
            return
        seat = AgentSlot.objects.filter(user_id=slot.user_id, name=slot.name, process=None).first()
        if seat is None or seat.connected_at is None:
            return
        runs = Run.objects.filter(
            user_id=slot.user_id, agent=slot.name, status=RunStatus.QUEUED, delivered_at=None,
            created_at__gte=seat.connected_at,
        )  # fmt: skip
        waiting = runs.order_by("user_message__cursor").values_list(
            "session__public_id", "user_message__public_id"
        )
        for session, message in waiting:
            error = ends.notice_error(
                batch, slot, session=session, reply_to=message, code="offline", text=TEXT, queued=True
            )
            batch.tell(Told(slot.user_id, notice=error))

    def done(self, result: object, error: BaseException | None) -> None:
        """Nobody waits for it."""


def held_by(process: object) -> list[TellWaiting]:
    """One for each agent whose socket a process held."""
    seats = AgentSlot.objects.filter(process=process).annotate(username=F("user__username"))
    return [TellWaiting(seat.user_id, seat.username, seat.name) for seat in seats]
