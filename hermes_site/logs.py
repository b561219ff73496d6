"""Log lines: one line each, and no credential in any of them, whoever wrote it."""

import logging
import re
import time
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http.multipartparser import MultiPartParserError
from django.views.debug import ExceptionReporter, SafeExceptionReporterFilter

CREDENTIALS = (
    (re.compile(r"(hk_[0-9a-f]{10})_[A-Za-z0-9_%-]+"), r"\1_…"),
    (re.compile(r"eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?"), "eyJ…"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s'\"\])]+"), r"\1 …"),
    (re.compile(r"(?i)\b(token|api_key|password|refresh|access|secret)(=|%3D)[^&\s'\"\])]+"), r"\1\2…"),
)
# The caller's fault, not ours.
REFUSALS = (BadRequest, MultiPartParserError, PermissionDenied, SuspiciousOperation)
CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")


def redact(text: str) -> str:
    """The text with everything that looks like a credential cut to its public part."""
    for pattern, instead in CREDENTIALS:
        text = pattern.sub(instead, text)
    return text


class Line(logging.Formatter):
    """`time level logger message`, UTC; control characters of a message shown, so that none can forge a line."""

    converter = time.gmtime

    def __init__(self) -> None:
        """The form is fixed."""
        super().__init__("{asctime}Z {levelname} {name} {message}", "%Y-%m-%dT%H:%M:%S", "{")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name is logging's)
        """The first line; a traceback follows on lines of its own."""
        return CONTROL.sub(lambda found: repr(found.group())[1:-1], super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  (the name is logging's)
        """The traceback; none where a request was refused, which its line says already, and a line where Redis is away."""
        if isinstance(ei[1], REFUSALS):
            return ""
        if (
            type(ei[1]).__module__ == "redis.exceptions"
        ):  # the library logs each lost connection with its traceback
            return CONTROL.sub(" ", f"{type(ei[1]).__name__}: {ei[1]}")
        return super().formatException(ei)

    def format(self, record: logging.LogRecord) -> str:
        """The whole record without credentials."""
        return redact(super().format(record))


class ReportFilter(SafeExceptionReporterFilter):
    """Error pages and mails: no credential of a request."""

    def get_safe_request_meta(self, request: Any) -> dict[str, Any]:
        """The request's headers and variables."""
        meta = super().get_safe_request_meta(request)
        return {name: redact(value) if isinstance(value, str) else value for name, value in meta.items()}


class Report(ExceptionReporter):
    """The page that DEBUG shows: queries and local variables without credentials."""

    def get_traceback_data(self) -> dict[str, Any]:
        """What the page's template is given."""
        data: dict[str, Any] = super().get_traceback_data()
        if "request_insecure_uri" in data:
            data["request_insecure_uri"] = redact(str(data["request_insecure_uri"]))
        if "request_GET_items" in data:
            data["request_GET_items"] = [
                (name, redact(f"{name}={value}").partition("=")[2])
                for name, value in data["request_GET_items"]
            ]
        return data

    def get_traceback_html(self) -> str:
        """The page."""
        return redact(super().get_traceback_html())

    def get_traceback_text(self) -> str:
        """The same as text."""
        return redact(super().get_traceback_text())
