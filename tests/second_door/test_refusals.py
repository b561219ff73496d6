"""What is refused, with which code, and that nothing is stored then (CASES C55 and C57)."""

import asyncio
import base64
import json
from typing import Any

from tests.media.samples import png
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.second_door.agents import connect, echo, playing
from tests.second_door.client import BASE, Door, check_order, error_of, text_of

JSON = {"Content-Type": "application/json"}
BAD = "invalid_request_error"


async def test_inputs_of_every_form(gateway: Gateway, alice: Person) -> None:
    """Texts, parts, messages and the alias; history shows them as they were sent."""
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "https://example.org/x.png", "detail": "low"}},
        {"type": "input_text", "text": "b"},
        {"type": "input_image", "image_url": "HTTP://example.org/y"},
    ]
    shown = [
        parts[0],
        parts[1],
        {"type": "text", "text": "b"},
        {"type": "image_url", "image_url": {"url": "HTTP://example.org/y"}},
    ]
    async with await connect(gateway, alice) as agent, Door(gateway, alice) as door:
        await door.create("s")
        for body, text, content in (
            ({"input": "plain", "unknown": [1]}, "plain", "plain"),
            ({"message": "alias"}, "alias", "alias"),
            ({"input": parts}, "a\nb", shown),
            ({"input": [{"role": "user", "content": "old"}, {"role": "assistant", "content": "x"},
                        {"role": "user", "content": parts}]}, "a\nb", shown),
            ({"input": [{"type": "image_url", "image_url": "https://example.org/z"}], "instructions": "be brief"}, "",
             [{"type": "image_url", "image_url": {"url": "https://example.org/z"}}]),
        ):  # fmt: skip
            async with door.run("s", None, **body) as stream:
                ask = await agent.expect(type="text")
                assert ask["data"].get("text", "") == text
                if content is not text:
                    assert ask["data"]["images"] == [
                        part["image_url"]["url"] for part in content if part["type"] == "image_url"  # type: ignore[index]
                    ]  # fmt: skip
                assert ask["data"].get("instructions") == body.get("instructions")
                await agent.stream(["ok"], "s", ask["id"])
                events = await stream.rest()
            assert events[0]["user_message"]["content"] == content
            assert (await door.history("s"))["data"][-2]["content"] == content


async def test_bad_requests_say_what_is_wrong_and_store_nothing(gateway: Gateway, alice: Person) -> None:
    """One code for each; the session stays empty."""
    async with Door(gateway, alice) as door:
        await door.create("s")
        path = "/api/sessions/s/chat/stream"
        image = {"type": "image_url", "image_url": {"url": "x"}}
        wrong: list[tuple[dict[str, Any], str]] = [
            ({}, "missing_message"),
            *(
                ({"input": bad}, "missing_message")
                for bad in ("", "  ", None, 5, True, {}, [], [{"type": "text"}])
            ),
            *(
                ({"input": bad}, "missing_message")
                for bad in ("a\x00b", "a\ud800", [{"role": "assistant", "content": "x"}])
            ),
            ({"input": [{"type": "file", "file": {}}]}, "unsupported_content_type"),
            ({"input": [7]}, "unsupported_content_type"),
            ({"input": [image]}, "invalid_image_url"),
            ({"input": "x", "instructions": 5}, "invalid_system_message"),
            ({"input": "x", "instructions": "\x00"}, "invalid_system_message"),
            ({"input": "x", "replace_from": ""}, "invalid_replace_from"),
            ({"input": "x", "replace_from": 5}, "invalid_replace_from"),
            ({"input": "x", "run_id": "a b"}, "invalid_run_id"),
        ]
        for body, code in wrong:
            answer = await door.request("POST", path, content=json.dumps(body), headers=JSON)
            assert error_of(answer) == (400, code, BAD), body
        for content in ("", "{", "[]", '"x"', '{"input": NaN}', '{"input": 1e999e}', "\ufeff{}", "[" * 5000):
            answer = await door.request("POST", path, content=content.encode(), headers=JSON)
            assert answer.status_code == 400, content
            assert error_of(answer)[1] == ("missing_message" if content == "" else "invalid_json"), content
        not_utf8 = await door.request("POST", path, content='{"input":"é"}'.encode("utf-16"), headers=JSON)
        assert error_of(not_utf8) == (400, "invalid_json", BAD)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            answer = await door.request(
                "POST", path, content=b'{"input":"x"}', headers={"Content-Type": kind}
            )
            assert error_of(answer) == (415, "unsupported_media_type", BAD)
        for headers in ({"Idempotency-Key": "a b"}, {"Idempotency-Key": "x" * 256}):
            answer = await door.refused("s", "x", headers=headers)
            assert error_of(answer) == (400, "invalid_idempotency_key", BAD)
        huge = await door.request(
            "POST", path, content=b'{"input":"' + b"x" * (10 * 1024 * 1024) + b'"}', headers=JSON
        )
        assert error_of(huge) == (413, "body_too_large", BAD)
        long = await door.refused("s", "x" * 2_000_000)
        assert error_of(long) == (413, "body_too_large", BAD)
        for replace_from in ("run_unknown", "a\x00", "\ud800"):
            answer = await door.request(
                "POST", path, content=json.dumps({"input": "x", "replace_from": replace_from}), headers=JSON
            )
            assert error_of(answer) == (404, "run_not_found", BAD)
        page = await door.history("s")
        assert page["data"] == page["runs"] == []
        for query in (
            "limit=0",
            "limit=501",
            "limit=x",
            "offset=-1",
            "order=newest",
            "limit=",
            "offset=99999999999",
        ):
            answer = await door.request("GET", f"/api/sessions/s/messages?{query}")
            assert error_of(answer) == (400, "invalid_pagination", BAD), query


