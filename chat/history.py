"""The history of a conversation: rows of its runs in order, and how each run stands. Reads only."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from chat import queries
from chat.events import Event, Narrative, transcript
from chat.models import ACTIVE, LIVE, ChatSession, Run, RunStatus

Row = dict[str, Any]
RUNS_AT_ONCE = 50
FAILED = (RunStatus.FAILED, RunStatus.INTERRUPTED)


class Page(NamedTuple):
    """Rows oldest first, and the runs they belong to in the same order."""

    rows: list[Row]
    runs: list[Row]


def page(session: ChatSession, *, limit: int, offset: int, newest: bool) -> Page:
    """
    Rows of a conversation: the newest ones or the oldest, `offset` of them left out.

    A page of the newest never begins in the middle of a run, unless that run alone is longer.
    """
    gathered: list[tuple[Run, list[Row], Row]] = []
    count = 0
    for run in _runs(session, newest=newest):
        rows, entry = _of_run(session, run)
        gathered.append((run, rows, entry))
        count += len(rows)
        if count >= limit + offset:
            break
    if newest:
        gathered.reverse()
    flat = [row for _, rows, _ in gathered for row in rows]
    if newest:
        end = max(0, len(flat) - offset)
        start = _next_run(flat, max(0, end - limit), end)
    else:
        start, end = offset, _run_before(flat, offset, min(offset + limit, len(flat)))
    rows = flat[start:end]
    shown = {row["run_id"] for row in rows}
    described = {run.ordinal: entry for run, _, entry in gathered if run.public_id in shown}
    active = _runs_of(session).filter(status__in=ACTIVE).first()
    if active is not None and active.ordinal not in described:
        described[active.ordinal] = _of_run(session, active)[1]
    return Page(rows, [described[ordinal] for ordinal in sorted(described)])


def question_of(run: Run) -> str | list[Row]:
    """What the user's message of a run said, as it was sent."""
    started = next(iter(queries.events_after(run.pk, 0, 1)), None)
    row = (started or {}).get("user_message")
    if row is None and run.transcript:
        row = next((row for row in json.loads(run.transcript) if row["role"] == "user"), None)
    content: str | list[Row] = row["content"] if row else ""
    return content


def status_of(run: Run) -> Row:
    """GET /v1/runs/{run}: one run by itself."""
    events = queries.events_after(run.pk, 0)
    narrative = _narrative(events)
    output = narrative.text or "".join(
        row["content"]
        for row in _stored(run)
        if row["role"] == "assistant" and isinstance(row["content"], str)
    )
    last = narrative.last_seq or run.last_seq
    answer: Row = {
        "object": "hermes.run",
        "run_id": run.public_id,
        "session_id": run.session.public_id,
        "status": run.status,
        "created_at": run.created_at.timestamp(),
        "updated_at": (run.ended_at or run.delivered_at or run.created_at).timestamp(),
        "last_event": f"run.{run.status}"
        if run.status not in LIVE
        else events[-1]["event"]
        if events
        else None,
        "last_event_id": str(last),
    }
    if output:
        answer["output"] = output
    if run.status not in LIVE and run.code:
        answer["error"] = run.code
    return answer


def _runs_of(session: ChatSession) -> Any:
    return Run.objects.filter(session=session, replaced_by=None).select_related("user_message", "session")


def _runs(session: ChatSession, *, newest: bool) -> Iterable[Run]:
    runs = _runs_of(session).order_by("-ordinal" if newest else "ordinal")
    return runs.iterator(chunk_size=RUNS_AT_ONCE)


def _of_run(session: ChatSession, run: Run) -> tuple[list[Row], Row]:
    if run.status in LIVE:
        narrative = settled(queries.events_after(run.pk, 0))
        rows, last = transcript(narrative), narrative.last_seq
    else:
        rows, last = _stored(run), run.last_seq
    shown = [_row(session, run, row) for row in rows]
    error = None
    if run.status in FAILED:
        code = run.code or run.status
        error = {"code": code, "type": "run_error", "message": code.replace("_", " ")}
    entry = {
        "run_id": run.public_id,
        "status": run.status,
        "last_event_id": str(last),
        "started_at": run.created_at.timestamp(),
        "ended_at": run.ended_at.timestamp() if run.ended_at else None,
        "error": error,
    }
    return shown, entry


def settled(events: list[Event]) -> Narrative:
    """
    The events of a live run up to the last number at which no tool was open, and its message had an id.

    The rest comes by resume: so nothing is doubled, tool starts meet their ends, and rows keep their ids.
    """
    narrative = _narrative(events)
    if _is_settled(narrative):
        return narrative
    probe, last = Narrative(), 0
    for event in events:
        probe.add(event)
        if _is_settled(probe):
            last = event["seq"]
    return _narrative([event for event in events if event["seq"] <= last])


def _is_settled(narrative: Narrative) -> bool:
    return not narrative.tools and (narrative.message_id is not None or not narrative.segments)


def _narrative(events: list[Event]) -> Narrative:
    narrative = Narrative()
    for event in events:
        narrative.add(event)
    return narrative


def _stored(run: Run) -> list[Row]:
    rows: list[Row] = json.loads(run.transcript) if run.transcript else []
    return rows


def _row(session: ChatSession, run: Run, row: Row) -> Row:
    """One row with every key that rows have."""
    return {
        "id": row["id"],
        "session_id": session.public_id,
        "role": row["role"],
        "content": row["content"],
        "run_id": run.public_id,
        "timestamp": run.created_at.timestamp(),
        "tool_calls": row.get("tool_calls"),
        "tool_call_id": row.get("tool_call_id"),
        "tool_name": row.get("tool_name"),
        "finish_reason": row.get("finish_reason"),
        "reasoning": row.get("reasoning"),
    }


def _next_run(rows: list[Row], start: int, end: int) -> int:
    """The first place at or after `start` where a run begins; `start` itself if there is none before `end`."""
    place = start
    while 0 < place < end and rows[place]["run_id"] == rows[place - 1]["run_id"]:
        place += 1
    return place if place < end else start


def _run_before(rows: list[Row], start: int, end: int) -> int:
    """The last place at or before `end` where a run ends, so that the next page begins with one."""
    place = end
    while start < place < len(rows) and rows[place]["run_id"] == rows[place - 1]["run_id"]:
        place -= 1
    return place if place > start else end
