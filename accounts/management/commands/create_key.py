"""Issue an API key."""

import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts import scopes, services
from accounts.models import DEFAULT_AGENT, User


class Command(BaseCommand):
    """Prints the key alone, once; it cannot be shown again."""

    help = "Issue an API key for a user and print it, once."

    def add_arguments(self, parser: CommandParser) -> None:
        """Whose, and what for."""
        parser.add_argument("user", metavar="USER")
        parser.add_argument("--agent", default=DEFAULT_AGENT, help="the agent's name (default: %(default)s)")
        parser.add_argument(
            "--scopes",
            default=scopes.join(scopes.DEFAULT),
            help="comma list of agent, media, chat (default: %(default)s)",
        )
        parser.add_argument(
            "--expires-days", type=float, help="days until it expires; 0 or less: it has expired"
        )
        parser.add_argument("--label", default="", help="where it is used")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the key."""
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"there is no user {options['user']}")
        days = options["expires_days"]
        try:
            _, text = services.create_key(
                user,
                agent=options["agent"],
                scope_names=scopes.parse(options["scopes"]),
                label=options["label"],
                expires_at=None if days is None else timezone.now() + datetime.timedelta(days=days),
            )
        except ValidationError as problem:
            raise CommandError(" ".join(problem.messages)) from None
        except (ValueError, OverflowError) as problem:
            raise CommandError(str(problem)) from None
        self.stdout.write(text)
