"""Make a user."""

import getpass
import os
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import IntegrityError

from accounts import services


class Command(BaseCommand):
    """The password comes from HERMES_PASSWORD, or is asked for; never from the command line."""

    help = "Make a user; the password is read from HERMES_PASSWORD or asked for."

    def add_arguments(self, parser: CommandParser) -> None:
        """Who."""
        parser.add_argument("user", metavar="USER")
        parser.add_argument(
            "--staff", action="store_true", help="may log in to the admin; gives no permission by itself"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Make it, or say why not."""
        password = os.environ.get("HERMES_PASSWORD") or getpass.getpass("Password: ")
        if not password:
            raise CommandError("a password is needed")
        try:
            services.create_user(options["user"], password, staff=options["staff"])
        except ValidationError as problem:
            raise CommandError(" ".join(problem.messages)) from None
        except IntegrityError:
            raise CommandError(f"the user {options['user']} exists") from None
        self.stdout.write(f"made {options['user']}")
