"""The app's name for Django."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Users and keys."""

    name = "accounts"
