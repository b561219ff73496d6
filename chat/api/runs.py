"""The second door's runs: start one, resume its events, stop it, steer it, ask how it stands."""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, JsonResponse

from accounts.auth import Principal
from chat import control, gateway, history, queries, starting
from chat.api import cursors, streams
from chat.api.door import body_of, by_method, door, path_id
from chat.inputs import check_text
from chat.models import LIVE, Run, RunStatus
from chat.sse import RunStream
from chat.telling import RunRef
from hermes_site.errors import Gone, InvalidRequest, NotFound


@door
async def start(request: HttpRequest, principal: Principal, session: str) -> HttpResponseBase:
    """POST /api/sessions/{id}/chat/stream: say something and follow the run it starts."""
    order = await starting.read_order(
        principal,
        path_id(session, "session_not_found"),
        await body_of(request),
        request.headers.get("Idempotency-Key"),
    )
    streams.check_room(principal)
    started = await starting.start(principal, order)
    headers = streams.run_headers(started.ref)
    if started.replayed:
        headers["Idempotency-Replayed"] = "true"
    accept = request.headers.get("Accept", "*/*")
    if "application/json" in accept and "text/event-stream" not in accept and "*/*" not in accept:
        answer = {"run_id": started.ref.public_id, "status": started.status}
        return JsonResponse(answer, status=202, headers=headers)
    if started.replayed:
        found = await find_run(principal, started.ref.public_id)
        await cursors.check_run(found, 0)
    here = gateway.running()
    stop = request.GET.get("on_disconnect", settings.HERMES_ON_DISCONNECT) == "stop"
    leaving = (lambda: stop_later(here, principal, started.ref)) if stop else None
    reader = RunStream(here, principal, started.ref, 0)
    return streams.answer(reader, headers, leaving=leaving)


@door
async def events(request: HttpRequest, principal: Principal, run: str) -> HttpResponseBase:
    """GET /v1/runs/{run}/events?after=: the events after a number, then live, until `done`."""
    found = await find_run(principal, run)
    after = cursors.of_run(request, found)
    await cursors.check_run(found, after)
    ref = queries.run_ref(found, found.session.public_id, principal.username)
    headers = streams.run_headers(ref)
    if request.method == "HEAD" or (found.status not in LIVE and after == found.last_seq):
        return streams.empty(headers)
    streams.check_room(principal, found.pk)
    queued = found.status == RunStatus.QUEUED and found.delivered_at is None
    return streams.answer(RunStream(gateway.running(), principal, ref, after, queued=queued), headers)


@door
async def stop(request: HttpRequest, principal: Principal, run: str) -> HttpResponseBase:
    """POST /v1/runs/{run}/stop: ask for its end."""
    found = await find_run(principal, run)
    await body_of(request)
    here = gateway.running()
    status = await here.journal.do(control.StopRun(principal.user_id, here.journal.slots, found.pk))
    return JsonResponse({"run_id": found.public_id, "status": status})


@door
async def steer(request: HttpRequest, principal: Principal, run: str) -> HttpResponseBase:
    """POST /v1/runs/{run}/steer: add a remark to a run that is streaming."""
    found = await find_run(principal, run)
    body = await body_of(request)
    text = body.get("input", body.get("text"))
    most = settings.HERMES_DATA_BYTES
    if not isinstance(text, str) or not text.strip() or len(text) > most:
        raise InvalidRequest(
            f"input must be a text that is not empty, of at most {most} characters",
            api_code="invalid_steer_input",
            field="input",
        )
    check_text(text, "invalid_steer_input", "input")
    here = gateway.running()
    await here.journal.do(control.SteerRun(principal.user_id, here.journal.slots, found.pk, text))
    return JsonResponse({"object": "hermes.run.steer", "run_id": found.public_id, "accepted": True})


@door
async def status(request: HttpRequest, principal: Principal, run: str) -> HttpResponseBase:
    """GET /v1/runs/{run}: how it stands."""
    found = await find_run(principal, run)
    if found.replaced_by_id is not None:
        raise Gone("this run was replaced", api_code="run_replaced")
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


def stop_later(here: gateway.Gateway, principal: Principal, ref: RunRef) -> None:
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


beginning = by_method(POST=start)
address = by_method(GET=status)
following = by_method(GET=events)
stopping = by_method(POST=stop)
steering = by_method(POST=steer)
