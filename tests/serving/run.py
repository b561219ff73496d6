"""
Starts the server with the application under test: `python -m tests.serving.run '{"processes": 2, …}'`.

The keys besides `processes`, `port`, `plain_loop` and `lifeline` are those of `Options`.
"""

import asyncio
import json
import logging
import sys
from typing import Any

from hermes_site.serving import listening, loop

MODULE = "tests.serving.run"


def main(asked: dict[str, Any]) -> int:
    """Serve; the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    given = dict(asked)
    processes, port, lifeline = (given.pop(name, None) for name in ("processes", "port", "lifeline"))
    if not given.pop("plain_loop", False):
        loop.use_uvloop()
    if processes:
        return together(processes, given)
    from hermes_site.serving.lifeline import Lifeline
    from hermes_site.serving.options import Options
    from hermes_site.serving.server import Hooks, Server
    from tests.serving.application import application, drain, startup

    sock = listening.bind("127.0.0.1", port or 0, shared=lifeline is not None)
    line = Lifeline(lifeline) if lifeline is not None else None
    server = Server(
        application,
        [sock],
        options=Options(**given),
        hooks=Hooks(startup=startup, drain=drain),
        listening=line.ready if line else say(sock.getsockname()[1]),
        lifeline=line,
    )
    server.run()
    return 1 if server.failed else 0


def together(processes: int, given: dict[str, Any]) -> int:
    """Be the parent of several."""
    from hermes_site.serving.processes import Parent

    reserved = listening.reserve("127.0.0.1", 0)
    port = reserved.getsockname()[1]

    def command(lifeline: int) -> list[str]:
        child = {**given, "port": port, "lifeline": lifeline}
        return [sys.executable, "-m", MODULE, json.dumps(child)]

    parent = Parent(processes, command, exit_seconds=given.get("exit_seconds", 14), ready=say(port))
    with reserved:
        return asyncio.run(parent.run())


def say(port: int) -> Any:
    """Tells the test where to connect."""
    return lambda: print(f"port {port}", flush=True)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
