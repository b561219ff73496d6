"""What other servers than ours need: access logs without queries, and a word when frames will be slow."""

import importlib
import logging
import sys
from typing import Any

import daphne.server

logger = logging.getLogger(__name__)

NOT_SO = "ASGI callable returned without completing handshake."  # uvicorn, of an upgrade refused as ASGI says
UVICORN_LOGS = ("uvicorn.access", "uvicorn.error")


def without_query(text: Any) -> Any:
    """A path without what follows its question mark, where credentials may be; anything else as it is."""
    return text.partition("?")[0] if isinstance(text, str) and text.startswith("/") else text


def hide_queries() -> None:
    """Make the access logs of daphne and uvicorn print paths only."""
    for name in UVICORN_LOGS:
        log = logging.getLogger(name)
        if _edit not in log.filters:
            log.addFilter(_edit)
    if daphne.server.Server.log_action is not _log_action:
        daphne.server.Server.log_action = _log_action


def warn_of_slow_frames() -> None:
    """Under plain daphne Autobahn reads the frames; without its NVX it takes nearly twice the time for each."""
    if "daphne.cli" in sys.modules and not importlib.import_module("autobahn.websocket").USES_NVX:
        logger.warning(
            "Autobahn's NVX is off: frames cost nearly twice the time; `manage.py serve` needs no Autobahn"
        )


def _edit(record: logging.LogRecord) -> bool:
    """Cut the paths among a record's arguments; whether the record says something true."""
    if isinstance(record.args, tuple):
        record.args = tuple(without_query(value) for value in record.args)
    return record.msg != NOT_SO


def _log_action(self: daphne.server.Server, protocol: str, action: str, details: dict[str, Any]) -> None:
    """Daphne's own, with the query cut."""
    if self.action_logger:
        path = without_query(details["path"])
        self.action_logger(protocol, action, {**details, "path": path})
