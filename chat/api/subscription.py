"""GET /api/sessions/{id}/events: everything that happens in a conversation, for front ends that subscribe."""

from __future__ import annotations

from urllib.parse import quote

from django.http import HttpRequest, HttpResponseBase

from accounts.auth import Principal
from chat import gateway, queries
from chat.api import cursors, streams
from chat.api.door import by_method, door, path_id
from chat.api.history import standing_session
from chat.sse import SessionStream


@door
async def events(request: HttpRequest, principal: Principal, session: str) -> HttpResponseBase:
    """The events of all its runs; SSE ids are `run_id:seq`, which `after` takes."""
    name = path_id(session, "session_not_found")
    found = await queries.pool.read(standing_session, principal.user_id, name)
    place = cursors.of_session(request)
    after = await cursors.find_place(found, *place) if place is not None else None
    headers = {"X-Hermes-Session-Id": quote(name, safe="")}
    if request.method == "HEAD":
        return streams.empty(headers)
    streams.check_room(principal, found.pk)
    return streams.answer(SessionStream(gateway.running(), principal, found.pk, name, after), headers)


address = by_method(GET=events)
