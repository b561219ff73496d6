"""
The tables of conversations. Rows are written by the journal; nothing here decides anything.

A foreign key with `db_index=False` is the first column of another index: each index is paid for with every message.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from chat.keys import new_key


class KeyField(models.BigIntegerField):
    """A primary key of 64 bits that we give ourselves; on SQLite the row's own number, which saves an index."""

    def db_type(self, connection: Any) -> str:
        """What the column is called: SQLite knows a row's number by this word alone, and keeps 64 bits in it."""
        return "integer" if connection.vendor == "sqlite" else super().db_type(connection)


class ChatSession(models.Model):
    """One conversation of one user with one agent. A deleted one stays as a tombstone."""

    id = KeyField(primary_key=True, default=new_key, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    public_id = models.CharField(max_length=128)
    agent = models.CharField(max_length=32)
    title = models.CharField(max_length=255, null=True)
    pinned = models.BooleanField(default=False)
    archived = models.BooleanField(default=False)
    upstream_id = models.CharField(max_length=128, null=True)
    parent = models.CharField(max_length=128, null=True)  # public id of the session it was forked from …
    copied = models.IntegerField(null=True)  # … and the ordinal of the last run that came from there
    runs = models.IntegerField(default=0)  # the highest ordinal given to a run of this session
    created_at = models.DateTimeField()
    active_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "public_id"], name="chat_session_of_user"),
        ]
        indexes = [models.Index(fields=["user", "-active_at"], name="chat_session_recent")]
        permissions = [("read_content", "Can read message texts, event payloads and media")]
        verbose_name = "session"

    def __str__(self) -> str:
        return self.public_id


class RunStatus(models.TextChoices):
    """What a run is doing, or how it ended."""

    QUEUED = "queued"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


LIVE = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.STOPPING)
ACTIVE = (RunStatus.RUNNING, RunStatus.STOPPING)


class Run(models.Model):
    """One turn of an agent: from a user's message, or from nothing, to its end."""

    id = KeyField(primary_key=True, default=new_key, editable=False)
    public_id = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    session = models.ForeignKey(ChatSession, on_delete=models.CASCADE, related_name="+", db_index=False)
    agent = models.CharField(max_length=32)
    ordinal = models.IntegerField()
    user_message = models.OneToOneField("Message", null=True, on_delete=models.CASCADE, related_name="+")
    client_run_id = models.CharField(max_length=128, null=True)
    status = models.CharField(max_length=12, choices=RunStatus.choices)
    code = models.CharField(max_length=64, default="")  # why it did not complete: a bare token
    owner = models.UUIDField(null=True)  # the process that writes its events
    epoch = models.BigIntegerField(default=0)  # the generation of the agent's slot that owns it
    last_seq = models.IntegerField(default=0)  # exact once it has ended; the journal knows better before
    created_at = models.DateTimeField()
    delivered_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    transcript = models.TextField(default="")  # the history rows of an ended run, JSON
    replaced_by = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "ordinal"], name="chat_run_place"),
            models.UniqueConstraint(fields=["user", "client_run_id"], name="chat_run_client_id"),
            models.UniqueConstraint(
                fields=["session", "agent"], condition=Q(status__in=ACTIVE), name="chat_one_active_run"
            ),
        ]
        indexes = [
            models.Index(fields=["user", "agent"], condition=Q(status__in=LIVE), name="chat_run_live"),
            models.Index(fields=["owner"], condition=Q(status__in=LIVE), name="chat_run_owned"),
            models.Index(fields=["ended_at"], name="chat_run_ended"),
            models.Index(
                fields=["replaced_by"], condition=Q(replaced_by__isnull=False), name="chat_run_replaced_by"
            ),
        ]

    def __str__(self) -> str:
        return self.public_id


