"""How two versions of Hermes word a run: what they are sent, and what their events mean."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from bridge import events
from bridge.events import Order

INTERRUPTED = events.Failed(
    "The agent was restarted in the middle of this turn; it may have done part of it.",
    "internal",
    "interrupted",
)
MADE_UP = ".request."
STATUS_OF_END = {"completed", "failed", "cancelled", "interrupted"}


class Hermes019:
    """0.19: no history of its own on `/v1/runs`, events once and to one reader, no steer."""

    version = "0.19"
    idempotent = False
    resumable = False
    steers = False

    def body(self, order: Order) -> dict[str, Any]:
        """The JSON of `POST /v1/runs`."""
        body = _body(order)
        if order.history:
            body["conversation_history"] = list(order.history)
        return body

    def headers(self, order: Order) -> dict[str, str]:
        """Further headers of that request."""
        return {"X-Hermes-Session-Key": order.memory} if order.memory is not None else {}


class Hermes022(Hermes019):
    """0.22: knows its sessions, takes a key for each intention, events can be read again, steer."""

    version = "0.22"
    idempotent = True
    resumable = True
    steers = True

    def body(self, order: Order) -> dict[str, Any]:
        """The JSON of `POST /v1/runs`; history only where Hermes' own is not the true one."""
        body = _body(order)
        if order.rewritten and order.history:
            body["conversation_history"] = list(order.history)
        return body

    def headers(self, order: Order) -> dict[str, str]:
        """The key of the intention: printable ASCII and short, whatever the message's id is made of."""
        key = sha256(f"{order.session_id} {order.key}".encode()).hexdigest()
        return super().headers(order) | {"Idempotency-Key": key}


def dialect_of(capabilities: dict[str, Any]) -> Hermes019:
    """The dialect that fits what `GET /v1/capabilities` says."""
    features = capabilities.get("features")
    if isinstance(features, dict) and features.get("runs_idempotency"):
        return Hermes022()
    return Hermes019()


def made_up(run_id: str, request_id: str) -> bool:
    """Whether a request's id is ours: 0.19 gives them none."""
    return request_id.startswith(run_id + MADE_UP)


def _body(order: Order) -> dict[str, Any]:
    body: dict[str, Any] = {"input": order.text, "session_id": order.session_id}
    if order.images:
        parts: list[dict[str, Any]] = [{"type": "text", "text": order.text}] if order.text else []
        parts += [{"type": "image_url", "image_url": {"url": url}} for url in order.images]
        body["input"] = [{"role": "user", "content": parts}]
    if order.instructions is not None:
        body["instructions"] = order.instructions
    return body


class Translator:
    """Reads the events of one run, in either dialect, as ours."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._segment = ""  # the text since the last tool
        self._any_text = False
        self._open_tools: dict[str, deque[str]] = {}
        self._tools = 0
        self._requests = 0

    def read(self, raw: dict[str, Any]) -> Iterator[events.Event]:
        """What one event of Hermes means; nothing for those that say nothing new."""
        match raw.get("event"):
            case "message.delta":
                yield from self._delta(_text(raw, "delta"))
            case "message.interim" if not raw.get("already_streamed"):
                yield from self._delta(_text(raw, "text"))
            case "reasoning.available":
                # 0.19 repeats the visible text here.
                thought = _text(raw, "text").strip()
                if thought and thought not in self._segment:
                    yield events.Reasoning(thought)
            case "reasoning.delta":
                if text := _text(raw, "delta") or _text(raw, "text"):
                    yield events.Reasoning(text)
            case "tool.started":
                yield self._tool_started(raw)
            case "tool.completed" | "tool.failed":
                yield self._tool_ended(raw)
            case "approval.request":
                yield self._request(raw)
            case "run.completed":
                yield from self.ended("completed", raw, live=True)
            case "run.failed" | "run.cancelled" | "run.interrupted" as name:
                yield from self.ended(name.removeprefix("run."), raw, live=True)

    def ended(self, status: str, raw: dict[str, Any], *, live: bool) -> Iterator[events.Event]:
        """
        The end of the run, from its last event or, when not `live`, from its status.

        Text that the status has and no event brought comes before the end.
        """
        output, remark = _text(raw, "output"), _text(raw, "pending_steer")
        match status:
            case "completed" if not raw.get("partial") and not raw.get("failed"):
                yield from self._delta(self._missing(output, live=live))
                usage = raw.get("usage")
                yield events.Completed(output, usage if isinstance(usage, dict) else {}, remark)
            case "cancelled":
                yield events.Cancelled(remark)
            case "interrupted":
                yield INTERRUPTED
            case _:
                reason = str(raw.get("turn_exit_reason") or raw.get("error_code") or "")
                text = raw.get("error") or raw.get("message") or "The agent failed without saying why."
                yield events.Failed(str(text), "internal", reason.split("(")[0].strip(), remark)

    def _missing(self, output: str, *, live: bool) -> str:
        seen = self._segment.lstrip()
        if not output.strip() or output.strip() == seen.strip():
            return ""
        if not seen:
            return f"\n\n{output}" if self._any_text else output
        if output.startswith(seen):
            return output[len(seen) :]
        return "" if live else f"\n\n{output}"

    def _delta(self, text: str) -> Iterator[events.Event]:
        if text:
            self._segment += text
            self._any_text = True
            yield events.Delta(text)

    def _tool_started(self, raw: dict[str, Any]) -> events.Event:
        tool = _text(raw, "tool") or "tool"
        self._segment = ""
        self._tools += 1
        call_id = _text(raw, "tool_call_id") or f"call_{self._tools}"
        self._open_tools.setdefault(tool, deque()).append(call_id)
        args = raw.get("args")
        return events.ToolStarted(
            tool, call_id, _text(raw, "preview") or None, args if isinstance(args, dict) else None
        )

    def _tool_ended(self, raw: dict[str, Any]) -> events.Event:
        tool = _text(raw, "tool") or "tool"
        self._segment = ""
        waiting = self._open_tools.get(tool)
        call_id = _text(raw, "tool_call_id")
        if waiting and call_id in waiting:
            waiting.remove(call_id)
        elif waiting:  # without ids, calls of one tool end in the order they began
            call_id = waiting.popleft()
        duration = raw.get("duration")
        return events.ToolEnded(
            tool,
            call_id or f"call_{self._tools}",
            failed=bool(raw.get("error")) or raw.get("event") == "tool.failed",
            preview=_text(raw, "preview") or None,
            duration=float(duration) if isinstance(duration, int | float) else None,
        )

    def _request(self, raw: dict[str, Any]) -> events.Event:
        self._requests += 1
        choices = raw.get("choices")
        return events.ApprovalRequest(
            _text(raw, "request_id") or f"{self._run_id}{MADE_UP}{self._requests}",
            _text(raw, "command"),
            _text(raw, "description"),
            tuple(str(choice) for choice in choices) if isinstance(choices, list) else ("once", "deny"),
        )


def _text(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name)
    return value if isinstance(value, str) else ""
