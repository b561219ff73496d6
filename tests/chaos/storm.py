"""The storm: people talk, agents stream, and one thing after the other is killed under them."""

import asyncio
import contextlib
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.line import Line
from tests.chaos.postgres import Cluster
from tests.chaos.scene import Scene, scene
from tests.chaos.verdict import Verdict
from tests.rig.backends import RedisServer, manage, production
from tests.rig.gateway import Gateway

SHARES = {"one gateway": 50, "both gateways": 20, "bridge": 55, "redis": 50, "postgres": 50, "line": 75}
"""How many of 300 faults are of each kind; every kind is there in a shorter run too."""

SESSIONS = {"S1": "hermes", "S2": "hermes", "S3": "second"}
DIALECTS = {"hermes": "0.22", "second": "0.19"}

SETTINGS = {
    "HERMES_RATE_LIMIT": "0",
    "HERMES_TAKEOVER_LIMIT": "1000000",
    "HERMES_REPLAY_LIMIT": "1000000",
    "HERMES_REPLAY_BYTES": "1000000000",
    "HERMES_STREAM_GRACE_SECONDS": "10",
}

COMPLETE_SHARE = 0.8
"""A storm that leaves fewer turns complete proves nothing."""

PATIENCE_SECONDS = 8.0
"""A person who has no answer for this long asks the next thing."""


class Store:
    """A PostgreSQL and a Redis that may be killed; what a gateway calls its back end."""

    name = "chaos"
    processes = 2

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster()
        self.redis = RedisServer(folder)
        self.environment = production(folder / "data") | {
            "STATIC_ROOT": str(folder / "static"),
            "DATABASE_URL": self.cluster.url,
            "REDIS_URL": self.redis.url,
        }
        (folder / "data").mkdir()
        (folder / "static").mkdir()
        manage("migrate", "--verbosity", "0", environment=self.environment)

    def dump(self) -> bytes:
        """Nothing: nobody searches here."""
        return b""

    def close(self) -> None:
        """End both."""
        self.redis.kill()
        self.cluster.close()


def schedule(faults: int, chance: random.Random) -> list[str]:
    """So many faults, each kind by its share and at least once, in an order of chance."""
    kinds = [kind for kind, share in SHARES.items() for _ in range(max(1, share * faults // 300))]
    while len(kinds) < faults:
        kinds.append(chance.choice(list(SHARES)))
    chance.shuffle(kinds)
    return kinds


@dataclass
class Storm:
    """One run; see `run`."""

    scene: Scene
    store: Store
    lines: list[Line]
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    lost_bytes: int = 0

    async def talk(self, session: str, over: asyncio.Event) -> None:
        """One conversation: now and then two questions at once, from either device."""
        while not over.is_set():
            asked = []
            for _ in range(self.chance.choice((1, 1, 2))):
                order = await self.scene.ask(
                    session,
                    self.chance.randint(3, 25),
                    self.chance.uniform(0.005, 0.04),
                    to=SESSIONS[session],
                    fails=self.chance.random() < 0.02,
                    device=self.chance.randrange(2),
                )
                asked.append(order.mark)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while not all(self.scene.is_settled(mark) for mark in asked):  # noqa: ASYNC110  # two devices tell
                        await asyncio.sleep(0.05)
            await asyncio.sleep(self.chance.uniform(0, 0.3))

    async def strike(self, kind: str) -> None:
        """One fault, from its beginning to the moment when what it hit is there again."""
        servers, chance = self.scene.gateway.servers, self.chance
        hit = {"one gateway": [chance.choice(servers)], "both gateways": list(servers)}.get(kind)
        pause = chance.uniform(0, 1.5)
        if hit is not None:
            for server in hit:
                await asyncio.to_thread(server.kill)
            await asyncio.sleep(pause)
            for server in hit:
                server.start()
            for server in hit:
                await asyncio.to_thread(server.wait_ready)
        elif kind == "bridge":
            _, bridge = chance.choice(list(self.scene.agents.values()))
            await asyncio.to_thread(bridge.kill)
            await asyncio.sleep(pause)
            bridge.start()
        elif kind == "redis":
            await asyncio.to_thread(self.store.redis.kill)
            await asyncio.sleep(pause * 2)
            await asyncio.to_thread(self.store.redis.start)
        elif kind == "postgres":
            await asyncio.to_thread(self.store.cluster.stop, chance.choice(("fast", "immediate")))
            await asyncio.sleep(pause)
            await asyncio.to_thread(self.store.cluster.start)
        else:
            for line in chance.sample(self.lines, chance.randint(1, 2)):
                self.lost_bytes += await line.reset_with_bytes(chance.uniform(0.02, 0.4))
        self.done[kind] += 1


@dataclass
class Outcome:
    """What a run was, and what was found."""

    seed: int
    faults: Counter[str]
    lost_bytes: int
    seconds: float
    verdict: Verdict
    tracebacks: Counter[str]

    def lines(self) -> list[str]:
        """As text."""
        counts = self.verdict.counts
        share = 100 * counts["complete"] / max(1, counts["turns"])
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        return [
            f"seed {self.seed}, {self.faults.total()} faults in {self.seconds:.0f} s: {faults}",
            f"lost on the lines: {self.lost_bytes} bytes",
            f"turns {counts['turns']}, complete {counts['complete']} ({share:.1f} %)",
            *(f"  {name}: {count}" for name, count in sorted(counts.items()) if ":" in name),
            f"answers begun anew by a bridge that came back: {counts['begun anew']}",
            f"connections of the {counts['devices']} devices: {counts['connections']}",
            *(f"  traceback, {count} times: {last}" for last, count in self.tracebacks.most_common()),
            *(f"WRONG: {one}" for one in self.verdict.wrong),
            "nothing is wrong"
            if not self.verdict.wrong
            else f"{len(self.verdict.wrong)} sentences do not hold",
        ]


async def run(
    seed: int, faults: int, folder: Path, pause_seconds: tuple[float, float] = (1.0, 3.0)
) -> Outcome:
    """Talk through so many faults, let everything come to rest, and judge; a random pause lies between two faults."""
    chance = random.Random(seed)
    store = await asyncio.to_thread(Store, folder)
    gateway = Gateway(store, SETTINGS)
    begun = time.monotonic()
    try:
        await asyncio.to_thread(gateway.start)
        ports = [server.port for server in gateway.servers]
        async with contextlib.AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(Line(ports, chance)) for _ in range(4)]
            devices, agents = lines[:2], dict(zip(DIALECTS, lines[2:], strict=True))
            set = await stack.enter_async_context(
                scene(
                    gateway,
                    folder,
                    dialects=DIALECTS,
                    app_port=lambda number: devices[number].port,
                    agent_port=lambda name: agents[name].port,
                )
            )
            storm = Storm(set, store, lines, chance)
            over = asyncio.Event()
            async with asyncio.TaskGroup() as talks:
                for session in SESSIONS:
                    talks.create_task(storm.talk(session, over))
                for kind in schedule(faults, chance):
                    await asyncio.sleep(chance.uniform(*pause_seconds))
                    await storm.strike(kind)
                over.set()
            await set.rest()
            verdict = await set.verdict()
        tracebacks = Counter(re.findall(r"Traceback .*\n(?:[ \t].*\n|\n)*(.*)", gateway.log()))
        return Outcome(seed, storm.done, storm.lost_bytes, time.monotonic() - begun, verdict, tracebacks)
    finally:
        await asyncio.to_thread(gateway.stop)
