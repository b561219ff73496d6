"""People and their credentials for the tests of accounts."""

from collections.abc import Iterator

import pytest
from django.test import Client

from accounts import auth, services
from accounts.models import User

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """The threads of one test do not keep their connections into the next."""
    yield
    auth.close()


@pytest.fixture
def alice(db: None) -> User:
    """A user with a password."""
    return services.create_user("alice", PASSWORD)


@pytest.fixture
def bob(db: None) -> User:
    """Another one."""
    return services.create_user("bob", PASSWORD)


@pytest.fixture
def operator(db: None) -> User:
    """A superuser."""
    user = services.create_user("operator", PASSWORD, staff=True)
    user.is_superuser = True
    user.save()
    return user


@pytest.fixture
def admin_client(operator: User) -> Client:
    """The operator, logged in to the admin."""
    client = Client()
    client.force_login(operator)
    return client
