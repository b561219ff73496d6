"""People and agents who upload and download through the real routes, with bytes in a folder of the test's own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.files.storage import storages

from accounts import auth, services, tokens
from tests.media.caller import Caller


@pytest.fixture
def stored(settings, tmp_path: Path) -> Path:
    """The folder the bytes lie in."""
    settings.STORAGES = settings.STORAGES | {
        "media": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path / "media")},
        }
    }
    assert storages["media"].base_location == str(tmp_path / "media")
    settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path / "incoming")
    os.mkdir(settings.FILE_UPLOAD_TEMP_DIR)
    return tmp_path / "media"


@pytest.fixture
def database(transactional_db) -> Iterator[None]:
    """Rows that the threads of authentication can see too."""
    yield
    auth.close()


@pytest.fixture
def anonymous(database, stored) -> Caller:
    """Somebody without a credential."""
    return Caller(None)


@pytest.fixture
def alice(database, stored) -> Caller:
    """Alice's App."""
    return person("alice")


@pytest.fixture
def bob(database, stored) -> Caller:
    """Bob's App."""
    return person("bob")


def person(name: str) -> Caller:
    """An App of a new user."""
    user = services.create_user(name, f"{name} has a password")
    return Caller(tokens.access(user), user)


@pytest.fixture
def agent_of():
    """Makes agents: a caller with a new key of a user."""

    def make(owner: Caller, agent: str = "hermes", scopes: tuple[str, ...] = ("agent", "media")) -> Caller:
        _, text = services.create_key(owner.user, agent=agent, scope_names=scopes)
        return Caller(text, owner.user)

    return make
