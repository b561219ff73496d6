"""The client of the Hermes API server: what it sends, and what it makes of a server that is away, busy or broken."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from bridge import events
from bridge.events import Order, Refused
from bridge.hermes import MAX_TEXT_CHARS, READ_SECONDS, Hermes

ORDER = Order("m1", "chat_1", "hello")
V22 = {"features": {"runs_idempotency": True}}


class Script(httpx.AsyncBaseTransport):
    """A server that answers each path from a list, the last answer again and again, and notes what it got."""

    def __init__(self, capabilities: dict[str, Any] | None = None, **answers: Any) -> None:
        self.requests: list[httpx.Request] = []
        self.answers = {"capabilities": [httpx.Response(200, json=capabilities or {"features": {}})]}
        self.answers |= {name: list(given) for name, given in answers.items()}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        name = request.url.path.rsplit("/", 1)[-1]
        given = self.answers[name if name in self.answers else "run"]
        answer = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    def count(self, method: str, end: str) -> int:
        """How often a path with this end was asked for."""
        return sum(r.method == method and r.url.path.endswith(end) for r in self.requests)


class Broken(httpx.AsyncByteStream):
    """A body that breaks off."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            yield part
        raise httpx.ReadError("broken")


def sent(*raw: dict[str, Any], ids: bool = False) -> bytes:
    """An event stream of these events."""
    lines = [
        (f"id: {n}\n" if ids else "") + f"data: {json.dumps(one, ensure_ascii=False)}\n\n"
        for n, one in enumerate(raw)
    ]
    return "".join([": open\n\n", *lines]).encode()


def delta(text: str) -> dict[str, Any]:
    return {"event": "message.delta", "delta": text}


def accepted() -> httpx.Response:
    return httpx.Response(202, json={"run_id": "run_1", "status": "started"})


def stream(body: bytes | httpx.AsyncByteStream) -> Callable[[], httpx.Response]:
    if isinstance(body, bytes):
        return lambda: httpx.Response(200, content=body)
    return lambda: httpx.Response(200, stream=body)


def status(word: str, **more: Any) -> httpx.Response:
    return httpx.Response(200, json={"run_id": "run_1", "status": word} | more)


def client(script: Script) -> Hermes:
    return Hermes("http://hermes", "the-key", wait_seconds=0.2, retry_seconds=0.01, transport=script)


async def told(hermes: Hermes, *, resumed: bool = False) -> list[events.Event]:
    return [event async for event in hermes.follow("run_1", resumed=resumed)]


DONE = {"event": "run.completed", "output": "ab"}


async def test_a_turn():
    """Capabilities, then the run, then one reader of its events; the key goes along, an Origin never."""
    body = sent(delta("a"), delta("b\u2028"), DONE)
    script = Script(runs=[accepted], events=[stream(body)])
    hermes = client(script)
    assert await hermes.start(ORDER) == "run_1"
    assert await told(hermes) == [events.Delta("a"), events.Delta("b\u2028"), events.Completed("ab")]
    assert [r.url.path for r in script.requests] == ["/v1/capabilities", "/v1/runs", "/v1/runs/run_1/events"]
    for request in script.requests:
        assert request.headers["Authorization"] == "Bearer the-key"
        assert "Origin" not in request.headers
    assert json.loads(script.requests[1].content) == {"input": "hello", "session_id": "chat_1"}


def test_it_waits_longer_than_the_keep_alive_of_the_events():
    """Hermes says something every 30 s; a reader must not give up before."""
    assert READ_SECONDS > 2 * 30


