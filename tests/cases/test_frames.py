"""
C18 malformed frames, C20 `ts` in every shape, C27 odd ids.

The paths of C27 below `/api/sessions/` and its runs are tested with the HTTP door; here they are sessions of
`GET /api/frames`.
"""

import asyncio
import json
import re
from typing import Any
from urllib.parse import quote

import pytest

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import App, Peer, new_id, strict
from tests.rig.timing import PROMPT
from tests.second_door.client import Door


def good_text(peer: Peer) -> dict[str, Any]:
    """A text that this peer may send."""
    return peer.envelope("text", "S1", data={"text": "good"})


def malformed(peer: Any) -> list[tuple[str, str | bytes]]:
    """C18's list: a name, and what is sent."""
    text = good_text(peer)

    def changed(**fields: Any) -> str:
        return json.dumps({name: value for name, value in (text | fields).items() if value is not ...})

    return [
        ("an open brace", "{"),
        ("a list", "[]"),
        ("a string", '"x"'),
        ("null", "null"),
        ("a number", "42"),
        ("an empty frame", ""),
        ("binary", b"\x00\xff"),
        ("binary with good JSON", json.dumps(text).encode()),
        ("an empty object", "{}"),
        ("a text without data", changed(data=...)),
        ("data that is a list", changed(data=[])),
        ("text that is an object", changed(data={"text": {}})),
        ("text that is null", changed(data={"text": None})),
        ("an unknown type", changed(type="link")),
        ("duplicate keys", '{"type":"ping","type":"text"}'),
    ]


@pytest.mark.parametrize("side", ["app", "agent"])
async def test_c18_a_malformed_frame_is_answered_and_harms_nobody(
    gateway: Gateway, alice: Person, side: str
) -> None:
    """Each is answered with `unsupported` (duplicate keys may count as either type); the socket lives on."""
    async with (
        await gateway.app(alice) as app,
        await gateway.app(alice) as bystander,
        await gateway.agent(alice) as agent,
    ):
        peer: Any = app if side == "app" else agent
        printed = gateway.log().count("\n")
        for name, frame in malformed(peer):
            await peer.send(frame)
            answers = await peer.alive()
            if name == "duplicate keys" and not answers:
                answers = [await peer.next()]
                assert answers == [{"type": "pong"}]
                continue
            assert len(answers) == 1, f"{name}: {answers}"
            error = answers[0]
            assert error["type"] == "error" and error["data"]["code"] == "unsupported", f"{name}: {error}"
            assert error["data"]["text"], name
            assert isinstance(error["ts"], int)
            addresses = ("hermes", alice.name) if side == "app" else (alice.name, "hermes")
            assert (error["from"], error["to"]) == addresses
            known = isinstance(frame, str) and '"id"' in frame
            if known:
                assert error["reply_to"] == json.loads(frame)["id"], name
                assert error["session"] == "S1", name
        assert gateway.log().count("\n") - printed <= len(malformed(peer)), "more than a line for each"
        good = good_text(peer)
        await peer.send(good)
        assert await (agent if side == "app" else app).next() == good
        if side == "agent":
            assert await bystander.next() == good
        await bystander.alive()
        assert all(frame["type"] in ("pong", "text") for frame in bystander.seen)


@pytest.mark.parametrize("side", ["app", "agent"])
async def test_c18_twenty_in_a_row_end_the_socket_and_a_good_one_starts_the_count_anew(
    gateway: Gateway, alice: Person, side: str
) -> None:
    """The twentieth closes with 4008."""
    peer = await (gateway.app(alice) if side == "app" else gateway.agent(alice))
    async with peer:
        for _ in range(19):
            await peer.send("{")
        await peer.until(type="error")
        await peer.alive()
        for _ in range(20):
            await peer.send("{")
        assert await peer.ended() == 4008


TIMES: list[tuple[str, int | None]] = [
    ("1719123456.789", 1719123456),
    ("-1", None),
    ("0", 0),
    ('"1719123456"', None),
    ("1719123456789", 1719123456789),
    ("253402300800", 253402300800),
    ("1e400", None),
    ("NaN", None),
    ("-Infinity", None),
    ("true", None),
    ("null", None),
    ("", None),
    ("9223372036854775808", None),
    ("9007199254740992", 9007199254740992),
    ("9007199254740993", None),
]


