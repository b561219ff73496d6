"""The Django app."""

from django.apps import AppConfig


class ChatConfig(AppConfig):
    """Conversations."""

    name = "chat"
    default_auto_field = "django.db.models.BigAutoField"
