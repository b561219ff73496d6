"""One person, two devices, agents behind bridges, on a gateway: what asks, what comes to rest, what is judged."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.device import Device
from tests.chaos.hermes import Order, ScriptedHermes
from tests.chaos.verdict import Verdict, replay, runs_of
from tests.rig.bridge import Bridge
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import address
from tests.rig.timing import SCALE, eventually

CAPS = "sync,events,control"
REST_SECONDS = 90.0 * SCALE


@dataclass
class Scene:
    """Who takes part. `agents` are the names to write to, each with its Hermes and its bridge."""

    gateway: Gateway
    person: Person
    devices: list[Device]
    agents: dict[str, tuple[ScriptedHermes, Bridge]]
    chance: random.Random
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

    def unanswered(self) -> list[Order]:
        """Questions whose turns have not ended, as the first device knows."""
        answered = {one.reply_to for one in self.devices[0].shown if one.side == "agent"}
        told = {error.get("reply_to") for error in self.devices[0].errors if not error["data"].get("queued")}
        return [order for order in self.asked if order.mark not in answered | told]

    async def rest(self) -> None:
        """Wait until every turn has ended and every device has everything."""

        async def at_rest() -> bool:
            runs = runs_of(self.gateway.clerk, self.person.name)
            ended = {
                run.question for run in runs.values() if run.status not in ("queued", "running", "stopping")
            }
            if not {order.mark for order in self.asked} <= ended or len(ended) < len(runs) - 1:
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
        statement = (
            "SELECT COALESCE(MAX(last_cursor), 0) FROM chat_userlog l JOIN accounts_user u ON l.user_id = u.id"
            f" WHERE u.username = '{self.person.name}'"
        )
        return int(self.gateway.clerk.ask("sql", statement=statement)[0][0])


@contextlib.asynccontextmanager
async def scene(
    gateway: Gateway,
    folder: Path,
    *,
    seed: int = 0,
    app_ports: Callable[[], list[int]] | None = None,
    agent_port: Callable[[], int] | None = None,
) -> AsyncIterator[Scene]:
    """Two devices and one agent on a gateway; the ports are asked for at each connection of a device."""
    person = gateway.person()

    def url(number: int) -> Callable[[int], str]:
        def with_since(since: int) -> str:
            ports = app_ports() if app_ports else [gateway.app_server.port, gateway.agent_server.port]
            return gateway.app_url(person, port=ports[number % len(ports)], caps=CAPS, since=str(since))

        return with_since

    async with ScriptedHermes() as hermes, contextlib.AsyncExitStack() as stack:
        port = agent_port() if agent_port else gateway.agent_server.port
        bridge = Bridge(
            address(port, "/ws/agent"),
            person.key,
            folder / "bridge",
            HERMES_API_URL=hermes.url,
            HERMES_API_KEY="key-of-hermes",
        )
        stack.callback(bridge.kill)
        bridge.start()
        await asyncio.to_thread(bridge.wait_for_log, "connected;")
        devices = [
            await stack.enter_async_context(Device(f"device {number}", person.name, url(number)))
            for number in range(2)
        ]
        yield Scene(gateway, person, devices, {"hermes": (hermes, bridge)}, random.Random(seed))
        assert "Traceback" not in bridge.log(), bridge.log()[-4000:]
