"""Remove what is not kept for ever."""

from typing import Any

from django.core.management.base import BaseCommand

from chat import retention


class Command(BaseCommand):
    """Journals of runs that ended long ago, texts of deleted sessions, old idempotency keys."""

    help = "Remove journals that are past their time, what deleted sessions held, and old idempotency keys."

    def handle(self, *args: Any, **options: Any) -> None:
        """Say how much it was."""
        for kind, count in retention.purge().items():
            self.stdout.write(f"{kind}: {count}")