@pytest.mark.parametrize("side", ["app", "agent"])
async def test_c20_a_time_is_normalised_or_refused_and_every_page_renders(
    gateway: Gateway, alice: Person, side: str
) -> None:
    """Fractions are floored; what is no time is refused by name; history and the admin show what was kept."""
    session = new_id()
    kept = []
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        peer, other = (app, agent) if side == "app" else (agent, app)
        for text, expected in TIMES:
            frame = peer.envelope("text", session, data={"text": f"at {text}"})
            del frame["ts"]
            bare = json.dumps(frame)
            await peer.send(bare[:-1] + f', "ts": {text}}}' if text else bare)
            if expected is None:
                error = await peer.expect(type="error", code="unsupported", reply_to=frame["id"])
                assert "ts" in error["data"]["text"], (text, error)
            else:
                got = await other.next()
                assert got == frame | {"ts": expected}, text
                assert type(got["ts"]) is int
                kept.append(frame["id"])
        await peer.quiet()
        await other.quiet()
    async with gateway.http(alice) as http:
        answer = await http.get("/api/frames", params={"session": session})
    assert [frame["id"] for frame in strict(answer.text)["data"]] == kept
    async with Door(gateway, alice) as door:
        page = await door.request("GET", f"/api/sessions/{session}/messages?order=latest&limit=500")
    told = "\n".join(row["content"] for row in strict(page.text)["data"])
    assert [f"at {text}" in told.split("\n") for text, _ in TIMES] == [time is not None for _, time in TIMES]
    async with await gateway.staff.browse() as admin:
        for one in kept:
            pages = await admin.rows("chat", "message", one)
            assert any("/change/" in page.url for page in pages), "the admin does not find the message"


async def test_c27_the_ids_of_the_protocol_s_own_examples_come_back_byte_for_byte(
    gateway: Gateway, alice: Person
) -> None:
    """`msg_001`, `abc-123-def`, `str_001`; `stream` and `stream_end` without id and time."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        question = await app.say("q", "abc-123-def", id="msg_001")
        assert await agent.next() == question
        start = await agent.start("abc-123-def", "msg_001", id="str_001")
        await agent.piece("a", "abc-123-def")
        await agent.end("abc-123-def")
        stream = await app.read_stream("abc-123-def")
        assert stream.start == start
        assert stream.end == {
            "type": "stream_end",
            "from": "hermes",
            "to": alice.name,
            "session": "abc-123-def",
        }
        assert [frame["id"] for frame in await gateway.history(alice, "abc-123-def")] == [
            "msg_001",
            "str_001",
        ]


ODD_IDS = [
    "x" * 128,
    "3F2504E0-4F89-11D3-9A0C-0305E82C3301",
    "你好",
    "a/b",
    "a b",
    "..",
    "🦊",
    "%2F",
    "a?b#c",
]
BAD_IDS: list[Any] = [
    "",
    7,
    "x" * 129,
    "x" * 300,
    "a\nb",
    "a\x00b",
    "\x7f",
    None,
    ["a"],
    {"a": 1},
    True,
    "\ud800",
]


async def test_c27_ids_are_opaque_and_bad_ones_are_refused_by_name(gateway: Gateway, alice: Person) -> None:
    """Any string of 1 to 128 characters without control characters is an id; the field is named otherwise."""
    session = new_id()
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        for value in ODD_IDS:
            assert await agent_gets(app, agent, id=value, session=session)
        for value in BAD_IDS:
            frame = app.envelope("text", session, id=value, data={"text": "x"})
            await app.send(json.dumps(frame))
            error = await app.expect(type="error", code="unsupported")
            assert error["reply_to"] is None if "reply_to" in error else True
            assert re.search(r"\bid\b", error["data"]["text"]), (value, error)
        without = app.envelope("text", session, data={"text": "x"})
        del without["id"]
        await app.send(without)
        assert "id" in (await app.expect(type="error", code="unsupported"))["data"]["text"]
        unknown = await app.say("a reply to nothing", session, reply_to="no-such-message")
        assert await agent.next() == unknown
        await app.alive()


async def agent_gets(app: App, agent: Peer, **fields: Any) -> bool:
    """Send a text with these fields and see it arrive unchanged."""
    frame = app.envelope("text", data={"text": "x"}, **fields)
    await app.send(frame)
    return await agent.next() == frame


ODD_SESSIONS = ["a/b", "../../x", "你好", "a b", "x\u00a0y", "a%2Fb", "%2e%2e", "S" * 128]
BAD_SESSIONS: list[Any] = ["", ".", "..", 7, None, "x\r\nSet-Cookie:1", "x" * 129, "x" * 5000, ["a"]]


async def test_c27_sessions_that_a_socket_takes_are_read_over_http(gateway: Gateway, alice: Person) -> None:
    """Whatever is a session on the wire is one in a query, percent-encoded."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        for session in ODD_SESSIONS:
            assert await agent_gets(app, agent, session=session)
            frames = await gateway.history(alice, session)
            assert [frame["session"] for frame in frames] == [session]
        for session in BAD_SESSIONS:
            await app.send(app.envelope("text", session, data={"text": "x"}))
            error = await app.expect(type="error", code="unsupported")
            assert "session" in error["data"]["text"], error
        await app.alive()


