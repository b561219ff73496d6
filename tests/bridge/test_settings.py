"""The flags and variables of the bridge, and that its document names them all."""

import logging
import re
from pathlib import Path

import pytest

from bridge import settings
from bridge.__main__ import Discretion

KEYS = {"HERMES_CHAT_KEY": "hk_a_secret", "HERMES_API_KEY": "hermes-secret"}
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "bridge.md"


def test_flags_win_over_the_environment():
    """A flag, else its variable, else the default."""
    chosen = settings.read(
        ["--gateway", "ws://flag/ws/agent"],
        KEYS | {"HERMES_CHAT_GATEWAY": "ws://variable/ws/agent", "HERMES_API_URL": "http://variable:1/"},
    )
    assert (chosen.gateway, chosen.hermes) == ("ws://flag/ws/agent", "http://variable:1")
    assert chosen.caps == {"sync", "events", "control"}
    assert (chosen.turns, chosen.key, chosen.hermes_key) == (4, "hk_a_secret", "hermes-secret")


def test_no_capability_is_a_choice():
    """`none` asks for plain v3."""
    assert settings.read(["--caps", "none"], KEYS).caps == frozenset()
    assert settings.read(["--caps", "control, sync"], KEYS).caps == {"control", "sync"}


def test_the_keys_are_not_in_what_is_printed():
    """Neither key shows in the settings' own printed form."""
    assert "secret" not in repr(settings.read([], KEYS))


@pytest.mark.parametrize(
    ("flags", "environ", "says"),
    [
        ([], {}, "HERMES_CHAT_KEY"),
        ([], {"HERMES_CHAT_KEY": "hk_a_b"}, "HERMES_API_KEY"),
        (["--gateway", "http://x/"], KEYS, "ws://"),
        (["--hermes", "x:1"], KEYS, "http://"),
        (["--caps", "sync,magic"], KEYS, "magic"),
        (["--turns", "many"], KEYS, "numbers"),
        (["--turns", "0"], KEYS, "above zero"),
        (["--state", "../x"], KEYS, "letters"),
    ],
)
def test_what_cannot_be_used_is_said(
    flags: list[str], environ: dict[str, str], says: str, capsys: pytest.CaptureFixture[str]
):
    """Exit code 2 and a line that says what to give; the demo needs no Hermes."""
    with pytest.raises(SystemExit) as ended:
        settings.read(flags, environ)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
    assert "secret" not in capsys.readouterr().err


def test_the_demo_needs_no_hermes():
    """Only the gateway's key is asked for."""
    assert settings.read(["--demo"], {"HERMES_CHAT_KEY": "hk_a_b"}).demo


def test_the_document_names_every_option():
    """docs/bridge.md has each flag with its variable and its default, in one row."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    for flag, variable, default, _ in settings.OPTIONS:
        row = next((row for row in rows if f"`{flag}`" in row), None)
        assert row is not None, flag
        assert f"`{variable}`" in row
        assert not default or f"`{default}`" in row, flag
    named = set(re.findall(r"`(HERMES_[A-Z_]+)`", "\n".join(rows)))
    assert named == {variable for _, variable, _, _ in settings.OPTIONS}


def test_a_key_in_a_log_line_is_taken_out():
    """Whoever logs it, in the text or in its arguments."""
    try:
        raise ValueError("refused hk_a_secret")
    except ValueError as error:
        problem = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("x", logging.INFO, "", 0, "a %s b", ("hk_a_secret",), problem)
    printed = Discretion(["hk_a_secret", ""]).format(record)
    assert "a *** b" in printed and "refused ***" in printed
    assert "secret" not in printed
