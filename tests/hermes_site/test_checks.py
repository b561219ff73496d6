"""What stops a start, and what is only worth a warning."""

from typing import Any

import pytest
from django.core.checks import run_checks

from hermes_site import checks, sqlite

REDIS = {"default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer"}}
IN_MEMORY = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}


@pytest.fixture
def found(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The ids of our messages under some settings."""

    def check(deploy: bool = False, postgres: bool = False, **changes: Any) -> set[str]:
        monkeypatch.setattr(checks, "on_sqlite", lambda: not postgres)
        for name, value in ({"CHANNEL_LAYERS": IN_MEMORY} | changes).items():
            setattr(settings, name, value)
        ids = {str(message.id) for message in run_checks(include_deployment_checks=deploy)}
        return {found.removeprefix("hermes_site.") for found in ids if found.startswith("hermes_site.")}

    return check


def test_the_settings_of_a_trial_are_fine(found: Any) -> None:
    """One process, SQLite, layer in memory."""
    assert found() == set()


def test_c64_more_processes_need_what_they_can_share(found: Any) -> None:
    """C64: an in-memory layer or SQLite with two processes is an error; with both shared it is none."""
    assert found(HERMES_PROCESSES=2) == {"E001", "E002"}
    assert found(HERMES_PROCESSES=2, CHANNEL_LAYERS=REDIS) == {"E002"}
    assert found(HERMES_PROCESSES=2, postgres=True) == {"E001"}
    assert found(HERMES_PROCESSES=2, postgres=True, CHANNEL_LAYERS=REDIS) == set()


def test_c64_an_in_memory_layer_in_production_is_a_warning(found: Any) -> None:
    """C64: of `check --deploy`, and only there."""
    assert "W001" in found(deploy=True, DEBUG=False)
    assert "W001" not in found(DEBUG=False)
    assert "W001" not in found(deploy=True, DEBUG=False, CHANNEL_LAYERS=REDIS)
    assert "W001" not in found(deploy=True, DEBUG=True)


@pytest.mark.parametrize(
    ("changes", "ids"),
    [
        ({"SECRET_KEY": "short"}, {"W002"}),
        ({"HERMES_JWT_KEY": "short"}, {"W002"}),
        ({"HERMES_PUBLIC_URL": "chat.example"}, {"E003"}),
        ({"HERMES_PUBLIC_URL": "ftp://chat.example"}, {"E003"}),
        ({"HERMES_PUBLIC_URL": "https://chat.example"}, {"W003"}),
        ({"HERMES_PUBLIC_URL": "https://chat.example", "HERMES_TRUSTED_PROXIES": ["127.0.0.1"]}, set()),
    ],
)
def test_weak_settings_are_named(found: Any, changes: dict[str, Any], ids: set[str]) -> None:
    """Short keys, an address that is none, https that nobody vouches for."""
    assert found(**changes) == ids


def test_any_host_is_doubtful(found: Any) -> None:
    """For people who rely on it."""
    assert "W004" in found(deploy=True, ALLOWED_HOSTS=["*"])


def test_an_old_sqlite_is_named(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works, more slowly."""
    monkeypatch.setattr(sqlite, "journal_mode", lambda: "DELETE")
    assert "W005" in found(deploy=True)
    assert "W005" not in found(deploy=True, postgres=True)


def test_c64_the_start_itself_is_refused(python: Any) -> None:
    """C64: not only a message; and `check --deploy` of one process passes with its warning."""
    done = python("manage.py", "check", HERMES_PROCESSES="2")
    assert done.returncode != 0
    assert "hermes_site.E001" in done.stderr
    done = python("manage.py", "check", "--deploy")
    assert done.returncode == 0
    assert "hermes_site.W001" in done.stderr
