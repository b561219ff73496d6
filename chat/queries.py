"""Reads of chat: the log after a cursor, pages of it, events after a number. Nothing here changes anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Q, QuerySet

from chat import agents, frames
from chat import events as run_events
from chat.events import Event
from chat.models import LIVE, AgentSlot, JournalRow, Message, Run, UserLog
from chat.telling import RunRef, Told

T = TypeVar("T")
CHUNK = 500  # users in one statement


class Pool:
    """A few threads for reads, each with a connection that it keeps; made on first use."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._connections: list[Any] = []

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a read in a thread of this pool, within one snapshot of the database."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                settings.HERMES_READ_THREADS, thread_name_prefix="read", initializer=self._begin
            )
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, _in_snapshot, function, arguments
        )

    def _begin(self) -> None:
        connection.inc_thread_sharing()  # so that `close` may close it from another thread
        self._connections.append(connection._connections[connection._alias])

    def close(self) -> None:
        """End the threads and their connections."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=True)
        for used in self._connections:
            used.close()
        self._connections.clear()


def _in_snapshot(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    try:
        return _once(function, arguments)
    except (
        OperationalError,
        InterfaceError,
    ):  # the server has dropped the connection: once more with a new one
        connection.close()
        return _once(function, arguments)


def _once(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    if connection.vendor != "postgresql":
        return function(*arguments)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return function(*arguments)


pool = Pool()


def stored(user_id: int) -> QuerySet[Message]:
    """The user's log as it stands: without what was replaced, or belongs to a deleted session."""
    return Message.objects.filter(
        user_id=user_id, cursor__isnull=False, replaced_by=None, session__deleted_at=None
    ).select_related("session", "run", "run__user_message", "user")


def run_ref(run: Run, session: str, username: str) -> RunRef:
    """What telling needs of a run; its user message must be loaded."""
    question = run.user_message
    return RunRef(
        run.pk, run.public_id, session, run.agent, username, question.public_id if question else None
    )


def told_message(message: Message) -> Told:
    """A stored message as it is told in a replay: a streamed one as one `text`."""
    username = message.user.username
    from_app = message.side == "app"
    frame = frames.message_frame(
        message_id=message.public_id,
        kind=message.type,
        sender=username if from_app else message.agent,
        to=message.agent if from_app else username,
        session=message.session.public_id,
        reply_to=message.reply_to,
        ts=message.ts,
        data=frames.read_data(message.data),
        replace_from=message.replace_from,
    )
    run = message.run
    return Told(
        message.user_id,
        cursor=message.cursor,
        run=run_ref(run, message.session.public_id, username),
        message=frame,
        side="app" if from_app else "agent",
        status={"id": run.public_id, "status": run.status, "code": run.code or None} if from_app else None,
        was_streamed=not message.digest,
    )


def messages_between(user_id: int, after: int, up_to: int, limit: int) -> list[Told]:
    """Messages with `after` < cursor <= `up_to`, oldest first, at most `limit`."""
    rows = stored(user_id).filter(cursor__gt=after, cursor__lte=up_to).order_by("cursor")[:limit]
    return [told_message(message) for message in rows]


def newest_between(
    user_id: int, after: int, up_to: int, limit: int, max_bytes: int
) -> tuple[list[int], bool]:
    """The cursors of the newest messages in a range that fit a replay, oldest first; whether any were left out."""
    rows = stored(user_id).filter(cursor__gt=after, cursor__lte=up_to).order_by("-cursor")
    cursors: list[int] = []
    size = 0
    for cursor, data in rows.values_list("cursor", "data")[: limit + 1].iterator(chunk_size=100):
        size += len(data)
        if len(cursors) == limit or (cursors and size > max_bytes):
            return cursors[::-1], True
        cursors.append(cursor)
    return cursors[::-1], False


def agent_messages(user_id: int, after: int, up_to: int) -> Iterator[Told]:
    """What the user's agents said in a range of cursors, oldest first, a few rows at a time."""
    while True:
        rows = list(
            stored(user_id).filter(side="agent", cursor__gt=after, cursor__lte=up_to).order_by("cursor")[:100]
        )
        yield from (told_message(message) for message in rows)
        if len(rows) < 100:
            return
        after = rows[-1].cursor or up_to


def page(user_id: int, session: str | None, before: int | None, limit: int) -> tuple[list[Told], bool]:
    """The newest messages before a cursor, oldest first, and whether there are older ones."""
    rows = stored(user_id)
    if session is not None:
        rows = rows.filter(session__public_id=session)
    if before is not None:
        rows = rows.filter(cursor__lt=before)
    newest = list(rows.order_by("-cursor")[: limit + 1])
    return [told_message(message) for message in newest[:limit][::-1]], len(newest) > limit


def agents_now(users: list[int]) -> tuple[dict[int, int], dict[tuple[int, str], int]]:
    """The last cursor of each of these users, and the generation of each of their agents' slots."""
    cursors: dict[int, int] = {}
    generations: dict[tuple[int, str], int] = {}
    for start in range(0, len(users), CHUNK):
        some = users[start : start + CHUNK]
        cursors.update(UserLog.objects.filter(user_id__in=some).values_list("user_id", "last_cursor"))
        slots = AgentSlot.objects.filter(user_id__in=some).values_list("user_id", "name", "generation")
        generations.update({(user_id, name): generation for user_id, name, generation in slots})
    return cursors, generations


def live_runs(user_id: int) -> list[tuple[RunRef, int]]:
    """The user's runs that have not ended, with the last number of each."""
    runs = Run.objects.filter(user_id=user_id, status__in=LIVE).select_related(
        "session", "user_message", "user"
    )
    refs = [(run, run_ref(run, run.session.public_id, run.user.username)) for run in runs]
    return [(ref, max(run.last_seq, last_seq(run.pk))) for run, ref in refs]


