"""Every limit and time of the server as one value, so that it can be run without Django."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Sizes are bytes, times seconds; what they mean to an operator is in docs/settings.md."""

    max_frame_bytes: int = 1024 * 1024
    drain_seconds: float = 10.0
    exit_seconds: float = 15.0
