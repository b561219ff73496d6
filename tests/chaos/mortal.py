"""
A gateway that dies by SIGKILL at a chosen point, once: `python -m tests.chaos.mortal serve …`.

It is `manage.py` with a few functions wrapped. The file named by CHAOS_POINT holds the point, or is absent; who
reaches the point takes the file away and dies.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

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


def reached(seam: str, what: str) -> None:
    """Die, if this is the chosen point."""
    chosen = Path(os.environ["CHAOS_POINT"])
    try:
        if POINTS[chosen.read_text()] != (seam, what):
            return
        chosen.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


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
    from chat import rows
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

    def dying_count_commit(self: Batch, number: int) -> None:
        count_commit(self, number)
        for what in told_by(self):
            reached("count_commit", what)

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
