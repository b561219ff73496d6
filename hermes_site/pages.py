"""The pages that belong to no app: the chat page, and what people see when something is wrong."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from hermes_site.middleware import TEXTS


@require_safe
async def chat(request: HttpRequest) -> HttpResponse:
    """The chat page; everything in it is fetched by its script."""
    return render(request, "chat/page.html")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400 as a page."""
    return _page(request, 400)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403 as a page."""
    return _page(request, 403)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404 as a page."""
    return _page(request, 404)


def server_error(request: HttpRequest) -> HttpResponse:
    """500 as a page."""
    return _page(request, 500)


def _page(request: HttpRequest, status: int) -> HttpResponse:
    return render(request, "error.html", {"text": TEXTS[status], "status": status}, status=status)
