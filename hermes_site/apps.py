"""The app's name for Django, and its system checks."""

from django.apps import AppConfig


class HermesSiteConfig(AppConfig):
    """What belongs to no app: commands, checks, pages."""

    name = "hermes_site"

    def ready(self) -> None:
        """Register the checks."""
        from hermes_site import checks  # noqa: F401  (importing registers them)
