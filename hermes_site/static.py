"""Static files by whitenoise, without holding up the asynchronous chain."""

import asyncio
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFiles(WhiteNoiseMiddleware):
    """
    Whitenoise for both kinds of chain.

    Whitenoise itself is synchronous: as it is, it would send every request through a thread and answer with a file
    iterator, which Django warns of under ASGI. Our files are small, so each is read whole, in a thread.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        """Look at what the chain is made of."""
        super().__init__(get_response)
        self._async = iscoroutinefunction(get_response)
        if self._async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Answer for a static file, else hand on."""
        if self._async:
            return self._answer(request)
        found = self._find(request)
        return self.serve(found, request) if found is not None else self.get_response(request)

    async def _answer(self, request: HttpRequest) -> Any:
        if not request.path_info.startswith(self.static_prefix):
            return await self.get_response(request)
        found = await asyncio.to_thread(self._find, request)
        if found is None:
            return await self.get_response(request)
        return await asyncio.to_thread(self.serve, found, request)

    def _find(self, request: HttpRequest) -> Any:
        return self.find_file(request.path_info) if self.autorefresh else self.files.get(request.path_info)

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        """The whole file as one answer, with whitenoise's headers and no others."""
        found = static_file.get_response(request.method, request.META)
        content = b""
        if found.file is not None:
            with found.file:
                content = found.file.read()
        response = HttpResponse(content, status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        return response
