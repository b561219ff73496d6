"""C23 names of users, C25 spoofed addresses, C28 two agents for one user."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from tests.rig.bridge import Bridge
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, App, Peer, address, new_id, refusal
from tests.rig.staff import form_fields

NAMES = [
    "张三",
    "a b",
    "o'neil@example.com",
    "x/../y",
    "n" * 150,
    "alice",
    "Alice",
    "a.b",
    "a_b",
    "Ünal",
    "a%b",
]


async def test_c23_any_user_name_works_and_none_meets_another(gateway: Gateway) -> None:
    """All connected at once; one text each way for each; nobody sees another's."""
    people = [gateway.clerk.person(name) for name in NAMES]
    apps: list[App] = [await gateway.app(person) for person in people]
    agents: list[Agent] = [await gateway.agent(person) for person in people]
    questions = [await app.say(f"from {app.user}", "one session id for all") for app in apps]
    for agent, question in zip(agents, questions, strict=True):
        assert await agent.next() == question
    answers = [
        await agent.answer(f"to {agent.user}", "one session id for all", question["id"])
        for agent, question in zip(agents, questions, strict=True)
    ]
    for app, answer in zip(apps, answers, strict=True):
        assert await app.next() == answer
    for peer in (*apps, *agents):
        await peer.quiet()
        await peer.close()
    for person, question, answer in zip(people, questions, answers, strict=True):
        assert await gateway.history(person, "one session id for all") == [question, answer]


async def test_c23_a_user_cannot_be_renamed_in_the_admin(gateway: Gateway, alice: Person) -> None:
    """Even a forged form changes nothing, and the open sockets go on."""
    async with (
        await gateway.app(alice) as app,
        await gateway.agent(alice) as agent,
        await gateway.staff.browse() as admin,
    ):
        found = [
            page
            for page in await admin.pages_of("accounts", "user", search=alice.name)
            if "/change/" in page.url
        ]
        assert len(found) == 1
        assert "username" not in form_fields(found[0].text)
        saved = await admin.submit(found[0].url, {"username": f"{alice.name}-renamed"})
        assert "errornote" not in saved.text
        assert alice.name in (await admin.get(found[0].url)).text
        question = await app.say("still me", "S1")
        assert await agent.next() == question


def spoofs(
    app_bob: App, agent_bob: Agent, agent_alice: Agent, alice: Person
) -> list[tuple[Peer, dict[str, Any]]]:
    """C25's frames, each with the socket that sends it; the session is one of alice's."""
    text = {"data": {"text": "spoofed"}}
    return [
        (app_bob, app_bob.envelope("text", "S-alice", **text) | {"from": alice.name}),
        (app_bob, app_bob.envelope("text", "S-alice", **text) | {"from": "hermes", "to": alice.name}),
        (app_bob, app_bob.envelope("text", "S-alice", **text) | {"to": alice.name}),
        (app_bob, app_bob.envelope("text", "S-alice", **text) | {"to": [alice.name]}),
        (app_bob, app_bob.envelope("text", "S-alice", **text) | {"to": "another"}),
        (app_bob, app_bob.envelope("text", "S-alice", **text) | {"to": ""}),
        (app_bob, app_bob.envelope("stream_start", "S-alice") | {"from": "hermes", "to": alice.name}),
        (agent_bob, agent_bob.envelope("text", "S-alice", **text) | {"to": alice.name}),
        (agent_bob, agent_bob.envelope("stream_start", "S-alice") | {"to": alice.name}),
        (agent_bob, agent_bob.bare("stream", "S-alice", **text) | {"to": alice.name}),
        (agent_bob, agent_bob.envelope("text", "S-alice", **text) | {"to": "hermes"}),
        (agent_bob, agent_bob.envelope("text", "S-alice", **text) | {"from": alice.name, "to": "hermes"}),
        (agent_alice, agent_alice.envelope("text", "S-alice", **text) | {"from": alice.name}),
        (agent_alice, agent_alice.envelope("text", "S-alice", **text) | {"from": "another"}),
    ]


async def test_c25_nobody_speaks_for_another(gateway: Gateway, alice: Person, bob: Person) -> None:
    """Each spoof is refused by name and reaches nobody; what is stored is the real sender's."""
    async with (
        await gateway.app(alice) as app_alice,
        await gateway.agent(alice) as agent_alice,
        await gateway.app(bob) as app_bob,
        await gateway.agent(bob) as agent_bob,
    ):
        mine = await app_alice.say("mine", "S-alice")
        assert await agent_alice.next() == mine
        for peer, frame in spoofs(app_bob, agent_bob, agent_alice, alice):
            await peer.send(frame)
            error = await peer.expect(type="error", code="unsupported")
            assert error.get("reply_to") == frame.get("id"), frame
            assert any(field in error["data"]["text"] for field in ("from", "to", "type")), error
        # the same session id of bob's own is another session
        his = await app_bob.say("his", "S-alice")
        assert await agent_bob.next() == his
        answers = [
            await agent.answer("yes", "S-alice", q["id"])
            for agent, q in ((agent_alice, mine), (agent_bob, his))
        ]
        assert await app_alice.next() == answers[0]
        assert await app_bob.next() == answers[1]
        for peer in (app_alice, agent_alice, app_bob, agent_bob):
            await peer.quiet()
        assert app_alice.seen[:-1] == [answers[0]]
    assert await gateway.history(alice, "S-alice") == [mine, answers[0]]
    assert await gateway.history(bob, "S-alice") == [his, answers[1]]


