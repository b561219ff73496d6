"""What a relay owes its peers, sentence by sentence of docs/protocol.md: who gets what, ids, contents, queue."""

import asyncio
import json
from typing import Any

import pytest

from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, App, Peer, new_id


async def test_an_agent_s_frames_reach_every_app_of_its_user_in_one_order(
    gateway: Gateway, alice: Person
) -> None:
    """Three devices, on whichever process, see the same."""
    ports = [gateway.app_server.port, gateway.agent_server.port, gateway.app_server.port]
    apps = [await gateway.app(alice, port=port) for port in ports]
    async with await gateway.agent(alice) as agent:
        sent = [await agent.answer(f"text {number}", f"S{number % 3}") for number in range(30)]
        for app in apps:
            assert [await app.next() for _ in sent] == sent
            await app.close()


async def test_a_repeated_id_with_the_same_content_is_quiet(gateway: Gateway, alice: Person) -> None:
    """Nothing is stored or delivered twice, also when `ts` differs; from either side, and from two sockets at once."""
    session = new_id()
    async with (
        await gateway.app(alice) as app,
        await gateway.app(alice, port=gateway.agent_server.port) as second,
        await gateway.agent(alice) as agent,
    ):
        frame = app.envelope("text", session, data={"text": "once"})
        await asyncio.gather(app.send(frame), second.send(frame), app.send(frame | {"ts": frame["ts"] + 1}))
        assert (await agent.next()) | {"ts": 0} == frame | {"ts": 0}
        answer = await agent.answer("once", session, frame["id"])
        await agent.send(answer)
        for peer in (app, second):
            assert await peer.next() == answer
        following = await app.say("next", session)
        assert await agent.next() == following
        last = await agent.answer("next", session, following["id"])
        for peer in (app, second):
            assert await peer.next() == last
    assert [row["data"]["text"] for row in gateway.clerk.messages(alice, session)] == [
        "once",
        "once",
        "next",
        "next",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"text": "other"}},
        {"session": "another"},
        {"reply_to": "x"},
        {"data": {"text": "first", "more": 1}},
    ],
    ids=["text", "session", "reply_to", "data"],
)
async def test_a_repeated_id_with_other_content_is_refused(
    gateway: Gateway, alice: Person, change: dict[str, Any]
) -> None:
    """`unsupported`, and the other side sees nothing of it; the same id of the other side or user is another message."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        first = await app.say("first", "S1")
        assert await agent.next() == first
        await app.send(first | change)
        error = await app.expect(type="error", code="unsupported", reply_to=first["id"])
        assert "id" in error["data"]["text"]
        same_id = await agent.answer("of the agent", "S1", first["id"], id=first["id"])
        assert await app.next() == same_id
        await agent.send(same_id | {"data": {"text": "changed"}})
        await agent.expect(type="error", code="unsupported", reply_to=first["id"])
        await app.quiet()
        await agent.quiet()


async def test_what_a_sender_adds_to_data_is_kept_and_what_it_may_not_set_is_dropped(
    gateway: Gateway, alice: Person
) -> None:
    """Unknown keys inside `data` travel; unknown fields outside, and the gateway's own keys, do not."""
    extra = {"mood": "gut", "nested": {"list": [1, 2.5, None, True, "ü"]}}
    ours = {"queued": True, "status": "x", "history": [], "images": [], "media_list": [], "retry_after": 1}
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        for sender, receiver in ((app, agent), (agent, app)):
            frame = sender.envelope("text", "S1", data={"text": "x"} | extra)
            forged = frame | {
                "cursor": 7,
                "run": {},
                "shade": 1,
                "data": frame["data"] | ours | {"interrupted": True},
            }
            await sender.send(forged)
            assert await receiver.next() == frame


def nested(depth: int) -> dict[str, Any]:
    """An object so many levels deep."""
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (nested(15), True),
        (nested(16), False),
        (nested(500), False),
        ({f"k{number}": number for number in range(254)}, True),
        ({f"k{number}": number for number in range(256)}, False),
        ({"blob": "x" * 65_000}, True),
        ({"blob": "x" * 66_000}, False),
    ],
    ids=["deep", "too deep", "far too deep", "many keys", "too many keys", "large", "too large"],
)
async def test_data_beside_the_text_is_bounded(
    gateway: Gateway, alice: Person, data: dict[str, Any], good: bool
) -> None:
    """64 KiB, 16 deep with `data` as 1, 256 keys in all; the text itself may be long."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        frame = app.envelope("text", "S1", data={"text": "t" * 200_000, "more": data})
        await app.send(frame)
        if good:
            assert await agent.next() == frame
        else:
            error = await app.expect(type="error", code="unsupported", reply_to=frame["id"])
            assert "data" in error["data"]["text"]
            await agent.quiet()


async def test_a_frame_over_the_limit_ends_the_socket_with_1009(gateway: Gateway, alice: Person) -> None:
    """A mebibyte is the limit; the other sockets live on."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        await app.say("x" * (1024 * 1024 + 1), "S1")
        assert await app.ended() == 1009
        await agent.quiet()


