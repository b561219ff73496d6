"""
A language model that does what it is told: OpenAI's chat completions, answered from the question itself.

Lines of the last user message that begin with `@` direct the answer; without any it is `You said: …`.

    @say TEXT              the answer is this text
    @slow COUNT [MS]       the answer is `word1 word2 …`, one word every MS milliseconds (50)
    @think TEXT            reasoning before the answer
    @tool NAME {json}      first call this tool; several lines are called one after the other
    @together              all tools are called at once
    @before TEXT           text in front of the first tool call
    @recall                the answer lists the user texts that came before, joined by ` | `
    @instructed WORD       the answer says whether the system text holds the word
    @fail STATUS [TIMES]   an HTTP error, the first TIMES times this very text is asked (always)
    @cut COUNT             the connection drops after so many words of the answer, the first time
    @hang [SECONDS]        nothing at all for so long (a minute), or until `release`
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONTINUE = "[System: The previous response was cut off"


@dataclass
class Script:
    """What one question asks for."""

    text: str = ""
    gap_seconds: float = 0.002
    thought: str = ""
    tools: list[tuple[str, str]] = field(default_factory=list)
    before: str = ""
    fail: int = 0
    cut: int = 0
    hang_seconds: float = 0


class ScriptedLLM:
    """The model's server; `requests` holds the body of each question, oldest first."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[dict[str, Any]] = []
        self._times: Counter[tuple[str, str]] = Counter()
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL for a client of OpenAI's API."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def start(self) -> ScriptedLLM:
        """Answer from now on."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Answer no more; what hangs is let go."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def release(self) -> None:
        """Let every hanging question go on, those to come too."""
        self._released.set()

    def times_asked(self, text: str) -> int:
        """How often a turn began with a question that holds this text."""
        with self._lock:
            return sum(
                text in _question(body["messages"]) and not _results(body["messages"])
                for body in self.requests
            )

    def take(self, body: dict[str, Any]) -> Script:
        """Note a question and decide on its answer."""
        messages = body.get("messages") or []
        question = _question(messages)
        with self._lock:
            self.requests.append(body)
        return self._script(question, messages)

    def wait(self, seconds: float) -> None:
        """Hang."""
        self._released.wait(seconds)

    def _first(self, question: str, what: str, times: int) -> bool:
        """Whether this is among the first so many times that it is asked."""
        with self._lock:
            self._times[question, what] += 1
            return self._times[question, what] <= times

    def _script(self, question: str, messages: list[dict[str, Any]]) -> Script:
        said = ""
        if question.startswith(CONTINUE):  # Hermes asks for the rest of an answer that was cut
            said = _text(messages[-2])
            messages = messages[:-2]
            question = _question(messages)
        script = Script(text=f"You said: {question}")
        results = _results(messages)
        calls: list[tuple[str, str]] = []
        together = False
        for word, rest in re.findall(r"^@(\w+) ?(.*)$", question, re.M):
            match word:
                case "say":
                    script.text = rest
                case "slow":
                    count, _, gap = rest.partition(" ")
                    script.text = " ".join(f"word{n}" for n in range(1, int(count) + 1))
                    script.gap_seconds = int(gap or 50) / 1000
                case "think":
                    script.thought = rest
                case "tool":
                    name, _, arguments = rest.partition(" ")
                    calls.append((name, arguments or "{}"))
                case "together":
                    together = True
                case "before":
                    script.before = rest
                case "recall":
                    earlier = [_text(m) for m in messages if m.get("role") == "user"][:-1]
                    script.text = " | ".join(earlier) or "nothing"
                case "instructed":
                    system = " ".join(_text(m) for m in messages if m.get("role") in ("system", "developer"))
                    script.text = "yes" if rest in system else "no"
                case "fail":
                    status, _, times = rest.partition(" ")
                    script.fail = int(status) if self._first(question, word, int(times or 1_000_000)) else 0
                case "cut":
                    script.cut = int(rest) if self._first(question, word, 1) else 0
                case "hang":
                    script.hang_seconds = float(rest or 60)
        if len(results) < len(calls):
            script.tools = calls if together else [calls[len(results)]]
            script.text = script.before if not results else ""
        elif calls and script.text.startswith("You said: "):
            script.text = "Tool result: " + " / ".join(result[:80] for result in results)
        script.text = script.text.removeprefix(said).lstrip() if said else script.text
        return script


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") if part.get("type") == "text" else "[picture]" for part in content)


def _last_user(messages: list[dict[str, Any]]) -> int:
    return max((n for n, message in enumerate(messages) if message.get("role") == "user"), default=-1)


def _question(messages: list[dict[str, Any]]) -> str:
    last = _last_user(messages)
    return _text(messages[last]) if last >= 0 else ""


def _results(messages: list[dict[str, Any]]) -> list[str]:
    return [_text(m) for m in messages[_last_user(messages) + 1 :] if m.get("role") == "tool"]


def _handler(llm: ScriptedLLM) -> type[BaseHTTPRequestHandler]:
    """The request handler of one model."""
    numbers = itertools.count(1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._send_json(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            script = llm.take(body)
            if script.hang_seconds:
                llm.wait(script.hang_seconds)
            try:
                if script.fail:
                    error = {
                        "message": f"scripted failure {script.fail}",
                        "type": "scripted",
                        "code": script.fail,
                    }
                    self._send_json(script.fail, {"error": error})
                elif body.get("stream"):
                    self._stream(script)
                else:
                    self._send_json(200, self._whole(script))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _calls(self, script: Script) -> list[dict[str, Any]]:
            return [
                {
                    "index": index,
                    "id": f"call_{next(numbers)}",
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for index, (name, arguments) in enumerate(script.tools)
            ]

        def _whole(self, script: Script) -> dict[str, Any]:
            message: dict[str, Any] = {"role": "assistant", "content": script.text}
            if script.tools:
                message["tool_calls"] = self._calls(script)
            return {
                "id": f"cmpl_{next(numbers)}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": "scripted",
                "choices": [
                    {
                        "index": 0,
                        "message": message,
                        "finish_reason": "tool_calls" if script.tools else "stop",
                    }
                ],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }

        def _stream(self, script: Script) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            completion = f"cmpl_{next(numbers)}"

            def piece(delta: dict[str, Any], finish: str | None = None, **more: Any) -> None:
                chunk = {
                    "id": completion,
                    "object": "chat.completion.chunk",
                    "created": int(time.time()),
                    "model": "scripted",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
                } | more
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()

            piece({"role": "assistant", "content": ""})
            if script.thought:
                piece({"reasoning_content": script.thought})
            for number, word in enumerate(re.findall(r"\s*\S+\s*", script.text), 1):
                piece({"content": word})
                if number == script.cut:
                    return
                time.sleep(script.gap_seconds)
            if script.tools:
                piece({"tool_calls": self._calls(script)})
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            piece({}, "tool_calls" if script.tools else "stop", usage=usage)
            self.wfile.write(b"data: [DONE]\n\n")

        def _send_json(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
