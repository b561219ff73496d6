"""Which event loop the server runs on; must be chosen before daphne is imported, for daphne makes the loop then."""

import asyncio
import logging
import sys

logger = logging.getLogger(__name__)


def use_uvloop() -> None:
    """Make uvloop the kind of loop this process creates; without uvloop asyncio's own stays, and the log says so."""
    if "daphne.server" in sys.modules:
        raise RuntimeError("daphne has already made its event loop")
    try:
        import uvloop
    except ImportError:
        logger.warning("uvloop is not installed: serving on asyncio's own loop, 10 to 30 % slower")
        return
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