async def test_methods_and_addresses(gateway: Gateway, alice: Person) -> None:
    """HEAD as GET without a body, OPTIONS names the methods, others are 405 with them; unknown addresses are JSON too."""
    async with playing(gateway, alice, echo), Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            await stream.rest()
        gets = ("/api/sessions", "/api/sessions/s", "/api/sessions/s/messages", "/api/sessions/s/events",
                f"/v1/runs/{stream.run}", f"/v1/runs/{stream.run}/events")  # fmt: skip
        for path in gets:
            head = await door.request("HEAD", path)
            assert head.status_code == 200 and head.content == b"", path
        for path in (*gets, "/api/sessions/s/chat/stream", f"/v1/runs/{stream.run}/stop"):
            asked = await door.request("OPTIONS", path)
            assert asked.status_code == 204 and "OPTIONS" in asked.headers["Allow"]
            refused = await door.request("PUT", path)
            assert error_of(refused) == (405, "method_not_allowed", BAD)
            assert refused.headers["Allow"] == asked.headers["Allow"]
        for path in ("/", "/api/sessions/", "/v1/runs", "/v1/models", "/api/sessions/s/chat/stream/"):
            assert error_of(await door.request("GET", path)) == (404, "not_found", BAD), path
        assert error_of(await door.http.request("GET", f"{BASE}/api/sessions", headers={"Authorization": "x"})) == (
            401, "unauthorized", "authentication_error",
        )  # fmt: skip


async def test_ids_of_others_are_unknown_on_every_route(gateway: Gateway, alice: Person, bob: Person) -> None:
    """The answer is the same, to the letter, as for an id that nobody has."""
    async with playing(gateway, alice, echo), Door(gateway, alice) as door, Door(gateway, bob) as other:
        await door.create("mine")
        async with door.run("mine") as stream:
            await stream.rest()
        for path, methods in (
            ("/api/sessions/{s}", ("GET", "PATCH", "DELETE")),
            ("/api/sessions/{s}/messages", ("GET",)),
            ("/api/sessions/{s}/events", ("GET",)),
            ("/api/sessions/{s}/chat/stream", ("POST",)),
            ("/api/sessions/{s}/fork", ("POST",)),
            ("/v1/runs/{r}", ("GET",)),
            ("/v1/runs/{r}/events", ("GET",)),
            ("/v1/runs/{r}/stop", ("POST",)),
            ("/v1/runs/{r}/steer", ("POST",)),
        ):
            for method in methods:
                body = {"json": {"input": "x", "title": "x"}} if method in ("POST", "PATCH") else {}
                theirs = await other.request(method, path.format(s="mine", r=stream.run), **body)
                nobodys = await other.request(method, path.format(s="nobodys", r="run_nobodys"), **body)
                code = "session_not_found" if "{s}" in path else "run_not_found"
                assert error_of(theirs) == error_of(nobodys) == (404, code, BAD), path
                assert theirs.json() == nobodys.json()
        await other.create("own")
        stolen = await other.refused("own", "x", replace_from=stream.run)
        assert error_of(stolen) == (404, "run_not_found", BAD)
        assert (await other.create("mine")).status_code == 201, "ids are a user's own"
        assert (await other.history("mine"))["data"] == []


