"""The media app, as Django sees it."""

from django.apps import AppConfig


class MediaConfig(AppConfig):
    """Uploaded files."""

    default_auto_field = "django.db.models.BigAutoField"
    name = "media"
    verbose_name = "Media"
