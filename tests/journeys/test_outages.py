"""What the gateway needs goes away and comes back: PostgreSQL, Redis, room on the disk. No process is started anew."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.chaos.storm import Store
from tests.rig.backends import Templates, missing
from tests.rig.clerk import Person
from tests.rig.gateway import STEADY, Gateway
from tests.rig.sockets import App, new_id, without_null_reply
from tests.rig.timing import SCALE, eventually

CAPS = "sync,events,control"
pytestmark = pytest.mark.timeout(180 * SCALE)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A PostgreSQL and a Redis that may be ended."""
    made = Store(tmp_path)
    yield made
    made.close()


@contextlib.contextmanager
def running(store: Store, **settings: str) -> Iterator[Gateway]:
    """Two processes over this store."""
    gateway = Gateway(store, STEADY | settings)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.stop()


async def upload(gateway: Gateway, person: Person, content: bytes, name: str = "a.bin") -> httpx.Response:
    """Upload a file."""
    async with gateway.http(person) as http:
        return await http.post("/api/media/upload", files={"file": (name, content)})


async def answered(gateway: Gateway, person: Person, text: str) -> None:
    """On new sockets: a question, an answer."""
    async with await gateway.app(person) as app, await gateway.agent(person) as agent:
        question = await app.say(text, new_id())
        assert await agent.next() == question
        assert (await agent.answer("yes", question["session"], question["id"])) == await app.next()


