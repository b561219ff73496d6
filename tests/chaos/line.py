"""The lines of a storm: each connection goes to any gateway process that listens, and may be reset with bytes on it."""

import asyncio
import random

from tests.rig.proxy import Proxy


class Line(Proxy):
    """A line that chooses, at each connection, between the processes that answer."""

    def __init__(self, ports: list[int], chance: random.Random) -> None:
        super().__init__(ports[0])
        self._ports = ports
        self._chance = chance

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in self._chance.sample(self._ports, len(self._ports)):
            if await _listens(port):
                self.target_port = port
                break
        await super()._accept(reader, writer)

    async def reset_with_bytes(self, seconds: float) -> int:
        """Let bytes gather for a while, then reset everything; returns how many were lost."""
        self.freeze()
        await asyncio.sleep(seconds)
        lost = self.held_bytes
        self.reset()
        self.thaw()
        return lost


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
