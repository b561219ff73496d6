"""
/healthz: this process is alive. /readyz: so are its database and its channel layer.

Both are asked by machines that know no host name of ours, so they are answered before hosts are checked.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.utils.decorators import sync_and_async_middleware

from hermes_site import sqlite


@sync_and_async_middleware
def health(get_response: Callable[[HttpRequest], Any]) -> Any:
    """Answers the two addresses, hands everything else on."""
    if iscoroutinefunction(get_response):

        async def answered_async(request: HttpRequest) -> Any:
            if request.path_info in ANSWERS and request.method in ("GET", "HEAD"):
                return await ANSWERS[request.path_info]()
            return await get_response(request)

        return answered_async

    def answered(request: HttpRequest) -> Any:
        if request.path_info in ANSWERS and request.method in ("GET", "HEAD"):
            return async_to_sync(ANSWERS[request.path_info])()
        return get_response(request)

    return answered


async def healthz() -> JsonResponse:
    """200 as long as this process answers at all."""
    return _answer({"status": "ok"}, 200)


async def readyz() -> JsonResponse:
    """200 when the database and the layer answer within HERMES_READY_SECONDS, else 503 and which does not."""
    database, layer = await asyncio.gather(
        _within(asyncio.to_thread(look_at_database)), _within(look_at_layer())
    )
    ready = database["ok"] and layer["ok"]
    text = "ok" if ready else "unavailable"
    return _answer({"status": text, "database": database, "layer": layer}, 200 if ready else 503)


ANSWERS = {"/healthz": healthz, "/readyz": readyz}


def look_at_database() -> dict[str, Any]:
    """One query on a connection of this thread, and how SQLite keeps its journal."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
            state: dict[str, Any] = {"ok": True, "kind": connection.vendor}
            if connection.vendor == "sqlite":
                cursor.execute("PRAGMA journal_mode")
                state |= {"journal": cursor.fetchone()[0], "version": sqlite.version()}
            return state
    except DatabaseError:
        return {"ok": False, "kind": connection.vendor}
    finally:
        connection.close()


async def look_at_layer() -> dict[str, Any]:
    """Whether Redis answers; the in-memory layer is part of this process."""
    if not settings.REDIS_URL:
        return {"ok": True, "kind": "in-memory"}
    from redis import asyncio as aioredis
    from redis.exceptions import RedisError

    client = aioredis.from_url(settings.REDIS_URL)
    try:
        await client.ping()
    except (RedisError, OSError):
        return {"ok": False, "kind": "redis"}
    finally:
        await client.aclose()
    return {"ok": True, "kind": "redis"}


async def _within(looking: Any) -> dict[str, Any]:
    try:
        async with asyncio.timeout(settings.HERMES_READY_SECONDS):
            return await looking
    except TimeoutError:
        return {"ok": False}


def _answer(state: dict[str, Any], status: int) -> JsonResponse:
    return JsonResponse(state, status=status, headers={"Cache-Control": "no-store"})
