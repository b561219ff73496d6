"""Every setting: its default, how it is changed, and what stops a start."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fresh = Callable[..., dict[str, Any]]
MIB = 1024 * 1024

PROMISED = {  # by the protocol and the design; a change of one is a change of them
    "HERMES_HEARTBEAT_SECONDS": 90,
    "HERMES_STREAM_GRACE_SECONDS": 30,
    "HERMES_ANSWER_SECONDS": 600,
    "HERMES_TURN_END_SECONDS": 1,
    "HERMES_QUEUE_SECONDS": 604800,
    "HERMES_QUEUE_LIMIT": 200,
    "HERMES_REPLAY_LIMIT": 1000,
    "HERMES_REPLAY_BYTES": 8 * MIB,
    "HERMES_PAGE_LIMIT": 500,
    "HERMES_MAX_FRAME_BYTES": MIB,
    "HERMES_STREAM_BYTES": 8 * MIB,
    "HERMES_DATA_BYTES": 65536,
    "HERMES_BAD_FRAMES": 20,
    "HERMES_OPEN_STREAMS": 64,
    "HERMES_APP_SOCKETS": 16,
    "HERMES_TAKEOVER_LIMIT": 3,
    "HERMES_TAKEOVER_SECONDS": 60,
    "HERMES_PROCESS_BEAT_SECONDS": 5,
    "HERMES_PROCESS_LEASE_SECONDS": 15,
    "HERMES_CREDENTIAL_CHECK_SECONDS": 1,
    "HERMES_CREDENTIAL_BYTES": 8192,
    "HERMES_ACCESS_SECONDS": 3600,
    "HERMES_REFRESH_SECONDS": 30 * 86400,
    "HERMES_REFRESH_REPEAT_SECONDS": 30,
    "HERMES_TOKEN_LEEWAY_SECONDS": 5,
    "HERMES_RATE_LIMIT": True,
    "HERMES_PROCESSES": 1,
}


def test_the_promised_defaults(fresh: Fresh) -> None:
    """Times and sizes of the protocol."""
    settings = fresh()
    assert {name: settings[name] for name in PROMISED} == PROMISED
    assert settings["DEBUG"] is False
    assert settings["TIME_ZONE"] == "UTC"
    assert settings["INSTALLED_APPS"][0] == "daphne"
    assert settings["AUTH_USER_MODEL"] == "accounts.User"
    assert settings["DATA_UPLOAD_MAX_MEMORY_SIZE"] == 10 * MIB


def test_every_number_can_be_changed_by_its_variable(fresh: Fresh) -> None:
    """The variable has the setting's name."""
    numbers = [
        name
        for name, value in fresh().items()
        if name.startswith("HERMES_") and isinstance(value, int | float) and not isinstance(value, bool)
    ]
    assert len(numbers) > 40
    changed = fresh(**dict.fromkeys(numbers, "7"))
    assert {name: changed[name] for name in numbers} == dict.fromkeys(numbers, 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HERMES_QUEUE_LIMIT", "many"),
        ("HERMES_QUEUE_LIMIT", "-1"),
        ("HERMES_QUEUE_LIMIT", "1.5"),
        ("HERMES_HEARTBEAT_SECONDS", "soon"),
        ("HERMES_HEARTBEAT_SECONDS", "-1"),
        ("HERMES_HEARTBEAT_SECONDS", "nan"),
        ("HERMES_HEARTBEAT_SECONDS", "inf"),
    ],
)
def test_a_wrong_number_stops_the_start_and_names_itself(python: Any, name: str, value: str) -> None:
    """Before anything is served."""
    done = python("manage.py", "check", **{name: value})
    assert done.returncode != 0
    assert name in done.stderr


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("HERMES_UPSTREAM_KEY", {"HERMES_UPSTREAM_KEY": ""}),
        ("HERMES_UPSTREAM_URL", {"HERMES_UPSTREAM_URL": "127.0.0.1:8642"}),
        ("HERMES_UPSTREAM_URL", {"HERMES_UPSTREAM_URL": "http://somebody:secret-word@127.0.0.1:8642"}),
        ("HERMES_UPSTREAM_AGENT", {"HERMES_UPSTREAM_AGENT": "No Name"}),
        ("HERMES_UPSTREAM_TURNS", {"HERMES_UPSTREAM_TURNS": "0"}),
    ],
)
def test_half_an_upstream_stops_the_start(python: Any, name: str, changes: dict[str, str]) -> None:
    """The variable is named, and what is secret is not printed."""
    whole = {"HERMES_UPSTREAM_URL": "http://127.0.0.1:8642", "HERMES_UPSTREAM_KEY": "the-secret-word"}
    done = python("manage.py", "check", **whole | changes)
    assert done.returncode != 0
    assert name in done.stderr
    assert "secret-word" not in done.stderr


