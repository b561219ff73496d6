"""
The reference: a bare relay on Python's `websockets`, which checks nothing and keeps nothing.

`/agent/N` sends, `/app/N` receives what agent N sent. Run as `python -m bench.relay PORT`.
"""

import asyncio
import contextlib
import sys

import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed

apps: dict[str, set[ServerConnection]] = {}


async def relay(socket: ServerConnection) -> None:
    """Serve one socket of either side until it closes."""
    assert socket.request is not None
    _, side, pair = socket.request.path.split("/")
    if side == "app":
        readers = apps.setdefault(pair, set())
        readers.add(socket)
        try:
            await socket.wait_closed()
        finally:
            readers.discard(socket)
        return
    with contextlib.suppress(ConnectionClosed):
        async for text in socket:
            readers = apps.get(pair, set())
            if len(readers) == 1:
                await next(iter(readers)).send(text, text=True)
            else:
                broadcast(readers, text)


async def main(port: int) -> None:
    """Serve until killed."""
    async with serve(relay, "127.0.0.1", port, compression=None, ping_interval=None, max_size=None):
        print("ready", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
