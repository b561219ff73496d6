"""A hundred thousand frames of chance on both sockets: no traceback, the heartbeat answered, everybody else served."""

import os
import random
from collections.abc import Callable
from itertools import islice

import pytest

from tests.chaos.noise import Noise
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import Agent, App, new_id
from tests.rig.timing import SCALE

FRAMES = int(os.environ.get("CHAOS_FRAMES", "10000"))
"""For each kind of store, half of them to sockets with capabilities; `make chaos` sends ten times as many."""

SEED = int(os.environ.get("CHAOS_SEED", "20261130"))
PINGED = 9
"""Frames between two pings: twenty bad ones in a row would close the socket, as they should."""

BURST = 90


@pytest.mark.timeout(900 * SCALE)
@pytest.mark.parametrize("caps", ["", "sync,events,control"], ids=["v3", "caps"])
async def test_random_frames(make_gateway: Callable[..., Gateway], backend: str, caps: str) -> None:
    """An App and an agent of one user send noise; two others of another user talk on."""
    gateway = make_gateway(backend, {"HERMES_RATE_LIMIT": "0"})
    alice, bob = gateway.person("alice"), gateway.person("bob")
    query = {"caps": caps} if caps else {}
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    with gateway.clean_log():
        async with await gateway.app(alice, **query) as app, await gateway.agent(alice, **query) as agent:
            refused = await send_noise(gateway, app, agent, chance, FRAMES // 2)
            for peer in (app, agent):
                await peer.alive()
            for person in (alice, bob):
                await talks(gateway, person)
    (stored,) = gateway.clerk.ask("sql", statement="SELECT COUNT(*) FROM chat_message")[0]
    assert refused > FRAMES // 10 and int(stored) > FRAMES // 100, (
        f"{refused} refused, {stored} stored: no good mixture"
    )


async def send_noise(gateway: Gateway, app: App, agent: Agent, chance: random.Random, count: int) -> int:
    """
    So many frames, half of them from each side, a burst at a time; after each burst the heartbeat is answered.

    Returns how many were refused.
    """
    refused = 0
    noises = [(app, Noise(chance, app.user, "hermes")), (agent, Noise(chance, "hermes", agent.user))]
    sources = [(peer, noise.frames(count // 2)) for peer, noise in noises]
    while sources:
        for peer, source in list(sources):
            burst = list(islice(source, BURST))
            for number, frame in enumerate(burst):
                await peer.send(frame)
                if number % PINGED == 0:
                    await peer.send({"type": "ping"})
            pings = len(range(0, len(burst), PINGED))
            for _ in range(pings):
                await peer.until(30 * SCALE, type="pong")
            await peer.alive()
            refused += sum(frame["type"] == "error" for frame in peer.seen)
            peer.seen.clear()
            if len(burst) < BURST:
                sources.remove((peer, source))
    return refused


async def talks(gateway: Gateway, person: Person) -> None:
    """A question and its answer, on new sockets."""
    session = new_id()
    async with await gateway.app(person) as app, await gateway.agent(person) as agent:
        question = await app.say("and now?", session)
        (*_, asked) = await agent.until(id=question["id"])
        assert asked == question
        answer = await agent.answer("all is well", session, question["id"])
        assert (await app.until(id=answer["id"]))[-1] == answer
