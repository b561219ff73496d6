"""Log lines and error pages hold no credential, whoever wrote them."""

import logging
import sys

import pytest
import redis
from django.core.exceptions import PermissionDenied
from django.test import RequestFactory

from accounts import keys, tokens
from accounts.models import User
from hermes_site.logs import Line, Report, redact

KEY = keys.compose("0123456789", "Aa-_" * 10 + "Zz9").text
TOKEN = tokens.access(User(pk=1, username="alice", epoch="0" * 16))
SECRETS = [KEY.split("_", 2)[2], TOKEN.split(".")[1], TOKEN.split(".")[2]]


@pytest.mark.parametrize(
    "text",
    [
        f"GET /ws/app?token={TOKEN}&caps=sync",
        f"GET /ws/agent?api_key={KEY}",
        f"GET /ws/agent?api_key={KEY.replace('_', '%5F')}",
        f"token%3D{TOKEN}",
        f"Authorization: Bearer {KEY}",
        f"{{'authorization': 'bearer {TOKEN}'}}",
        f"no such key: {KEY!r}",
        f"[(b'query_string', b'token={TOKEN}')]",
        f"password={KEY}",
    ],
    ids=range(9),
)
def test_c15_credentials_are_cut(text: str) -> None:
    """C15: in every spelling they come in."""
    for secret in SECRETS:
        assert secret not in redact(text)


def test_ordinary_text_is_left_alone() -> None:
    """Words that only look related."""
    for text in ("token expired for alice", "the bearer", "hk_1dd5047e0d_…", "access granted"):
        assert redact(text) == text


def record(message: str, *args: object, error: bool = False) -> str:
    """A line as it is written."""
    info = None
    if error:
        try:
            raise ValueError(f"could not read token={TOKEN}")
        except ValueError:
            info = sys.exc_info()
    return Line().format(logging.LogRecord("chat.test", logging.INFO, "", 1, message, args, info))


def test_c15_lines_and_tracebacks_are_cut() -> None:
    """C15: whatever a library puts into its message or its exception."""
    line = record("connect %s", f"/ws/agent?api_key={KEY}", error=True)
    assert "INFO chat.test connect /ws/agent" in line
    assert "ValueError" in line
    for secret in SECRETS:
        assert secret not in line


def test_a_refused_request_is_one_line() -> None:
    """A 403 that Django logs with its exception is no traceback in the log."""
    try:
        raise PermissionDenied("not yours")
    except PermissionDenied:
        info = sys.exc_info()
    refused = logging.LogRecord("django.request", logging.WARNING, "", 1, "Forbidden: %s", ("/admin/",), info)
    assert Line().format(refused).endswith("WARNING django.request Forbidden: /admin/")


def test_redis_away_is_two_lines() -> None:
    """What happened and why, not where: the library logs it for each connection."""
    try:
        raise redis.exceptions.ConnectionError("Error 111 connecting.\nConnection refused")
    except redis.exceptions.ConnectionError:
        info = sys.exc_info()
    line = Line().format(logging.LogRecord("channels_redis", logging.ERROR, "", 1, "unexpected", (), info))
    assert line.splitlines()[1:] == ["ConnectionError: Error 111 connecting. Connection refused"]


def test_a_message_cannot_forge_a_line() -> None:
    """Line ends and other control characters are shown."""
    line = record("hello %s", "a\n2026-01-01T00:00:00Z ERROR forged\x1b[2J\u2028")
    assert line.count("\n") == 0
    assert "\\n" in line
    assert "\x1b" not in line


def test_c15_the_debug_page_holds_no_credential() -> None:
    """C15: an exception in a view with DEBUG on, credentials in query, headers, cookie and local variables."""
    request = RequestFactory().get(
        f"/api/x?token={TOKEN}&api_key={KEY}", headers={"Authorization": f"Bearer {KEY}"}, query_params=None
    )
    request.META["QUERY_STRING"] = f"token={TOKEN}&api_key={KEY}"
    try:
        credential = KEY
        raise ValueError(credential)
    except ValueError:
        report = Report(request, *sys.exc_info())
    for page in (report.get_traceback_html(), report.get_traceback_text()):
        assert "ValueError" in page
        for secret in SECRETS:
            assert secret not in page