@pytest.mark.parametrize(
    "text", ["a\x00b", "\ud800", "a\udc00b"], ids=["NUL", "high surrogate", "low surrogate"]
)
async def test_a_text_that_is_not_unicode_is_refused(gateway: Gateway, alice: Person, text: str) -> None:
    """From both sides, in the text and in keys beside it."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        peers: list[App | Agent] = [app, agent]
        for peer in peers:
            frame = peer.envelope("text", "S1", data={"text": text})
            await peer.send(json.dumps(frame))
            await peer.expect(type="error", code="unsupported", reply_to=frame["id"])
        frame = app.envelope("text", "S1", data={"text": "𝄞 pairs are fine"})
        await app.send(json.dumps(frame))
        assert await agent.next() == frame


async def test_a_stream_is_never_lost_over_a_character(gateway: Gateway, alice: Person) -> None:
    """A pair that was cut between two pieces is whole again; what is no character becomes U+FFFD."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        await agent.start("S1")
        for piece in ("a\ud834", "\udd1eb", "\udd1e", "c\x00", "d\ud834", "e", "f\ud834"):
            await agent.send(json.dumps(agent.bare("stream", "S1", data={"text": piece})))
        await agent.end("S1")
        stream = await app.read_stream("S1")
        assert stream.text == "a𝄞b\ufffdc\ufffdd\ufffdef\ufffd"
    assert (await gateway.history(alice, "S1"))[-1]["data"]["text"] == stream.text


async def test_frames_in_a_wrong_direction_are_refused(gateway: Gateway, alice: Person) -> None:
    """An App does not stream; nobody sends what only the gateway sends; a peer's `pong` is ignored."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        for type in ("stream_start", "stream_end", "stream", "ready"):
            await app.send(app.envelope(type, "S1", data={"text": "x"}))
            await app.expect(type="error", code="unsupported")
        for type in ("ready", "stop", "steer"):
            await agent.send(agent.envelope(type, "S1", data={"text": "x"}, reply_to="m1"))
            await agent.expect(type="error", code="unsupported")
        peers: list[Peer] = [app, agent]
        for peer in peers:
            await peer.send({"type": "pong"})
            await peer.quiet()


async def test_an_app_s_error_reaches_its_agent(gateway: Gateway, alice: Person) -> None:
    """`error` goes both ways; an unknown code is refused."""
    async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
        error = app.envelope(
            "error", "S1", reply_to="str_1", data={"code": "unsupported", "text": "cannot show it"}
        )
        await app.send(error)
        assert await agent.next() == error
        await app.send(error | {"id": new_id(), "data": {"code": "no_such_code", "text": "x"}})
        assert "code" in (await app.expect(type="error", code="unsupported"))["data"]["text"]


async def test_an_absent_app_gets_the_agent_s_messages_once(gateway: Gateway, alice: Person) -> None:
    """The next socket takes them in order; nothing is sent back to the agent; one device takes what another lacks."""
    async with await gateway.agent(alice) as agent:
        sent = [await agent.answer(f"text {number}", "S1") for number in range(5)]
        await agent.quiet()
        async with await gateway.app(alice) as first:
            assert [await first.next() for _ in sent] == sent
            async with await gateway.app(alice) as second:
                live = await agent.answer("live", "S1")
                assert await first.next() == live
                assert await second.next() == live


async def test_the_queue_has_a_length_past_which_nothing_is_kept(brisk_gateway: Gateway) -> None:
    """`queued` false, nothing stored, and the id stays free for another try."""
    gateway = brisk_gateway
    alice = gateway.person()
    limit = int(gateway.settings["HERMES_QUEUE_LIMIT"])
    async with await gateway.app(alice) as app:
        kept = []
        for number in range(limit):
            kept.append(await app.say(f"text {number}", "S1"))
            error = await app.expect(type="error", code="offline", reply_to=kept[-1]["id"])
            assert error["data"]["queued"] is True
        refused = await app.say("one too many", "S1")
        error = await app.expect(type="error", code="offline", reply_to=refused["id"])
        assert error["data"]["queued"] is False
        assert len(gateway.clerk.messages(alice, "S1")) == limit
        async with await gateway.agent(alice) as agent:
            assert [await agent.next() for _ in kept] == kept
            await app.send(refused)
            assert await agent.next() == refused
