"""The second door's runs: start one, resume its events, stop it, steer it, ask how it stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, JsonResponse, StreamingHttpResponse

from accounts.auth import Principal
from chat import control, gateway, history, queries, starting
from chat.api.door import body_of, door, path_id
from chat.models import LIVE, Run
from chat.sse import RunStream
from chat.telling import RunRef
from hermes_site.errors import Gone, InvalidRequest, NotFound, RateLimited

DIGITS = 18


@door("POST")
async def start(request: HttpRequest, principal: Principal, session: str) -> HttpResponseBase:
    """POST /api/sessions/{id}/chat/stream: say something and follow the run it starts."""
    order = await starting.read_order(
        principal,
        path_id(session, "session_not_found"),
        await body_of(request),
        request.headers.get("Idempotency-Key"),
    )
    started = await starting.start(principal, order)
    headers = {"Idempotency-Replayed": "true"} if started.replayed else {}
    if "application/json" in request.headers.get("Accept", ""):
        answer = {"run_id": started.ref.public_id, "status": started.status}
        return JsonResponse(answer, status=202, headers=headers)
    stop = request.GET.get("on_disconnect", settings.HERMES_ON_DISCONNECT) == "stop"
    return stream(principal, started.ref, 0, headers=headers, stop_on_disconnect=stop)


@door("GET")
async def events(request: HttpRequest, principal: Principal, run: str) -> HttpResponseBase:
    """GET /v1/runs/{run}/events?after=: the events after a number, then live, until `done`."""
    after = read_cursor(request)
    found = await find_run(principal, run)
    if found.replaced_by_id is not None:
        raise Gone("this run was replaced", api_code="run_replaced")
    ref = queries.run_ref(found, found.session.public_id, principal.username)
    first, last = await queries.pool.read(queries.journal_range, found.pk)
    last = max(last, found.last_seq)
    purged = last > 0 and (first == 0 or after < first - 1) and after < last
    if after > last or purged:
        raise Gone("this cursor is not in the journal; read the history", api_code="cursor_expired")
    return stream(principal, ref, after, ended=found.status not in LIVE and after == last)


@door("POST")
async def stop(request: HttpRequest, principal: Principal, run: str) -> HttpResponseBase:
    """POST /v1/runs/{run}/stop: ask for its end."""
    found = await find_run(principal, run)
    here = gateway.running()
    status = await here.journal.do(control.StopRun(principal.user_id, here.journal.slots, found.pk))
    return JsonResponse({"run_id": found.public_id, "status": status})


@door("POST")
async def steer(request: HttpRequest, principal: Principal, run: str) -> HttpResponseBase:
    """POST /v1/runs/{run}/steer: add a remark to a run that is streaming."""
    found = await find_run(principal, run)
    body = await body_of(request)
    text = body.get("input", body.get("text"))
    if not isinstance(text, str) or not text.strip() or "\x00" in text:
        raise InvalidRequest(
            "input must be a text that is not empty", api_code="invalid_steer_input", field="input"
        )
    here = gateway.running()
    await here.journal.do(control.SteerRun(principal.user_id, here.journal.slots, found.pk, text))
    return JsonResponse({"object": "hermes.run.steer", "run_id": found.public_id, "accepted": True})


@door("GET")
async def status(request: HttpRequest, principal: Principal, run: str) -> HttpResponseBase:
    """GET /v1/runs/{run}: how it stands."""
    found = await find_run(principal, run)
    return JsonResponse(await queries.pool.read(history.status_of, found))


async def find_run(principal: Principal, name: str) -> Run:
    """
    A run by its id, its user message's id, or the id its client gave it.

    Raises:
        NotFound: If this user has none.
    """
    found = await queries.pool.read(queries.find_run, principal.user_id, path_id(name, "run_not_found"))
    if found is None:
        raise NotFound("there is no such run", api_code="run_not_found")
    return found


def read_cursor(request: HttpRequest) -> int:
    """
    The number after which events are wanted; 0 without one.

    Raises:
        InvalidRequest: `invalid_cursor`.
    """
    text = request.GET.get("after")
    if text is None:
        text = request.headers.get("Last-Event-ID", request.GET.get("last_seq"))
    if text is None or text == "":
        return 0 if text is None else _bad_cursor()
    number = text.rpartition(":")[2]
    if not (number.isascii() and number.isdigit() and len(number) <= DIGITS):
        return _bad_cursor()
    return int(number)


def _bad_cursor() -> int:
    raise InvalidRequest("this is no cursor", api_code="invalid_cursor", field="after")


def stream(
    principal: Principal,
    ref: RunRef,
    after: int,
    *,
    ended: bool = False,
    headers: dict[str, str] | None = None,
    stop_on_disconnect: bool = False,
) -> StreamingHttpResponse:
    """The answer that follows a run; `ended`: nothing is left of it."""
    here = gateway.running()
    mine = [one for one in here.streams if one.user_id == principal.user_id]
    of_run = [one for one in mine if one.ref.key == ref.key]
    if len(mine) >= settings.HERMES_READERS_PER_USER or len(of_run) >= settings.HERMES_READERS_PER_RUN:
        raise RateLimited("too many streams are open", retry_after=5)
    reader = RunStream(here, principal, ref, after)

    async def content() -> AsyncIterator[bytes]:
        if ended:
            return
        finished = False
        with reader:
            try:
                async for frame in reader.frames():
                    yield frame
                finished = True
            finally:
                alone = not any(one is not reader and one.ref.key == ref.key for one in here.streams)
                if stop_on_disconnect and not finished and alone:
                    _stop_later(here, principal, ref)

    return StreamingHttpResponse(
        content(),
        content_type="text/event-stream; charset=utf-8",
        headers={
            "Cache-Control": "no-cache, no-transform",
            "X-Accel-Buffering": "no",
            "X-Hermes-Session-Id": quote(ref.session, safe=""),
            "X-Hermes-Run-Id": ref.public_id,
            **(headers or {}),
        },
    )


def _stop_later(here: gateway.Gateway, principal: Principal, ref: RunRef) -> None:
    """The viewer has left, and asked that its run goes with it."""

    def heard(stopping: asyncio.Future[Any]) -> None:
        here.stopping.discard(stopping)
        if not stopping.cancelled():
            stopping.exception()

    stopping = asyncio.ensure_future(
        here.journal.do(control.StopRun(principal.user_id, here.journal.slots, ref.key))
    )
    here.stopping.add(stopping)
    stopping.add_done_callback(heard)
