"""nginx in front of a gateway, as Debian configures it, with nothing but `proxy_pass` added."""

import getpass
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import httpx

from tests.rig.backends import missing
from tests.rig.ports import free_port
from tests.rig.timing import TIMEOUT, wait_until

CONFIGURATION = """\
{user}
worker_processes auto;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;

events {{
    worker_connections 768;
}}

http {{
    sendfile on;
    tcp_nopush on;
    default_type application/octet-stream;
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    gzip on;

    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{gateway};
        }}
    }}
}}
"""
"""Where it keeps its files and who it runs as have nothing to do with how it passes answers on."""


class Nginx:
    """One nginx of our own before the port of a gateway. Use as a context manager."""

    def __init__(self, gateway_port: int) -> None:
        program = shutil.which("nginx", path="/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin")
        if program is None:
            missing("nginx is not installed")
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="nginx-"))
        user = getpass.getuser()
        configuration = self._folder / "nginx.conf"
        configuration.write_text(
            CONFIGURATION.format(
                user=f"user {user};" if user == "root" else "",  # else it runs as who starts it
                folder=self._folder,
                port=self.port,
                gateway=gateway_port,
            )
        )
        self._command = [str(program), "-e", str(self._folder / "error.log"), "-c", str(configuration)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_until(self._answers, what=f"nginx passes on: {self.log()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(TIMEOUT)
        finally:
            self._process.kill()
            shutil.rmtree(self._folder, ignore_errors=True)

    def log(self) -> str:
        """What it has to complain of."""
        path = self._folder / "error.log"
        return path.read_text() if path.exists() else ""

    def _answers(self) -> bool:
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}/healthz", timeout=2, trust_env=False)
        except httpx.TransportError:
            return False
        return answer.status_code == 200
