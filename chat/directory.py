"""The directory of conversations: rows for lists, and what may be changed about a conversation."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery

from chat import frames
from chat.batch import Batch
from chat.control import ForRun, Slots, waiting_turn
from chat.ends import end_turn
from chat.models import ACTIVE, LIVE, ChatSession, Message, Run
from chat.presence import Quiet
from chat.runs import check_new_session
from chat.telling import Told
from hermes_site.errors import Conflict, InvalidRequest, NotFound

PREVIEW_CHARACTERS = 120
Row = dict[str, Any]


def listed(user_id: int) -> QuerySet[ChatSession]:
    """A user's conversations with what a row shows, the latest activity first."""
    last = Message.objects.filter(session=OuterRef("pk"), cursor__isnull=False, replaced_by=None).order_by(
        "-cursor"
    )
    active = Run.objects.filter(session=OuterRef("pk"), status__in=ACTIVE)
    return (
        ChatSession.objects.filter(user_id=user_id, deleted_at=None)
        .annotate(
            last_data=Subquery(last.values("data")[:1]),
            active_id=Subquery(active.values("public_id")[:1]),
            active_status=Subquery(active.values("status")[:1]),
        )
        .order_by("-active_at", "-pk")
    )


def page(user_id: int, limit: int, offset: int) -> tuple[list[Row], bool]:
    """Rows of a page, and whether there are more."""
    sessions = list(listed(user_id)[offset : offset + limit + 1])
    counts = dict(
        Message.objects.filter(
            session__in=[session.pk for session in sessions], cursor__isnull=False, replaced_by=None
        )
        .values_list("session")
        .annotate(count=Count("pk"))
    )
    return [row(session, counts.get(session.pk, 0)) for session in sessions[:limit]], len(sessions) > limit


def one(user_id: int, name: str) -> Row:
    """
    The row of one conversation.

    Raises:
        NotFound: `session_not_found`.
    """
    session = listed(user_id).filter(public_id=name).first()
    if session is None:
        raise NotFound("there is no such session", api_code="session_not_found")
    count = Message.objects.filter(session=session, cursor__isnull=False, replaced_by=None).count()
    return row(session, count)


def row(session: Any, count: int) -> Row:
    """A conversation as lists show it."""
    data = frames.read_data(session.last_data) if session.last_data else {}
    text = str(data.get("text") or "")
    return {
        "id": session.public_id,
        "title": session.title,
        "preview": text[:PREVIEW_CHARACTERS] or None,
        "message_count": count,
        "started_at": session.created_at.timestamp(),
        "last_active": session.active_at.timestamp(),
        "created_at": session.created_at.isoformat(),
        "updated_at": session.active_at.isoformat(),
        "parent_session_id": session.parent,
        "pinned": session.pinned,
        "archived": session.archived,
        "agent": session.agent,
        "active_run": {"run_id": session.active_id, "status": session.active_status}
        if session.active_id
        else None,
    }


class Create(Quiet):
    """
    Make a conversation by the client's own id.

    Raises:
        Conflict: `session_exists`, or `session_deleted` for an id that was used up.
        RateLimited: If there are too many.
    """

    alone = True

    def __init__(self, user_id: int, name: str, agent: str, title: str | None) -> None:
        self.user_id = user_id
        self.name = name
        self.agent = agent
        self.title = title

    def load(self, batch: Batch) -> None:
        """The user's numbers, and whether the id is taken."""
        batch.want_log(self.user_id)
        batch.want_session(self.user_id, self.name)

    def apply(self, batch: Batch) -> None:
        """Make it."""
        known = batch.session(self.user_id, self.name)
        if known is not None:
            code = "session_deleted" if known.deleted else "session_exists"
            raise Conflict("there is, or was, a session by this id", api_code=code)
        check_new_session(batch, self.user_id)
        session = batch.new_session(self.user_id, self.name, self.agent)
        session.title = self.title


class Change(Quiet):
    """Change a conversation's title, or whether it is pinned or archived."""

    alone = True

    def __init__(self, user_id: int, username: str, name: str, changes: Row) -> None:
        self.user_id = user_id
        self.username = username
        self.name = name
        self.changes = changes

    def load(self, batch: Batch) -> None:
        """The user's numbers: other writers of this session wait."""
        batch.want_log(self.user_id)

    def apply(self, batch: Batch) -> None:
        """
        Change it and tell other devices.

        Raises:
            NotFound: `session_not_found`.
        """
        sessions = ChatSession.objects.filter(user_id=self.user_id, public_id=self.name, deleted_at=None)
        session = sessions.first()
        if session is None:
            raise NotFound("there is no such session", api_code="session_not_found")
        sessions.update(**self.changes)
        _tell(batch, session, self.username, "session.updated", self.changes)


class Delete(ForRun):
    """
    Delete a conversation for good: it stays as a tombstone, its id stays taken.

    Raises:
        NotFound: `session_not_found`.
        Conflict: `session_active_turn`.
    """

    def __init__(self, user_id: int, username: str, slots: Slots, name: str) -> None:
        super().__init__(user_id, slots)
        self.username = username
        self.name = name

    def apply(self, batch: Batch) -> None:
        """Cancel what waits, then bury it."""
        session = ChatSession.objects.filter(
            user_id=self.user_id, public_id=self.name, deleted_at=None
        ).first()
        if session is None:
            raise NotFound("there is no such session", api_code="session_not_found")
        live = Run.objects.filter(session=session, status__in=LIVE)
        if live.filter(Q(status__in=ACTIVE) | Q(delivered_at__isnull=False)).exists():
            raise Conflict("a run of this session has not ended", api_code="session_active_turn")
        for run in live.select_related("session", "user_message", "user"):
            slot, turn = waiting_turn(run)
            batch.claim(turn)
            end_turn(batch, slot, turn, "cancelled")
        ChatSession.objects.filter(pk=session.pk).update(deleted_at=batch.now)
        _tell(batch, session, self.username, "session.deleted", {})


def read_changes(body: Row) -> Row:
    """
    What a PATCH may change.

    Raises:
        InvalidRequest: `invalid_title`, or for a flag that is none.
    """
    changes: Row = {}
    if "title" in body:
        changes["title"] = read_title(body["title"])
    for name in ("pinned", "archived"):
        if name in body:
            if not isinstance(body[name], bool):
                raise InvalidRequest(f"{name} must be true or false", field=name)
            changes[name] = body[name]
    return changes


def read_title(value: Any) -> str | None:
    """
    A title, or None for none.

    Raises:
        InvalidRequest: `invalid_title`.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > 255 or not value.isprintable():
        raise InvalidRequest(
            "a title has 1 to 255 printable characters", api_code="invalid_title", field="title"
        )
    return value


def _tell(batch: Batch, session: ChatSession, username: str, name: str, fields: Row) -> None:
    notice = frames.message_frame(
        message_id=frames.new_id(),
        kind="event",
        sender=session.agent,
        to=username,
        session=session.public_id,
        reply_to=None,
        ts=int(batch.ts),
        data={"event": name, **fields},
    )
    batch.tell(Told(session.user_id, notice=notice))


__all__ = ["Change", "Create", "Delete", "one", "page", "read_changes", "read_title"]