def last_seq(run_key: int) -> int:
    """The last number of a run's journal; 0 without events."""
    last = (
        JournalRow.objects.filter(run_id=run_key)
        .order_by("-first_seq")
        .values_list("last_seq", flat=True)
        .first()
    )
    return last or 0


def events_after(run_key: int, after: int, up_to: int | None = None) -> list[Event]:
    """The events of a run with number > `after`, in order, at most up to `up_to`."""
    rows = JournalRow.objects.filter(run_id=run_key, last_seq__gt=after).order_by("first_seq")
    if up_to is not None:
        rows = rows.filter(first_seq__lte=up_to)
    return [
        event
        for text in rows.values_list("events", flat=True)
        for event in run_events.load(text)
        if after < event["seq"] and (up_to is None or event["seq"] <= up_to)
    ]


def open_streams(user_id: int) -> list[int]:
    """The keys of the user's runs that have a stream without an end."""
    return list(
        Message.objects.filter(Q(user_id=user_id, cursor=None, replaced_by=None, run__status__in=LIVE))
        .order_by("created_at")
        .values_list("run_id", flat=True)
    )


def stream_so_far(run_key: int, up_to: int) -> tuple[dict[str, Any], str] | None:
    """How the latest stream of a run started and its text so far, from the events up to a number."""
    narrative = run_events.Narrative()
    start: dict[str, Any] | None = None
    for event in events_after(run_key, 0, up_to):
        narrative.add(event)
        start = (event.get("v3") or {}).get("start", start)
    return (start, narrative.stream_text) if start is not None else None


def agent_caps(user_id: int, agent: str) -> frozenset[str]:
    """What an agent granted when it connected last, or what the upstream grants."""
    row = AgentSlot.objects.filter(user_id=user_id, name=agent).values_list("caps", flat=True).first()
    caps = frozenset(cap for cap in (row or "").split(",") if cap)
    if agents.UPSTREAM not in caps and agents.is_upstream(user_id, agent):
        return agents.UPSTREAM_CAPS
    return caps


def history_before(session_key: int, ordinal: int, newest: int | None = None) -> list[dict[str, Any]]:
    """
    A conversation up to a run, as an agent gets it: `{role, content, id}`, oldest first; files by name and id.

    `newest`: at most so many messages of it.
    """
    rows = (
        Message.objects.filter(
            session_id=session_key, run__ordinal__lt=ordinal, replaced_by=None, cursor__isnull=False
        )
        .order_by("-run__ordinal", "-cursor")
        .values_list("side", "public_id", "data")
    )
    return [
        {
            "role": "user" if side == "app" else "assistant",
            "content": _as_text(frames.read_data(data)),
            "id": public_id,
        }
        for side, public_id, data in reversed(list(rows[:newest]))
    ]


def _as_text(data: dict[str, Any]) -> str:
    media = data.get("media")
    text = str(data.get("text") or "")
    if not isinstance(media, dict):
        return text
    file = f"[file {media.get('name') or media.get('type')} ({media.get('id')})]"
    return f"{text}\n{file}" if text else file


def find_run(user_id: int, name: str) -> Run | None:
    """A run of a standing session by its id, its user message's id, or the id its client gave it."""
    runs = Run.objects.filter(user_id=user_id, session__deleted_at=None).select_related(
        "session", "user_message"
    )
    return (
        runs.filter(public_id=name).first()
        or runs.filter(client_run_id=name).first()
        or runs.filter(user_message__public_id=name).first()
    )


def run_of_session(session_key: int, name: str) -> Run | None:
    """A run of a session by its id, replaced or not."""
    return Run.objects.filter(session_id=session_key, public_id=name).first() if name.isascii() else None


def journal_range(run_key: int) -> tuple[int, int]:
    """The first and the last number that a run's journal holds; 0, 0 when it holds nothing."""
    rows = JournalRow.objects.filter(run_id=run_key)
    first = rows.order_by("first_seq").values_list("first_seq", flat=True).first()
    return (first or 0, last_seq(run_key))


def rest_of_run(run_key: int, after: int) -> tuple[list[Event], bool]:
    """The events of a run with number > `after`; and whether the run has ended, so that no more will come."""
    live = Run.objects.filter(
        pk=run_key, status__in=LIVE
    ).exists()  # first: what comes after is in the journal
    events = events_after(run_key, after)
    return events, not events and not live


def rest_of_session(
    session_key: int, floor: int | None, seen: dict[int, int], first: int | None
) -> tuple[int, list[tuple[RunRef, list[Event]]]]:
    """
    What a reader of a session lacks: the events after those `seen`, of those runs and of all past a `floor`.

    Without a floor it begins: with the run `first` and all after it, or else with the live ones.
    Returns the new floor: the highest ordinal.
    """
    runs = Run.objects.filter(session_id=session_key, replaced_by=None)
    newest = runs.order_by("-ordinal").values_list("ordinal", flat=True).first() or 0
    if floor is not None:
        wanted = runs.filter(Q(ordinal__gt=floor) | Q(pk__in=seen))
    elif first is not None:
        wanted = runs.filter(ordinal__gte=runs.filter(pk=first).values("ordinal")[:1])
    else:
        wanted = runs.filter(status__in=LIVE)
    found = []
    for run in wanted.select_related("session", "user_message", "user").order_by("ordinal"):
        events = events_after(run.pk, seen.get(run.pk, 0))
        if events:
            found.append((run_ref(run, run.session.public_id, run.user.username), events))
    return max(newest, floor or 0), found