async def test_c28_each_message_reaches_one_agent_and_is_answered_once(
    gateway: Gateway, alice: Person
) -> None:
    """Two keys, two processes: the newest connection wins, the older is closed with 4409; no half of a stream each."""
    first_port, second_port = gateway.app_server.port, gateway.agent_server.port
    other_key = gateway.clerk.key(alice.name)
    async with await gateway.app(alice) as app:
        first = await gateway.agent(alice, port=first_port)
        second = await gateway.agent(alice, key=other_key, port=second_port)
        assert await first.ended() == 4409
        m1 = await app.say("m1", "S1")
        assert await second.next() == m1
        answer = await second.answer("to m1", "S1", m1["id"])
        assert await app.next() == answer
        second.abort()
        await second.close()

        await gateway.until_gone(alice, "agent")
        m2 = await app.say("m2", "S1")
        await app.expect(type="error", reply_to=m2["id"], code="offline")
        first = await gateway.agent(alice, port=first_port)
        assert await first.next() == m2
        start = await first.start("S1", m2["id"])
        await first.piece("half", "S1")
        assert await app.next() == start
        assert (await app.next())["data"]["text"] == "half"
        second = await gateway.agent(alice, key=other_key, port=second_port)
        assert await first.ended() == 4409
        await second.alive()
        again = await second.stream(["the ", "whole"], "S1", m2["id"])
        frames = await app.until(type="stream_end", session="S1")
        assert [frame["type"] for frame in frames][:1] == ["stream_start"]
        assert frames[0]["id"] == start["id"], "begun anew under the first id"
        assert "".join(f["data"]["text"] for f in frames if f["type"] == "stream") == "the whole"
        assert second.seen == [{"type": "pong"}], "m2 was handed out twice"
        assert again["id"] != start["id"]
        await first.close()
        await second.close()
    texts = [row["data"]["text"] for row in gateway.clerk.messages(alice, "S1") if row["side"] == "agent"]
    assert texts == ["to m1", "the whole"]


async def test_c28_two_agents_do_not_chase_each_other(gateway: Gateway, alice: Person) -> None:
    """After three takeovers within a minute further connections get 429, and the one that holds the name keeps it."""
    ports = [gateway.app_server.port, gateway.agent_server.port]
    agents = [await gateway.agent(alice, port=ports[0])]
    for turn in range(1, 4):
        agents.append(await gateway.agent(alice, port=ports[turn % 2]))
        assert await agents[-2].ended() == 4409
    for port in ports:
        assert await refusal(gateway.agent_url(alice, port=port)) == 429
    async with await gateway.app(alice) as app:
        question = await app.say("who is it", new_id())
        assert await agents[-1].next() == question
    for agent in agents:
        await agent.close()


async def test_c28_two_bridges_of_one_agent_leave_each_other_alone(
    gateway: Gateway, alice: Person, tmp_path: Path
) -> None:
    """The later one takes the place, the earlier one waits for long; each question is answered once."""
    keys = {"first": alice.key, "second": gateway.clerk.key(alice.name)}
    ports = {"first": gateway.app_server.port, "second": gateway.agent_server.port}
    bridges = {
        name: Bridge(address(ports[name], "/ws/agent"), keys[name], tmp_path / name, "--demo")
        for name in keys
    }
    first, second = bridges.values()
    with contextlib.ExitStack() as stack:
        for bridge in (first, second):
            stack.enter_context(bridge)
            await asyncio.to_thread(bridge.wait_for_log, "connected; capabilities")
        await asyncio.to_thread(first.wait_for_log, "took this agent's place")
        async with await gateway.app(alice) as app:
            for number in range(6):  # for longer than an eager bridge would wait
                question = await app.say(f"word {number}", "S1")
                stream = await app.read_stream("S1")
                assert (stream.start["reply_to"], stream.text) == (question["id"], f"word {number}")
                await asyncio.sleep(0.5)
            await app.quiet()
        for bridge in (first, second):
            assert bridge.log().count("connected; capabilities") == 1, bridge.log()


async def test_c28_two_names_of_one_user_are_two_agents(gateway: Gateway, alice: Person) -> None:
    """Each gets what is for it, both stay connected, and an App addresses either."""
    key = gateway.clerk.key(alice.name, agent="coder")
    async with (
        await gateway.app(alice) as app,
        await gateway.agent(alice) as hermes,
        await gateway.agent(alice, key=key, name="coder") as coder,
    ):
        for agent in (hermes, coder):
            question = await app.say("for you", new_id(), to=agent.name)
            assert await agent.next() == question
            answer = await agent.answer("yes", question["session"], question["id"])
            assert await app.next() == answer
        await app.say("a session belongs to its first agent", question["session"], to="hermes")
        await app.expect(type="error", code="unsupported")
        for agent in (hermes, coder):
            await agent.quiet()
