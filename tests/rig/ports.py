"""Free ports of this machine."""

import itertools
import random
import socket

FIRST, COUNT = 12000, 20000
"""Below the ports that the system gives to outgoing connections, one of which could take a free port meanwhile."""

_numbers = itertools.count(random.SystemRandom().randrange(COUNT))


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and another one at each call."""
    while True:
        port = FIRST + next(_numbers) % COUNT
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
