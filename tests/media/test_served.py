"""Media through a running gateway: uploaded to one process, named in frames, downloaded from another."""

from typing import Any

import httpx

from tests.media import samples
from tests.rig.clerk import Person
from tests.rig.gateway import Gateway
from tests.rig.sockets import new_id

PICTURE = samples.png(30, 20) + b"trailing bytes" * 20_000
TRUE = {"name": "m.png", "type": "image/png", "size": len(PICTURE), "width": 30, "height": 20}


def door(gateway: Gateway, credential: str, agents_side: bool = False) -> httpx.Client:
    """An HTTP client of one of the processes."""
    server = gateway.agent_server if agents_side else gateway.app_server
    headers = {"Authorization": f"Bearer {credential}"}
    return httpx.Client(
        base_url=f"http://127.0.0.1:{server.port}", headers=headers, trust_env=False, timeout=20
    )


def upload(gateway: Gateway, credential: str, data: bytes = PICTURE, name: str = "m.png") -> dict[str, Any]:
    """Upload a file and give what is told of it."""
    with door(gateway, credential) as http:
        answer = http.post("/api/media/upload", files={"file": (name, data)})
    assert answer.status_code == 201, answer.text
    told: dict[str, Any] = answer.json()
    return told


def fetched(gateway: Gateway, credential: str, media_id: str, **headers: str) -> httpx.Response:
    """What a caller gets for an id, from the process that agents connect to."""
    with door(gateway, credential, agents_side=True) as http:
        return http.get(f"/media/{media_id}", headers=headers)


def image(media: dict[str, Any]) -> dict[str, Any]:
    """The fields of an image's frame that are not the envelope's."""
    return {"id": new_id(), "data": {"media": media}}


async def test_c42_a_frame_opens_no_foreign_file(gateway: Gateway):
    """C42: naming somebody else's file in a frame is `upload_failed` and opens it neither to the sender nor its agent."""
    alice, bob = gateway.person("alice"), gateway.person("bob")
    media_id = upload(gateway, alice.token)["media_id"]
    async with await gateway.agent(bob) as agent, await gateway.app(bob) as app:
        for named in (media_id, "med_" + "0" * 32):
            frame = app.envelope("image", "s1", **image({"id": named}))
            await app.send(frame)
            await app.expect(type="error", reply_to=frame["id"], code="upload_failed")
            for stranger in (bob.token, bob.key):
                assert fetched(gateway, stranger, named).status_code == 404
        await agent.quiet()
    assert fetched(gateway, alice.token, media_id).content == PICTURE


async def test_c42_false_values_become_true_ones(gateway: Gateway):
    """C42: what a sender claims of a file is replaced by what it is; an agent may have it once it was sent it."""
    alice = gateway.person("alice")
    media_id = upload(gateway, alice.token)["media_id"]
    assert fetched(gateway, alice.key, media_id).status_code == 404
    async with await gateway.agent(alice) as agent, await gateway.app(alice) as app:
        lies = {"id": media_id, "name": "../x.exe", "type": "text/html", "size": 1, "width": 9, "height": 9}
        await app.send(app.envelope("image", "s1", **image(lies)))
        received = await agent.expect(type="image")
        assert received["data"]["media"] == {"id": media_id} | TRUE
    answer = fetched(gateway, alice.key, media_id)
    assert (answer.status_code, answer.content) == (200, PICTURE)


async def test_an_agents_file_reaches_the_app(gateway: Gateway):
    """An agent uploads and names a file; the App gets its true kind and values, and the bytes in parts."""
    alice: Person = gateway.person("alice")
    told = upload(gateway, alice.key, samples.wav(2.6), "answer.wav")
    async with await gateway.agent(alice) as agent, await gateway.app(alice) as app:
        await agent.send(agent.envelope("file", "s1", **image({"id": told["media_id"]})))
        received = await app.expect(type="voice")
    assert received["data"]["media"] == {
        "id": told["media_id"],
        "type": "audio/wav",
        "size": told["size"],
        "duration": 3,
    }
    part = fetched(gateway, alice.token, told["media_id"], Range="bytes=0-3")
    assert (part.status_code, part.content) == (206, b"RIFF")
    assert part.headers["Content-Range"] == f"bytes 0-3/{told['size']}"
