"""What lives as long as the process: start-up, the clocks, drain and end."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from channels.layers import InMemoryChannelLayer, get_channel_layer
from django.conf import settings
from django.db import InterfaceError, OperationalError

from accounts.auth import invalid_now
from chat import agents, gateway, processes, queries, retention
from chat.beyond import Beyond
from chat.control import TakeCommands
from chat.dispatch import Silences
from chat.gateway import Gateway
from chat.runs import Expire
from chat.upstream import Upstream
from hermes_site.errors import CloseCode, Unavailable

logger = logging.getLogger(__name__)

TICKS_A_HEARTBEAT = 30
LOOKS_A_SILENCE = 20
COMMANDS_SECONDS = 1
_clocks: set[asyncio.Task[None]] = set()


async def startup() -> None:
    """Register this process, begin to write, and end what dead processes left open."""
    here = Gateway()
    await asyncio.to_thread(processes.register, here.process)
    here.journal.start()
    gateway.set_running(here)
    await processes.bury_dead(here, at_once=True)
    layer = get_channel_layer()
    if not isinstance(layer, InMemoryChannelLayer):
        beyond = Beyond(layer, here.process.hex, here.hub, here.heard, here.layer_lost)
        await beyond.start()
        here.hub.beyond = beyond
        _keep(_every(settings.HERMES_POSITION_SECONDS, lambda: _poll(here)))
        _keep(_every(COMMANDS_SECONDS, lambda: _take_commands(here)))
    if agents.upstream_name() is not None:
        here.upstream = Upstream(here)
        here.upstream.start()
    _keep(_every(settings.HERMES_PROCESS_BEAT_SECONDS, lambda: _beat(here)))
    _keep(_every(min(1.0, settings.HERMES_HEARTBEAT_SECONDS / TICKS_A_HEARTBEAT), lambda: _look(here)))
    _keep(_every(settings.HERMES_CREDENTIAL_CHECK_SECONDS, lambda: _check_credentials(here)))
    _keep(
        _every(min(30.0, settings.HERMES_ANSWER_SECONDS / LOOKS_A_SILENCE), lambda: _look_for_silence(here))
    )
    _keep(_every(min(60.0, max(1.0, settings.HERMES_QUEUE_SECONDS / 10)), lambda: _expire(here)))
    _keep(_every(settings.HERMES_PURGE_SECONDS, lambda: asyncio.to_thread(retention.purge_as, here.process)))


async def drain() -> None:
    """Take no new sockets, give open streams their time, tell every peer that this process goes away."""
    here = gateway.running()
    here.draining = True
    begun = time.monotonic()
    while time.monotonic() - begun < settings.HERMES_DRAIN_SECONDS:  # streams end one by one
        if not any(slot.open for slot in here.journal.slots.values()):
            break
        await asyncio.sleep(0.05)
    await here.close_all(CloseCode.GOING_AWAY, timeout_seconds=3)


async def shutdown() -> None:
    """Stop the clocks, write what waits, sign off."""
    here = gateway.running()
    here.draining = True
    for clock in list(_clocks):
        clock.cancel()
    await asyncio.gather(*_clocks, return_exceptions=True)
    await here.close_all(CloseCode.GOING_AWAY, timeout_seconds=1)
    if here.upstream is not None:
        await here.upstream.stop()
    await here.journal.stop()
    if here.hub.beyond is not None:
        await here.hub.beyond.stop()
    await asyncio.to_thread(queries.pool.close)
    await asyncio.to_thread(processes.sign_off, here.process)
    gateway.set_running(None)


def _keep(clock: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(clock)
    _clocks.add(task)
    task.add_done_callback(_clocks.discard)


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again; one failure is logged and not the end."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except (InterfaceError, OperationalError, Unavailable) as problem:
            logger.warning("a clock's work has to wait, the database is away: %s", type(problem).__name__)
        except Exception:
            logger.exception("a clock's work failed")


async def _beat(here: Gateway) -> None:
    if here.journal.lost:
        await _begin_anew(here)
    if await processes.beat(here):
        await processes.bury_dead(here, at_once=False)


async def _begin_anew(here: Gateway) -> None:
    """This process was held for dead, after a stall: its peers come again, to what is true now."""
    logger.error("this process was held for dead by others: it begins anew")
    await here.close_all(CloseCode.INTERNAL, timeout_seconds=1)
    if here.upstream is not None:
        await here.upstream.abandon()
    old, here.process = here.process, uuid.uuid4()
    await asyncio.to_thread(processes.register, here.process)
    await asyncio.to_thread(processes.sign_off, old)
    here.journal.begin_anew(here.process)


async def _look(here: Gateway) -> None:
    """Heartbeats and expired tokens, by the loop's monotonic clock and the wall clock."""
    now, wall = asyncio.get_running_loop().time(), time.time()
    for socket in list(here.sockets):
        expires = socket.principal.expires_at
        if expires is not None and wall >= expires:
            socket.close(CloseCode.TOKEN_EXPIRED)
        elif socket.silent_for(now) > settings.HERMES_HEARTBEAT_SECONDS:
            socket.close(CloseCode.SILENT)
    for stream in list(here.streams):
        if stream.principal.expires_at is not None and wall >= stream.principal.expires_at:
            stream.close()


async def _check_credentials(here: Gateway) -> None:
    """Keys revoked, users disabled, passwords changed: by whatever way it was done."""
    principals = {peer.principal for peer in here.peers()}
    if not principals:
        return
    bad = await invalid_now(principals)
    for peer in here.peers():
        if (code := bad.get(peer.principal)) is not None:
            peer.close(code)


async def _take_commands(here: Gateway) -> None:
    """A hint may get lost: look for what was asked of this process' runs."""
    if any(slot.turns for slot in here.journal.slots.values()):
        await here.journal.do(TakeCommands(here.journal.slots))


async def _poll(here: Gateway) -> None:
    """A hint may get lost: look whether anything waits for an agent that is connected here."""
    slots = {(slot.user_id, slot.name): slot for slot in here.journal.slots.values() if slot.peer is not None}
    if not slots:
        return
    users = sorted({user_id for user_id, _ in slots})
    cursors, generations = await queries.pool.read(queries.agents_now, users)
    for key, slot in slots.items():
        if slot.peer is None:
            continue
        if generations.get(key, slot.generation) > slot.generation:
            slot.peer.close(CloseCode.REPLACED)
        elif cursors.get(slot.user_id, 0) > slot.handed:
            slot.peer.wake()


async def _look_for_silence(here: Gateway) -> None:
    """Turns that show no sign of life."""
    if here.journal.slots:
        await here.journal.do(Silences(here.journal.slots.values()))


async def _expire(here: Gateway) -> None:
    while await here.journal.do(Expire()):
        pass