async def test_c55_one_run_at_a_time(gateway: Gateway, alice: Person) -> None:
    """C55: two at once by two processes; beside a message of the App; the adapter's 404, create, again from two tabs."""
    agent = await connect(gateway, alice)
    ports = [server.port for server in gateway.servers]
    async with agent, Door(gateway, alice, ports[0]) as door, Door(gateway, alice, ports[-1]) as tab:

        async def again(one: Door) -> Any:
            created = await one.create("s")
            answer = await one.request(
                "POST",
                "/api/sessions/s/chat/stream",
                json={"input": "hello"},
                headers={"Accept": "application/json"},
            )
            return created, answer

        for first in await asyncio.gather(door.refused("s", "hello"), tab.refused("s", "hello")):
            assert error_of(first) == (404, "session_not_found", BAD)
        results = await asyncio.gather(again(door), again(tab))
        assert sorted(created.status_code for created, _ in results) == [201, 409]
        assert sorted(answer.status_code for _, answer in results) == [202, 409]
        [run] = [answer.json()["run_id"] for _, answer in results if answer.status_code == 202]
        [busy] = [answer for _, answer in results if answer.status_code == 409]
        assert error_of(busy) == (409, "run_already_active", "conflict_error")
        assert busy.json()["error"]["run_id"] == run
        ask = await agent.expect(type="text")
        await agent.stream(["hi"], "s", ask["id"])
        async with door.resume(run) as stream:
            check_order(await stream.rest())
        app = await gateway.app(alice)
        async with app:
            said = await app.say("by socket", "s")
            await agent.expect(type="text", id=said["id"])
            assert error_of(await door.refused("s", "me too"))[1] == "run_already_active"
            await agent.stream(["yes"], "s", said["id"])
            await app.until(type="stream_end")
        roles = [row["role"] for row in (await door.history("s"))["data"]]
        assert roles == ["user", "assistant"] * 2
        listed = (await door.request("GET", "/api/sessions")).json()
        assert [row["id"] for row in listed["data"]] == ["s"] and listed["has_more"] is False


async def test_c55_creating(gateway: Gateway, alice: Person, bob: Person) -> None:
    """C55: twice, with somebody else's id, a bad id, none, and members that nobody knows."""
    async with Door(gateway, alice) as door, Door(gateway, bob) as other:
        assert (await door.create("s", title="T", unknown=1)).json()["session"]["title"] == "T"
        assert error_of(await door.create("s")) == (409, "session_exists", "conflict_error")
        assert (await other.create("s")).status_code == 201
        for bad in ("", ".", "..", "x" * 129, "a\nb", "a\x00", 5, [], True):
            answer = await door.request("POST", "/api/sessions", json={"id": bad})
            assert error_of(answer) == (400, "invalid_session_id", BAD), bad
        for title in ("", 5, "x" * 256, "a\nb"):
            assert error_of(await door.create("t", title=title)) == (400, "invalid_title", BAD)
        assert error_of(await door.create("t", agent="nobody")) == (400, "invalid_agent", BAD)
        made = await door.request("POST", "/api/sessions")
        assert (
            made.status_code == 201
            and made.json()["object"] == "hermes.session"
            and made.json()["session"]["id"]
        )
        assert (await door.request("DELETE", "/api/sessions/s")).json() == {
            "object": "hermes.session.deleted", "id": "s", "deleted": True,
        }  # fmt: skip
        assert error_of(await door.create("s")) == (409, "session_deleted", "conflict_error")
        assert error_of(await door.refused("s")) == (404, "session_not_found", BAD)
        assert (await other.history("s"))["data"] == []


