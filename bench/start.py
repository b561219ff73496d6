"""From the start of the server's process to the first WebSocket it accepts, over a store that is ready."""

import argparse
import statistics
import subprocess
import sys
import time

from websockets.exceptions import InvalidHandshake
from websockets.sync.client import connect

from bench import systems
from bench.cpu import LOAD_CORE, SERVER_CORE, on_core
from bench.tables import table
from tests.rig.gateway import Server
from tests.rig.paths import ROOT
from tests.rig.ports import free_port

RUNS = 7
LOOK_SECONDS = 0.005
LONGEST_SECONDS = 60.0


def first_accepted(url: str, began: float) -> float:
    """
    Seconds from ``began`` until a socket is accepted.

    Raises:
        SystemExit: If none is after a minute.
    """
    while time.monotonic() - began < LONGEST_SECONDS:
        try:
            with connect(url, compression=None, open_timeout=LONGEST_SECONDS, proxy=None):
                return time.monotonic() - began
        except (OSError, InvalidHandshake):
            time.sleep(LOOK_SECONDS)
    raise SystemExit("no socket was accepted within a minute")


def relay_start() -> float:
    """One start of the bare relay."""
    port = free_port()
    began = time.monotonic()
    with on_core(SERVER_CORE):
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.relay", str(port)], cwd=ROOT, stdout=subprocess.DEVNULL
        )
    try:
        return first_accepted(f"ws://127.0.0.1:{port}/app/0", began)
    finally:
        process.kill()
        process.wait()


def gateway_start(ours: systems.Gateways, server: str) -> float:
    """One start of the gateway, stopped again as an operator does."""
    gateway, person = ours.gateway, ours.some_people(1)[0]
    began = time.monotonic()
    with on_core(SERVER_CORE):
        running = Server(gateway.environment, gateway.folder / "start.log", server)
    try:
        taken = first_accepted(gateway.app_url(person, port=running.port), began)
        running.begin_to_stop()
        running.wait_stopped()
        return taken
    finally:
        running.kill()


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    with (
        systems.gateway(options.backend, options.server, start=False) as ours,
        on_core(LOAD_CORE),
    ):
        measured = {
            "bare relay": [relay_start() for _ in range(RUNS)],
            ours.name: [gateway_start(ours, options.server) for _ in range(RUNS)],
        }
    print(f"{RUNS} starts each, seconds.\n")
    rows = [
        [name, f"{statistics.median(times):.2f}", f"{min(times):.2f}", f"{max(times):.2f}"]
        for name, times in measured.items()
    ]
    print(table(("", "median", "fastest", "slowest"), rows))
