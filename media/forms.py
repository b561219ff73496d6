"""How an upload's form is read: multipart, with the file's name made safe by our rule and not by Django's."""

from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.core.files.uploadedfile import UploadedFile
from django.core.handlers.asgi import ASGIRequest
from django.http import UnreadablePostError
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from rest_framework.parsers import BaseParser, DataAndFiles
from rest_framework.request import Request

from hermes_site.errors import InvalidRequest, TooLarge
from media import storage
from media.names import display_name


class _Form(MultiPartParser):
    """Django's own rule drops joiners, which emoji are made of, and parts whose name it empties."""

    def sanitize_file_name(self, file_name: str) -> str:
        # The three characters that browsers escape in a form, and no others: `%41.txt` is a name.
        for escaped, char in (("%22", '"'), ("%0D", "\r"), ("%0A", "\n")):
            file_name = file_name.replace(escaped, char)
        return display_name(file_name)


class FormParser(BaseParser):
    """Reads multipart/form-data."""

    media_type = "multipart/form-data"

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: dict[str, Any] | None = None
    ) -> DataAndFiles:
        """
        Read fields and files; large files rest in temporary files meanwhile.

        Raises:
            InvalidRequest: If it is no good form.
            TooLarge: If the fields beside the files are too long.
            UploadFailed: If there is no room for it.
        """
        try:
            return self._parse(stream, media_type, parser_context or {})
        except MultiPartParserError as error:
            raise InvalidRequest(f"this is no good form: {error}") from error
        except RequestDataTooBig as error:
            raise TooLarge("the fields of the form are too long") from error
        except SuspiciousOperation as error:
            raise InvalidRequest("the form has too many parts") from error
        except UnreadablePostError as error:
            raise InvalidRequest("the body ended before the form did") from error
        except OSError as error:
            raise storage.upload_failed(error) from error

    def _parse(self, stream: Any, media_type: str | None, context: dict[str, Any]) -> DataAndFiles:
        request = context["request"]
        handlers = request.upload_handlers
        form = _Form({**request.META, "CONTENT_TYPE": media_type}, stream, handlers, context.get("encoding"))
        try:
            return DataAndFiles(*form.parse())
        except Exception:
            for handler in handlers:  # removes a temporary file that was begun
                handler.upload_interrupted()
            raise


def declare_length(request: Request) -> None:
    """
    Say how long a body is that came without a length.

    A chunked body is whole by the time a view runs, but REST framework and Django take a missing length for an
    empty body.
    """
    plain = request._request
    if isinstance(plain, ASGIRequest) and not plain.META.get("CONTENT_LENGTH"):
        body = plain._stream
        plain.META["CONTENT_LENGTH"] = str(body.seek(0, 2))
        body.seek(0)


def the_file(request: Request) -> UploadedFile:
    """
    The one file of an upload's form.

    Raises:
        InvalidRequest: If there is none, or more than one, or it came without a file name.
    """
    files = request.FILES.getlist("file")
    if len(files) == 1:
        return files[0]
    if files:
        raise InvalidRequest("one file at a time: there are several parts named `file`", field="file")
    if "file" in request.data:
        raise InvalidRequest("the part named `file` has no file name, so it is no file", field="file")
    raise InvalidRequest("the form has no part named `file` with a file name", field="file")