async def test_c57_no_address_of_an_image_is_ever_asked(gateway: Gateway, alice: Person, bob: Person) -> None:
    """C57: addresses inside are passed on unread; other schemes, files that are not images and others' files are refused."""
    asked: list[bytes] = []

    async def trap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(trap, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    picture = png(8, 6)
    async with (
        server,
        await connect(gateway, alice) as agent,
        Door(gateway, alice) as door,
        Door(gateway, bob) as other,
    ):
        await door.create("s")
        inside = [
            f"http://127.0.0.1:{port}/", "http://127.0.0.1:6379/", "http://169.254.169.254/latest/meta-data",
            f"http://[::1]:{port}/", f"http://localhost:{port}/redirect",
        ]  # fmt: skip
        async with door.run("s", [_image(url) for url in inside]) as stream:
            ask = await agent.expect(type="text")
            assert ask["data"]["images"] == inside
            await agent.stream(["seen"], "s", ask["id"])
            await stream.rest()
        assert asked == []
        mine = await _upload(door, picture)
        theirs = await _upload(other, picture)
        async with door.run("s", [_image(f"/media/{mine}"), _image(_data_url(png(5, 5)))]) as stream:
            ask = await agent.expect(type="image")
            assert ask["data"]["media"]["id"] == mine and ask["data"]["media"]["width"] == 8
            assert len(ask["data"]["media_list"]) == 2
            await agent.stream(["seen"], "s", ask["id"])
            events = await stream.rest()
        shown = [part["image_url"]["url"] for part in events[0]["user_message"]["content"]]
        assert [url.rpartition("/")[0].endswith("/media") for url in shown] == [True, True]
        foreign = await door.refused("s", [_image(f"/media/{theirs}")])
        unknown = await door.refused("s", [_image("/media/med_unknown")])
        assert error_of(foreign) == error_of(unknown) == (404, "not_found", BAD)
        for bad, code in (
            ("file:///etc/passwd", "invalid_image_url"),
            ("ftp://example.org/x", "invalid_image_url"),
            ("javascript:alert(1)", "invalid_image_url"),
            ("http://", "invalid_image_url"),
            ("http://a\nb", "invalid_image_url"),
            ("http://[", "invalid_image_url"),
            ("data:image/png,xyz", "invalid_image_url"),
            ("data:image/png;base64,%%%", "invalid_image_url"),
            ("data:text/html;base64,aGk=", "unsupported_content_type"),
            (_data_url(b"<script>alert(1)</script>"), "unsupported_content_type"),
        ):
            assert error_of(await door.refused("s", [_image(bad)])) == (400, code, BAD), bad
        fifty = '{"input":[{"type":"image_url","image_url":"data:image/png;base64,'
        answer = await door.request(
            "POST",
            "/api/sessions/s/chat/stream",
            content=(fifty + "A" * (50 << 20) + '"}]}').encode(),
            headers=JSON,
        )
        assert error_of(answer) == (413, "body_too_large", BAD)
        await agent.quiet()


async def test_a_refused_picture_is_not_kept(gateway: Gateway, alice: Person) -> None:
    """Its bytes are stored only when nothing else is in the way."""
    async with await connect(gateway, alice) as agent, Door(gateway, alice) as door:
        await door.create("s")
        async with door.run("s") as stream:
            ask = await agent.expect(type="text")
            picture = _data_url(png(7, 7))
            assert error_of(await door.refused("s", [_image(picture)]))[1] == "run_already_active"
            assert await _media_of(gateway, alice) == 0
            await agent.stream(["ok"], "s", ask["id"])
            await stream.rest()
        async with door.run("s", [_image(picture)]) as stream:
            ask = await agent.expect(type="image")
            await agent.stream(["ok"], "s", ask["id"])
            assert text_of(await stream.rest()) == "ok"
        assert await _media_of(gateway, alice) == 1


async def test_other_origins(make_gateway: Any) -> None:
    """Known ones may call with the cookie and read; unknown ones may not; a bearer credential is not judged by origin."""
    gateway: Gateway = make_gateway("embedded", {"HERMES_CORS_ORIGINS": "https://chat.example"})
    person = gateway.person("alice")
    async with Door(gateway, person) as door:
        await _call_from_elsewhere(door, cookie=False)
        password = gateway.clerk.ask("set_password", name=person.name)
        del door.http.headers["Authorization"]
        body = {"username": person.name, "password": password}
        assert (await door.http.post("/api/auth/login", json=body)).status_code == 200
        await _call_from_elsewhere(door, cookie=True)
        bare = await door.request("POST", "/api/sessions", json={})
        assert error_of(bare)[:2] == (403, "origin_not_allowed")
        same = await door.request("POST", "/api/sessions", json={}, headers={"Sec-Fetch-Site": "same-origin"})
        assert same.status_code == 201


async def _call_from_elsewhere(door: Door, *, cookie: bool) -> None:
    for origin, known in (
        ("https://chat.example", True),
        ("https://evil.example", False),
        ("null", False),
    ):
        asked = await door.request(
            "OPTIONS", "/api/sessions",
            headers={"Origin": origin, "Access-Control-Request-Method": "POST"},
        )  # fmt: skip
        made = await door.request("POST", "/api/sessions", json={}, headers={"Origin": origin})
        assert made.status_code == (201 if known or not cookie else 403), origin
        if not known and cookie:
            assert error_of(made)[1:] == ("origin_not_allowed", "permission_error")
        for answer in (asked, made):
            assert answer.headers.get("Access-Control-Allow-Origin") == (origin if known else None)
            assert answer.headers.get("Access-Control-Allow-Credentials") == ("true" if known else None)
        assert ("POST" in asked.headers.get("Access-Control-Allow-Methods", "")) is known


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _data_url(raw: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(raw).decode()


async def _upload(door: Door, raw: bytes) -> str:
    answer = await door.http.post("/api/media/upload", files={"file": ("p.png", raw)})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["media_id"])


async def _media_of(gateway: Gateway, person: Person) -> int:
    count = (
        "SELECT count(*) FROM media_media m JOIN accounts_user u ON u.id = m.owner_id WHERE u.username = '{}'"
    )
    return int(gateway.clerk.ask("sql", statement=count.format(person.name))[0][0])
