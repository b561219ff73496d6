"""A conversation copied up to a run, to go on differently: the copies have ids of their own. For the writer."""

from __future__ import annotations

import json
import uuid
from typing import Any

from chat import events as run_events
from chat import frames, rows
from chat.batch import Batch, SessionRow
from chat.keys import new_key
from chat.models import LIVE, Message, Run
from chat.presence import Quiet
from chat.queries import told_message
from chat.runs import check_new_session
from chat.telling import RunRef, Told
from hermes_site.errors import Conflict, NotFound, TooLarge

MOST_MESSAGES = 2000


class Fork(Quiet):
    """
    Make a session out of another one's ended runs, up to the run `run_key` or to the last.

    Raises:
        NotFound: `session_not_found`.
        Conflict: `session_exists` or `session_deleted`, for the new id.
        TooLarge: If there is too much to copy at once.
        RateLimited: If there are too many sessions.
    """

    alone = True

    def __init__(
        self, user_id: int, username: str, source: str, name: str, title: str | None, run_key: int | None
    ) -> None:
        self.user_id = user_id
        self.username = username
        self.source = source
        self.name = name
        self.title = title
        self.run_key = run_key

    def load(self, batch: Batch) -> None:
        """The user's numbers, and both sessions."""
        batch.want_log(self.user_id)
        batch.want_session(self.user_id, self.source)
        batch.want_session(self.user_id, self.name)

    def apply(self, batch: Batch) -> None:
        """Copy run by run."""
        source = batch.session(self.user_id, self.source)
        if source is None or source.deleted:
            raise NotFound("there is no such session", api_code="session_not_found")
        taken = batch.session(self.user_id, self.name)
        if taken is not None:
            code = "session_deleted" if taken.deleted else "session_exists"
            raise Conflict("there is, or was, a session by this id", api_code=code)
        check_new_session(batch, self.user_id)
        runs = list(self._runs(source))
        messages = list(
            Message.objects.filter(run__in=runs, cursor__isnull=False, replaced_by=None)
            .select_related("session", "run", "run__user_message", "user")
            .order_by("run__ordinal", "cursor")[: MOST_MESSAGES + 1]
        )
        if len(messages) > MOST_MESSAGES:
            raise TooLarge(f"at most {MOST_MESSAGES} messages are copied", api_code="session_too_long")
        session = batch.new_session(self.user_id, self.name, source.agent)
        session.title = self.title or source.title
        session.parent, session.copied = source.public_id, len(runs)
        for run in runs:
            _copy(batch, session, self.username, run, [one for one in messages if one.run_id == run.pk])

    def _runs(self, source: SessionRow) -> Any:
        runs = (
            Run.objects.filter(session_id=source.key, replaced_by=None)
            .exclude(status__in=LIVE)
            .order_by("ordinal")
        )
        if self.run_key is not None:
            runs = runs.filter(ordinal__lte=Run.objects.get(pk=self.run_key).ordinal)
        return runs.select_related("user_message")


def _copy(batch: Batch, session: SessionRow, username: str, run: Run, messages: list[Message]) -> None:
    """One run with its messages; it has no journal, for history is read from the transcript."""
    ids = {message.public_id: f"msg_{uuid.uuid4().hex}" for message in messages}
    keys = {message.pk: new_key() for message in messages}
    asked = run.user_message
    question = (keys[asked.pk], ids[asked.public_id]) if asked is not None and asked.pk in keys else None
    turn = batch.new_run(session, username, status=run.status, slot=None, question=question)
    batch.update_run(
        turn.key, code=run.code, last_seq=run.last_seq, transcript=_renamed(run.transcript, ids),
        created_at=rows.moment(run.created_at), ended_at=rows.moment(run.ended_at or batch.now),
        delivered_at=rows.moment(run.delivered_at or run.created_at),
    )  # fmt: skip
    for message in messages:
        _copy_message(batch, session, turn.ref, message, keys[message.pk], ids)


def _copy_message(
    batch: Batch, session: SessionRow, ref: RunRef, message: Message, key: int, ids: dict[str, str]
) -> None:
    from_agent = message.side == "agent"
    cursor = batch.next_cursor(session.user_id, from_agent=from_agent)
    reply_to = ids.get(message.reply_to or "")
    batch.insert_message(
        key=key, session=session, run=ref.key, side=message.side, public_id=ids[message.public_id], cursor=cursor,
        kind=message.type, reply_to=reply_to, ts=message.ts, data=frames.read_data(message.data),
        digest=message.digest,
    )  # fmt: skip
    told = told_message(message)
    frame = dict(told.message or {}, id=ids[message.public_id], session=session.public_id)
    frame.pop("replace_from", None)
    frame.pop("reply_to", None)
    if reply_to is not None:
        frame["reply_to"] = reply_to
    status = {**told.status, "id": ref.public_id} if told.status is not None else None
    batch.tell(Told(session.user_id, cursor=cursor, run=ref, message=frame, side=told.side, status=status))


def _renamed(transcript: str, ids: dict[str, str]) -> str:
    """The rows of a run's history under new ids; parts of one answer go on to share their beginning."""
    found: list[dict[str, Any]] = json.loads(transcript) if transcript else []
    base = next((row["id"] for row in found if row["role"] == "assistant"), None)
    if base is not None:
        ids = {base: f"msg_{uuid.uuid4().hex}", **ids}
    for row in found:
        name = row["id"]
        if name in ids:
            row["id"] = ids[name]
        elif base is not None and name.startswith(f"{base}."):
            row["id"] = ids[base] + name[len(base) :]
    return run_events.dump(found)
