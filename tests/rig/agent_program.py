"""
An agent as a process of its own, to be frozen and killed.

It answers each text with a stream that says the same, word by word; a text that begins with "stall" gets a stream of
three pieces and no end.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from tests.rig.paths import ROOT


class AgentProgram:
    """The process; use as an async context manager, connected on entry."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.rig.agent_program"),
            cwd=ROOT,
            env=os.environ | {"AGENT_URL": self._url},
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert await self.process.stdout.readline() == b"connected\n"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        await self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: its line ends without a close frame."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


async def main() -> None:
    """Connect, say so, and answer until the socket ends."""
    from tests.rig.sockets import open_socket

    async with await open_socket(os.environ["AGENT_URL"]) as socket:
        print("connected", flush=True)
        async for text in socket:
            frame = json.loads(text)
            if frame["type"] != "text":
                continue
            back = {"from": "hermes", "to": frame["from"], "session": frame["session"]}
            start = {"id": f"answer-{frame['id']}", "type": "stream_start", "reply_to": frame["id"]}
            await socket.send(json.dumps(back | start | {"ts": int(time.time())}))
            said = frame["data"]["text"]
            pieces = ["one ", "two ", "three "] if said.startswith("stall") else said.split(" ")
            joined = pieces if said.startswith("stall") else [pieces[0], *(f" {word}" for word in pieces[1:])]
            for piece in joined:
                await socket.send(json.dumps(back | {"type": "stream", "data": {"text": piece}}))
            if not said.startswith("stall"):
                await socket.send(json.dumps(back | {"type": "stream_end"}))


if __name__ == "__main__":
    asyncio.run(main())
