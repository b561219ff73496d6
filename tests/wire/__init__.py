"""The examples of protocol v3 as golden frames, relayed by a real server."""
