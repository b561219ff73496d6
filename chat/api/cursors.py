"""Where a reader of events wants to go on: the cursor of a request, held against what the journal has."""

from __future__ import annotations

from django.http import HttpRequest

from chat import queries
from chat.models import ChatSession, Run
from hermes_site.errors import Gone, InvalidRequest

DIGITS = 18  # a number with more of them is ahead of any journal
AHEAD = 10**DIGITS


def of_run(request: HttpRequest, run: Run) -> int:
    """
    The number after which a run's events are wanted; 0 without one. `run_id:seq` is read too.

    Raises:
        InvalidRequest: `invalid_cursor`.
    """
    text = _given(request)
    if text is None:
        return 0
    name, colon, digits = text.rpartition(":")
    if colon and name != run.public_id:
        raise _bad("this cursor is of another run")
    return _number(digits)


def of_session(request: HttpRequest) -> tuple[str, int] | None:
    """
    The run and the number in it after which a session's events are wanted.

    Raises:
        InvalidRequest: `invalid_cursor`.
    """
    text = _given(request)
    if text is None:
        return None
    name, _, digits = text.rpartition(":")
    if not name:
        raise _bad("a cursor in a session is run_id:number")
    return name, _number(digits)


async def check_run(run: Run, after: int) -> None:
    """
    Make sure that the journal has all that follows a number.

    Raises:
        Gone: `run_replaced` or `cursor_expired`: the history has what there is.
    """
    if run.replaced_by_id is not None:
        raise Gone("this run was replaced", api_code="run_replaced")
    first, last = await queries.pool.read(queries.journal_range, run.pk)
    last = max(last, run.last_seq)
    pruned = after < first - 1 or first == 0
    if after > last or (pruned and after < last):
        raise _expired()


async def find_place(session: ChatSession, name: str, after: int) -> tuple[int, int]:
    """
    The run of a session by the name in a cursor, by key, and the number in it.

    Raises:
        Gone: As `check_run`, also for a name that is no run of this session.
    """
    run = await queries.pool.read(queries.run_of_session, session.pk, name)
    if run is None:
        raise _expired()
    await check_run(run, after)
    return run.pk, after


def _given(request: HttpRequest) -> str | None:
    text: str | None = request.GET.get("after")
    if text is None:
        text = request.headers.get("Last-Event-ID", request.GET.get("last_seq"))
    return text


def _number(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit()):
        raise _bad("this is no cursor")
    return int(digits) if len(digits) <= DIGITS else AHEAD


def _bad(text: str) -> InvalidRequest:
    return InvalidRequest(text, api_code="invalid_cursor", field="after")


def _expired() -> Gone:
    return Gone("this cursor is not in the journal; read the history", api_code="cursor_expired")
