"""What an agent is asked and what happens in its turn, as plain values named as on the HTTP door."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Order:
    """
    One turn asked of an agent.

    `history` is the conversation before it as `{"role", "content"}` rows, oldest first; `rewritten`
    says that the agent's own record of the session is another one. `key` names the intention: the
    same key is the same turn. `media` is the media object of a frame and `kind` its type, when there
    is one; `images` are addresses of pictures. `memory` keeps what the agent remembers for long apart.
    """

    key: str
    session_id: str
    text: str
    instructions: str | None = None
    history: tuple[dict[str, str], ...] = ()
    rewritten: bool = False
    images: tuple[str, ...] = ()
    kind: str = "text"
    media: dict[str, Any] | None = None
    memory: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of the answer."""

    name: ClassVar[str] = "assistant.delta"
    text: str

    def data(self) -> dict[str, Any]:
        """The event's own fields."""
        return {"delta": self.text}


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thought; never a copy of the answer."""

    name: ClassVar[str] = "tool.progress"
    text: str

    def data(self) -> dict[str, Any]:
        """The event's own fields."""
        return {"tool_name": "_thinking", "delta": self.text}


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool was called."""

    name: ClassVar[str] = "tool.started"
    tool: str
    call_id: str
    preview: str | None = None
    args: dict[str, Any] | None = None

    def data(self) -> dict[str, Any]:
        """The event's own fields."""
        return {
            "tool_name": self.tool,
            "preview": self.preview,
            "args": self.args,
            "tool_call_id": self.call_id,
        }


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool came back; `duration` in seconds when it is known."""

    tool: str
    call_id: str
    failed: bool = False
    preview: str | None = None
    duration: float | None = None

    @property
    def name(self) -> str:
        """`tool.failed` or `tool.completed`."""
        return "tool.failed" if self.failed else "tool.completed"

    def data(self) -> dict[str, Any]:
        """The event's own fields."""
        return {
            "tool_name": self.tool,
            "preview": self.preview,
            "duration": self.duration,
            "tool_call_id": self.call_id,
        }


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """The agent asks whether it may run a command, and waits."""

    name: ClassVar[str] = "approval.request"
    request_id: str
    command: str
    description: str
    choices: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """The event's own fields."""
        return {
            "request_id": self.request_id,
            "command": self.command,
            "description": self.description,
            "choices": list(self.choices),
        }


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that belongs to the answer and is at the gateway already; `media` holds its id."""

    name: ClassVar[str] = "attachment"
    kind: str
    media: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Completed:
    """
    The turn ended well; `output` is the agent's own last word on its text.

    `pending_steer`, here and in the other ends: a remark that the agent had taken and could not use any more.
    """

    name: ClassVar[str] = "run.completed"
    output: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    pending_steer: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn ended without a valid answer; `code` is one of the wire's, `reason` a bare token that says more."""

    name: ClassVar[str] = "run.failed"
    text: str
    code: str = "internal"
    reason: str = ""
    pending_steer: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The turn was stopped, and the agent says so."""

    name: ClassVar[str] = "run.cancelled"
    pending_steer: str = ""


End = Completed | Failed | Cancelled
Said = Reasoning | ToolStarted | ToolEnded | ApprovalRequest
Event = Delta | Said | Attachment | End


class Refused(Exception):
    """The agent did not take what it was asked; nothing was begun. `code` is one of the wire's."""

    def __init__(self, text: str, code: str = "internal", reason: str = "") -> None:
        super().__init__(text)
        self.text, self.code, self.reason = text, code, reason
