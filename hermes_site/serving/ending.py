"""The end that comes whatever happens."""

import os
import threading


def last_resort(after_seconds: float) -> None:
    """End this process so many seconds from now, even if its event loop hangs or a thread does not return."""
    timer = threading.Timer(after_seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
