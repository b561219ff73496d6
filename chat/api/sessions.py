"""The directory: list, create, show, change and delete conversations."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponseBase, JsonResponse

from accounts.auth import Principal
from chat import directory, forking, frames, gateway, queries
from chat.agents import agent_names
from chat.api.door import body_of, by_method, door, path_id
from chat.api.history import number, standing_session
from chat.inputs import storable
from chat.models import LIVE
from hermes_site.errors import Conflict, InvalidRequest, NotFound

PAGE = 50
MOST = 200


@door
async def index(request: HttpRequest, principal: Principal) -> HttpResponseBase:
    """GET /api/sessions: the latest activity first."""
    limit = number(request, "limit", PAGE, least=1, most=MOST)
    offset = number(request, "offset", 0, least=0)
    rows, more = await queries.pool.read(directory.page, principal.user_id, limit, offset)
    return JsonResponse({"object": "list", "data": rows, "limit": limit, "offset": offset, "has_more": more})


@door
async def create(request: HttpRequest, principal: Principal) -> HttpResponseBase:
    """POST /api/sessions {id?, title?, agent?}: 201 after the commit."""
    body = await body_of(request)
    name = new_name(body)
    title = directory.read_title(body.get("title"))
    agent = await _agent(principal, body.get("agent"))
    await gateway.running().journal.do(directory.Create(principal.user_id, name, agent, title))
    return await _shown(principal, name, status=201)


@door
async def fork(request: HttpRequest, principal: Principal, session: str) -> HttpResponseBase:
    """POST /api/sessions/{id}/fork {id?, title?, run_id?}: 201 with the copy."""
    source = path_id(session, "session_not_found")
    found = await queries.pool.read(standing_session, principal.user_id, source)
    body = await body_of(request)
    name = new_name(body)
    title = directory.read_title(body.get("title"))
    up_to = body.get("run_id")
    run = None
    if up_to is not None:
        known = isinstance(up_to, str) and storable(up_to)
        run = await queries.pool.read(queries.find_run, principal.user_id, up_to) if known else None
        if run is None or run.session_id != found.pk or run.replaced_by_id is not None:
            raise NotFound("there is no such run in this session", api_code="run_not_found")
        if run.status in LIVE:
            raise Conflict("this run has not ended", api_code="session_active_turn")
    item = forking.Fork(
        principal.user_id, principal.username, source, name, title, run.pk if run is not None else None
    )
    await gateway.running().journal.do(item)
    return await _shown(principal, name, status=201)


def new_name(body: dict[str, Any]) -> str:
    """
    The id a client gives a new session; one of ours if it gives none.

    Raises:
        InvalidRequest: `invalid_session_id`.
    """
    name = body.get("id")
    if name is None:
        return str(uuid.uuid4())
    if not isinstance(name, str) or not frames.valid_session(name):
        raise InvalidRequest(
            "an id has 1 to 128 characters, none of them a control character",
            api_code="invalid_session_id",
            field="id",
        )
    return name


@door
async def show(request: HttpRequest, principal: Principal, session: str) -> HttpResponseBase:
    """GET /api/sessions/{id}."""
    return await _shown(principal, path_id(session, "session_not_found"))


@door
async def change(request: HttpRequest, principal: Principal, session: str) -> HttpResponseBase:
    """PATCH /api/sessions/{id} {title?, pinned?, archived?}."""
    name = path_id(session, "session_not_found")
    changes = directory.read_changes(await body_of(request))
    item = directory.Change(principal.user_id, principal.username, name, changes)
    if changes:
        await gateway.running().journal.do(item)
    return await _shown(principal, name)


@door
async def delete(request: HttpRequest, principal: Principal, session: str) -> HttpResponseBase:
    """DELETE /api/sessions/{id}."""
    name = path_id(session, "session_not_found")
    journal = gateway.running().journal
    await journal.do(directory.Delete(principal.user_id, principal.username, journal.slots, name))
    return JsonResponse({"object": "hermes.session.deleted", "id": name, "deleted": True})


async def _shown(principal: Principal, name: str, *, status: int = 200) -> JsonResponse:
    row: dict[str, Any] = await queries.pool.read(directory.one, principal.user_id, name)
    return JsonResponse({"object": "hermes.session", "session": row}, status=status)


async def _agent(principal: Principal, asked: Any) -> str:
    default, names = await agent_names(principal.user_id)
    if asked is None or asked == "hermes":
        return default
    if not isinstance(asked, str) or asked not in names:
        raise InvalidRequest("you have no such agent", api_code="invalid_agent", field="agent")
    return asked


collection = by_method(GET=index, POST=create)
member = by_method(GET=show, PATCH=change, DELETE=delete)
forking_address = by_method(POST=fork)
