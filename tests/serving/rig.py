"""A server under test, and a client that sends exactly the bytes it is told to."""

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.rig.timing import TIMEOUT, wait_until

ROOT = Path(__file__).parents[2]
MASK = b"\x5a\xa5\x0f\xf1"
CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class Served:
    """The server as a process, with what it printed."""

    def __init__(self, environment: dict[str, str] | None = None, **options: Any) -> None:
        self._log = tempfile.NamedTemporaryFile(prefix="serving-", suffix=".log")  # noqa: SIM115
        self._known = 0  # characters of the log that do not count any more
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.serving.run", json.dumps(options)],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | (environment or {}),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        self.port = wait_until(self._port, 2 * TIMEOUT, "the server says its port")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._log.close()

    def _port(self) -> int:
        found = re.search(r"^port (\d+)$", self.log(), re.M)
        if found is None:
            assert self.process.poll() is None, self.log()
        return int(found[1]) if found else 0

    def log(self) -> str:
        """What it has printed so far, since `forget`."""
        return Path(self._log.name).read_text()[self._known :]

    def forget(self) -> None:
        """Let log and state begin anew."""
        self.get("/reset")
        self._known += len(self.log())

    def kill(self) -> None:
        """SIGKILL for it and all it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, timeout_seconds: float = TIMEOUT) -> int:
        """SIGTERM; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_seconds)

    def children(self) -> list[int]:
        """The processes it has started."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in path.read_text().split()]

    def memory(self) -> int:
        """Bytes of memory that it uses now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def peak(self) -> int:
        """The most bytes of memory it has used."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def connect(self, receive_buffer: int | None = None) -> "Line":
        """A new connection; with a small receive buffer it is soon full."""
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(TIMEOUT)
        try:
            sock.connect(("127.0.0.1", self.port))
        except OSError:
            sock.close()
            raise
        return Line(sock)

    def open(self, path: str, receive_buffer: int | None = None, **headers: str) -> "Line":
        """A WebSocket."""
        line = self.connect(receive_buffer)
        line.upgrade(path, **headers)
        assert line.status == 101, (line.status, line.body())
        return line

    def get(self, path: str) -> bytes:
        """The body of a GET."""
        with self.connect() as line:
            line.request("GET", path)
            return line.body()

    def state(self) -> dict[str, Any]:
        """What the application says has happened."""
        found: dict[str, Any] = json.loads(self.get("/state"))
        return found


class Line:
    """One connection, byte by byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.status = 0
        self.headers: dict[str, str] = {}
        self._data = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def send(self, data: bytes, step: int = 0) -> None:
        """Send bytes, at once or `step` at a time."""
        if not step:
            self.sock.sendall(data)
            return
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), step):
            self.sock.sendall(data[start : start + step])

    def upgrade(self, path: str, early: bytes = b"", **headers: str) -> None:
        """Ask for a WebSocket and read the answer's head."""
        fields = {
            "Host": "test",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"GET {path} HTTP/1.1"] + [f"{name}: {value}" for name, value in fields.items() if value]
        self.send("\r\n".join([*lines, "", ""]).encode() + early)
        self.read_head()

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> None:
        """Send a request and read the answer's head."""
        self.send(self.head(method, path, len(body) if body is not None else None, **headers) + (body or b""))
        self.read_head()

    @staticmethod
    def head(method: str, path: str, length: int | None, **headers: str) -> bytes:
        """The head of a request."""
        fields = {"Host": "test"} | {name.replace("_", "-"): value for name, value in headers.items()}
        if length is not None:
            fields["Content-Length"] = str(length)
        lines = [f"{method} {path} HTTP/1.1"] + [f"{name}: {value}" for name, value in fields.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def read_head(self) -> None:
        """Read status and headers of an answer."""
        while b"\r\n\r\n" not in self._data:
            more = self.sock.recv(65536)
            if not more:
                raise EOFError(self._data)
            self._data += more
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {}
        for line in rest:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    def body(self) -> bytes:
        """The body of an answer, whole; a chunked one that breaks off is an EOFError."""
        if self.headers.get("transfer-encoding") != "chunked":
            return self.exactly(int(self.headers["content-length"]))
        found = b""
        while True:
            while b"\r\n" not in self._data:
                self._more()
            size, _, self._data = self._data.partition(b"\r\n")
            found += self.exactly(int(size, 16))
            self.exactly(2)
            if int(size, 16) == 0:
                return found

    def exactly(self, count: int) -> bytes:
        """So many bytes."""
        while len(self._data) < count:
            self._more()
        found, self._data = self._data[:count], self._data[count:]
        return found

    def _more(self) -> None:
        more = self.sock.recv(65536)
        if not more:
            raise EOFError(self._data)
        self._data += more

    def ended(self) -> bool:
        """Whether the server has ended the connection, without another byte."""
        return not self._data and not self.sock.recv(1)

    def frame(self) -> tuple[int, bytes]:
        """The next frame: opcode and payload; the server sends whole, unmasked frames."""
        first, second = self.exactly(2)
        assert first & 0xF0 == 0x80, f"first byte {first:02x}"
        length = second
        if second == 126:
            (length,) = struct.unpack("!H", self.exactly(2))
        elif second == 127:
            (length,) = struct.unpack("!Q", self.exactly(8))
        else:
            assert second < 126, "the server masks"
        return first & 0x0F, self.exactly(length)


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bytes | None = MASK
) -> bytes:
    """A frame as a client sends it; `mask` None: unmasked, which no client may send."""
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    bit = 0x80 if mask is not None else 0
    if len(payload) < 126:
        head += bytes([bit | len(payload)])
    elif len(payload) < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", len(payload))
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", len(payload))
    if mask is None:
        return head + payload
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return head + mask + masked.to_bytes(len(payload), "big")


def closing(code: int | None = None, reason: bytes = b"") -> bytes:
    """A close frame as a client sends it."""
    return frame(CLOSE, (struct.pack("!H", code) if code is not None else b"") + reason)
