"""Which gateway processes live: the lease of each, and what is done with what a dead one left open."""

from __future__ import annotations

import logging
import socket
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection
from django.db.models.functions import Now
from filelock import FileLock, Timeout

from chat import presence, queries, waiting
from chat.batch import Batch
from chat.models import LIVE, AgentSlot, Connection, Process, Run
from chat.presence import Quiet
from chat.telling import Told
from chat.turns import Slot
from hermes_site.errors import GatewayError

if TYPE_CHECKING:
    from chat.gateway import Gateway

logger = logging.getLogger(__name__)

_locks: dict[uuid.UUID, FileLock] = {}


def register(process: uuid.UUID) -> None:
    """Make this process known, with a lock file that tells at once when it is dead."""
    lock = FileLock(_lock_path(process))
    lock.acquire(timeout=5)
    _locks[process] = lock
    Process.objects.create(uuid=process, host=socket.gethostname()[:255], started_at=Now(), lease=_lease())
    connection.close()


def sign_off(process: uuid.UUID) -> None:
    """This process ends in good order."""
    Process.objects.filter(uuid=process).delete()
    connection.close()
    lock = _locks.pop(process, None)
    if lock is not None:
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


async def beat(here: Gateway) -> bool:
    """
    Renew the lease, by the writer: one that cannot write is no owner of anything.

    Returns whether this process may judge others: not before it has renewed its own for as long as a lease
    lasts, for after an outage of the database everybody's has run out.
    """
    now = time.monotonic()
    try:
        await here.journal.do(Beat())
    except GatewayError:
        logger.warning("this process could not renew its lease")
        here.steady_since = None
        return False
    if here.steady_since is None:
        here.steady_since = now
    return now - here.steady_since >= settings.HERMES_PROCESS_LEASE_SECONDS


async def bury_dead(here: Gateway, *, at_once: bool) -> None:
    """
    End what dead processes left open.

    `at_once`: those whose lock file, in this data folder, tells that they are dead; else those whose lease is
    over.
    """
    dead = await queries.pool.read(_dead, here.process, at_once)
    nobody_heard = at_once and not await queries.pool.read(_others_live, here.process, dead)
    for process in dead:
        logger.info("process %s is dead: ending what it left open", process)
        for user_id in await queries.pool.read(_users_of, process):
            await here.journal.do(EndOrphans(process, user_id, tell_late=nobody_heard))
        await here.journal.do(Bury(process))
        _lock_path(process).unlink(missing_ok=True)


def _lease() -> Any:
    return Now() + timedelta(seconds=settings.HERMES_PROCESS_LEASE_SECONDS)


def _lock_path(process: uuid.UUID) -> Path:
    folder = Path(settings.HERMES_DATA_DIR) / "processes"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{process}.lock"


def _dead(me: uuid.UUID, at_once: bool) -> list[uuid.UUID]:
    if not at_once:
        dead = set(Process.objects.exclude(uuid=me).filter(lease__lt=Now()).values_list("uuid", flat=True))
    else:
        others = Process.objects.exclude(uuid=me).values_list("uuid", flat=True)
        dead = {process for process in others if _lock_is_free(process)}
    owners = (
        Run.objects.filter(status__in=LIVE, owner__isnull=False).values_list("owner", flat=True).distinct()
    )
    known = set(Process.objects.values_list("uuid", flat=True))
    return sorted(dead | {owner for owner in owners if owner not in known})


def _others_live(me: uuid.UUID, dead: list[uuid.UUID]) -> bool:
    return Process.objects.exclude(uuid__in=[me, *dead]).exists()


def _lock_is_free(process: uuid.UUID) -> bool:
    path = _lock_path(process)
    if not path.exists():
        return False  # its data folder is elsewhere: only the lease tells
    try:
        with FileLock(path, timeout=0):
            return True
    except Timeout:
        return False


def _users_of(process: uuid.UUID) -> list[int]:
    return sorted(
        Run.objects.filter(status__in=LIVE, owner=process).values_list("user_id", flat=True).distinct()
    )


class Beat(Quiet):
    """Renew the lease."""

    def load(self, batch: Batch) -> None:
        """Nothing."""

    def apply(self, batch: Batch) -> None:
        """By the database's clock."""
        Process.objects.filter(uuid=batch.process).update(lease=_lease())


class EndOrphans(Quiet):
    """
    End the live runs of one user that a dead process owned.

    `tell_late`: no App is here yet to hear of it, so those that come in the grace time are told once more.
    """

    alone = True

    def __init__(self, dead: uuid.UUID, user_id: int, *, tell_late: bool = False) -> None:
        self.dead = dead
        self.user_id = user_id
        self.tell_late = tell_late

    def load(self, batch: Batch) -> None:
        """The user's numbers, locked: nobody takes these runs over meanwhile."""
        batch.want_log(self.user_id)

    def apply(self, batch: Batch) -> None:
        """One agent after the other."""
        runs = Run.objects.filter(status__in=LIVE, owner=self.dead, user_id=self.user_id)
        keys = set(runs.values_list("pk", flat=True))
        for agent, username in set(runs.values_list("agent", "user__username")):
            slot = Slot(0, self.user_id, username, agent)
            row = AgentSlot.objects.filter(user_id=self.user_id, name=agent).first()
            slot.caps = frozenset(row.caps.split(",")) if row is not None else frozenset()
            batch.load_turns(slot, self.dead)
            for turn in list(slot.all_turns()):
                if turn.key in keys:
                    batch.claim(turn)
                    error = presence.end_lost(batch, slot, turn)
                    if error is not None and self.tell_late:
                        told = Told(self.user_id, notice={**error, "from": agent}, unsynced=True)
                        batch.later(settings.HERMES_STREAM_GRACE_SECONDS, Tell(told))


class Tell(Quiet):
    """Tell something that is stored already."""

    def __init__(self, told: Told) -> None:
        self.told = told

    def load(self, batch: Batch) -> None:
        """Nothing."""

    def apply(self, batch: Batch) -> None:
        """Tell it."""
        batch.tell(self.told)


class Bury(Quiet):
    """A dead process holds nothing any more."""

    def __init__(self, dead: uuid.UUID) -> None:
        self.dead = dead

    def load(self, batch: Batch) -> None:
        """Nothing."""

    def apply(self, batch: Batch) -> None:
        """Free its slots, forget its sockets and itself; what was said to its agents meanwhile waits."""
        for tell in waiting.held_by(self.dead):
            batch.later(0, tell)
        AgentSlot.objects.filter(process=self.dead).update(process=None, gone_at=batch.now)
        Connection.objects.filter(process=self.dead).delete()
        Process.objects.filter(uuid=self.dead).delete()
