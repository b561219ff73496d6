"""Runs beside a Hermes agent and connects it to the gateway; imports nothing of the server."""
