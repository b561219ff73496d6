"""
A gateway that dies by SIGKILL at a chosen point, once: `python -m tests.chaos.mortal serve …`.

It is `manage.py` with a few functions wrapped. The file named by CHAOS_POINT holds the point, or is absent; who
reaches the point takes the file away and dies, or loses the answer to a commit.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import OperationalError

POINTS = {
    "before the commit of a question": ("count_commit", "question"),
    "before the commit of a piece": ("count_commit", "piece"),
    "before the commit of an end": ("count_commit", "end"),
    "after the commit of a question, before it is told": ("attempt", "question"),
    "after the commit of a piece, before it is told": ("attempt", "piece"),
    "after the commit of an end, before it is told": ("attempt", "end"),
    "between a run's end and the promotion of the next": ("update", "ended_at"),
    "between delivered_at and the write to the agent": ("push", "text"),
}


LOSSES = {
    "the answer to a commit is lost, and the database tells that it happened": 0.0,
    "the answer to a commit is lost, and the database tells nothing for long": 8.0,
}
"""Points at which nobody dies, with the seconds for which the database cannot be asked."""


def chosen(points: dict[str, Any], wanted: Callable[[Any], bool]) -> str | None:
    """The chosen point, if it is one of these and wanted; it is taken away then."""
    file = Path(os.environ["CHAOS_POINT"])
    try:
        point = file.read_text()
        if point not in points or not wanted(points[point]):
            return None
        file.unlink()
    except FileNotFoundError:
        return None
    return point


def reached(seam: str, what: str) -> None:
    """Die, if this is the chosen point."""
    if chosen(POINTS, lambda place: place == (seam, what)):
        os.kill(os.getpid(), signal.SIGKILL)


class Loss:
    """The answer to one commit, which gets lost, and the silence of the database after it."""

    def __init__(self) -> None:
        self._next = threading.local()
        self._silent_until = 0.0

    def prepare(self) -> None:
        """The answer to the next commit of this thread is lost, if that is the chosen point."""
        if (point := chosen(LOSSES, lambda seconds: True)) is not None:
            self._next.lost = LOSSES[point]

    def lose(self) -> None:
        """
        After a commit.

        Raises:
            OperationalError: If its answer is lost.
        """
        seconds = getattr(self._next, "lost", None)
        if seconds is not None:
            del self._next.lost
            self._silent_until = time.monotonic() + seconds
            raise OperationalError("the answer was lost")

    def be_silent(self) -> None:
        """
        Before the database is asked whether a commit happened.

        Raises:
            OperationalError: While it cannot be asked.
        """
        if time.monotonic() < self._silent_until:
            raise OperationalError("nobody answers")


def told_by(batch: Any) -> set[str]:
    """What a batch has to tell."""
    found: set[str] = set()
    for told in batch.told:
        names = {event["event"] for event in told.events or ()}
        found |= {"question"} if told.side == "app" and told.message is not None else set()
        found |= {"piece"} if "assistant.delta" in names else set()
        found |= {"end"} if told.streamed else set()
    return found


def wrap() -> None:
    """Put the points into place. Django must be set up."""
    from django.db.backends.base.base import BaseDatabaseWrapper

    from chat import journal, rows
    from chat.agent_consumer import AgentConsumer
    from chat.batch import Batch
    from chat.journal import Journal
    from chat.models import Run

    count_commit, attempt, update, push = (
        Batch.count_commit,
        Journal._attempt,
        rows.update,
        AgentConsumer.push,
    )

    commit, wrote_commit = BaseDatabaseWrapper.commit, journal.wrote_commit
    loss = Loss()

    def dying_count_commit(self: Batch, number: int) -> None:
        count_commit(self, number)
        for what in told_by(self):
            reached("count_commit", what)
            if what == "piece":
                loss.prepare()

    def losing_commit(self: BaseDatabaseWrapper) -> None:
        commit(self)
        loss.lose()

    def silent_wrote_commit(process: Any, number: int) -> bool:
        loss.be_silent()
        return wrote_commit(process, number)

    def dying_attempt(self: Journal, items: Any) -> Any:
        committed = attempt(self, items)
        for what in told_by(committed.batch):
            reached("attempt", what)
        return committed

    def dying_update(model: Any, columns: Any, values: Any) -> None:
        update(model, columns, values)
        if model is Run and "ended_at" in columns:
            reached("update", "ended_at")

    def dying_push(self: AgentConsumer, text: str) -> None:
        frame = json.loads(text)
        if frame["type"] == "text" and frame["to"] == self.slot.name:
            reached("push", "text")
        push(self, text)

    Batch.count_commit = dying_count_commit  # type: ignore[method-assign]
    Journal._attempt = dying_attempt  # type: ignore[method-assign]
    rows.update = dying_update
    BaseDatabaseWrapper.commit = losing_commit  # type: ignore[method-assign]
    journal.wrote_commit = silent_wrote_commit
    AgentConsumer.push = dying_push  # type: ignore[method-assign]


def main() -> None:
    """Run a management command, mortal."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hermes_site.settings")
    from hermes_site import sqlite
    from hermes_site.serving import loop

    sqlite.install()
    loop.use_uvloop()
    import django
    from django.core.management import execute_from_command_line

    django.setup()
    wrap()
    execute_from_command_line(["manage.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()
