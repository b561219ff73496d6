"""The gateway dies at the worst moments: nothing shown is lost, nothing is shown or run twice, every turn ends."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.mortal import LOSSES, POINTS
from tests.chaos.scene import Scene, scene
from tests.rig.gateway import Gateway
from tests.rig.timing import SCALE, eventually

MakeGateway = Callable[..., Gateway]
pytestmark = pytest.mark.timeout(180 * SCALE)


@pytest.fixture(scope="module")
def mortals(templates, tmp_path_factory):
    """A gateway of each kind for all points, with the file that names the next one."""
    made: dict[str, tuple[Gateway, Path]] = {}

    def get(backend: str) -> tuple[Gateway, Path]:
        if backend not in made:
            point = tmp_path_factory.mktemp("point") / backend
            settings = {"CHAOS_POINT": str(point), "HERMES_STREAM_GRACE_SECONDS": "4"}
            gateway = Gateway(templates.make(backend), settings, "mortal")
            made[backend] = gateway, point
            gateway.start()
        return made[backend]

    yield get
    for gateway, _ in made.values():
        gateway.stop()


async def dies(gateway: Gateway) -> None:
    """Wait until one process has died by the point, then start it anew."""

    async def dead() -> bool:
        return any(server.process.poll() is not None for server in gateway.servers)

    await eventually(dead, what="a process dies at the point")
    (server,) = (server for server in gateway.servers if server.process.poll() is not None)
    assert server.process.returncode == -signal.SIGKILL, server.log()[-4000:]
    server.start()
    await asyncio.to_thread(server.wait_ready)


async def holds(set: Scene, *, complete: int) -> None:
    """Everything comes to rest, every sentence is true, and at least so many turns are complete."""
    await set.rest()
    verdict = await set.verdict()
    assert not verdict.wrong, "\n".join(verdict.wrong)
    assert verdict.counts["complete"] >= complete, verdict.counts


@pytest.mark.parametrize("point", POINTS)
async def test_a_process_that_dies_at_any_point_loses_and_doubles_nothing(
    mortals: Callable[[str], tuple[Gateway, Path]], backend: str, point: str, tmp_path: Path
) -> None:
    """Two turns of one session, one behind the other, and one of another session; the point is met among them."""
    gateway, chosen = mortals(backend)
    async with scene(gateway, tmp_path) as set:
        first = await set.ask("S0", 3, 0.01)
        await set.devices[0].until(lambda: set.is_settled(first.mark), 20 * SCALE, "the first answer")
        chosen.write_text(point)
        await set.ask("S1", 30, 0.02)
        await set.ask("S1", 5, 0.02)
        await set.ask("S2", 10, 0.02, device=1)
        await dies(gateway)
        await set.ask("S1", 3, 0.01, device=1)
        await holds(set, complete=2)
        assert not chosen.exists()


async def test_a_process_that_dies_handing_out_a_queue_loses_and_doubles_nothing(
    mortals: Callable[[str], tuple[Gateway, Path]], backend: str, tmp_path: Path
) -> None:
    """The agent was away: its messages are committed as delivered, and the process dies before it writes them."""
    gateway, chosen = mortals(backend)
    async with scene(gateway, tmp_path) as set:
        _, bridge = set.agents["hermes"]
        bridge.kill()
        await gateway.until_gone(set.person, "agent")
        for session in ("S1", "S1", "S2"):
            await set.ask(session, 5, 0.01)
        await set.devices[1].until(lambda: len(set.devices[1].shown) == 3, 20 * SCALE, "three questions")
        chosen.write_text("between delivered_at and the write to the agent")
        bridge.start()
        await dies(gateway)
        await holds(set, complete=3)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_commit_whose_answer_is_lost_is_never_repeated(
    mortals: Callable[[str], tuple[Gateway, Path]], backend: str, loss: str, tmp_path: Path
) -> None:
    """The pieces of a stream were committed, and the database says so, or cannot be asked: they are there once."""
    gateway, chosen = mortals(backend)
    async with scene(gateway, tmp_path) as set:
        chosen.write_text(loss)
        await set.ask("S1", 30, 0.02)
        await set.ask("S2", 40, 0.02, device=1)
        await holds(set, complete=2)
        assert not chosen.exists()
