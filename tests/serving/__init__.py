"""The server alone, as real processes, with a small ASGI application that knows nothing of chat."""
