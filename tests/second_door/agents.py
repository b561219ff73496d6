"""Agents that answer by themselves, as a task beside the test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, Frame

CAPS = "sync,events,control"
QUIET_CAPS = "events,control"
"""Without the echoes of its own messages, which a test that reads the agent's frames would have to leave out."""
Play = Callable[[Agent, Frame], Awaitable[None]]


async def connect(gateway: Gateway, person: Person, caps: str = QUIET_CAPS, **options: Any) -> Agent:
    """An agent that has been greeted."""
    agent = await gateway.agent(person, caps=caps, **options)
    await agent.expect(type="ready")
    return agent


@contextlib.asynccontextmanager
async def playing(
    gateway: Gateway, person: Person, play: Play, caps: str = CAPS, **options: Any
) -> AsyncIterator[Agent]:
    """An agent that plays one thing for each message it is handed; the test reads none of its frames."""
    agent = (
        await connect(gateway, person, caps, **options) if caps else await gateway.agent(person, **options)
    )

    async def answer() -> None:
        while True:
            frame = await agent.next(timeout_seconds=600)
            if frame["type"] in ("text", "image", "stop", "steer"):
                await play(agent, frame)

    async with agent:
        task = asyncio.create_task(answer())
        try:
            yield agent
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def echo(agent: Agent, frame: Frame) -> None:
    """Say the same in pieces; understand stop."""
    if frame["type"] == "stop":
        await agent.end(frame["session"], data={"status": "cancelled"}, reply_to=frame["reply_to"])
        return
    if frame["type"] == "steer":
        return
    text = (frame.get("data") or {}).get("text") or "(no text)"
    words = text.split(" ")
    pieces = [word if number == 0 else f" {word}" for number, word in enumerate(words)]
    await agent.stream(pieces, frame["session"], frame["id"])


async def tell(agent: Agent, session: str, reply_to: str, name: str, **fields: Any) -> None:
    """Say what happens in a turn by an `event` frame."""
    data = {"event": name, **fields}
    await agent.send(agent.envelope("event", session, reply_to=reply_to, data=data))


async def start_tool(agent: Agent, ask: Frame, name: str, call: str, **args: Any) -> None:
    """A tool begins."""
    await tell(
        agent, ask["session"], ask["id"], "tool.started", tool_name=name, tool_call_id=call, args=args or None,
        preview=None,
    )  # fmt: skip


async def end_tool(
    agent: Agent, ask: Frame, name: str, call: str, preview: str, failed: bool = False
) -> None:
    """A tool ends."""
    kind = "tool.failed" if failed else "tool.completed"
    await tell(
        agent,
        ask["session"],
        ask["id"],
        kind,
        tool_name=name,
        tool_call_id=call,
        preview=preview,
        duration=0.1,
    )


async def full_turn(agent: Agent, ask: Frame) -> None:
    """A turn with everything in it: thought, tools of one name that end out of order, text before and after."""
    if ask["type"] != "text":
        return
    session, reply_to = ask["session"], ask["id"]
    await agent.start(session, reply_to)
    await tell(agent, session, reply_to, "tool.progress", tool_name="_thinking", delta="let me see")
    await agent.piece("First, ", session)
    await agent.piece("I look.", session)
    await start_tool(agent, ask, "read", "c1", path="a")
    await start_tool(agent, ask, "read", "c2", path="b")
    await end_tool(agent, ask, "read", "c2", "text of b")
    await start_tool(agent, ask, "write", "c3")
    await end_tool(agent, ask, "write", "c3", "disk full", failed=True)
    await end_tool(agent, ask, "read", "c1", "text of a")
    await agent.piece(" Then ", session)
    await agent.piece("I say é 日本 😀.", session)
    await agent.end(session)
