"""What an App asks for: a message that starts a run, and what else it may say. For the writer."""

from __future__ import annotations

from django.conf import settings

from chat import ends, frames, queries, replacing
from chat.answers import with_media
from chat.batch import Batch, Postponed, SessionRow
from chat.control import waiting_turn
from chat.dispatch import hand_out
from chat.keys import new_key
from chat.models import AgentSlot, ChatSession, Message, Run, RunStatus
from chat.presence import Quiet
from chat.telling import Told
from chat.turns import Slot
from hermes_site.errors import Offline, RateLimited, Unsupported


class Submitted:
    """How a message was taken: `queued` when its agent is away, `repeated` when it was there already."""

    def __init__(self, *, queued: bool = False, repeated: bool = False) -> None:
        self.queued = queued
        self.repeated = repeated


class Submit(Quiet):
    """
    A person's message: stored under the next cursor, with the run it starts.

    It is handed to its agent in the same transaction where that is this process' to do and nothing waits
    before it; else the agent's dispatcher finds it.

    Raises:
        Unsupported: If the id has other content, or the session is deleted or another agent's.
        UploadFailed: If it names a file the user does not have.
        Offline: If the agent is away and too much waits for it; nothing is stored then.
    """

    def __init__(
        self,
        user_id: int,
        username: str,
        agent: str,
        frame: frames.Message,
        slots: dict[tuple[int, str], Slot],
    ) -> None:
        self.user_id = user_id
        self.username = username
        self.agent = agent
        self.frame = frame
        self.slots = slots
        self.alone = frame.replace_from is not None  # it reads, and takes away, what others may have staged

    def load(self, batch: Batch) -> None:
        """The user's numbers, the session, whether the id is taken, the file, the agent's turns."""
        frame = self.frame
        batch.want_log(self.user_id)
        batch.want_session(self.user_id, frame.session)
        batch.want_message(self.user_id, "app", frame.id)
        if not isinstance(frame, frames.Text):
            batch.want_media(self.user_id, frame.body["media"]["id"])
        slot = self._slot()
        if slot is not None:
            batch.want_seat(slot)

    def apply(self, batch: Batch) -> Submitted:
        """Check, then store, then hand out."""
        frame = self.frame
        digest = frames.same_content(frame, self.agent)
        known = batch.message(self.user_id, "app", frame.id)
        if known is not None:
            if known.digest != digest:
                raise Unsupported("id: is taken by a message with other content", field="id")
            if batch.is_new(known.key):
                raise Postponed
            echo_again(batch, self.user_id, self.username, known.key)
            return Submitted(repeated=True)
        session = self._session(batch)
        kind, data, media = with_media(batch, self.user_id, frame)
        target = None
        if frame.replace_from is not None:
            target = replacing.find_target(self.user_id, session, frame.replace_from, self.agent)
        slot = self._slot()
        if slot is not None and not batch.seated(slot):
            slot = None
        online = slot is not None or _online_elsewhere(self.user_id, self.agent)
        if not online:
            self._check_queue()
        session = session or self._new_session(batch)

        last, _ = batch.cursors(self.user_id)
        direct = slot is not None and slot.handed == last
        key = new_key()
        status = RunStatus.QUEUED
        if direct and slot is not None and slot.active(session.key) is None:
            status = RunStatus.RUNNING
        turn = batch.new_run(
            session, self.username, status=status, slot=slot if direct else None, question=(key, frame.id)
        )
        cursor = batch.next_cursor(self.user_id, undelivered_for=None if direct else self.agent)
        batch.insert_message(
            key=key, session=session, run=turn.key, side="app", public_id=frame.id, cursor=cursor, kind=kind,
            reply_to=frame.reply_to, ts=int(frame.ts), data=data, digest=digest, replace_from=frame.replace_from,
        )  # fmt: skip
        batch.touch(session, data.get("text"))
        content = data.get("text", "") if media is None else [{"type": "text", "text": data.get("text", "")}]
        events = [
            batch.event(
                turn, "run.started", user_message={"id": frame.id, "role": "user", "content": content}
            )
        ]
        if not online:
            events.append(batch.event(turn, "run.queued", status="queued", reason="agent_offline"))
        if media is not None:
            batch.grant(media, self.agent)
        message = frames.message_frame(
            message_id=frame.id, kind=kind, sender=self.username, to=self.agent, session=frame.session,
            reply_to=frame.reply_to, ts=int(frame.ts), data=data, replace_from=frame.replace_from,
        )  # fmt: skip
        batch.tell(
            Told(
                self.user_id, cursor=cursor, run=turn.ref, first=1, last=len(events), events=events,
                message=message, side="app", status={"id": turn.ref.public_id, "status": status, "code": None},
            )
        )  # fmt: skip
        if target is not None:
            replacing.replace(batch, self.user_id, self.username, target, session, (key, turn.key))
        if direct and slot is not None:
            slot.add(turn)
            if target is not None:
                history = queries.history_before(session.key, turn.ordinal)
                message = {**message, "data": {**data, "history": history}}
            hand_out(batch, slot, turn, message, cursor)
        return Submitted(queued=not online)

    def _slot(self) -> Slot | None:
        slot = self.slots.get((self.user_id, self.agent))
        return slot if slot is not None and slot.peer is not None else None

    def _session(self, batch: Batch) -> SessionRow | None:
        session = batch.session(self.user_id, self.frame.session)
        if session is not None and session.deleted:
            raise Unsupported("session: was deleted; begin another one", field="session")
        if session is not None and session.agent != self.agent:
            raise Unsupported(f"to: this session belongs to the agent {session.agent}", field="to")
        return session

    def _new_session(self, batch: Batch) -> SessionRow:
        if settings.HERMES_RATE_LIMIT:
            mine = ChatSession.objects.filter(user_id=self.user_id)
            latest = mine.filter(created_at__gt=batch.ago(60)).count()
            if latest >= settings.HERMES_NEW_SESSIONS_PER_MINUTE:
                raise RateLimited("too many new sessions", retry_after=60)
            if mine.count() >= settings.HERMES_SESSIONS:
                raise RateLimited(
                    f"there are {settings.HERMES_SESSIONS} sessions already; delete some", retry_after=3600
                )
        return batch.new_session(self.user_id, self.frame.session, self.agent)

    def _check_queue(self) -> None:
        waiting = Run.objects.filter(
            user_id=self.user_id, agent=self.agent, status=RunStatus.QUEUED, delivered_at__isnull=True
        ).count()
        if waiting >= settings.HERMES_QUEUE_LIMIT:
            raise Offline("the agent is away and too many messages wait for it already")


