"""A PostgreSQL of our own, which may be restarted and crashed; the machine's own is never touched."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg

from tests.rig.backends import missing
from tests.rig.ports import free_port

START_SECONDS = 60


class Cluster:
    """
    A cluster in a folder of its own, on a port of its own, with one database.

    PostgreSQL refuses to run as root: then it runs as the user `postgres`, or `nobody`.
    """

    def __init__(self) -> None:
        self._bin = _binaries()
        self._folder = Path(tempfile.mkdtemp(prefix="hermes-chaos-"))
        self._user = _unprivileged() if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._data = self._folder / "data"
        self.port = free_port()
        self.url = f"postgres://hermes@127.0.0.1:{self.port}/hermes"
        self._run(
            "initdb", "-D", str(self._data), "-U", "hermes", "-A", "trust", "-E", "UTF8", "--locale", "C"
        )
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(
                f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n"
                "max_connections = 60\nshared_buffers = 32MB\n"
            )
        self.start()
        with psycopg.connect(self.url.rsplit("/", 1)[0] + "/postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE hermes")

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self._control("start", "-l", str(self._folder / "log"))

    def stop(self, mode: str = "fast") -> None:
        """End it: `fast` cuts all connections, `immediate` is a crash that the next start has to recover from."""
        self._control("stop", "-m", mode)

    def close(self) -> None:
        """End it and remove its folder."""
        if (self._data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", str(START_SECONDS), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        output = self._folder / "output"
        with output.open("wb") as printed:  # a pipe would stay open in the server that pg_ctl starts
            done = subprocess.run(
                [str(self._bin / program), *arguments],
                cwd=self._folder,
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                check=False,
            )
        assert done.returncode == 0, f"{program} {arguments}: {output.read_text()}"


def _binaries() -> Path:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not folders:
        missing("PostgreSQL's initdb is not installed")
    return folders[-1].parent


def _unprivileged() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
