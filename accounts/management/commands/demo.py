"""Make the demo user and print how to use it."""

import dataclasses
import json
import os
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts import demo


class Command(BaseCommand):
    """Idempotent: the same user, password and key every time."""

    help = "Make the demo user (if absent) and print its credentials."

    def add_arguments(self, parser: CommandParser) -> None:
        """The form of the answer."""
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        parser.add_argument("--force", action="store_true", help="also with DEBUG off")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the credentials."""
        if not settings.DEBUG and not options["force"]:
            raise CommandError("demo data are for development (DEBUG=1); --force makes them all the same")
        base_url = settings.HERMES_PUBLIC_URL or f"http://127.0.0.1:{os.environ.get('PORT') or 8000}"
        found = {**dataclasses.asdict(demo.make()), "base_url": base_url}
        if options["json"]:
            self.stdout.write(json.dumps(found))
            return
        for name, value in found.items():
            self.stdout.write(f"{name:9} {value if value is not None else '(changed by hand)'}")
