"""Which agents a user can reach: those of keys, and the one that the gateway answers for itself (the upstream)."""

from __future__ import annotations

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from accounts import scopes
from accounts.auth import find_agent_names, in_thread
from accounts.models import DEFAULT_AGENT, ApiKey
from chat.models import AgentSlot, Run

# Among the capabilities of a slot: the gateway itself holds it. Its turns are claimed one by one, never handed
# out as they come; and without `sync` none goes back to the queue, where it could be asked a second time.
UPSTREAM = "upstream"
UPSTREAM_CAPS = frozenset({"events", "control", UPSTREAM})
STEER = "steer"  # beside it, once it is known that this Hermes takes remarks


def upstream_name() -> str | None:
    """The agent name that the upstream answers under; None without one."""
    return settings.HERMES_UPSTREAM_AGENT if settings.HERMES_UPSTREAM_URL else None


def is_upstream(user_id: int, agent: str) -> bool:
    """Whether the upstream answers this user under this name: it does while the user has no key for it."""
    return agent == upstream_name() and not _keys_for(agent).filter(user_id=user_id).exists()


async def agent_names(user_id: int) -> tuple[str, tuple[str, ...]]:
    """The name of a user's default agent, and all names: those of the keys, then the upstream's."""
    return await in_thread(find_names, user_id)


def find_names(user_id: int) -> tuple[str, tuple[str, ...]]:
    """
    The same for synchronous callers.

    An agent with a key stays the default: whoever wrote to it as `hermes` gets no other brain. So nobody who has
    one can write to an upstream of that name.
    """
    default, names = find_agent_names(user_id)
    upstream = upstream_name()
    if upstream is None or upstream in names or (names and upstream == DEFAULT_AGENT):
        return default, names
    return (default if names else upstream), (*names, upstream)


def of_upstream(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Those of these runs that are the upstream's to answer."""
    keys = _keys_for(settings.HERMES_UPSTREAM_AGENT).filter(user_id=OuterRef("user_id"))
    return runs.filter(~Exists(keys), agent=settings.HERMES_UPSTREAM_AGENT)


def takes_remarks(caps: frozenset[str]) -> bool:
    """Whether an agent with these capabilities takes remarks in the middle of a turn."""
    return "control" in caps and (UPSTREAM not in caps or STEER in caps)


def held_by_agents() -> QuerySet[AgentSlot]:
    """The places that an agent's socket holds; the upstream's say nothing about who is connected."""
    return AgentSlot.objects.filter(process__isnull=False).exclude(caps__contains=UPSTREAM)


def _keys_for(agent: str) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(agent=agent, revoked_at=None, scopes__contains=scopes.AGENT)
