"""GET /api/frames: pages of the user's log, the frames exactly as in a replay."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import scopes
from accounts.auth import require
from accounts.authentication import GatewayAuthentication
from chat import frames, queries
from chat.telling import SYNC
from hermes_site.errors import InvalidRequest

PAGE = 100
MAX_CURSOR = 2**62


class FramesView(APIView):
    """
    GET ?session=&before=&limit= → {"data": [frames, oldest first], "has_more"}.

    Without `before` the newest ones. `limit` is 1 to `HERMES_PAGE_LIMIT`, 100 by default.
    """

    authentication_classes = [GatewayAuthentication]

    def get(self, request: Request) -> Response:
        """One page."""
        require(request.principal, scopes.CHAT)
        limit = number(request, "limit", PAGE, least=1, most=settings.HERMES_PAGE_LIMIT)
        before = number(request, "before", None, least=0, most=MAX_CURSOR)
        session = request.query_params.get("session")
        if session is not None and not frames.valid_session(session):
            raise InvalidRequest("session: is no session id", field="session")
        told, has_more = queries.page(request.principal.user_id, session, before, limit or PAGE)
        data = [frames.read_data(out.text) for one in told for out in one.copy(events=None).render(SYNC)]
        return Response({"data": data, "has_more": has_more}, headers={"Cache-Control": "no-store"})


def number(request: Request, name: str, default: Any, *, least: int, most: int) -> Any:
    """
    A number of the query.

    Raises:
        InvalidRequest: If it is none, or out of range.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise InvalidRequest(f"{name}: must be a number from {least} to {most}", field=name)
    return int(text)
