"""
One tree of errors; every door (frame, HTTP, close) only renders them.

GatewayError
 ├─ Unsupported       a frame or file this gateway does not take
 ├─ InvalidRequest    a request that cannot be read
 ├─ Unauthorized      no credential, or a bad one
 ├─ Forbidden         a good credential that may not do this
 ├─ NotFound          unknown, or somebody else's
 ├─ MethodNotAllowed
 ├─ Conflict          true now, perhaps not later
 ├─ Gone              was here, will not come back
 ├─ TooLarge
 ├─ UploadFailed
 ├─ RateLimited
 ├─ Offline           no agent to hand it to
 ├─ Timeout           the agent showed no sign of life
 ├─ Unavailable       something that this process needs does not answer
 │   └─ Draining      this process is going away
 └─ Internal
"""

import enum
from typing import Any

WIRE_CODES = frozenset(
    {"timeout", "offline", "rate_limited", "file_too_large", "unsupported", "upload_failed", "internal"}
)


class CloseCode(enum.IntEnum):
    """Why a socket was closed; the number says whether to come back."""

    NORMAL = 1000
    GOING_AWAY = 4001
    BAD_FRAMES = 4008
    INTERNAL = 4011
    TOO_SLOW = 4013
    TOKEN_EXPIRED = 4401
    KEY_REVOKED = 4403
    SILENT = 4408
    REPLACED = 4409


class GatewayError(Exception):
    """
    The base; never raised itself.

    `code` is what clients match on outside `/api/hermes`, `api_code` under it, `status` the HTTP status,
    `type` the family named in HTTP bodies. `text` is for people and never holds a secret.
    """

    code = "internal"
    api_code = "internal"
    status = 500
    type = "server_error"

    def __init__(
        self,
        text: str = "",
        *,
        field: str | None = None,
        retry_after: float | None = None,
        api_code: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        """
        Args:
            field: The field of the frame or request that is wrong.
            retry_after: Seconds after which the same may succeed.
            api_code: A more exact code under `/api/hermes` than the class has.
            extra: Further keys of the error object in HTTP bodies (`run_id` …).
        """
        super().__init__(text or type(self).__name__)
        self.text = text or type(self).__name__
        self.field = field
        self.retry_after = retry_after
        if api_code is not None:
            self.api_code = api_code
        self.extra = extra or {}

    @property
    def wire_code(self) -> str:
        """The code in an `error` frame: one of v3's seven."""
        return self.code if self.code in WIRE_CODES else "unsupported"


class Unsupported(GatewayError):
    """A frame or a file that this gateway does not take."""

    code = "unsupported"
    api_code = "unsupported_media_type"
    status = 415
    type = "invalid_request_error"


class InvalidRequest(GatewayError):
    """A request that cannot be read, or lacks something."""

    code = "invalid_request"
    api_code = "invalid_request"
    status = 400
    type = "invalid_request_error"


class Unauthorized(GatewayError):
    """No credential, or one that is not good."""

    code = "unauthorized"
    api_code = "unauthorized"
    status = 401
    type = "authentication_error"


class Forbidden(GatewayError):
    """A good credential that may not do this."""

    code = "forbidden"
    api_code = "forbidden"
    status = 403
    type = "permission_error"


class NotFound(GatewayError):
    """Unknown, or somebody else's: the answer is the same."""

    code = "not_found"
    api_code = "not_found"
    status = 404
    type = "invalid_request_error"


class MethodNotAllowed(GatewayError):
    """This address does not take that method."""

    code = "method_not_allowed"
    api_code = "method_not_allowed"
    status = 405
    type = "invalid_request_error"

    def __init__(self, text: str = "", *, allowed: str = "") -> None:
        """`allowed`: the methods it takes, for the header `Allow`."""
        super().__init__(text)
        self.allowed = allowed


class Conflict(GatewayError):
    """What is asked for does not fit the present state."""

    code = "invalid_request"
    api_code = "conflict"
    status = 409
    type = "conflict_error"


class Gone(GatewayError):
    """It was here, and it will not come back."""

    code = "not_found"
    api_code = "gone"
    status = 410
    type = "invalid_request_error"


class TooLarge(GatewayError):
    """More bytes than the setting allows."""

    code = "file_too_large"
    api_code = "body_too_large"
    status = 413
    type = "invalid_request_error"


class UploadFailed(GatewayError):
    """A file could not be stored, or a frame names one that the sender does not have."""

    code = "upload_failed"
    api_code = "upload_failed"
    status = 503
    type = "server_error"


class RateLimited(GatewayError):
    """Too much at once; `retry_after` says when to come back."""

    code = "rate_limited"
    api_code = "rate_limit_exceeded"
    status = 429
    type = "rate_limit_error"


class Offline(GatewayError):
    """The agent is not connected."""

    code = "offline"
    api_code = "offline"
    status = 503
    type = "server_error"


class Timeout(GatewayError):
    """The agent showed no sign of life for the set time."""

    code = "timeout"
    api_code = "timeout"
    status = 504
    type = "server_error"


class Unavailable(GatewayError):
    """Something that this process needs (database, storage, layer) does not answer."""

    code = "internal"
    api_code = "internal"
    status = 503
    type = "server_error"


class Draining(Unavailable):
    """This process is going away and takes nothing new."""

    api_code = "draining"


class Internal(GatewayError):
    """Our own fault."""


def body(error: GatewayError, api: bool = False) -> dict[str, Any]:
    """The JSON body of an HTTP answer; `api` is true under `/api/hermes`."""
    inner = {"code": error.api_code if api else error.code, "type": error.type, "message": error.text}
    if error.field is not None:
        inner["param"] = error.field
    return {"error": {**inner, **error.extra}}
