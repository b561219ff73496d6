"""Uploads through the real route."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from media import services
from media.models import Media
from tests.media import samples
from tests.media.caller import BOUNDARY, form

PNG = samples.png(30, 20)


def files_in(folder: Path) -> list[Path]:
    """All files under a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]


def refusal(answer) -> tuple[int, str]:
    """Status and code of an error, whose body is checked to be one of ours."""
    error = answer.json()["error"]
    assert set(error) >= {"code", "type", "message"} and error["message"]
    return answer.status_code, error["code"]


def test_an_upload_is_told_what_it_is(alice, stored):
    """The answer has all that a frame needs, read from the bytes, and the bytes lie under a name of our own."""
    answer = alice.upload(PNG, "photo.jpg")
    assert answer.status_code == 201
    told = answer.json()
    media_id = told.pop("media_id")
    assert media_id.startswith("med_") and len(media_id) == 36
    assert answer["Location"] == f"/media/{media_id}"
    assert told == {
        "name": "photo.jpg",
        "type": "image/png",
        "size": len(PNG),
        "kind": "image",
        "width": 30,
        "height": 20,
        "duration": None,
        "sha256": hashlib.sha256(PNG).hexdigest(),
        "url": f"/media/{media_id}",
        "thumbnail_url": None,
    }
    (path,) = files_in(stored)
    assert path.read_bytes() == PNG and "photo" not in str(path) and media_id not in str(path)


@pytest.mark.parametrize(
    ("data", "name", "kind", "fields"),
    [
        (PNG, "a.png", "image", {"name", "type", "size", "width", "height"}),
        (samples.wav(2.4), "a.wav", "voice", {"type", "size", "duration"}),
        (
            samples.mp4(samples.track(1, b"vide", 64, 48), seconds=2.5),
            "a.mp4",
            "video",
            {"name", "type", "size", "duration", "width", "height"},
        ),
        (b"a,b\n", "a.csv", "file", {"name", "type", "size"}),
    ],
)
def test_a_frame_has_the_fields_of_its_kind(alice, data, name, kind, fields):
    """The media object of a frame holds the true values of its kind and no others; durations are whole seconds."""
    told = alice.upload(data, name).json()
    media = Media.objects.get(public_id=told["media_id"])
    assert told["kind"] == media.kind == kind
    assert services.frame_fields(media) == {"id": told["media_id"]} | {field: told[field] for field in fields}


@pytest.mark.parametrize(("duration", "whole"), [(None, 1), (0.2, 1), (1.4, 1), (1.5, 2), (59.6, 60)])
def test_a_duration_is_whole_and_at_least_one(duration, whole):
    """Seconds are rounded; what is shorter than one, or unknown, counts as one."""
    assert services.whole_seconds(duration) == whole


def test_the_same_again_is_the_same(alice, bob, stored):
    """The same bytes under the same name give the same id; another name or another user gives another id."""
    first = alice.upload(PNG, "a.png")
    again = alice.upload(PNG, "a.png")
    renamed = alice.upload(PNG, "b.png")
    others = bob.upload(PNG, "a.png")
    assert [answer.status_code for answer in (first, again, renamed, others)] == [201, 200, 201, 201]
    assert again.json() == first.json()
    assert len({answer.json()["media_id"] for answer in (first, renamed, others)}) == 3
    assert len(files_in(stored)) == 2
    assert alice.get(renamed.json()["media_id"]).body == PNG


def test_lost_bytes_come_back_with_the_next_upload(alice, stored):
    """What the disk lost is there again, under all its names, when somebody uploads it again."""
    ids = [alice.upload(PNG, name).json()["media_id"] for name in ("a.png", "b.png")]
    for path in files_in(stored):
        path.unlink()
    assert [alice.get(media_id).status_code for media_id in ids] == [410, 410]
    assert alice.upload(PNG, "a.png").status_code == 200
    assert [alice.get(media_id).body for media_id in ids] == [PNG, PNG]


def test_large_files_are_moved_into_place(alice, stored, settings):
    """What came through a temporary file is stored whole, and nothing is left in the folder for temporary files."""
    data = os.urandom(3 * 1024 * 1024)
    media_id = alice.upload(data).json()["media_id"]
    assert alice.get(media_id).body == data
    assert files_in(Path(settings.FILE_UPLOAD_TEMP_DIR)) == []


