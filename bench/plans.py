"""How the database answers what the gateway asks of it: which queries can only be answered by reading a whole table."""

import re
import uuid
from collections.abc import Callable
from typing import Any

from django.db import connection, transaction

from accounts.models import User
from chat import directory, history, queries
from chat.batch import Batch
from chat.dispatch import Dispatch
from chat.models import ChatSession, Message, Run
from chat.turns import Slot
from chat.turnstore import load_turns

WHOLE = {
    "sqlite": re.compile(r"^SCAN (?!.*CONSTANT ROW|\(|chat_process)"),
    "postgresql": re.compile(r"Seq Scan on (?!chat_process)"),
}


def whole_reads(name: str) -> dict[str, list[str]]:
    """What is asked for this user, by purpose: the lines of plans that read a whole table, `[]` where none does."""
    user = User.objects.get(username=name)
    found = {}
    for purpose, function in _questions(user).items():
        with transaction.atomic():
            found[purpose] = _scans(function)
            transaction.set_rollback(True)
    return found


def _questions(user: User) -> dict[str, Callable[[], Any]]:
    session = ChatSession.objects.filter(user=user).first()
    message = Message.objects.filter(user=user).order_by("-cursor").first()
    assert session is not None and message is not None and message.cursor is not None
    newest, run = message.cursor, Run.objects.get(pk=message.run_id)
    return {
        "GET /api/frames": lambda: queries.page(user.pk, None, None, 100),
        "GET /api/frames?session=": lambda: queries.page(user.pk, session.public_id, newest // 2, 100),
        "the directory": lambda: directory.page(user.pk, 50, 0),
        "a replay's cursors": lambda: queries.newest_between(user.pk, newest - 100, newest, 1000, 2**23),
        "a replay's messages": lambda: queries.messages_between(user.pk, newest - 100, newest, 100),
        "live runs": lambda: queries.live_runs(user.pk),
        "open streams": lambda: queries.open_streams(user.pk),
        "a run by its id": lambda: queries.find_run(user.pk, run.public_id),
        "a run's status": lambda: history.status_of(run),
        "a run's events": lambda: queries.rest_of_run(run.pk, 0),
        "history of a session": lambda: history.page(session, limit=500, offset=0, newest=True),
        "history for an agent": lambda: queries.history_before(session.pk, 10, 200),
        "a text's commit": lambda: _write(user, session.public_id, message.public_id, newest),
    }


def _write(user: User, session: str, message: str, newest: int) -> None:
    """What the writer reads for a text and for its hand-over to the agent."""
    batch = Batch(uuid.uuid4(), load_turns)
    slot = Slot(1, user.pk, user.username, "hermes")
    slot.handed = newest - 2
    dispatch = Dispatch(slot, slot.generation)
    dispatch.load(batch)
    batch.want_session(user.pk, session)
    batch.want_message(user.pk, "app", message)
    batch.fetch()
    dispatch.apply(batch)


def _scans(function: Callable[[], Any]) -> list[str]:
    """The lines of the plans of all queries of this function that read a whole table."""
    asked = []

    def keep(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        asked.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(keep):
        function()
    lines = []
    with connection.cursor() as cursor:
        explain = "EXPLAIN QUERY PLAN "
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = off")  # then it does so only where it must
            explain = "EXPLAIN "
        for sql, params in asked:
            if sql.startswith("SELECT"):
                cursor.execute(explain + sql, params)
                lines += [str(row[-1]).strip() for row in cursor.fetchall()]
    return [line for line in lines if WHOLE[connection.vendor].search(line)]
