"""What an App asks for: a message that starts a run, and what else it may say. For the writer."""

from __future__ import annotations

from django.conf import settings

from chat import beginnings, ends, frames, replacing
from chat.answers import with_media
from chat.batch import Batch, Postponed, SessionRow
from chat.contents import user_content
from chat.control import waiting_turn
from chat.models import ChatSession, Message, Run, RunStatus
from chat.presence import Quiet
from chat.telling import Told
from chat.turns import Slot
from hermes_site.errors import RateLimited, Unsupported


class Submitted:
    """How a message was taken: `queued` when its agent is away, `repeated` when it was there already."""

    def __init__(self, *, queued: bool = False, repeated: bool = False) -> None:
        self.queued = queued
        self.repeated = repeated


class Submit(Quiet):
    """
    A person's message: stored under the next cursor, with the run it starts.

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
        slot = self.slots.get((self.user_id, self.agent))
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
        slot = beginnings.seat_of(batch, self.slots, self.user_id, self.agent)
        online = beginnings.is_online(slot, self.user_id, self.agent)
        beginnings.check_queue(batch, self.user_id, self.agent, online=online)
        said = beginnings.Utterance(
            self.user_id,
            self.username,
            self.agent,
            frame.id,
            kind,
            frame.reply_to,
            int(frame.ts),
            data,
            digest,
            user_content(media, data),
            [media] if media is not None else [],
            target,
        )
        beginnings.begin(batch, session or self._new_session(batch), said, slot, online=online)
        return Submitted(queued=not online)

    def _session(self, batch: Batch) -> SessionRow | None:
        session = batch.session(self.user_id, self.frame.session)
        if session is not None and session.deleted:
            raise Unsupported("session: was deleted; begin another one", field="session")
        if session is not None and session.agent != self.agent:
            raise Unsupported(f"to: this session belongs to the agent {session.agent}", field="to")
        return session

    def _new_session(self, batch: Batch) -> SessionRow:
        check_new_session(batch, self.user_id)
        return batch.new_session(self.user_id, self.frame.session, self.agent)


def check_new_session(batch: Batch, user_id: int) -> None:
    """
    Whether a user may begin another session.

    Raises:
        RateLimited: If there are too many, or too many new ones.
    """
    if not settings.HERMES_RATE_LIMIT:
        return
    mine = ChatSession.objects.filter(user_id=user_id)
    if (
        mine.filter(created_at__gt=batch.ago(60)).count() + batch.begun[user_id]
        >= settings.HERMES_NEW_SESSIONS_PER_MINUTE
    ):
        raise RateLimited("too many new sessions", retry_after=60)
    if mine.filter(deleted_at=None).count() + batch.begun[user_id] >= settings.HERMES_SESSIONS:
        raise RateLimited(f"there are {settings.HERMES_SESSIONS} sessions; delete some", retry_after=3600)


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