def test_an_empty_file_is_a_file(alice):
    """A file without a byte is taken and given back."""
    told = alice.upload(b"", "empty.txt").json()
    assert (told["kind"], told["type"], told["size"]) == ("file", "text/plain", 0)
    answer = alice.get(told["media_id"])
    assert (answer.status_code, answer.body, answer["Content-Length"]) == (200, b"", "0")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("IMAGE", PNG),
        ("VOICE", samples.wav(1)),
        ("VIDEO", samples.mp4(samples.track(1, b"vide", 9, 9))),
        ("FILE", b"x" * 99),
    ],
)
def test_each_kind_has_its_limit(alice, stored, settings, kind, data):
    """A file larger than its kind may be is refused and not kept; one byte less is taken."""
    setattr(settings, f"HERMES_MEDIA_MAX_{kind}_BYTES", len(data) - 1)
    assert refusal(alice.upload(data)) == (413, "file_too_large")
    assert files_in(stored) == [] and not Media.objects.exists()
    setattr(settings, f"HERMES_MEDIA_MAX_{kind}_BYTES", len(data))
    assert alice.upload(data).status_code == 201


def test_a_body_over_the_limit_is_refused_unread(alice, settings):
    """The length of the whole body has a limit of its own."""
    settings.HERMES_UPLOAD_BODY_BYTES = 100
    assert refusal(alice.upload(b"x" * 100)) == (413, "file_too_large")


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EIO, 503)])
def test_a_disk_that_fails_leaves_nothing_behind(alice, stored, settings, number, status):
    """A write that fails is told with a reason; neither a row nor a part of the file stays."""
    good = settings.STORAGES
    disk = {
        "BACKEND": "tests.media.disks.FailingDisk",
        "OPTIONS": {"location": str(stored), "number": number},
    }
    settings.STORAGES = good | {"media": disk}
    answer = alice.upload(PNG, "a.png")
    assert refusal(answer) == (status, "upload_failed")
    assert "nothing" in answer.json()["error"]["message"]
    assert files_in(stored) == [] and not Media.objects.exists()
    settings.STORAGES = good
    assert alice.upload(PNG, "a.png").status_code == 201


def test_a_full_disk_for_temporary_files_is_told_too(alice, monkeypatch):
    """The disk may be full before the file is whole."""

    def fails(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(
        "django.core.files.uploadhandler.TemporaryFileUploadHandler.receive_data_chunk", fails
    )
    assert refusal(alice.upload(b"x" * 3 * 1024 * 1024)) == (507, "upload_failed")


def test_only_a_form_is_taken(alice):
    """Another kind of body is 415, with a body or without."""
    assert refusal(alice.post(PNG, "image/png")) == (415, "unsupported")
    assert refusal(alice.post(b"{}", "application/json")) == (415, "unsupported")
    assert refusal(alice.post(b"", "")) == (415, "unsupported")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"no form", f"multipart/form-data; boundary={BOUNDARY}"),
        (form(PNG, 'filename="a.png"'), "multipart/form-data"),
        (form(PNG, 'filename="a.png"'), "multipart/form-data; boundary=other"),
        (form(PNG, 'filename="a.png"', field="other"), f"multipart/form-data; boundary={BOUNDARY}"),
        (form(b"text", "x=y"), f"multipart/form-data; boundary={BOUNDARY}"),
        (b"--\r\n", f"multipart/form-data; boundary={BOUNDARY}"),
        (
            form(PNG, 'filename="a.png"').removesuffix(b"--\r\n") + b"\r\n" + form(PNG, 'filename="b.png"'),
            f"multipart/form-data; boundary={BOUNDARY}",
        ),
    ],
)
def test_a_bad_form_is_refused(alice, body, content_type):
    """A form that cannot be read, or that does not hold exactly one file named `file`, is 400."""
    assert refusal(alice.post(body, content_type)) == (400, "invalid_request")
    assert not Media.objects.exists()


def test_a_field_without_end_is_refused(alice, settings):
    """A field beside the file has a limit, so that it cannot fill the memory."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    assert refusal(alice.post(form(b"x" * 2000, "x=y"))) == (413, "file_too_large")


def test_who_may_upload(anonymous, alice, agent_of):
    """Nobody is 401, a key without the scope is 403; Apps and keys with it may."""
    answer = anonymous.upload(PNG)
    assert refusal(answer) == (401, "unauthorized")
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert refusal(agent_of(alice, scopes=("agent",)).upload(PNG)) == (403, "forbidden")
    assert agent_of(alice).upload(PNG).status_code == 201
    assert agent_of(alice, scopes=("chat",)).upload(b"x").status_code == 201


def test_an_upload_bears_its_agents_name(alice, agent_of):
    """What an agent uploads is its user's and bears the agent's name; what an App uploads bears none."""
    by_agent = agent_of(alice, "helper").upload(PNG, "a.png").json()["media_id"]
    by_app = alice.upload(PNG, "b.png").json()["media_id"]
    by_program = agent_of(alice, scopes=("chat", "media")).upload(PNG, "c.png").json()["media_id"]
    names = dict(Media.objects.values_list("public_id", "agent"))
    assert names == {by_agent: "helper", by_app: "", by_program: ""}
    assert {media.owner for media in Media.objects.all()} == {alice.user}
