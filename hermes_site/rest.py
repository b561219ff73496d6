"""How REST framework speaks here: JSON whatever was asked for, errors with our one kind of body."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.response import Response

from hermes_site import errors
from hermes_site.middleware import BY_STATUS, TEXTS, as_outage, error_headers, is_api


class JsonAlways(BaseContentNegotiation):
    """There is one form of answer, so `Accept` is never a reason to refuse."""

    def select_parser(self, request: Any, parsers: list[Any]) -> Any:
        """The parser for the body's type; None is answered with 415."""
        content_type = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == content_type), None)

    def select_renderer(self, request: Any, renderers: list[Any], format_suffix: str | None = None) -> Any:
        """The first renderer of the view."""
        return renderers[0], renderers[0].media_type


def drf_errors(problem: Exception, context: dict[str, Any]) -> Response | None:
    """The answer for an exception in a view of REST framework; None lets it go on as a fault of ours."""
    headers = {}
    if not isinstance(problem, errors.GatewayError):
        if isinstance(problem, exceptions.MethodNotAllowed) and context.get("view") is not None:
            headers["Allow"] = ", ".join(context["view"].allowed_methods)
        translated = _translate(problem) or as_outage(context["request"], problem)
        if translated is None:
            return None
        problem = translated
    api = is_api(context["request"])
    headers |= error_headers(problem)
    return Response(errors.body(problem, api), status=problem.status, headers=headers)


def _translate(problem: Exception) -> errors.GatewayError | None:
    match problem:
        case Http404():
            return errors.NotFound(TEXTS[404])
        case PermissionDenied():
            return errors.Forbidden(TEXTS[403])
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return errors.Unauthorized(TEXTS[401])
        case exceptions.ParseError():
            return errors.InvalidRequest("the body cannot be read", api_code="invalid_json")
        case exceptions.UnsupportedMediaType():
            return errors.Unsupported("this type of body is not taken here")
        case exceptions.ValidationError():
            field = next(iter(problem.detail), None) if isinstance(problem.detail, dict) else None
            return errors.InvalidRequest(_first_text(problem.detail), field=field)
        case exceptions.Throttled():
            return errors.RateLimited("too many requests", retry_after=problem.wait or 1)
        case exceptions.APIException():
            kind = BY_STATUS.get(problem.status_code, errors.InvalidRequest)
            return kind(TEXTS.get(problem.status_code, kind.__name__))
    return None


def _first_text(detail: Any) -> str:
    while isinstance(detail, dict | list) and detail:
        detail = next(iter(detail.values())) if isinstance(detail, dict) else detail[0]
    return str(detail or TEXTS[400])
