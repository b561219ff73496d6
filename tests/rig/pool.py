"""Gateways that many tests share, so that a start is paid for once."""

from tests.rig.backends import Templates
from tests.rig.gateway import Gateway


class Pool:
    """The gateways that many tests share, one for each kind of store and set of settings."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._running: dict[tuple[str, str, tuple[tuple[str, str], ...]], Gateway] = {}

    def get(self, backend: str, settings: dict[str, str], server: str = "serve") -> Gateway:
        """The gateway of this kind, started on first use."""
        kind = (backend, server, tuple(sorted(settings.items())))
        if kind not in self._running:
            gateway = Gateway(self._templates.make(backend), dict(settings), server)
            try:
                gateway.start()
            except BaseException:
                gateway.stop()
                raise
            self._running[kind] = gateway
        return self._running[kind]

    def stop(self) -> None:
        """Stop all, and only then complain."""
        failures = []
        for gateway in self._running.values():
            gateway.begin_to_stop()
        for gateway in self._running.values():
            try:
                gateway.stop()
            except AssertionError as failure:
                failures.append(failure)
        assert not failures, failures
