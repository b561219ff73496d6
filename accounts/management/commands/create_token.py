"""Issue an access token."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts import tokens
from accounts.models import User


class Command(BaseCommand):
    """Prints the token alone."""

    help = "Print an access token of a user."

    def add_arguments(self, parser: CommandParser) -> None:
        """Whose, and for how long."""
        parser.add_argument("user", metavar="USER")
        parser.add_argument(
            "--minutes", type=float, help="its life; fractions allowed (default: HERMES_ACCESS_SECONDS)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the token."""
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"there is no user {options['user']}")
        minutes = options["minutes"]
        try:
            self.stdout.write(
                tokens.access(user, settings.HERMES_ACCESS_SECONDS if minutes is None else minutes * 60)
            )
        except (ValueError, OverflowError):
            raise CommandError("--minutes is out of range") from None
