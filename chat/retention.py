"""What is not kept for ever: journals of runs long ended, texts of deleted sessions, old idempotency keys."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from chat.models import LIVE, ChatSession, Command, IdempotencyKey, JournalRow, Message, Process, Run

ROWS = 1000  # in one statement, so that nobody waits long for a lock


def purge() -> dict[str, int]:
    """Remove what is due; returns how many rows of each kind. History shows the same before and after."""
    now = timezone.now()
    ended = Run.objects.filter(ended_at__lt=now - timedelta(seconds=settings.HERMES_JOURNAL_SECONDS))
    buried = ChatSession.objects.filter(deleted_at__isnull=False)
    done_in_buried = Run.objects.filter(session__in=buried).exclude(status__in=LIVE)
    return {
        "events": _delete(JournalRow.objects.filter(run__in=ended))
        + _delete(JournalRow.objects.filter(run__in=done_in_buried)),
        "commands": _delete(Command.objects.filter(run__in=ended))
        + _delete(Command.objects.filter(run__in=done_in_buried)),
        "texts": _blank(Message.objects.filter(session__in=buried).exclude(data="{}"), data="{}")
        + _blank(done_in_buried.exclude(transcript=""), transcript="")
        + _blank(buried.exclude(title=None), title=None),
        "keys": _delete(
            IdempotencyKey.objects.filter(
                created_at__lt=now - timedelta(seconds=settings.HERMES_IDEMPOTENCY_SECONDS)
            )
        ),
    }


def purge_as(process: uuid.UUID) -> None:
    """The same from within a gateway: of several processes the one with the lowest number does it for all."""
    try:
        living = Process.objects.filter(lease__gt=timezone.now()).order_by("uuid")
        if living.values_list("uuid", flat=True).first() == process:
            purge()
    finally:
        connection.close()


def _delete(rows: QuerySet[Any]) -> int:
    count = 0
    while keys := list(rows.values_list("pk", flat=True)[:ROWS]):
        count += rows.model._default_manager.filter(pk__in=keys).delete()[0]
    return count


def _blank(rows: QuerySet[Any], **values: Any) -> int:
    count = 0
    while keys := list(rows.values_list("pk", flat=True)[:ROWS]):
        count += rows.model._default_manager.filter(pk__in=keys).update(**values)
    return count