class Message(models.Model):
    """
    A finished utterance of a person or an agent.

    A streamed one is there from its `stream_start`, with `cursor` null until its end.
    """

    id = KeyField(primary_key=True, default=new_key, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    side = models.CharField(max_length=5, choices=[("app", "App"), ("agent", "agent")])
    public_id = models.CharField(max_length=128)
    session = models.ForeignKey(ChatSession, on_delete=models.CASCADE, related_name="+", db_index=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="messages")
    cursor = models.BigIntegerField(null=True)
    type = models.CharField(max_length=5)
    agent = models.CharField(max_length=32)  # whom it went to, or came from
    reply_to = models.CharField(max_length=128, null=True)
    replace_from = models.CharField(max_length=128, null=True)
    ts = models.BigIntegerField()  # Unix seconds, as the sender said
    data = models.TextField()  # JSON
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField()
    replaced_by = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "side", "public_id"], name="chat_message_id"),
            models.UniqueConstraint(fields=["user", "cursor"], name="chat_message_cursor"),
        ]
        indexes = [
            models.Index(fields=["session", "cursor"], name="chat_message_in_session"),
            models.Index(fields=["user"], condition=Q(cursor=None), name="chat_message_open"),
            models.Index(
                fields=["replaced_by"],
                condition=Q(replaced_by__isnull=False),
                name="chat_message_replaced_by",
            ),
        ]

    def __str__(self) -> str:
        return self.public_id


class JournalRow(models.Model):
    """The events of one run that were committed in one tick. `events` is a JSON array."""

    id = KeyField(primary_key=True, default=new_key, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="journal", db_index=False)
    first_seq = models.IntegerField()
    last_seq = models.IntegerField()
    events = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "first_seq"], name="chat_journal_place")]

    def __str__(self) -> str:
        return f"{self.first_seq}-{self.last_seq}"


class UserLog(models.Model):
    """A user's numbers: the last cursor given, and the last agent message handed to any App socket."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="+"
    )
    last_cursor = models.BigIntegerField(default=0)
    app_cursor = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.last_cursor}"


class Process(models.Model):
    """A gateway process; alive while its lease has not run out. `commits` tells a commit from a lost one."""

    uuid = models.UUIDField(primary_key=True)
    host = models.CharField(max_length=255)
    started_at = models.DateTimeField()
    lease = models.DateTimeField()
    commits = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "processes"

    def __str__(self) -> str:
        return f"{self.host} {self.uuid}"


class AgentSlot(models.Model):
    """The one place an agent name of a user has; `generation` counts its connections, the newest wins."""

    id = KeyField(primary_key=True, default=new_key, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    name = models.CharField(max_length=32)
    process = models.UUIDField(null=True)  # who holds its socket
    generation = models.BigIntegerField(default=0)
    caps = models.CharField(max_length=64, default="")
    connected_at = models.DateTimeField(null=True)
    gone_at = models.DateTimeField(null=True)
    takeovers = models.TextField(default="[]")  # Unix seconds of the latest ones, JSON

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="chat_slot_of_user")]

    def __str__(self) -> str:
        return self.name


class Connection(models.Model):
    """One live socket, for operators to see. Removed when it closes or its process is found dead."""

    id = KeyField(primary_key=True, default=new_key, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    side = models.CharField(max_length=5)
    agent = models.CharField(max_length=32, default="")
    process = models.UUIDField()
    caps = models.CharField(max_length=64, default="")
    address = models.CharField(max_length=64, default="")
    user_agent = models.CharField(max_length=200, default="")
    connected_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.side} {self.id}"


class Command(models.Model):
    """Something asked of a run's owner, which may be another process: stop, steer, an approval."""

    id = KeyField(primary_key=True, default=new_key, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16)
    payload = models.TextField(default="{}")
    created_at = models.DateTimeField()
    taken_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["run"], condition=Q(taken_at=None), name="chat_command_waiting")]

    def __str__(self) -> str:
        return self.kind


class IdempotencyKey(models.Model):
    """A client's name for one intention: the same key twice is one run."""

    id = KeyField(primary_key=True, default=new_key, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64)  # of the body it came with
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="chat_idempotency_key")]
        indexes = [models.Index(fields=["created_at"], name="chat_idempotency_age")]

    def __str__(self) -> str:
        return self.key
