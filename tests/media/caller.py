"""One caller of the media routes, with a credential or without."""

from dataclasses import dataclass
from typing import Any

from asgiref.sync import async_to_sync
from django.test import Client

from accounts.models import User

BOUNDARY = "a-boundary-of-the-tests"


@dataclass(frozen=True)
class Caller:
    """Uploads and downloads; the bytes of a form are made here, so that no client library tidies the names."""

    credential: str | None
    user: User | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What says who is calling."""
        return {"Authorization": f"Bearer {self.credential}"} if self.credential else {}

    def upload(self, data: bytes, name: str = "x.bin") -> Any:
        """Upload one file."""
        return self.post(form(data, f'filename="{escaped(name)}"'))

    def post(self, body: bytes, content_type: str = f"multipart/form-data; boundary={BOUNDARY}") -> Any:
        """Send any body to the upload route."""
        return Client().post("/api/media/upload", body, content_type=content_type, headers=self.headers)

    def get(self, media_id: str, method: str = "GET", **headers: str) -> Any:
        """Ask for a file; the answer's `body` holds all its bytes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        path = f"/media/{media_id}"
        answer = Client().generic(method, path, headers=self.headers | named)
        answer.body = async_to_sync(_collected)(answer) if answer.streaming else answer.content
        answer.close()
        return answer


def form(data: bytes, parameters: str, field: str = "file") -> bytes:
    """A form of one part."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; {parameters}\r\n'
    return head.encode(errors="surrogatepass") + b"\r\n" + data + f"\r\n--{BOUNDARY}--\r\n".encode()


def escaped(name: str) -> str:
    """A file name as browsers put it into a form."""
    return name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")


async def _collected(answer: Any) -> bytes:
    return b"".join([piece async for piece in answer.streaming_content])
