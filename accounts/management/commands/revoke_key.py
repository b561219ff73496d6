"""End an API key."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts import keys, services
from accounts.models import ApiKey


class Command(BaseCommand):
    """Final: a revoked key never opens anything again, and its sockets are closed."""

    help = "Revoke the API key with this prefix, for good."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which."""
        parser.add_argument("prefix", metavar="PREFIX", help="the ten characters between hk_ and the secret")

    def handle(self, *args: Any, **options: Any) -> None:
        """Revoke it."""
        prefix = options["prefix"].removeprefix(keys.LEAD).partition("_")[0]
        key = ApiKey.objects.filter(prefix=prefix).first()
        if key is None:
            raise CommandError(f"there is no key with the prefix {prefix}")
        self.stdout.write(f"revoked {prefix}" if services.revoke_key(key) else f"{prefix} was revoked before")