@pytest.mark.parametrize("cut", range(1, 8))
async def test_events_may_be_cut_anywhere(cut: int):
    """However the bytes of the stream arrive, the events are the same."""
    body = sent(delta("你好"), delta("b"), DONE)

    class Pieces(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for start in range(0, len(body), cut):
                yield body[start : start + cut]

    script = Script(events=[stream(Pieces())])
    assert await told(client(script)) == [events.Delta("你好"), events.Delta("b"), events.Completed("ab")]


async def test_too_long_a_text_is_refused_before_it_is_sent():
    """Hermes would cut it silently."""
    script = Script(runs=[accepted])
    with pytest.raises(Refused, match="65,536") as refused:
        await client(script).start(Order("m1", "chat_1", "x" * (MAX_TEXT_CHARS + 1)))
    assert refused.value.code == "unsupported"
    assert script.requests == []
    await client(script).start(Order("m1", "chat_1", "x" * MAX_TEXT_CHARS))


@pytest.mark.parametrize("code", [429, 503])
async def test_a_busy_server_is_asked_again_when_it_says(code: int):
    """`Retry-After` is waited out; nothing had been begun."""
    script = Script(runs=[httpx.Response(code, headers={"Retry-After": "0"}), accepted])
    assert await client(script).start(ORDER) == "run_1"
    assert script.count("POST", "/v1/runs") == 2


async def test_a_server_that_is_away_is_waited_for_and_then_given_up():
    """What was never sent may be sent again; after a while the answer is `offline`."""
    script = Script(runs=[httpx.ConnectError("refused"), httpx.ConnectError("refused"), accepted])
    assert await client(script).start(ORDER) == "run_1"

    script = Script(runs=[httpx.ConnectError("refused")])
    with pytest.raises(Refused) as refused:
        await client(script).start(ORDER)
    assert refused.value.code == "offline"


@pytest.mark.parametrize(
    "error", [httpx.ReadError("x"), httpx.ReadTimeout("x"), httpx.RemoteProtocolError("x")]
)
async def test_what_may_have_arrived_is_never_sent_twice(error: Exception):
    """0.19 has no key for an intention: a broken answer to the post is an error."""
    script = Script(runs=[error, accepted])
    with pytest.raises(Refused) as refused:
        await client(script).start(ORDER)
    assert (refused.value.code, refused.value.reason) == ("internal", "unknown")
    assert script.count("POST", "/v1/runs") == 1


async def test_with_a_key_it_is_sent_again():
    """0.22 makes one run of it, so a broken answer is no reason to give up."""
    script = Script(V22, runs=[httpx.ReadError("x"), accepted])
    assert await client(script).start(ORDER) == "run_1"
    first, second = (r for r in script.requests if r.url.path == "/v1/runs")
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert first.content == second.content


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (httpx.Response(400, json={"error": {"message": "bad", "code": "missing_message"}}), "unsupported"),
        (
            httpx.Response(401, json={"error": {"message": "Invalid API key", "code": "invalid_api_key"}}),
            "internal",
        ),
        (httpx.Response(403), "internal"),
        (httpx.Response(404, text="404: Not Found"), "internal"),
        (httpx.Response(500, text="oops"), "internal"),
        (httpx.Response(202, json=[]), "internal"),
    ],
)
async def test_refusals_are_said(answer: httpx.Response, code: str):
    """Whatever the body is made of, there is a code and a text, and the key is in neither."""
    with pytest.raises(Refused) as refused:
        await client(Script(runs=[answer])).start(ORDER)
    assert refused.value.code == code
    assert refused.value.text and "the-key" not in refused.value.text


@pytest.mark.parametrize("broken", [Broken(sent(delta("a"))), sent(delta("a"))])
async def test_019_after_a_lost_stream_the_status_is_asked_until_the_end(broken: Any):
    """Neither the events nor the run are asked for again: a second reader would hang, a second post would run."""
    run = [status("running"), status("waiting_for_approval"), status("completed", output="ab")]
    script = Script(events=[stream(broken)], run=run)
    assert await told(client(script)) == [events.Delta("a"), events.Delta("b"), events.Completed("ab")]
    assert script.count("GET", "/events") == 1
    assert script.count("POST", "/v1/runs") == 0
    assert script.count("GET", "/run_1") == 3


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (status("failed", error="HTTP 500"), "HTTP 500"),
        (httpx.Response(404, json={"error": {"code": "run_not_found"}}), "restarted"),
        (httpx.ConnectError("refused"), "cannot be reached"),
    ],
)
async def test_019_a_lost_run_is_a_failure(answer: Any, end: str):
    """A server that forgot the run, or stays away, gives one end: failed."""
    script = Script(events=[stream(Broken(sent(delta("a"))))], run=[answer])
    *said, last = await told(client(script))
    assert said == [events.Delta("a")]
    assert isinstance(last, events.Failed)
    assert end in last.text


