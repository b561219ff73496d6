"""Downloads through the real route."""

import pytest
from django.utils.http import http_date

from media import services
from media.models import Media
from tests.media import samples

DATA = bytes(range(256)) * 1000


@pytest.fixture
def media_id(alice) -> str:
    """A file of Alice's."""
    return alice.upload(DATA, "data.bin").json()["media_id"]


def test_the_whole_file_comes_back(alice, media_id):
    """GET gives the bytes with all that a cache and a browser need to know."""
    answer = alice.get(media_id)
    assert (answer.status_code, answer.body) == (200, DATA)
    assert answer["Content-Length"] == str(len(DATA))
    assert answer["Accept-Ranges"] == "bytes"
    assert answer["Cache-Control"] == "private, no-cache"
    assert {"Authorization", "Cookie"} <= {name.strip() for name in answer["Vary"].split(",")}
    assert answer["ETag"] and answer["Last-Modified"]


def test_head_tells_the_same_without_bytes(alice, media_id):
    """HEAD has the headers of GET, and takes no range."""
    whole, head = alice.get(media_id), alice.get(media_id, "HEAD", Range="bytes=0-1")
    assert (head.status_code, head.body) == (200, b"")
    assert dict(head.headers) == dict(whole.headers)


@pytest.mark.parametrize(
    ("wanted", "start", "stop"),
    [
        ("bytes=0-99", 0, 100),
        ("bytes=255900-", 255900, 256000),
        ("bytes=-10", 255990, 256000),
        ("bytes=70000-200000", 70000, 200001),
    ],
)
def test_a_range_is_a_part(alice, media_id, wanted, start, stop):
    """A range gets 206, its bytes and its place."""
    answer = alice.get(media_id, Range=wanted)
    assert (answer.status_code, answer.body) == (206, DATA[start:stop])
    assert answer["Content-Range"] == f"bytes {start}-{stop - 1}/{len(DATA)}"
    assert answer["Content-Length"] == str(stop - start)


def test_a_range_beyond_the_end_is_refused(alice, media_id):
    """No byte to give: 416, with the true size."""
    answer = alice.get(media_id, Range="bytes=256000-")
    assert (answer.status_code, answer["Content-Range"]) == (416, "bytes */256000")
    assert answer.json()["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("wanted", ["bytes=0-1,5-6", "pages=1-2", "bytes=9-1"])
def test_what_is_no_single_range_gets_the_whole(alice, media_id, wanted):
    """Several ranges, other units, nonsense: 200 and everything."""
    answer = alice.get(media_id, Range=wanted)
    assert (answer.status_code, answer.body) == (200, DATA)


def test_a_range_counts_only_for_the_same_file(alice, media_id):
    """If-Range with our ETag or date gives the part, anything else the whole."""
    whole = alice.get(media_id)
    for known in (whole["ETag"], whole["Last-Modified"]):
        assert alice.get(media_id, Range="bytes=0-1", If_Range=known).status_code == 206
    for known in ('"other"', f"W/{whole['ETag']}", http_date(0), "nonsense"):
        assert alice.get(media_id, Range="bytes=0-1", If_Range=known).status_code == 200


def test_what_is_known_is_not_sent_again(alice, media_id):
    """A client that has the file gets 304 and no bytes, even with a range."""
    whole = alice.get(media_id)
    for known in (
        {"If_None_Match": whole["ETag"]},
        {"If_None_Match": f'"x", {whole["ETag"]}'},
        {"If_Modified_Since": whole["Last-Modified"]},
        {"If_None_Match": whole["ETag"], "Range": "bytes=0-1"},
    ):
        answer = alice.get(media_id, **known)
        assert (answer.status_code, answer.body) == (304, b"")
        assert (answer["ETag"], answer["Cache-Control"]) == (whole["ETag"], "private, no-cache")
    assert alice.get(media_id, If_None_Match='"other"').status_code == 200
    assert alice.get(media_id, If_Modified_Since=http_date(0)).status_code == 200
    assert alice.get(media_id, If_Match='"other"').status_code == 412


def test_lost_bytes_are_told_at_once(alice, media_id, stored):
    """A file whose bytes are gone is 410, never half an answer."""
    for path in stored.rglob("*/*"):
        path.unlink()
    for method in ("GET", "HEAD"):
        assert alice.get(media_id, method).status_code == 410
    assert alice.get(media_id).json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_a_file_is_only_read(alice, media_id, method):
    """Other methods are 405 and name those that work."""
    answer = alice.get(media_id, method)
    assert answer.status_code == 405
    assert answer.json()["error"]["code"] == "method_not_allowed"
    assert answer["Allow"] == "GET, HEAD"


def test_an_agent_has_what_it_uploaded_or_was_sent(alice, agent_of):
    """An agent sees its own uploads and what it was sent; what other agents or Apps uploaded is not there for it."""
    hermes, helper = agent_of(alice), agent_of(alice, "helper")
    sent = alice.upload(DATA, "sent").json()["media_id"]
    made = hermes.upload(DATA, "made").json()["media_id"]
    assert [agent.get(sent).status_code for agent in (hermes, helper)] == [404, 404]
    media = Media.objects.get(public_id=sent)
    services.grant(media, "hermes")
    services.grant(media, "hermes")
    assert [agent.get(sent).status_code for agent in (hermes, helper, alice)] == [200, 404, 200]
    assert [agent.get(made).status_code for agent in (hermes, helper, alice)] == [200, 404, 200]


def test_an_agent_that_brings_known_bytes_may_read_them(alice, agent_of):
    """An agent that uploads what its user has already gets the same id, and may have it back."""
    media_id = alice.upload(DATA, "x").json()["media_id"]
    hermes = agent_of(alice)
    answer = hermes.upload(DATA, "x")
    assert (answer.status_code, answer.json()["media_id"]) == (200, media_id)
    assert hermes.get(media_id).status_code == 200


def test_a_program_with_the_scope_chat_is_an_app(alice, media_id, agent_of):
    """A key with `chat` acts as the user's App and has all its files; one without `media` and `chat` none."""
    assert agent_of(alice, scopes=("chat",)).get(media_id).status_code == 200
    assert agent_of(alice, scopes=("agent",)).get(media_id).status_code == 403


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (samples.png(), "image/png"),
        (samples.jpeg(4, 4), "image/jpeg"),
        (samples.gif(4, 4), "image/gif"),
        (samples.wav(1), "audio/wav"),
        (samples.mp4(samples.track(1, b"vide", 4, 4)), "video/mp4"),
        (samples.webm(samples.webm_sound()), "audio/webm"),
    ],
)
def test_what_is_only_decoded_is_shown_in_place(alice, data, mime):
    """Pictures, sounds and films of the list go out inline as what they are."""
    answer = alice.get(alice.upload(data, "x").json()["media_id"])
    assert (answer.status_code, answer["Content-Type"]) == (200, mime)
    assert answer["Content-Disposition"].startswith("inline;")


@pytest.mark.parametrize(
    ("data", "name"),
    [(b"%PDF-1.7\n", "x.pdf"), (b"a,b", "x.csv"), (samples.heic(4, 4), "x.heic"), (b"\0", "x")],
)
def test_everything_else_is_saved(alice, data, name):
    """What is not on the list goes out as bytes to be saved."""
    answer = alice.get(alice.upload(data, name).json()["media_id"])
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/octet-stream")
    assert answer["Content-Disposition"].startswith("attachment;")
