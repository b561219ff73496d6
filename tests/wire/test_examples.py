"""Every example of protocol v3, sent by its side, arrives at the other as it is written there: nothing added."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.clerk import Person
from tests.rig.gateway import STEADY, Gateway
from tests.rig.pool import Pool

FOLDER = Path(__file__).parent
EXAMPLES = sorted(FOLDER.glob("[0-9]*.json"))
PROCESSES = [
    *(("embedded", server) for server in ("serve", "daphne", "uvicorn")),
    *(("shared", server) for server in ("serve", "daphne")),
]


def read(path: Path) -> Any:
    """One golden file."""
    return json.loads(path.read_text())


@pytest.fixture(scope="module", params=PROCESSES, ids="-".join)
def installation(request: pytest.FixtureRequest, pool: Pool) -> Iterator[tuple[Gateway, Person]]:
    """A gateway with the user and the files that the examples speak of."""
    backend, server = request.param
    gateway = pool.get(backend, STEADY, server)
    admin = gateway.clerk.person("admin")
    for number, row in enumerate(read(FOLDER / "media.json")):
        digest = f"{number:064x}"
        gateway.clerk.ask("media", owner="admin", sha256=digest, storage_name=f"example/{number}", **row)
    with gateway.clean_log():
        yield gateway, admin


async def test_every_example_of_v3_is_relayed_as_it_is(installation: tuple[Gateway, Person]) -> None:
    """In the order of the document, over one pair of sockets without capabilities, compared as whole JSON."""
    gateway, admin = installation
    assert len(EXAMPLES) == 12
    async with await gateway.app(admin) as app, await gateway.agent(admin) as agent:
        for example in map(read, EXAMPLES):
            sender, receiver = (app, agent) if example["by"] == "app" else (agent, app)
            await sender.send(example["frame"])
            if "answer" in example:
                assert await sender.next() == example["answer"]
            else:
                assert await receiver.next() == example["frame"], example["example"]
        await app.quiet()
        await agent.quiet()


async def test_a_sender_that_gives_the_media_id_alone_is_filled_in(
    installation: tuple[Gateway, Person],
) -> None:
    """The true values come from the upload: the receiver of `{id}` gets the media object of the document."""
    gateway, admin = installation
    async with await gateway.app(admin) as app, await gateway.agent(admin) as agent:
        for example in map(read, EXAMPLES):
            frame = example["frame"]
            if frame["type"] not in ("image", "voice", "video", "file"):
                continue
            sent = app.envelope(
                frame["type"], "filled-in", data={"media": {"id": frame["data"]["media"]["id"]}}
            )
            await app.send(sent)
            got = await agent.next()
            assert got == sent | {"data": {"media": frame["data"]["media"]}}
            back = agent.envelope(frame["type"], "filled-in", data=sent["data"], reply_to=sent["id"])
            await agent.send(back)
            assert await app.next() == back | {"data": {"media": frame["data"]["media"]}}
