"""Replacing a conversation from one message on: regenerate and edit. For the writer."""

from __future__ import annotations

from chat import frames, queries
from chat.batch import Batch, SessionRow
from chat.models import LIVE, Message, Run
from chat.telling import Told
from hermes_site.errors import Unsupported


def find_target(user_id: int, session: SessionRow | None, message_id: str, agent: str) -> Message:
    """
    The message from which on everything is to be replaced.

    Raises:
        Unsupported: If it is no standing message of this person in this session, a turn of the session is
            live, or the agent cannot replace.
    """
    target = None
    if session is not None:
        target = (
            Message.objects.filter(
                user_id=user_id, side="app", public_id=message_id, session_id=session.key, replaced_by=None
            )
            .select_related("run")
            .first()
        )
    if session is None or target is None:
        raise Unsupported("replace_from: is no message of yours in this session", field="replace_from")
    if Run.objects.filter(session_id=session.key, status__in=LIVE).exists():
        raise Unsupported("replace_from: a turn of this session has not ended", field="replace_from")
    if "control" not in queries.agent_caps(user_id, agent):
        raise Unsupported("replace_from: this agent cannot replace", field="replace_from")
    return target


def replace(
    batch: Batch, user_id: int, username: str, target: Message, session: SessionRow, by: tuple[int, int]
) -> None:
    """
    Take the target and all after it off the conversation; `by` is the new message's and run's key.

    The rows keep their numbers and ids, which stay taken; every read leaves them out.
    """
    message_key, run_key = by
    since = target.run.ordinal
    Message.objects.filter(session_id=session.key, run__ordinal__gte=since, replaced_by=None).update(
        replaced_by=message_key
    )
    Run.objects.filter(session_id=session.key, ordinal__gte=since, replaced_by=None).update(
        replaced_by=run_key
    )
    notice = frames.message_frame(
        message_id=frames.new_id(),
        kind="event",
        sender=session.agent,
        to=username,
        session=session.public_id,
        reply_to=target.public_id,
        ts=int(batch.ts),
        data={"event": "message.replaced", "message_id": target.public_id},
    )
    batch.tell(Told(user_id, notice=notice))
