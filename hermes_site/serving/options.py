"""Every limit and time of the server as one value, so that it can be run without Django."""

from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Options:
    """Sizes are bytes, times seconds; what each means to an operator is in docs/settings.md."""

    max_frame_bytes: int = MIB  # one WebSocket message; above it close 1009
    unread_frames: int = 256  # messages waiting for the application before we stop reading its peer
    unread_bytes: int = MIB  # the same in bytes
    send_buffer_bytes: int = 64 * KIB  # unsent bytes of a peer above which its writer is paused
    body_window_bytes: int = 256 * KIB  # of a request body, waiting for the application
    accept_seconds: float = 20.0  # for the application to take or refuse a WebSocket
    ping_seconds: float = 20.0  # silence of a peer before it is pinged; 0: never
    close_seconds: float = 5.0  # for a peer to end a connection that we have ended
    idle_seconds: float = 60.0  # for a whole request head; between pieces of a body
    exit_seconds: float = 14.0  # from the signal to the end, whatever happens
