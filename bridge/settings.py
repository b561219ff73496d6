"""The bridge's few settings: each a flag and an environment variable, declared once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

CAPABILITIES = ("sync", "events", "control")


@dataclass(frozen=True, slots=True)
class Settings:
    """How one bridge runs; times are seconds. The keys are never part of its printed form."""

    gateway: str
    key: str = field(repr=False)
    hermes: str
    hermes_key: str = field(repr=False)
    caps: frozenset[str]
    data_dir: Path
    state: str
    demo: bool
    demo_delay_seconds: float
    turns: int
    turn_seconds: float
    hermes_wait_seconds: float
    debug: bool


# flag, environment variable, default, what it is
OPTIONS: tuple[tuple[str, str, str, str], ...] = (
    ("--gateway", "HERMES_CHAT_GATEWAY", "ws://127.0.0.1:8000/ws/agent", "the gateway's agent socket"),
    ("--key", "HERMES_CHAT_KEY", "", "the API key of this agent (hk_…); better by environment"),
    ("--hermes", "HERMES_API_URL", "http://127.0.0.1:8642", "the Hermes API server"),
    ("--hermes-key", "HERMES_API_KEY", "", "its API_SERVER_KEY; better by environment"),
    ("--caps", "HERMES_CHAT_CAPS", "sync,events,control", "capabilities to ask for; none: plain v3"),
    ("--data-dir", "HERMES_DATA_DIR", "var", "folder of the state file"),
    ("--state", "HERMES_CHAT_STATE", "bridge", "name of the state file: one for each bridge of a folder"),
    ("--turns", "HERMES_CHAT_TURNS", "4", "turns running at once; keep it below the Hermes host's cores + 4"),
    ("--turn-seconds", "HERMES_CHAT_TURN_SECONDS", "1800", "longest turn; then it is stopped and failed"),
    (
        "--hermes-wait-seconds",
        "HERMES_CHAT_WAIT_SECONDS",
        "10",
        "how long a Hermes that is away is waited for before a turn fails",
    ),
    ("--demo-delay", "HERMES_CHAT_DEMO_DELAY", "0.03", "seconds between two words of the demo agent"),
)


def read(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """
    The settings from flags, then environment, then defaults.

    Raises:
        SystemExit: With code 2 and a text on standard error, if one of them cannot be used.
    """
    parser = argparse.ArgumentParser(
        prog="python -m bridge", description="Connects a Hermes agent to a Hermes Chat gateway."
    )
    for flag, variable, default, text in OPTIONS:
        shown = f"{text} [{variable}; default {default or 'none'}]"
        parser.add_argument(flag, default=environ.get(variable) or default, metavar="…", help=shown)
    parser.add_argument("--demo", action="store_true", help="an agent without Hermes, which echoes")
    parser.add_argument("--debug", action="store_true", help="tell more in the log (never keys or texts)")
    given = parser.parse_args(arguments)

    if not given.key:
        parser.error("no API key: give HERMES_CHAT_KEY (made by `python manage.py create_key USER`)")
    if urlsplit(given.gateway).scheme not in ("ws", "wss") or not urlsplit(given.gateway).hostname:
        parser.error("--gateway must be a ws:// or wss:// address")
    if not given.demo:
        if urlsplit(given.hermes).scheme not in ("http", "https") or not urlsplit(given.hermes).hostname:
            parser.error("--hermes must be an http:// or https:// address")
        if not given.hermes_key:
            parser.error("no Hermes key: give HERMES_API_KEY (the API_SERVER_KEY of the Hermes gateway)")
    caps = frozenset(word.strip() for word in given.caps.split(",") if word.strip()) - {"none"}
    if unknown := caps - set(CAPABILITIES):
        parser.error(f"--caps knows {', '.join(CAPABILITIES)}; not {', '.join(sorted(unknown))}")
    if not given.state.replace("-", "").replace("_", "").isalnum():
        parser.error("--state takes letters, digits, - and _")
    try:
        turns = int(given.turns)
        turn_seconds, wait, delay = (
            float(value) for value in (given.turn_seconds, given.hermes_wait_seconds, given.demo_delay)
        )
    except ValueError:
        parser.error("--turns, --turn-seconds, --hermes-wait-seconds and --demo-delay take numbers")
    if turns < 1 or turn_seconds <= 0 or wait < 0 or delay < 0:
        parser.error("--turns and --turn-seconds must be above zero, the other times not below it")
    return Settings(
        gateway=given.gateway,
        key=given.key,
        hermes=given.hermes.rstrip("/"),
        hermes_key=given.hermes_key,
        caps=caps,
        data_dir=Path(given.data_dir),
        state=given.state,
        demo=given.demo,
        demo_delay_seconds=delay,
        turns=turns,
        turn_seconds=turn_seconds,
        hermes_wait_seconds=wait,
        debug=given.debug,
    )
