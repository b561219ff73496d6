"""Many conversations and messages of one user, written straight into the tables: what years of use would leave."""

import datetime
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from accounts.models import User
from chat import rows
from chat.models import ChatSession, Message, Run, UserLog

TURNS_A_TRANSACTION = 20_000
"""So that the gateway beside is kept waiting for a second or two at most."""

KEYS_A_USER = 2**32
"""A user's rows have keys from here times the user's own on: far below those that are made by the clock."""

TEXT = '{"text":"What one says in a sentence or two: a hundred characters or so, that is true to life."}'
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT %s UNION ALL SELECT i + 1 FROM n WHERE i + 1 < %s)"

RUNS = f"""
INSERT INTO "chat_run" ("id", "public_id", "user_id", "session_id", "agent", "ordinal", "user_message_id", "status",
    "code", "epoch", "last_seq", "created_at", "delivered_at", "ended_at", "transcript")
{NUMBERS}
SELECT %s + i, 'run_' || %s || '_' || i, s."user_id", s."id", 'hermes', i / %s + 1, %s + 2 * i, 'completed',
    '', 0, 4, %s, %s, %s, '[]'
FROM n JOIN "chat_chatsession" s ON s."user_id" = %s AND s."public_id" = 's-' || (i %% %s)
"""  # noqa: S608

MESSAGES = f"""
INSERT INTO "chat_message" ("id", "user_id", "side", "public_id", "session_id", "run_id", "cursor", "type", "agent",
    "ts", "data", "digest", "created_at")
{NUMBERS}
SELECT %s + i, r."user_id", CASE i %% 2 WHEN 0 THEN 'app' ELSE 'agent' END, 'm-' || i, r."session_id", r."id", i + 1,
    'text', 'hermes', %s, %s, 'none', %s
FROM n JOIN "chat_run" r ON r."id" = %s + i / 2
"""  # noqa: S608


def fill(name: str, sessions: int, messages: int) -> None:
    """Give a new user so many sessions, `s-0` and on, and so many messages in ended turns of two, spread evenly."""
    user = User.objects.get(username=name)
    now = timezone.now()
    turns = messages // 2
    ChatSession.objects.bulk_create(
        (
            ChatSession(
                user=user,
                public_id=f"s-{number}",
                agent="hermes",
                runs=turns // sessions + 1,
                created_at=now,
                active_at=now - datetime.timedelta(seconds=number),
            )
            for number in range(sessions)
        ),
        batch_size=500,
    )
    UserLog.objects.create(user=user, last_cursor=2 * turns, app_cursor=2 * turns)
    base, moment = user.pk * KEYS_A_USER, rows.moment(now)
    for first in range(0, turns, TURNS_A_TRANSACTION):
        last = min(first + TURNS_A_TRANSACTION, turns)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                RUNS,
                [first, last, base, user.pk, sessions, base, moment, moment, moment, user.pk, sessions],
            )
            cursor.execute(MESSAGES, [2 * first, 2 * last, base, int(now.timestamp()), TEXT, moment, base])
    if connection.vendor == "postgresql":  # as its autovacuum does before long
        _analyze(ChatSession, Run, Message)


def _analyze(*models: Any) -> None:
    with connection.cursor() as cursor:
        for model in models:
            cursor.execute(f'ANALYZE "{model._meta.db_table}"')
