"""Makes users, keys and tokens, and looks into the tables, in one Django process of its own beside the gateway.

The same commands as an operator's, without the start of a process for each. Run as a program this module is that
process: one JSON order a line in, one JSON answer a line out.
"""

import datetime
import io
import json
import secrets
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tests.rig.paths import ROOT


@dataclass(frozen=True)
class Person:
    """A user with what opens the two sockets."""

    name: str
    token: str
    key: str

    @property
    def prefix(self) -> str:
        """The public part of the key."""
        return self.key.split("_")[1]


class Clerk:
    """The test's side of the process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None

    def ask(self, order: str, **arguments: Any) -> Any:
        """
        Have one order carried out.

        Raises:
            AssertionError: If it failed there, with the reason.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.rig.clerk"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([order, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the clerk ended at {order}"
        good, answer = json.loads(line)
        assert good, f"{order} {arguments}: {answer}"
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait(10)
            self._process.stdout.close()
            self._process = None

    def person(self, name: str, *, password: str | None = None, agent: str = "hermes") -> Person:
        """A new user of exactly this name, with a key and an access token."""
        self.ask("create_user", name=name, password=password)
        return Person(name, self.token(name), self.key(name, agent=agent))

    def key(self, name: str, **options: Any) -> str:
        """Another key of a user; options as those of `manage.py create_key`."""
        return str(self.command("create_key", name, **options))

    def token(self, name: str, **options: Any) -> str:
        """Another access token of a user; options as those of `manage.py create_token`."""
        return str(self.command("create_token", name, **options))

    def command(self, name: str, *arguments: str, **options: Any) -> str:
        """Run a management command; returns what it printed on standard output."""
        return str(self.ask("command", name=name, arguments=arguments, options=options)).strip()

    def runs(self, person: Person, session: str) -> list[dict[str, Any]]:
        """The turns of a session in order: `question`, `status`, and the ids of the `answers`."""
        return list(self.ask("runs", name=person.name, session=session))

    def messages(self, person: Person, session: str) -> list[dict[str, Any]]:
        """The stored messages of a session in the order of their cursors, open streams last."""
        return list(self.ask("messages", name=person.name, session=session))


def _orders() -> dict[str, Any]:
    """What can be ordered, for the process' side; Django must be set up."""
    from django.apps import apps
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Permission
    from django.core.management import call_command
    from django.db import connection
    from django.db.models import F

    from chat import queries
    from chat.models import AgentSlot, ChatSession, Connection, Message, Run
    from media.models import Media

    users = get_user_model().objects

    def create_user(name: str, password: str | None = None, **fields: Any) -> None:
        users.create_user(username=name, password=password, **fields)

    def permit(name: str, permissions: list[str]) -> None:
        users.get(username=name).user_permissions.add(*Permission.objects.filter(codename__in=permissions))

    def change_user(name: str, **fields: Any) -> None:
        users.filter(username=name).update(**fields)

    def set_password(name: str) -> str:
        user = users.get(username=name)
        password = secrets.token_urlsafe(12)
        user.set_password(password)
        user.save()
        return password

    def delete_user(name: str) -> None:
        users.get(username=name).delete()

    def command(name: str, arguments: list[str], options: dict[str, Any]) -> str:
        printed = io.StringIO()
        call_command(name, *arguments, stdout=printed, **options)
        return printed.getvalue()

    def messages(name: str, session: str) -> list[dict[str, Any]]:
        rows = Message.objects.filter(user__username=name, session__public_id=session)
        return [
            {
                "id": row.public_id,
                "side": row.side,
                "cursor": row.cursor,
                "type": row.type,
                "reply_to": row.reply_to,
                "data": json.loads(row.data) if isinstance(row.data, str) else row.data,
            }
            for row in rows.order_by(F("cursor").asc(nulls_last=True), "pk")
        ]

    def runs(name: str, session: str) -> list[dict[str, Any]]:
        rows = Run.objects.filter(user__username=name, session__public_id=session).order_by("ordinal")
        return [
            {
                "question": row.user_message.public_id if row.user_message else None,
                "status": row.status,
                "answers": [m.public_id for m in row.messages.filter(side="agent").order_by("cursor")],
            }
            for row in rows.select_related("user_message")
        ]

    def media(owner: str, **fields: Any) -> None:
        Media.objects.create(owner=users.get(username=owner), **fields)

    def age_sessions(name: str, seconds: float) -> None:
        older = F("created_at") - datetime.timedelta(seconds=seconds)
        ChatSession.objects.filter(user__username=name).update(created_at=older)

    def sql(statement: str) -> list[list[Any]]:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return [[str(value) for value in row] for row in cursor.fetchall()] if cursor.description else []

    def table_of(app: str, model: str) -> str:
        return apps.get_model(app, model)._meta.db_table

    def events(run: str, after: int) -> list[dict[str, Any]]:
        return queries.events_after(Run.objects.get(public_id=run).pk, after)

    def connections(name: str, side: str) -> int:
        if side == "agent":
            return AgentSlot.objects.filter(user__username=name, process__isnull=False).count()
        return Connection.objects.filter(user__username=name, side=side).count()

    listed = (
        create_user,
        permit,
        change_user,
        delete_user,
        set_password,
        command,
        messages,
        media,
        age_sessions,
        sql,
        table_of,
        connections,
        runs,
        events,
    )
    return {function.__name__: function for function in listed}


def main() -> None:
    """Carry out orders until standard input ends."""
    import os

    answers, sys.stdout = sys.stdout, sys.stderr
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hermes_site.settings")
    import django

    from hermes_site import sqlite

    sqlite.install()

    django.setup()
    from django.db import close_old_connections

    orders = _orders()
    for line in sys.stdin:
        order, arguments = json.loads(line)
        try:
            answer = [True, orders[order](**arguments)]
        except Exception as error:  # the test that asked must hear of it, whatever it is
            answer = [False, f"{type(error).__name__}: {error}"]
        close_old_connections()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
