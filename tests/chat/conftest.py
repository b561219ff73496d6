"""People, and a process whose writer they can watch."""

from __future__ import annotations

import pytest

from accounts import services
from accounts.models import User
from tests.chat.desk import Desk

PASSWORD = "correct horse battery"


@pytest.fixture
def alice(db: None) -> User:
    """A user."""
    return services.create_user("alice", PASSWORD)


@pytest.fixture
def bob(db: None) -> User:
    """Another one."""
    return services.create_user("bob", PASSWORD)


@pytest.fixture
def desk(db: None) -> Desk:
    """A process."""
    return Desk()
