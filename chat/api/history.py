"""GET /api/sessions/{id}/messages: the conversation so far."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase, JsonResponse

from accounts.auth import Principal
from chat import history, queries
from chat.api.door import by_method, door, path_id
from chat.models import ChatSession
from hermes_site.errors import InvalidRequest, NotFound

MOST = 500
ORDERS = ("latest", "oldest")


@door
async def messages(request: HttpRequest, principal: Principal, session: str) -> HttpResponseBase:
    """One page of rows, oldest first, with their runs."""
    limit, offset, order = pagination(request)
    name = path_id(session, "session_not_found")
    return JsonResponse(await queries.pool.read(_page, principal.user_id, name, limit, offset, order))


def pagination(request: HttpRequest) -> tuple[int, int, str]:
    """
    Limit, offset and order of a page.

    Raises:
        InvalidRequest: `invalid_pagination`.
    """
    limit = number(request, "limit", MOST, least=1, most=MOST)
    offset = number(request, "offset", 0, least=0)
    order = request.GET.get("order", "latest")
    if order not in ORDERS:
        raise InvalidRequest("order is latest or oldest", api_code="invalid_pagination", field="order")
    return limit, offset, order


def number(request: HttpRequest, name: str, default: int, *, least: int, most: int = 10**9) -> int:
    """
    A number of the query, from `least` to `most`.

    Raises:
        InvalidRequest: `invalid_pagination`.
    """
    text = request.GET.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= most):
        raise InvalidRequest(
            f"{name} must be a number from {least} to {most}", api_code="invalid_pagination", field=name
        )
    return int(text)


def standing_session(user_id: int, name: str) -> ChatSession:
    """
    A conversation of this user that was not deleted.

    Raises:
        NotFound: `session_not_found`.
    """
    session = ChatSession.objects.filter(user_id=user_id, public_id=name, deleted_at=None).first()
    if session is None:
        raise NotFound("there is no such session", api_code="session_not_found")
    return session


def _page(user_id: int, name: str, limit: int, offset: int, order: str) -> dict[str, Any]:
    session = standing_session(user_id, name)
    page = history.page(session, limit=limit, offset=offset, newest=order == "latest")
    return {
        "object": "list",
        "session_id": session.public_id,
        "data": page.rows,
        "runs": page.runs,
        "pagination": {"limit": limit, "offset": offset, "order": order, "returned": len(page.rows)},
    }


address = by_method(GET=messages)
