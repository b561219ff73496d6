"""The doors of media: upload by form, download by id."""

import asyncio
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.utils.cache import get_conditional_response
from django.utils.http import http_date
from django.views.decorators.http import require_safe
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import principal_of
from hermes_site import errors
from media import services, storage
from media.forms import FormParser, declare_length, the_file
from media.models import Media
from media.names import disposition
from media.ranges import RangeNotSatisfiable, Span, span

INLINE_TYPES = frozenset(
    {
        "image/png",
        "image/jpeg",
        "image/gif",
        "image/webp",
        "audio/aac",
        "audio/flac",
        "audio/mp4",
        "audio/mpeg",
        "audio/ogg",
        "audio/wav",
        "audio/webm",
        "video/mp4",
        "video/quicktime",
        "video/webm",
    }
)
"""What a browser may show in place: decoded, never run. All else is saved."""

# Should a browser ever take a file for a page: it has no origin, runs nothing and loads nothing but itself.
POLICY = "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'; sandbox"


class UploadView(APIView):
    """`POST /api/media/upload`: keep the file of a form."""

    parser_classes = [FormParser]

    def post(self, request: Request) -> Response:
        """Answer 201 with what the file is, or 200 if the user has it already under that name."""
        services.require_media(request.principal)
        declare_length(request)
        _refuse_early(request)
        file = the_file(request)
        media, new = services.store(
            file,
            name=file.name,
            owner_id=request.principal.user_id,
            agent=services.uploader(request.principal),
        )
        url = f"/media/{media.public_id}"
        return Response(answer(media, url), status=201 if new else 200, headers={"Location": url})

    def handle_exception(self, exc: Exception) -> Response:
        """While the database is away no file can be stored."""
        if isinstance(exc, InterfaceError | OperationalError):
            exc = errors.UploadFailed("nothing was stored: the database does not answer", retry_after=1)
        return super().handle_exception(exc)


def _refuse_early(request: Request) -> None:
    """Refuse by the headers what needs no look at the body."""
    if request.content_type.partition(";")[0].strip().lower() != FormParser.media_type:
        raise errors.Unsupported("send the file as multipart/form-data, in a part named `file`")
    limit_bytes = settings.HERMES_UPLOAD_BODY_BYTES
    if int(request.META.get("CONTENT_LENGTH") or 0) > limit_bytes:
        raise errors.TooLarge(f"a body of at most {limit_bytes} bytes is taken")


def answer(media: Media, url: str) -> dict[str, Any]:
    """What an upload is told of its file; a measure that does not apply or is not known is null."""
    return {
        "media_id": media.public_id,
        "name": media.name,
        "type": media.type,
        "size": media.size,
        "kind": media.kind,
        "width": media.width,
        "height": media.height,
        "duration": None if media.duration is None else services.whole_seconds(media.duration),
        "sha256": media.sha256,
        "url": url,
        "thumbnail_url": None,
    }


@require_safe
async def download(request: HttpRequest, media_id: str) -> HttpResponseBase:
    """`GET|HEAD /media/{id}`: the bytes, whole or a range, for those who may have them."""
    principal = await principal_of(request)
    services.require_media(principal)
    media = await services.find(principal, media_id)
    headers = _validators(media)
    unchanged = get_conditional_response(
        request, etag=headers["ETag"], last_modified=int(media.created_at.timestamp())
    )
    if unchanged is not None:
        for name, value in headers.items():
            unchanged[name] = value
        return unchanged
    try:
        part = span(_wanted_range(request, headers), media.size)
    except RangeNotSatisfiable as error:
        return JsonResponse(
            errors.body(error),
            status=error.status,
            headers={"Content-Range": f"bytes */{media.size}", "Cache-Control": "no-store"},
        )
    return await _bytes(request, media, part, headers | _content_headers(media))


def attachment(media: Media) -> HttpResponseBase:
    """
    The whole of a file, to be saved whatever it is.

    Raises:
        Gone: If its bytes were lost.
    """
    reader = storage.Reader(media.storage_name, 0, media.size)
    headers = _validators(media) | _content_headers(media, inline=False) | {"Content-Length": str(media.size)}
    return StreamingHttpResponse(reader, headers=headers)


async def _bytes(
    request: HttpRequest, media: Media, part: Span | None, headers: dict[str, str]
) -> HttpResponseBase:
    start, stop = (part.start, part.stop) if part else (0, media.size)
    reader = await asyncio.to_thread(storage.Reader, media.storage_name, start, stop)
    headers = headers | {"Content-Length": str(stop - start)}
    if request.method == "HEAD":
        reader.close()
        return HttpResponse(headers=headers)
    if part is None:
        return StreamingHttpResponse(reader, headers=headers)
    return StreamingHttpResponse(
        reader, status=206, headers=headers | {"Content-Range": part.content_range(media.size)}
    )


def _validators(media: Media) -> dict[str, str]:
    """The headers that every answer about a file carries; a cache of one person may keep it, but must ask."""
    return {
        "ETag": f'"{media.sha256}"',
        "Last-Modified": http_date(media.created_at.timestamp()),
        "Cache-Control": "private, no-cache",
        "Vary": "Authorization, Cookie",
    }


def _content_headers(media: Media, inline: bool = True) -> dict[str, str]:
    inline = inline and media.type in INLINE_TYPES
    return {
        "Content-Type": media.type if inline else "application/octet-stream",
        "Content-Disposition": disposition(media.name, inline),
        "Accept-Ranges": "bytes",
        "Content-Security-Policy": POLICY,
        "Cross-Origin-Resource-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }


def _wanted_range(request: HttpRequest, headers: dict[str, str]) -> str | None:
    """The Range header, where it counts: with GET, and only if what the client has parts of is what is here."""
    if request.method != "GET":
        return None
    known = request.headers.get("If-Range")
    if known is None or known == headers["ETag"] or known == headers["Last-Modified"]:
        return request.headers.get("Range")
    return None
