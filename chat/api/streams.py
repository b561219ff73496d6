"""Event streams as HTTP answers: headers, how many may be open, and what a viewer's leaving means."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from urllib.parse import quote

from asgiref.sync import SyncToAsync
from django.conf import settings
from django.db import connections
from django.http import HttpResponse, StreamingHttpResponse

from accounts.auth import Principal
from chat import gateway
from chat.sse import EventStream
from chat.telling import RunRef
from hermes_site.errors import Draining, RateLimited

CONTENT_TYPE = "text/event-stream; charset=utf-8"
UNBUFFERED = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


def run_headers(ref: RunRef) -> dict[str, str]:
    """What the headers of an answer say of its run; ids as in a URL."""
    return {"X-Hermes-Session-Id": quote(ref.session, safe=""), "X-Hermes-Run-Id": ref.public_id}


def check_room(principal: Principal, key: int | None = None) -> None:
    """
    Whether this user may open another stream, of this run or session if one is named.

    Raises:
        RateLimited: If too many are open.
        Draining: If this process is going away.
    """
    here = gateway.running()
    if here.draining:
        raise Draining("this process is going away; try again", retry_after=1)
    mine = [one for one in here.streams if one.user_id == principal.user_id]
    same = [one for one in mine if one.key == key]
    if len(mine) >= settings.HERMES_READERS_PER_USER or len(same) >= settings.HERMES_READERS_PER_RUN:
        raise RateLimited("too many streams are open", retry_after=5)


def answer(
    reader: EventStream, headers: dict[str, str], *, leaving: Callable[[], None] | None = None
) -> StreamingHttpResponse:
    """
    The answer that follows a run or a session.

    `leaving` is called when the viewer leaves before the end, and nobody else looks at the same.
    """
    here = gateway.running()

    async def content() -> AsyncIterator[bytes]:
        _let_thread_go()
        finished = False
        with reader:
            try:
                async for piece in reader.frames():
                    yield piece
                finished = True
            finally:
                alone = not any(one is not reader and one.key == reader.key for one in here.streams)
                if leaving is not None and not finished and not reader.closed and alone:
                    leaving()

    return StreamingHttpResponse(content(), content_type=CONTENT_TYPE, headers={**UNBUFFERED, **headers})


def _let_thread_go() -> None:
    """
    End the thread that Django keeps for the synchronous parts of this request.

    It would sleep as long as the stream is open, a thread for each reader; what comes after the stream gets another one.
    """
    context = SyncToAsync.thread_sensitive_context.get(None)
    executor = SyncToAsync.context_to_thread_executor.pop(context, None) if context is not None else None
    if executor is not None:
        executor.submit(connections.close_all)
        executor.shutdown(wait=False)


def empty(headers: dict[str, str]) -> HttpResponse:
    """A stream with nothing in it: the reader has all there is."""
    return HttpResponse(b"", content_type=CONTENT_TYPE, headers={**UNBUFFERED, **headers})