def test_without_debug_a_missing_secret_key_stops_the_start(python: Any) -> None:
    """With DEBUG off no key is made up."""
    done = python("manage.py", "check", SECRET_KEY="unset")
    assert done.returncode != 0
    assert "SECRET_KEY is not set" in done.stderr


def test_with_debug_a_secret_key_is_made_and_kept(fresh: Fresh, tmp_path: Path) -> None:
    """In the data folder, for its owner alone, the same at the next start."""
    first = fresh(SECRET_KEY="unset", DEBUG="1")["SECRET_KEY"]
    assert len(first) >= 50
    assert fresh(SECRET_KEY="unset", DEBUG="1")["SECRET_KEY"] == first
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600


def test_debug_is_off_unless_asked_for(fresh: Fresh) -> None:
    """And only by words that mean it."""
    assert [fresh(DEBUG=word)["DEBUG"] for word in ("0", "no", "", "false", "1", "true", "YES", "on")] == [
        False
    ] * 4 + [True] * 4


def test_sqlite_is_the_default_and_kept_safe(fresh: Fresh, tmp_path: Path) -> None:
    """In the data folder, one writer at a time, every commit on disk."""
    database = fresh()["DATABASES"]["default"]
    assert database["NAME"] == str(tmp_path / "db.sqlite3")
    assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "synchronous=FULL" in database["OPTIONS"]["init_command"]
    assert database["OPTIONS"]["timeout"] == 20


def test_database_url_and_redis_url(fresh: Fresh) -> None:
    """PostgreSQL by psycopg, and the pub/sub layer."""
    settings = fresh(DATABASE_URL="postgres://u:p@db.example:5433/chat", REDIS_URL="redis://r.example:6379/1")
    database = settings["DATABASES"]["default"]
    assert (database["ENGINE"], database["HOST"], database["PORT"]) == (
        "django.db.backends.postgresql",
        "db.example",
        5433,
    )
    layer = settings["CHANNEL_LAYERS"]["default"]
    assert layer["BACKEND"] == "channels_redis.pubsub.RedisPubSubChannelLayer"
    assert layer["CONFIG"]["hosts"] == ["redis://r.example:6379/1"]


def test_https_brings_redirects_and_secure_cookies(fresh: Fresh) -> None:
    """They follow the public address; its host and origin are trusted."""
    plain = fresh(HERMES_PUBLIC_URL="http://127.0.0.1:8000", ALLOWED_HOSTS="a.example, b.example")
    assert not plain["SECURE_SSL_REDIRECT"]
    assert not plain["SESSION_COOKIE_SECURE"]
    assert plain["ALLOWED_HOSTS"] == ["a.example", "b.example", "127.0.0.1"]
    secure = fresh(HERMES_PUBLIC_URL="https://chat.example/", CSRF_TRUSTED_ORIGINS="https://front.example")
    assert secure["SECURE_SSL_REDIRECT"]
    assert secure["SESSION_COOKIE_SECURE"]
    assert secure["CSRF_COOKIE_SECURE"]
    assert secure["ALLOWED_HOSTS"] == ["chat.example"]
    assert secure["CSRF_TRUSTED_ORIGINS"] == ["https://front.example", "https://chat.example"]
    assert secure["HERMES_PUBLIC_URL"] == "https://chat.example"


def test_media_and_logs_lie_in_the_data_folder(fresh: Fresh, tmp_path: Path) -> None:
    """Never under an address of their own."""
    settings = fresh()
    assert settings["STORAGES"]["media"]["OPTIONS"]["location"] == str(tmp_path / "media")
    assert "MEDIA_URL" not in settings
