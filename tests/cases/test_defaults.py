"""The times that the cases shorten are, by default, those of the protocol."""

import ast

import pytest

from tests.rig.backends import Templates, manage

DEFAULTS = {
    "HERMES_HEARTBEAT_SECONDS": 90,
    "HERMES_STREAM_GRACE_SECONDS": 30,
    "HERMES_ANSWER_SECONDS": 600,
    "HERMES_TURN_END_SECONDS": 1,
    "HERMES_REPLAY_LIMIT": 1000,
    "HERMES_MAX_FRAME_BYTES": 1024 * 1024,
    "HERMES_DATA_BYTES": 64 * 1024,
    "HERMES_ACCESS_SECONDS": 3600,
    "HERMES_REFRESH_SECONDS": 30 * 86400,
    "HERMES_TAKEOVER_SECONDS": 60,
    "HERMES_TAKEOVER_LIMIT": 3,
    "HERMES_BAD_FRAMES": 20,
    "HERMES_RATE_LIMIT": True,
}


@pytest.fixture(scope="module")
def values(templates: Templates) -> dict[str, str]:
    """Every setting of a production start that shortens nothing, as text."""
    backend = templates.embedded()
    printed = manage("diffsettings", "--all", environment=backend.environment)
    backend.close()
    pairs = (line.lstrip("# ").split(" = ", 1) for line in printed.splitlines() if " = " in line)
    return {pair[0]: pair[1].removesuffix("  ###").strip() for pair in pairs}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_is_the_protocol_s(values: dict[str, str], name: str) -> None:
    """As docs/protocol.md and docs/settings.md say."""
    assert float(ast.literal_eval(values[name])) == float(DEFAULTS[name])
