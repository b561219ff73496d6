"""What happens once per process: start-up before the first scope of any kind, and the end."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hermes_site import memory

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_starting: asyncio.Task[None] | None = None


async def startup() -> None:
    """
    Start the parts that live as long as the process; whoever comes meanwhile waits for the same start.

    A start that failed is tried again by the next caller.
    """
    global _starting
    if _starting is None or (
        _starting.done() and (_starting.cancelled() or _starting.exception() is not None)
    ):
        from chat import lifecycle

        _starting = asyncio.get_running_loop().create_task(lifecycle.startup())
    await asyncio.shield(_starting)
    memory.settle()


async def drain() -> None:
    """Say goodbye to all peers, giving open streams their time; does nothing before start-up is done."""
    if _starting is not None and _starting.done() and not _starting.cancelled() and not _starting.exception():
        from chat import lifecycle

        await lifecycle.drain()


async def shutdown() -> None:
    """End them in good order; a later `startup` begins anew."""
    global _starting
    if _starting is None:
        return
    from accounts import auth
    from chat import lifecycle

    _starting = None
    await lifecycle.shutdown()
    await asyncio.to_thread(auth.close)


def after_startup(application: Application) -> Application:
    """The same application, which answers nothing before start-up is done; knows the ASGI lifespan too."""

    async def started(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if (
            _starting is None
            or not _starting.done()
            or _starting.cancelled()
            or _starting.exception() is not None
        ):
            await startup()
        await application(scope, receive, send)

    return started


async def _lifespan(receive: Receive, send: Send) -> None:
    """Servers that have a lifespan (uvicorn) start and stop us by it."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                await startup()
            except Exception as problem:
                await send({"type": "lifespan.startup.failed", "message": str(problem)})
                raise
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await shutdown()
            await send({"type": "lifespan.shutdown.complete"})
            return
