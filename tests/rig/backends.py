"""Where a gateway under test keeps its rows and sends its hints: SQLite alone, or PostgreSQL and Redis."""

import atexit
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psycopg
import pytest
import redis

from tests.rig.paths import ROOT
from tests.rig.ports import free_port
from tests.rig.timing import wait_until

POSTGRES = os.environ.get("HERMES_TEST_POSTGRES", "")
"""A server where databases may be made; "" means the machine's own, or else one that is started; `own` starts one."""

USUAL_POSTGRES = "postgres://root@127.0.0.1:5432/postgres"
SECRET_KEY = "a-key-of-the-tests-only-" + "0123456789" * 6
NAME_PREFIX = "hermes_rig"


def missing(what: str) -> None:
    """Skip where a service may be missing; in CI it may not."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}: needed in CI")
    pytest.skip(what)


def clean_environment() -> dict[str, str]:
    """The environment without anything that would configure a gateway."""
    ours = ("HERMES_", "DJANGO_", "DATABASE_URL", "REDIS_URL", "SECRET_KEY", "DEBUG", "ALLOWED_HOSTS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT),
    }


def production(data: Path) -> dict[str, str]:
    """What an operator sets for a production start on plain HTTP."""
    return clean_environment() | {
        "HERMES_DATA_DIR": str(data),
        "DEBUG": "0",
        "SECRET_KEY": SECRET_KEY,
        "ALLOWED_HOSTS": "127.0.0.1,localhost",
    }


def manage(*arguments: str, environment: dict[str, str], timeout_seconds: float = 120) -> str:
    """Run one of the operator's commands; returns its standard output."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Backend(Protocol):
    """One migrated, empty store of rows and what goes with it."""

    name: str
    environment: dict[str, str]
    processes: int

    def dump(self) -> bytes:
        """Everything the store holds, as bytes to search in."""

    def close(self) -> None:
        """Give back what was taken."""


@dataclass
class Embedded:
    """SQLite in a data folder, the in-memory layer, one process."""

    data: Path
    static: Path
    name: str = "embedded"
    processes: int = 1
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.environment = production(self.data) | {"STATIC_ROOT": str(self.static)}

    def dump(self) -> bytes:
        """The bytes of all files of the data folder."""
        return b"".join(path.read_bytes() for path in sorted(self.data.rglob("*")) if path.is_file())

    def close(self) -> None:
        """Remove the data folder."""
        shutil.rmtree(self.data, ignore_errors=True)


class RedisServer:
    """A Redis of our own, which keeps nothing and may be killed."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self.start()

    def start(self) -> None:
        """Start it, on the same port as before, and wait until it answers."""
        if shutil.which("redis-server") is None:
            missing("redis-server is not installed")
        self.process = subprocess.Popen(
            [
                "redis-server",
                "--port",
                str(self.port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        client = redis.Redis(port=self.port)

        def answers() -> bool:
            with contextlib.suppress(redis.RedisError):
                return bool(client.ping())
            return False

        try:
            wait_until(answers, what="redis-server answers")
        finally:
            client.close()

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()


@dataclass
class Shared:
    """A PostgreSQL database and a Redis of its own, two processes."""

    data: Path
    static: Path
    database: str
    redis_server: RedisServer
    name: str = "shared"
    processes: int = 2
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.environment = production(self.data) | {
            "STATIC_ROOT": str(self.static),
            "DATABASE_URL": database_url(self.database),
            "REDIS_URL": self.redis_server.url,
        }

    def dump(self) -> bytes:
        """A plain pg_dump, and the files of the data folder."""
        dumped = subprocess.run(
            ["pg_dump", "--inserts", database_url(self.database)], capture_output=True, check=True, timeout=60
        )
        files = (path.read_bytes() for path in sorted(self.data.rglob("*")) if path.is_file())
        return dumped.stdout + b"".join(files)

    def close(self) -> None:
        """Drop the database, end Redis, remove the data folder."""
        drop_database(self.database)
        self.redis_server.kill()
        shutil.rmtree(self.data, ignore_errors=True)


def database_url(name: str) -> str:
    """The address of another database on the same server."""
    return server_url().rsplit("/", 1)[0] + "/" + name


@functools.cache
def server_url() -> str:
    """The address of the PostgreSQL server of this run; started if none runs."""
    if POSTGRES not in ("", "own"):
        return POSTGRES
    if POSTGRES == "":
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(USUAL_POSTGRES, connect_timeout=5).close()
            return USUAL_POSTGRES
    from tests.chaos.postgres import Cluster  # which asks this module what to do when it is not installed

    cluster = Cluster()
    atexit.register(cluster.close)
    return cluster.url.rsplit("/", 1)[0] + "/postgres"


@contextlib.contextmanager
def server_connection() -> Iterator[psycopg.Connection]:
    """A connection for creating and dropping databases."""
    try:
        connection = psycopg.connect(server_url(), autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as error:
        missing(f"PostgreSQL does not answer: {error}")
        raise
    with connection:
        yield connection


def drop_database(name: str) -> None:
    """Drop a database and the connections to it."""
    with server_connection() as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def create_database(template: str | None = None) -> str:
    """A new database, copied from ``template`` if given; returns its name."""
    name = f"{NAME_PREFIX}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    with server_connection() as connection:
        connection.execute(f'CREATE DATABASE "{name}"' + (f' TEMPLATE "{template}"' if template else ""))
    return name


def drop_leftovers() -> None:
    """Drop what a killed test run of this machine left behind."""
    with server_connection() as connection:
        rows = connection.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE %s", [f"{NAME_PREFIX}_%"]
        )
        for (name,) in rows.fetchall():
            if not Path(f"/proc/{name.split('_')[2]}").exists():
                drop_database(name)


class Templates:
    """Migrates each kind of store once and hands out copies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._embedded: Path | None = None
        self._shared: str | None = None

    @functools.cached_property
    def static(self) -> Path:
        """The static files, collected once."""
        folder = self._folder / "static"
        environment = production(self._folder / "collecting") | {"STATIC_ROOT": str(folder)}
        manage("collectstatic", "--noinput", "--verbosity", "0", environment=environment)
        return folder

    def embedded(self) -> Embedded:
        """A fresh embedded store."""
        if self._embedded is None:
            folder = self._folder / "template"
            folder.mkdir()
            manage("migrate", "--verbosity", "0", environment=production(folder))
            self._embedded = folder
        data = self._folder / f"embedded-{uuid.uuid4().hex[:8]}"
        shutil.copytree(self._embedded, data)
        return Embedded(data, self.static)

    def shared(self) -> Shared:
        """A fresh shared store."""
        data = self._folder / f"shared-{uuid.uuid4().hex[:8]}"
        data.mkdir()
        if self._shared is None:
            drop_leftovers()
            name = create_database()
            environment = production(data) | {"DATABASE_URL": database_url(name)}
            manage("migrate", "--verbosity", "0", environment=environment)
            self._shared = name
        return Shared(data, self.static, create_database(template=self._shared), RedisServer(data))

    def make(self, name: str) -> Backend:
        """A fresh store of the kind of that name."""
        return {"embedded": self.embedded, "shared": self.shared}[name]()

    def close(self) -> None:
        """Drop the templates."""
        if self._shared is not None:
            drop_database(self._shared)