async def test_019_after_a_restart_of_the_bridge_only_the_status_is_asked():
    """The events were read by the bridge before."""
    script = Script(run=[status("running"), status("completed", output="all of it")])
    assert await told(client(script), resumed=True) == [
        events.Delta("all of it"),
        events.Completed("all of it"),
    ]
    assert script.count("GET", "/events") == 0


async def test_022_events_are_read_on_after_the_last_one():
    """A broken stream is asked for again with the number of the last event; nothing is said twice."""
    first = Broken(sent(delta("a"), delta("b"), ids=True))
    rest = b"id: 2\n" + sent(DONE).removeprefix(b": open\n\n")
    script = Script(V22, events=[stream(first), httpx.ConnectError("x"), stream(rest)])
    assert await told(client(script)) == [events.Delta("a"), events.Delta("b"), events.Completed("ab")]
    asked = [r.headers.get("Last-Event-ID") for r in script.requests if r.url.path.endswith("/events")]
    assert asked == [None, "1", "1"]


async def test_022_a_gap_in_the_events_is_filled_from_the_status():
    """`replay.truncated` means that some of it is lost: the rest comes from the run itself."""
    first = Broken(sent(delta("a"), ids=True))
    script = Script(
        V22,
        events=[stream(first), stream(sent({"event": "replay.truncated"}))],
        run=[status("completed", output="abc")],
    )
    assert await told(client(script)) == [events.Delta("a"), events.Delta("bc"), events.Completed("abc")]


async def test_022_after_a_restart_of_the_bridge_the_events_are_read_from_the_start():
    """Nothing of the answer is lost with the bridge."""
    script = Script(V22, events=[stream(sent(delta("a"), delta("b"), DONE, ids=True))])
    assert await told(client(script), resumed=True) == [
        events.Delta("a"),
        events.Delta("b"),
        events.Completed("ab"),
    ]


async def test_stop_and_approval():
    """Stop is asked again while it comes too early, and a run that has ended is left alone; choices are passed on."""
    script = Script(
        stop=[httpx.Response(409, json={}), httpx.Response(200, json={})],
        approval=[httpx.Response(200, json={})],
    )
    hermes = client(script)
    await hermes.stop("run_1")
    assert script.count("POST", "/stop") == 2
    script.answers["stop"] = [httpx.Response(404, json={})]
    await hermes.stop("run_1")
    await hermes.approve("run_1", "theirs", "once")
    assert json.loads(script.requests[-1].content) == {"choice": "once", "request_id": "theirs"}
    script.answers["approval"] = [httpx.Response(409, json={"error": {"message": "not pending"}})]
    with pytest.raises(Refused, match="not pending"):
        await hermes.approve("run_1", "theirs", "once")


async def test_steer_where_it_exists():
    """0.19 is not even asked; 0.22 takes it or not."""
    script = Script(steer=[httpx.Response(200, json={})])
    assert not await client(script).steer("run_1", "shorter")
    assert script.count("POST", "/steer") == 0
    script = Script(V22, steer=[httpx.Response(200, json={}), httpx.Response(409, json={})])
    hermes = client(script)
    assert await hermes.steer("run_1", "shorter")
    assert not await hermes.steer("run_1", "shorter")


async def test_ids_are_quoted():
    """An id cannot lead to another path."""
    script = Script(stop=[httpx.Response(200, json={})])
    await client(script).stop("../../x?y")
    assert script.requests[0].url.raw_path == b"/v1/runs/..%2F..%2Fx%3Fy/stop"


async def test_a_redirect_is_not_followed():
    """The key stays with the server it was given for."""
    script = Script(runs=[httpx.Response(307, headers={"Location": "http://elsewhere/v1/runs"})])
    with pytest.raises(Refused):
        await client(script).start(ORDER)
    assert {r.url.host for r in script.requests} == {"hermes"}


async def test_an_old_server_without_capabilities_is_019():
    """A route that is not there means an older version."""
    script = Script(runs=[accepted])
    script.answers["capabilities"] = [httpx.Response(404, text="404: Not Found")]
    hermes = client(script)
    assert (await hermes.dialect()).version == "0.19"
    await asyncio.gather(*(hermes.start(ORDER) for _ in range(3)))
    assert script.count("GET", "/v1/capabilities") == 1
