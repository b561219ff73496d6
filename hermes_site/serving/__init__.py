"""Daphne as we run it: uvloop, WebSocket frames by `websockets`, bounded bodies, back-pressure, drain, processes."""
