"""
A gateway that can be asked for its tasks: `python -m tests.rig.counted serve …`; see `tests.rig.census`.

It is `manage.py`; on SIGUSR1 it writes the tasks of its event loop, counted by what they do, into a file that is called
after its process, in the folder named by COUNTED.
"""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any


def write(*_: Any) -> None:
    """Write down the tasks. Signals arrive in the thread of the loop, while it runs."""
    tasks = asyncio.all_tasks(asyncio.get_running_loop())
    found = Counter(task.get_coro().__qualname__ for task in tasks)
    file = Path(os.environ["COUNTED"]) / str(os.getpid())
    unfinished = file.with_suffix(".new")
    unfinished.write_text(json.dumps(found))
    unfinished.rename(file)


def main() -> None:
    """Run a management command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hermes_site.settings")
    from hermes_site import sqlite
    from hermes_site.serving import loop

    sqlite.install()
    loop.use_uvloop()
    from django.core.management import execute_from_command_line

    signal.signal(signal.SIGUSR1, write)
    execute_from_command_line(["manage.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()
