"""Traffic as operators are shown it: bounded, and plain text whatever a peer has sent. Reads only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chat import events as run_events
from chat.models import JournalRow

ID_CHARACTERS = 15  # of a client's id in a list
LINE_CHARACTERS = 100  # of a text in a list
START_CHARACTERS = 600  # of stored JSON that are read to find such a line
PAGE_CHARACTERS = 20_000  # of a text on its own page
EVENT_CHARACTERS = 2_000  # of one payload among others
EVENTS = 100  # on one page

_TEXT_FIRST = re.compile(r'\{\s*"text"\s*:\s*"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)')


def moment(seconds: float | None) -> str:
    """Unix seconds as a date in the admin's zone; the bare number where no calendar reaches."""
    if seconds is None:
        return "-"
    try:
        local = datetime.fromtimestamp(seconds, timezone.get_current_timezone())
    except (OverflowError, ValueError, OSError):
        return f"{seconds} (no date)"
    return local.isoformat(sep=" ", timespec="milliseconds" if isinstance(seconds, float) else "seconds")


def printable(text: str) -> str:
    """The text without what cannot be written as UTF-8."""
    return text.encode("utf-8", "replace").decode()


def one_line(text: str, characters: int = LINE_CHARACTERS) -> str:
    """The start of a text, in one line."""
    line = " ".join(printable(text[: characters * 4]).split())
    return line if len(line) <= characters and len(text) <= characters * 4 else f"{line[:characters]}…"


def bounded(text: str, characters: int = PAGE_CHARACTERS) -> str:
    """A text up to a bound, and how much more there is."""
    shown = printable(text[:characters])
    return shown if len(text) <= characters else f"{shown}\n… {len(text) - characters} more characters"


def pretty(stored: str) -> str:
    """Stored JSON, indented; what is not JSON as it is."""
    try:
        return written(json.loads(stored))
    except (ValueError, RecursionError):
        return stored


def written(value: Any) -> str:
    """A value as JSON: in one line if it fits, else indented."""
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= LINE_CHARACTERS else json.dumps(value, ensure_ascii=False, indent=2)


def split_text(stored: str) -> tuple[str, str]:
    """The `text` of stored `data`, and the rest of it as indented JSON; "" for what is not there."""
    try:
        data = json.loads(stored)
    except (ValueError, RecursionError):
        return "", stored
    if not isinstance(data, dict) or not isinstance(data.get("text"), str):
        return "", written(data)
    text = data.pop("text")
    return text, written(data) if data else ""


def text_at_start(start: str) -> str:
    """What the first characters of stored `data` say: its text where that comes first, else its JSON."""
    found = _TEXT_FIRST.match(start)
    if found is None:
        return start
    return str(json.loads(f'"{found[1]}"', strict=False))


def block(text: str) -> SafeString:
    """A text in its own lines, escaped."""
    return format_html('<pre class="traffic">{}</pre>', text)


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event of a run as a line of a table."""

    number: int
    name: str
    time: str
    size: int  # bytes of the payload
    payload: str


def events_after(run_key: int, after: int, count: int = EVENTS) -> list[EventLine]:
    """
    The next events of a run, at most `count`, in order.

    One alone is shown up to the bound of a page. Numbers may be missing where the journal was purged.
    """
    characters = PAGE_CHARACTERS if count == 1 else EVENT_CHARACTERS
    return [_line(event, characters) for event in islice(_read(run_key, after, count), count)]


def _read(run_key: int, after: int, count: int) -> Iterator[run_events.Event]:
    rows = JournalRow.objects.filter(run_id=run_key, last_seq__gt=after).order_by("first_seq")
    for text in rows.values_list("events", flat=True)[:count]:
        yield from (event for event in run_events.load(text) if event["seq"] > after)


def _line(event: run_events.Event, characters: int) -> EventLine:
    fields = {
        key: value for key, value in run_events.public(event).items() if key not in ("event", "seq", "ts")
    }
    size = len(run_events.dump_object(fields).encode()) if fields else 0
    payload = bounded(written(fields), characters) if fields else ""
    return EventLine(event["seq"], event["event"], moment(event.get("ts")), size, payload)