PATHS = [
    "a%2Fb",
    "..%2F..%2Fx",
    "%2e%2e",
    quote("你好"),
    "a%20b",
    "x%0d%0aSet-Cookie:1",
    "x" * 5000,
    "%ff%fe",
    "%00",
    "",
]


async def test_c27_sessions_that_a_socket_takes_are_reached_in_paths(gateway: Gateway, alice: Person) -> None:
    """Messages and RUN by the id as a browser encodes it; of bad ones nothing but a refusal."""
    base = "/api/hermes/api/sessions"
    async with (
        await gateway.app(alice) as app,
        await gateway.agent(alice) as agent,
        gateway.http(alice) as http,
    ):
        for session in ODD_SESSIONS:
            assert await agent_gets(app, agent, session=session)
            path = f"{base}/{quote(session, safe='')}"
            answer = await http.get(f"{path}/messages")
            assert answer.status_code == 200, (session, answer.text)
            assert answer.json()["session_id"] == session
            assert (await http.get(path)).json()["session"]["id"] == session
            run = await http.post(f"{path}/chat/stream", json={})
            assert (run.status_code, run.json()["error"]["code"]) == (400, "missing_message"), session
        for path in PATHS:
            for method, end in (("GET", "/messages"), ("POST", "/chat/stream"), ("GET", ""), ("DELETE", "")):
                if not path and not end:
                    continue
                body = {"json": {"input": "x"}} if method == "POST" else {}
                answer = await http.request(method, f"{base}/{path}nobody{end}", **body)
                assert 400 <= answer.status_code < 500, (path, end, answer.status_code)
                assert answer.json()["error"]["message"]
                assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", [*PATHS, "..", ".", "%2e", "%2E%2e%2fx", "..%5cx"])
async def test_c27_no_path_leads_out_of_the_sessions(gateway: Gateway, alice: Person, path: str) -> None:
    """As it is written, by a client that tidies nothing: one refusal; no redirect, no header of the asker's making."""
    for method, end in (("GET", "/messages"), ("POST", "/chat/stream"), ("DELETE", "")):
        body = b'{"input":"x"}' if method == "POST" else b""
        head = (
            f"{method} /api/hermes/api/sessions/{path}{end} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {alice.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.app_server.port)
        writer.write(head.encode() + body)
        async with asyncio.timeout(10 * PROMPT):
            answer = (await reader.read()).decode()
        writer.close()
        status, rest = answer.removeprefix("HTTP/1.1 ").split(" ", 1)
        assert status in ("400", "404", "405", "414"), (method, answer[:300])
        headers, _, content = rest.partition("\r\n\r\n")
        assert "set-cookie" not in headers.lower() and "\nlocation:" not in headers.lower()
        assert strict(content)["error"]["message"], answer


@pytest.mark.parametrize("session", PATHS)
async def test_c27_a_session_nobody_has_is_an_empty_page_or_a_refusal(
    gateway: Gateway, alice: Person, session: str
) -> None:
    """Never a 500, a redirect or a header of the asker's making."""
    async with gateway.http(alice) as http:
        answer = await http.get(f"/api/frames?session={session}")
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, answer.text
    assert "set-cookie" not in answer.headers
    if answer.status_code == 200:
        assert answer.json()["data"] == []
    else:
        assert answer.json()["error"]["message"]
