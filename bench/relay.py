"""
The reference: a bare relay on Python's `websockets`, which checks nothing and keeps nothing.

`/agent/N` and `/app/N` are the two ends of pair N; what one sends the other receives. Run as `python -m bench.relay PORT`.
"""

import asyncio
import contextlib
import sys

import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed

OTHER = {"app": "agent", "agent": "app"}
ends: dict[tuple[str, str], set[ServerConnection]] = {}


async def relay(socket: ServerConnection) -> None:
    """Serve one socket of either side until it closes."""
    assert socket.request is not None
    _, side, pair = socket.request.path.split("/")
    ends.setdefault((side, pair), set()).add(socket)
    readers = ends.setdefault((OTHER[side], pair), set())
    with contextlib.suppress(ConnectionClosed):
        async for text in socket:
            if len(readers) == 1:
                await next(iter(readers)).send(text, text=True)
            else:
                broadcast(readers, text)
    ends[side, pair].discard(socket)


async def main(port: int) -> None:
    """Serve until killed."""
    async with serve(relay, "127.0.0.1", port, compression=None, ping_interval=None, max_size=None):
        print("ready", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