def echo_again(batch: Batch, user_id: int, username: str, key: int) -> None:
    """A repeated id is echoed again, under the cursor it has."""
    message = Message.objects.select_related("run", "session").get(pk=key)
    run = message.run
    told = frames.message_frame(
        message_id=message.public_id, kind=message.type, sender=username, to=message.agent,
        session=message.session.public_id, reply_to=message.reply_to, ts=message.ts,
        data=frames.read_data(message.data), replace_from=message.replace_from,
    )  # fmt: skip
    told["cursor"] = message.cursor
    told["run"] = {"id": run.public_id, "status": run.status, "code": run.code or None}
    batch.tell(Told(user_id, message=told, side="app"))


def _online_elsewhere(user_id: int, agent: str) -> bool:
    return AgentSlot.objects.filter(user_id=user_id, name=agent, process__isnull=False).exists()


class Expire(Quiet):
    """End what has waited too long for its agent, a bounded number at a time."""

    alone = True
    ROWS = 200

    def load(self, batch: Batch) -> None:
        """Which they are; their users' numbers."""
        self.keys = list(
            Run.objects.filter(
                status=RunStatus.QUEUED,
                delivered_at__isnull=True,
                created_at__lt=batch.ago(settings.HERMES_QUEUE_SECONDS),
            ).values_list("pk", flat=True)[: self.ROWS]
        )
        for user_id in Run.objects.filter(pk__in=self.keys).values_list("user_id", flat=True).distinct():
            batch.want_log(user_id)

    def apply(self, batch: Batch) -> bool:
        """Fail them, and say so; the result says whether there may be more."""
        waiting = Run.objects.filter(pk__in=self.keys, status=RunStatus.QUEUED, delivered_at__isnull=True)
        for run in waiting.select_related("session", "user_message", "user"):
            slot, turn = waiting_turn(run)
            batch.claim(turn)
            text = "the agent did not come in time"
            error = ends.notice_error(
                batch,
                slot,
                session=turn.ref.session,
                reply_to=turn.ref.reply_to,
                code="offline",
                text=text,
                queued=False,
            )
            ends.end_turn(batch, slot, turn, "failed", code="offline", text=text, error=error)
        return len(self.keys) == self.ROWS
