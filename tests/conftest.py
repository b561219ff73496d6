"""What every test may ask for: gateways run for real over both kinds of store, and people to use them."""

from collections.abc import Callable, Iterator

import pytest

from tests.rig.backends import Templates
from tests.rig.clerk import Person
from tests.rig.gateway import BRISK, STEADY, Gateway
from tests.rig.pool import Pool

pytest_plugins = ["tests.hermes.fixtures"]

BACKENDS = ("embedded", "shared")


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Templates]:
    """Migrated stores to copy from."""
    made = Templates(tmp_path_factory.mktemp("stores"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def pool(templates: Templates) -> Iterator[Pool]:
    """The shared gateways of this run."""
    made = Pool(templates)
    yield made
    made.stop()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The kind of store that a gateway of the test's own has."""
    return str(request.param)


@pytest.fixture(params=BACKENDS)
def gateway(request: pytest.FixtureRequest, pool: Pool) -> Iterator[Gateway]:
    """A running gateway, shared with other tests, whose log must stay clean during this one."""
    running = pool.get(request.param, STEADY)
    with running.clean_log():
        yield running


@pytest.fixture(params=BACKENDS)
def brisk_gateway(request: pytest.FixtureRequest, pool: Pool) -> Iterator[Gateway]:
    """As `gateway`, with a heartbeat of three seconds."""
    running = pool.get(request.param, BRISK)
    with running.clean_log():
        yield running


@pytest.fixture
def make_gateway(templates: Templates) -> Iterator[Callable[..., Gateway]]:
    """Starts gateways of this test's own, which it may break."""
    made: list[Gateway] = []

    def make(backend: str, settings: dict[str, str] | None = None, server: str = "serve") -> Gateway:
        gateway = Gateway(templates.make(backend), STEADY | (settings or {}), server)
        made.append(gateway)
        gateway.start()
        return gateway

    yield make
    for gateway in made:
        gateway.stop()


@pytest.fixture
def alice(request: pytest.FixtureRequest) -> Person:
    """A new user of the gateway of this test."""
    return _gateway_of(request).person("alice")


@pytest.fixture
def bob(request: pytest.FixtureRequest) -> Person:
    """Another new user of the gateway of this test."""
    return _gateway_of(request).person("bob")


def _gateway_of(request: pytest.FixtureRequest) -> Gateway:
    name = "brisk_gateway" if "brisk_gateway" in request.fixturenames else "gateway"
    gateway: Gateway = request.getfixturevalue(name)
    return gateway
