"""How a process keeps its memory: what the collector looks at, and what goes back to the system at once."""

import ctypes
import gc

COLLECT_AFTER = (10_000, 20, 20)
"""New objects before the collector looks at them, and so on for older ones: traffic makes many and leaves few."""

LARGE_BYTES = 256 * 1024
"""From this size on a block is given back when it is freed. glibc learns from each one and soon keeps up to 64 MiB."""

M_MMAP_THRESHOLD = -3  # of <malloc.h>


def settle() -> None:
    """Call once everything is loaded."""
    gc.freeze()  # the code that is loaded by now stays: the collector need not walk through it again
    gc.set_threshold(*COLLECT_AFTER)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's; others have none
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
