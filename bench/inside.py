"""
A look behind the gateway: users and rows in bulk, the time of a commit, how queries are planned.

`ask` runs this module as a program in the gateway's environment: Django, the same database, the gateway running beside.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.rig.clerk import Person
from tests.rig.paths import ROOT


def ask(environment: dict[str, str], order: str, **arguments: Any) -> Any:
    """
    Have one order carried out.

    Raises:
        SystemExit: If it failed; the reason is on standard error.
    """
    done = subprocess.run(
        [sys.executable, "-m", "bench.inside", order],
        cwd=ROOT,
        env=environment,
        input=json.dumps(arguments),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{order} failed")
    return json.loads(done.stdout)


def people(environment: dict[str, str], count: int, lead: str) -> list[Person]:
    """So many new users with what opens the two sockets."""
    return [Person(*one) for one in ask(environment, "people", count=count, lead=lead)]


def _orders() -> dict[str, Callable[..., Any]]:
    """What can be ordered, for the program's side; Django must be set up."""
    from django.contrib.auth.hashers import make_password
    from django.db import connection, transaction

    from accounts import keys, tokens
    from accounts.models import ApiKey, User
    from bench import filling, plans
    from chat.models import UserLog

    def people(count: int, lead: str) -> list[tuple[str, str, str]]:
        password = make_password(None)
        users = [User(username=f"{lead}-{number:05}", password=password) for number in range(count)]
        made = [keys.generate() for _ in users]
        with transaction.atomic():
            User.objects.bulk_create(users)
            rows = (
                ApiKey(user=user, prefix=key.prefix, digest=key.digest)
                for user, key in zip(users, made, strict=True)
            )
            ApiKey.objects.bulk_create(rows)
        return [(user.username, tokens.access(user), key.text) for user, key in zip(users, made, strict=True)]

    def commits(count: int) -> list[float]:
        """Seconds of each of so many transactions that write one row."""
        taken = []
        user = User.objects.create(username=f"commits-{time.time_ns()}", password=make_password(None))
        for number in range(count):
            began = time.perf_counter()
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(
                    'UPDATE "accounts_user" SET "first_name" = %s WHERE "id" = %s', [str(number), user.pk]
                )
            taken.append(time.perf_counter() - began)
        return taken

    def last_cursor(name: str) -> int:
        return UserLog.objects.get(user__username=name).last_cursor

    listed = (people, commits, last_cursor, filling.fill, plans.whole_reads)
    return {function.__name__: function for function in listed}


def main() -> None:
    """Carry out the one order of the command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hermes_site.settings")
    from hermes_site import sqlite

    sqlite.install()
    import django

    django.setup()
    answer = _orders()[sys.argv[1]](**json.load(sys.stdin))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
