"""The application under test: each address does one thing that a server has to cope with."""

import asyncio
import json
import os
from typing import Any
from urllib.parse import parse_qs

STATE: dict[str, Any] = {"started": False, "taken": 0, "sent": 0, "heard": [], "ended": []}
OPEN: list[Any] = []  # transports of the sockets at /hold and /flood, in order
PIECE = b"x" * 65536


async def startup() -> None:
    """Take a little time, so that a server that listens too early is found out."""
    await asyncio.sleep(float(os.environ.get("TEST_STARTUP_SECONDS", "0")))
    if os.environ.get("TEST_STARTUP_FAILS"):
        raise RuntimeError("this application does not start")
    STATE["started"] = True


async def drain() -> None:
    """Take as long as the test says."""
    await asyncio.sleep(float(os.environ.get("TEST_DRAIN_SECONDS", "0")))


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The ASGI application."""
    query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
    table = HTTP if scope["type"] == "http" else WEBSOCKET
    await table[scope["path"]](scope, receive, send, query)


async def answer(send: Any, body: bytes, status: int = 200) -> None:
    """One whole answer."""
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def hello(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Say which process this is."""
    await answer(send, str(os.getpid()).encode())


async def state(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """What has happened so far."""
    transports = [
        {"paused": one.paused, "buffered": one.buffered, "last_heard": one.last_heard} for one in OPEN
    ]
    now = asyncio.get_running_loop().time()
    await answer(send, json.dumps({**STATE, "open": transports, "now": now}).encode())


async def reset(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Forget what has happened."""
    STATE.update(taken=0, sent=0, heard=[], ended=[])
    OPEN.clear()
    await answer(send, b"")


async def show_scope(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """The scope itself."""
    await answer(send, repr({key: value for key, value in scope.items() if key != "extensions"}).encode())


async def body(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Count the body; `pause` seconds between its pieces."""
    length = largest = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            STATE["ended"].append("body")
            return
        length += len(message["body"])
        largest = max(largest, len(message["body"]))
        STATE["taken"] = length
        if not message["more_body"]:
            break
        await asyncio.sleep(float(query.get("pause", "0")))
    await answer(send, json.dumps({"length": length, "largest": largest}).encode())


async def refuse(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Answer without a look at the body."""
    await answer(send, b"too large", 413)


async def download(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Send many pieces."""
    STATE["sent"] = 0
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(int(query["pieces"])):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
        STATE["sent"] += 1
    await send({"type": "http.response.body", "body": b""})


async def slow(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Answer after a while."""
    await asyncio.sleep(float(query["seconds"]))
    await answer(send, b"done")


async def stream(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """A stream without an end."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        while True:
            await send({"type": "http.response.body", "body": b"tick\n", "more_body": True})
            await asyncio.sleep(0.05)
    finally:
        STATE["ended"].append("stream")


async def broken(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Fail, before or after the answer has begun."""
    if "begun" in query:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise RuntimeError("broken on purpose")


async def echo(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Send back what comes."""
    await receive()
    subprotocol = scope["subprotocols"][-1] if scope["subprotocols"] else None
    await send({"type": "websocket.accept", "subprotocol": subprotocol, "headers": [(b"x-test", b"\xe9")]})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})
    STATE["ended"].append([message["code"], message["reason"]])


async def decline(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Refuse the upgrade: with a status and a body, or by a plain close."""
    await receive()
    if "status" not in query:
        await send({"type": "websocket.close"})
        return
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"7")]
    await send({"type": "websocket.http.response.start", "status": int(query["status"]), "headers": headers})
    await send({"type": "websocket.http.response.body", "body": b'{"why":', "more_body": True})
    await send({"type": "websocket.http.response.body", "body": b'"not now"}'})


async def undecided(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Neither take nor refuse the upgrade."""
    await receive()
    STATE["ended"].append((await receive())["code"])


async def close(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Accept, then close; what comes afterwards is counted."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": int(query["code"]), "reason": query.get("reason", "")})
    await send({"type": "websocket.send", "text": "after the end"})
    while (message := await receive())["type"] == "websocket.receive":
        STATE["heard"].append(message)


async def leave(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Return, or fail, with the socket open."""
    await receive()
    await send({"type": "websocket.accept"})
    if "fail" in query:
        raise RuntimeError("broken on purpose")


async def hold(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Accept, and read only when `/state` has been asked to let it."""
    await receive()
    await send({"type": "websocket.accept"})
    OPEN.append(scope["extensions"]["hermes.transport"])
    await asyncio.sleep(float(query.get("seconds", "3600")))
    while (message := await receive())["type"] == "websocket.receive":
        STATE["taken"] += 1
    STATE["ended"].append(message["code"])


async def flood(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """Send many texts: by `send`, which waits; or without waiting, as long as the transport is not paused."""
    await receive()
    await send({"type": "websocket.accept"})
    transport = scope["extensions"]["hermes.transport"]
    OPEN.append(transport)
    STATE["sent"] = 0
    text = "y" * int(query["size"])
    if query["way"] == "send":
        for _ in range(int(query["count"])):
            await send({"type": "websocket.send", "text": text})
            STATE["sent"] += 1
        return
    resumed = asyncio.Event()
    transport.on_resume = resumed.set
    for _ in range(int(query["count"])):
        transport.send_text(text)
        STATE["sent"] += 1
        if transport.paused:
            if query["way"] == "abort":
                transport.abort()
                break
            resumed.clear()
            await resumed.wait()
    while (message := await receive())["type"] == "websocket.receive":
        STATE["heard"].append(message)
    STATE["ended"].append(message["code"])


HTTP = {
    "/hello": hello,
    "/state": state,
    "/reset": reset,
    "/scope": show_scope,
    "/s c/ope": show_scope,
    "/body": body,
    "/refuse": refuse,
    "/download": download,
    "/slow": slow,
    "/stream": stream,
    "/broken": broken,
}


async def show_scope_there(scope: Any, receive: Any, send: Any, query: dict[str, str]) -> None:
    """The scope of a WebSocket, as its first text."""
    await receive()
    await send({"type": "websocket.accept"})
    shown = repr({key: value for key, value in scope.items() if key != "extensions"})
    await send({"type": "websocket.send", "text": shown})
    await receive()


WEBSOCKET = {
    "/echo": echo,
    "/decline": decline,
    "/undecided": undecided,
    "/close": close,
    "/leave": leave,
    "/hold": hold,
    "/flood": flood,
    "/scope": show_scope_there,
    "/s c/ope": show_scope_there,
}
