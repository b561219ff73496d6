"""Starts the bridge and stops it on a signal."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Iterable

from bridge import settings
from bridge.demo import Demo
from bridge.gateway import Gateway, Stopped
from bridge.hermes import Hermes
from bridge.runner import Runner
from bridge.settings import Settings
from bridge.state import State, StateInUse
from bridge.turns import Agent, Limits

log = logging.getLogger("bridge")

OK, FAILED, REFUSED = 0, 1, 3


class Discretion(logging.Formatter):
    """Takes the keys out of whatever is logged, by whomever, tracebacks among it."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._secrets = [secret for secret in secrets if secret]

    def format(self, record: logging.LogRecord) -> str:
        """The line as it is printed."""
        text = super().format(record)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def start_logging(chosen: Settings) -> None:
    """One line for each thing on standard error; libraries that print headers stay silent."""
    handler = logging.StreamHandler()
    handler.setFormatter(Discretion([chosen.key, chosen.hermes_key]))
    logging.basicConfig(level=logging.DEBUG if chosen.debug else logging.INFO, handlers=[handler], force=True)
    for library in ("bridge.websockets", "websockets", "httpx", "httpcore", "asyncio"):
        logging.getLogger(library).setLevel(logging.WARNING)


async def work(chosen: Settings) -> int:
    """Run until a signal or a refusal for good; returns the exit code."""
    agent: Agent = (
        Demo(chosen.demo_delay_seconds)
        if chosen.demo
        else Hermes(chosen.hermes, chosen.hermes_key, wait_seconds=chosen.hermes_wait_seconds)
    )
    state = State(None if chosen.demo else chosen.data_dir / f"{chosen.state}.sqlite3")
    runner = Runner(agent, state, Limits(turns=chosen.turns, turn_seconds=chosen.turn_seconds))
    running = asyncio.ensure_future(runner.run(Gateway(chosen.gateway, chosen.key, chosen.caps)))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        log.info("stopped by a signal")
    except ExceptionGroup as group:
        stopped, rest = group.split(Stopped)
        if rest is not None:
            raise
        log.error("stopping: %s", stopped.exceptions[0] if stopped else group)
        return REFUSED
    finally:
        await agent.close()
        state.close()
    return OK


def main() -> int:
    """The command line; returns the exit code: 0 by signal, 1 failed, 2 bad settings, 3 refused for good."""
    chosen = settings.read()
    start_logging(chosen)
    try:
        return asyncio.run(work(chosen))
    except StateInUse as error:
        log.error("stopping: %s", error)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