async def works(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """The result of the first attempt that does not fail; the database may have come back a moment ago."""
    found: list[Any] = []

    async def tried() -> bool:
        with contextlib.suppress(OSError, InvalidStatus, httpx.TransportError):
            found.append(await attempt())
        return bool(found)

    await eventually(tried)
    return found[0]


@pytest.mark.parametrize("connections", ["closed", "kept"])
async def test_c70_postgres_restarts(store: Store, connections: str) -> None:
    """
    CONN_MAX_AGE 0 and 600. During the outage connect, text, stream and upload are answered with errors; after it
    the old sockets do all of it, and the stream that ran through it ends whole.
    """
    kept = {"DJANGO_SETTINGS_MODULE": "tests.chaos.lasting_connections"} if connections == "kept" else {}
    with running(store, **kept) as gateway:
        alice, bob = gateway.person("alice"), gateway.person("bob")
        async with (
            await gateway.app(alice, caps=CAPS) as app,
            await gateway.agent(alice, caps=CAPS) as agent,
            await gateway.app(bob) as bobs_app,
            await gateway.agent(bob) as bobs_agent,
            gateway.http(alice) as http,
        ):
            await app.expect(type="ready")
            await agent.expect(type="ready")
            question = await app.say("tell me", "S1")
            await agent.expect(type="text", id=question["id"])
            start = await agent.start("S1", question["id"])
            await agent.piece("before ", "S1")
            await app.until(type="stream")
            assert (await http.get("/api/me")).status_code == 200

            await asyncio.to_thread(store.cluster.stop)
            for refused in (gateway.app(alice), gateway.agent(bob)):
                with pytest.raises(InvalidStatus) as error:
                    await refused
                assert error.value.response.status_code == 503
            assert (await http.get("/api/me")).status_code == 503
            failed = await upload(gateway, alice, b"x" * 1000)
            assert failed.status_code == 503 and failed.json()["error"]["code"] == "upload_failed"
            lost = await bobs_app.say("into the outage", "S1")
            await bobs_app.expect(type="error", code="internal", reply_to=lost["id"])
            await asyncio.sleep(1.2)  # by now the names of the agents are to be read again, which fails too
            later = await bobs_app.say("and once more", "S1")
            await bobs_app.expect(type="error", code="internal", reply_to=later["id"])
            await agent.piece("during ", "S1")
            await agent.end("S1")
            assert await agent.ended() == 4011
            await asyncio.to_thread(store.cluster.start)

            async with await works(lambda: gateway.agent(alice, caps=CAPS, since="0")) as back:
                (open_stream,) = (await back.expect(type="ready"))["data"]["streams"]
                assert (open_stream["id"], open_stream["chars"]) == (start["id"], len("before "))
                await back.piece("during and after", "S1")
                await back.end("S1")
                await app.until(type="stream_end")
            await bobs_app.send(lost)
            assert await bobs_agent.next() == lost
            assert await bobs_agent.answer("at last", "S1", lost["id"]) == await bobs_app.next()
            await bobs_agent.stream(["a ", "stream"], "S1")
            assert (await bobs_app.read_stream("S1")).text == "a stream"
            assert (await http.get("/api/me")).status_code == 200
            assert (await upload(gateway, alice, b"x" * 1000)).status_code == 201
        texts = [frame["data"] for frame in await gateway.history(alice, "S1")]
        assert texts == [{"text": "tell me"}, {"text": "before during and after"}]
        await answered(gateway, bob, "and on new sockets")


async def test_an_end_that_falls_into_an_outage_comes_after_it(store: Store) -> None:
    """The grace time of an agent that went away is over while the database is away: its turn ends all the same."""
    with running(store, HERMES_STREAM_GRACE_SECONDS="1") as gateway:
        alice = gateway.person("alice")
        async with await gateway.app(alice, caps=CAPS) as app, await gateway.agent(alice, caps=CAPS) as agent:
            question = await app.say("tell me", "S1")
            await agent.until(type="text")
            await agent.start("S1", question["id"])
            await agent.piece("half", "S1")
            await app.until(type="stream")
            await asyncio.to_thread(store.cluster.stop)
            agent.abort()
            await asyncio.sleep(2)  # the grace time is over meanwhile
            await asyncio.to_thread(store.cluster.start)
            frames = await app.until(timeout_seconds=20 * SCALE, type="stream_end")
            (error,) = (frame for frame in frames if frame["type"] == "error")
            assert (error["data"]["code"], error["reply_to"]) == ("offline", question["id"])
        assert (await gateway.history(alice, "S1"))[-1]["data"] == {"text": "half", "interrupted": True}


async def test_redis_is_killed_and_comes_back(store: Store) -> None:
    """What is said meanwhile is stored, and reaches the other process when it is back: once, in order, in time."""
    with running(store) as gateway:
        alice = gateway.person("alice")
        async with await gateway.app(alice, caps="sync") as app, await gateway.agent(alice) as agent:
            await app.expect(type="ready")
            await asyncio.to_thread(store.redis.kill)
            question = await app.say("does it reach you?", "S1")
            assert await app.next() | {"cursor": 0, "run": None} == question | {"cursor": 0, "run": None}
            assert await agent.next() == question
            first = await agent.answer("yes", "S1", question["id"])
            await agent.stream(["and ", "a ", "stream"], "S1", question["id"])
            await asyncio.to_thread(store.redis.start)
            assert without_null_reply(await app.next(20 * SCALE)) == first | {"cursor": 2}
            stream = await app.read_stream("S1")
            assert stream.text == "and a stream" and stream.end is not None and stream.end["cursor"] == 3
            live = await agent.answer("live again", "S1")
            assert await app.next() == live | {"cursor": 4}


async def test_a_redis_that_stays_away_closes_what_would_be_deaf(store: Store) -> None:
    """After the set time sockets end with 4011; a process that hears others again takes new ones as before."""
    with running(store, HERMES_LAYER_LOST_SECONDS="2") as gateway:
        alice = gateway.person("alice")
        async with await gateway.app(alice) as app, await gateway.agent(alice) as agent:
            await asyncio.to_thread(store.redis.kill)
            assert await app.ended(20 * SCALE) == 4011
            assert await agent.ended(20 * SCALE) == 4011
        await asyncio.to_thread(store.redis.start)

        async def talks() -> bool:
            with contextlib.suppress(
                AssertionError, InvalidStatus, ConnectionClosed
            ):  # closed until the layer was heard again, maybe between two frames
                await answered(gateway, alice, "after it")
                return True
            return False

        await eventually(talks, 20 * SCALE, "both processes talk again")


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of 10 MB."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        missing("only who may mount has a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.asynccontextmanager
async def chatting(gateway: Gateway, person: Person) -> AsyncIterator[App]:
    """A conversation that goes on beside what is done."""
    async with await gateway.app(person) as app, await gateway.agent(person) as agent:
        over = asyncio.Event()

        async def talk() -> int:
            rounds = 0
            while not over.is_set():
                question = await app.say("still there?", "S1")
                assert await agent.next() == question
                assert await agent.answer("yes", "S1", question["id"]) == await app.next()
                rounds += 1
            return rounds

        talking = asyncio.create_task(talk())
        yield app
        over.set()
        assert await talking > 0


@pytest.mark.parametrize("full", ["media", "temporary"])
async def test_c72_a_full_disk_during_uploads(templates: Templates, tmp_path: Path, full: str) -> None:
    """The media folder, then the temporary one, on 10 MB: 20 MB at once and three together, a small file, text meanwhile."""
    backend = templates.make("embedded")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    backend.environment["FILE_UPLOAD_TEMP_DIR"] = str(temporary)
    media = Path(backend.environment["HERMES_DATA_DIR"]) / "media"
    with small_disk(media if full == "media" else temporary) as disk:
        gateway = Gateway(backend, STEADY)
        try:
            gateway.start()
            with gateway.clean_log():
                await fill(gateway, disk, media)
        finally:
            gateway.stop()
    assert not list(temporary.iterdir())


async def fill(gateway: Gateway, disk: Path, media: Path) -> None:
    """Uploads that do not fit, together and alone, then one that does."""
    alice = gateway.person("alice")
    large = [os.urandom(1024) * 20 * 1024 for _ in range(3)]
    async with chatting(gateway, alice):
        answers = [await upload(gateway, alice, large[0], "large.bin")]
        answers += await asyncio.gather(*(upload(gateway, alice, body, "large.bin") for body in large))
        for answer in answers:
            assert answer.status_code in (503, 507), answer.text
            error = answer.json()["error"]
            assert error["code"] == "upload_failed"
            for secret in (str(disk), "Errno", "No space", "/"):
                assert secret not in error["message"]
        assert gateway.clerk.ask("sql", statement="SELECT COUNT(*) FROM media_media") == [["0"]]
        assert not [path for folder in (disk, media) for path in folder.rglob("*") if path.is_file()]
        assert shutil.disk_usage(disk).used < 100_000
        small = await upload(gateway, alice, b"x" * 1024, "small.bin")
        assert small.status_code == 201
        async with gateway.http(alice) as http:
            assert (await http.get(small.json()["url"])).content == b"x" * 1024
