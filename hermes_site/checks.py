"""What `manage.py check` says about the settings; errors stop every start."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from hermes_site import sqlite

SHORTEST_SECRET = 32  # bytes: what HS256 needs to be as strong as it looks


def in_memory_layer() -> bool:
    """Whether events stay inside one process."""
    return bool(settings.CHANNEL_LAYERS["default"]["BACKEND"].endswith("InMemoryChannelLayer"))


def on_sqlite() -> bool:
    """Whether the embedded database is used."""
    return bool(settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"))


@register()
def processes(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """More than one process needs what more than one process can share."""
    if settings.HERMES_PROCESSES > 1 and in_memory_layer():
        yield Error(
            "More than one process needs a shared channel layer.",
            hint="Set REDIS_URL, or serve with one process.",
            id="hermes_site.E001",
        )
    if settings.HERMES_PROCESSES > 1 and on_sqlite():
        yield Error(
            "More than one process needs PostgreSQL.",
            hint="Set DATABASE_URL, or serve with one process.",
            id="hermes_site.E002",
        )


@register()
def public_url(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """The public address is one that links can be made of."""
    parts = urlsplit(settings.HERMES_PUBLIC_URL)
    if settings.HERMES_PUBLIC_URL and (parts.scheme not in ("http", "https") or not parts.netloc):
        yield Error("HERMES_PUBLIC_URL is not an http or https address.", id="hermes_site.E003")
    if parts.scheme == "https" and not settings.HERMES_TRUSTED_PROXIES:
        yield Warning(
            "HERMES_PUBLIC_URL is https, but no proxy is trusted: every request will look like plain http and be "
            "redirected.",
            hint="Name your proxy's address in HERMES_TRUSTED_PROXIES.",
            id="hermes_site.W003",
        )


@register(Tags.security)
def secrets(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """The keys that sign tokens and cookies cannot be guessed."""
    for name in ("SECRET_KEY", "HERMES_JWT_KEY"):
        value = getattr(settings, name)
        if value and len(value.encode()) < SHORTEST_SECRET:
            yield Warning(f"{name} is shorter than {SHORTEST_SECRET} bytes.", id="hermes_site.W002")


@register(deploy=True)
def deployment(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """What is fine for a trial and doubtful for people who rely on it."""
    if not settings.DEBUG and in_memory_layer():
        yield Warning(
            "The channel layer is in memory: one process, and nothing else, can serve.",
            hint="Set REDIS_URL to be able to add processes.",
            id="hermes_site.W001",
        )
    if "*" in settings.ALLOWED_HOSTS:
        yield Warning("ALLOWED_HOSTS takes any host.", id="hermes_site.W004")
    if on_sqlite() and sqlite.journal_mode() != "WAL":
        yield Warning(
            f"SQLite {sqlite.version()} can lose pages in WAL mode, so a slower rollback journal is used.",
            hint="Install pysqlite3, or SQLite 3.51.3.",
            id="hermes_site.W005",
        )
