"""The sockets that connections come in on: bound first, so that a taken port is known at once; listening when ready."""

import socket

BACKLOG = 1024  # connections the kernel holds while the process is busy


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """
    A bound TCP socket that does not listen yet.

    Args:
        host: A name or an address; with a colon in it, IPv6.
        port: 0 for any free one.
        shared: Other sockets of this user may be bound to the same port; the kernel spreads connections over those
            that listen.

    Raises:
        OSError: If the address cannot be had.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def reserve(host: str, port: int) -> socket.socket:
    """
    A bound socket that will never listen: it keeps the port for the processes that share it.

    Raises:
        OSError: If anybody else has the port, one that would share it included.
    """
    bind(host, port).close()
    return bind(host, port, shared=True)


def address(host: str, port: int) -> str:
    """How the place is called in a browser."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
