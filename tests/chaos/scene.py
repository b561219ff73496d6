"""One person, two devices, agents behind bridges, on a gateway: what asks, what comes to rest, what is judged."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.device import Device
from tests.chaos.hermes import Order, ScriptedHermes
from tests.chaos.verdict import LIVE, Verdict, replay, runs_of
from tests.rig.bridge import Bridge
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import address
from tests.rig.timing import SCALE, eventually

CAPS = "sync,events,control"
REST_SECONDS = 90.0 * SCALE
LAST_CURSOR = """
SELECT COALESCE(MAX(last_cursor), 0) FROM chat_userlog l JOIN accounts_user u ON l.user_id = u.id
WHERE u.username = '{user}'
"""


@dataclass
class Scene:
    """Who takes part. `agents` are the names to write to, each with its Hermes and its bridge."""

    gateway: Gateway
    person: Person
    devices: list[Device]
    agents: dict[str, tuple[ScriptedHermes, Bridge]]
    asked: list[Order] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._marks = itertools.count(1)

    async def ask(
        self,
        session: str,
        words: int,
        pause_seconds: float,
        *,
        to: str = "hermes",
        fails: bool = False,
        device: int = 0,
    ) -> Order:
        """Have a device ask for so many words."""
        order = Order(f"{self.person.name}-q{next(self._marks)}", words, pause_seconds, fails)
        self.asked.append(order)
        await self.devices[device].say(order.mark, order.question(), session, to)
        return order

    def is_settled(self, mark: str) -> bool:
        """Whether a device knows that a question was answered, or will not be."""
        return any(mark in device.settled for device in self.devices)

    async def rest(self) -> None:
        """Wait until every turn has ended and every device has everything."""

        async def at_rest() -> bool:
            runs = runs_of(self.gateway.clerk, self.person.name)
            known = {run.question for run in runs.values()}
            if not {order.mark for order in self.asked} <= known or any(
                run.status in LIVE for run in runs.values()
            ):
                return False
            answer = await self._last_cursor()
            return all(device.since == answer and not device.outbox for device in self.devices)

        with contextlib.suppress(TimeoutError):  # the verdict says what is missing
            await eventually(at_rest, REST_SECONDS, "everything has come to rest")

    async def verdict(self) -> Verdict:
        """Judge what everybody has seen."""
        async with await self.gateway.app(self.person, caps="sync", since="0") as fresh:
            stored = await replay(fresh)
        runs = runs_of(self.gateway.clerk, self.person.name)
        agents = [hermes for hermes, _ in self.agents.values()]
        return Verdict().judge(self.asked, self.devices, stored, agents, runs)

    async def _last_cursor(self) -> int:
        return int(self.gateway.clerk.ask("sql", statement=LAST_CURSOR.format(user=self.person.name))[0][0])


@contextlib.asynccontextmanager
async def scene(
    gateway: Gateway,
    folder: Path,
    *,
    dialects: dict[str, str] | None = None,
    app_port: Callable[[int], int] | None = None,
    agent_port: Callable[[str], int] | None = None,
) -> AsyncIterator[Scene]:
    """Two devices, and an agent of each of these names in front of a Hermes of that dialect; ports by who connects."""
    person = gateway.person()
    keys = {"hermes": person.key}
    ports = [gateway.app_server.port, gateway.agent_server.port]

    def url(number: int) -> Callable[[int], str]:
        def with_since(since: int) -> str:
            port = app_port(number) if app_port else ports[number]
            return gateway.app_url(person, port=port, caps=CAPS, since=str(since))

        return with_since

    async with contextlib.AsyncExitStack() as stack:
        agents: dict[str, tuple[ScriptedHermes, Bridge]] = {}
        for name, dialect in (dialects or {"hermes": "0.22"}).items():
            hermes = await stack.enter_async_context(ScriptedHermes(dialect))
            key = keys.get(name) or gateway.clerk.key(person.name, agent=name)
            environment = {"HERMES_API_URL": hermes.url, "HERMES_API_KEY": "key-of-hermes"}
            port = agent_port(name) if agent_port else gateway.agent_server.port
            bridge = Bridge(address(port, "/ws/agent"), key, folder / f"bridge-{name}", **environment)
            stack.callback(bridge.kill)
            bridge.start()
            await asyncio.to_thread(bridge.wait_for_log, "connected;")
            agents[name] = hermes, bridge
        devices = [
            await stack.enter_async_context(Device(f"device {number}", person.name, url(number)))
            for number in range(2)
        ]
        yield Scene(gateway, person, devices, agents)
        for _, bridge in agents.values():
            assert "Traceback" not in bridge.log(), bridge.log()[-4000:]
