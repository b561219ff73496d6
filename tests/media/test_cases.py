"""The public record's failures of uploads and downloads, by number."""

import re
import unicodedata
from pathlib import Path
from urllib.parse import unquote

import pytest

from media import services
from media.models import Media
from tests.media import samples
from tests.media.caller import Caller, form

SCRIPT = "document.title='ran'"


def saved_name(answer) -> str:
    """The name under which a browser saves an answer."""
    found = re.fullmatch(
        r"(?:inline|attachment); filename=\"([A-Za-z0-9 ._-]*)\"; filename\*=UTF-8''([A-Za-z0-9%._~-]*)",
        answer["Content-Disposition"],
    )
    assert found, answer["Content-Disposition"]
    return unquote(found[2], errors="strict")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "x.svg",
            f'<svg xmlns="http://www.w3.org/2000/svg" onload="{SCRIPT}"><script>{SCRIPT}</script></svg>',
        ),
        ("x.html", f"<!doctype html><script>{SCRIPT}</script>"),
        ("x.xhtml", f'<html xmlns="http://www.w3.org/1999/xhtml"><script>{SCRIPT}</script></html>'),
        ("x.xml", '<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="x.xsl"?><a/>'),
        ("x.pdf", f"%PDF-1.7\n1 0 obj<</OpenAction<</S/JavaScript/JS({SCRIPT})>>>>endobj"),
        ("x.js", SCRIPT),
        ("x.png", f"<svg xmlns='http://www.w3.org/2000/svg' onload=\"{SCRIPT}\"/>"),
        ("x.gif", f"\n<html><script>{SCRIPT}</script>"),
    ],
)
def test_c34_what_could_run_is_only_saved(alice, name, text):
    """C34: markup, scripts and documents go out as bytes to be saved, under a policy that runs nothing."""
    answer = alice.get(alice.upload(text.encode(), name).json()["media_id"])
    assert (answer.status_code, answer.body) == (200, text.encode())
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment;")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Cross-Origin-Resource-Policy"] == "same-origin"
    policy = [directive.strip() for directive in answer["Content-Security-Policy"].split(";")]
    assert "default-src 'none'" in policy and "sandbox" in policy and "script-src" not in str(policy)


def test_c34_plain_pictures_are_still_shown(alice):
    """C34: a picture is what `<img src>` wants, and what trails after it is not looked at."""
    data = samples.gif(2, 2) + f"<script>{SCRIPT}</script>".encode()
    answer = alice.get(alice.upload(data, "x.html").json()["media_id"])
    assert (answer["Content-Type"], answer["X-Content-Type-Options"]) == ("image/gif", "nosniff")
    assert answer["Content-Disposition"].startswith("inline;")
    assert "sandbox" in answer["Content-Security-Policy"]


LONG = "汉" * 100 + ".png"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/x", "x"),
        ("..\\..\\x", "x"),
        ("/abs/x", "x"),
        ("C:\\x", "x"),
        (".", "file"),
        ("..", "file"),
        ("CON", "CON"),
        (".htaccess", ".htaccess"),
        (LONG, "汉" * 83 + ".png"),
        ("a" * 300, "a" * 255),
        (unicodedata.normalize("NFD", "Überé.txt"), unicodedata.normalize("NFC", "Überé.txt")),
        ("photo\u202egpj.exe", "photogpj.exe"),
        ("a\tb.txt", "a b.txt"),
        ('a"b.txt', 'a"b.txt'),
        ("a;b.txt", "a;b.txt"),
        ("a\nb.txt", "a b.txt"),
        ("nul\0.txt", "nul.txt"),
    ],
)
def test_c36_hostile_names_become_safe_ones(alice, stored, name, shown):
    """C36: whatever a file is called, it is kept under a key of our own and shown under a harmless name."""
    answer = alice.upload(b"some bytes", name)
    assert (answer.status_code, answer.json()["name"]) == (201, shown)
    (path,) = (path for path in stored.rglob("*") if path.is_file())
    assert re.fullmatch(r"[0-9a-f]{2}/[0-9a-f]{32}", str(path.relative_to(stored)))
    assert alice.get(answer.json()["media_id"]).body == b"some bytes"


@pytest.mark.parametrize("parameters", ['filename=""', "x=y"])
def test_c36_a_part_without_a_name_is_refused(alice, parameters):
    """C36: an empty file name, or none at all, is a clear 400."""
    answer = alice.post(form(b"bytes", parameters))
    assert answer.status_code == 400
    assert "name" in answer.json()["error"]["message"] and answer.json()["error"]["param"] == "file"


def test_c36_two_files_of_one_name_keep_their_bytes(alice):
    """C36: a name may be used again for other bytes."""
    first, second = (alice.upload(data, "a.png").json() for data in (b"first", b"second"))
    assert first["name"] == second["name"] == "a.png"
    assert [alice.get(told["media_id"]).body for told in (first, second)] == [b"first", b"second"]


@pytest.mark.parametrize("headers", [{}, {"Range": "bytes=0-3"}, {"If_None_Match": "*"}])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_c42_a_foreign_id_opens_nothing(anonymous, alice, bob, agent_of, method, headers):
    """C42: strangers get the answer they would get for an id that does not exist; the owner's side gets the file."""
    picture = samples.png()
    media_id = alice.upload(picture, "m.png").json()["media_id"]
    media = Media.objects.get(public_id=media_id)
    services.grant(media, "hermes")  # Bob's agent bears the same name as hers
    assert anonymous.get(media_id, method, **headers).status_code == 401
    for stranger in (bob, agent_of(bob)):
        there = stranger.get(media_id, method, **headers)
        nowhere = stranger.get("med_" + "0" * 32, method, **headers)
        assert there.status_code == nowhere.status_code == 404
        assert there.body == nowhere.body
    for own in (alice, agent_of(alice)):
        answer = own.get(media_id, method)
        assert answer.status_code == 200
        assert "private" in answer["Cache-Control"] and "public" not in answer["Cache-Control"]


def test_c42_a_foreign_id_cannot_be_named(alice, bob, agent_of):
    """C42: what a frame may name is looked up among the user's own files, whatever the agent is called."""
    media_id = alice.upload(samples.png()).json()["media_id"]
    named = Media.objects.filter(public_id=media_id)
    assert not (named & Media.objects.visible_to(bob.user.pk)).exists()
    assert not (named & Media.objects.visible_to(bob.user.pk, "hermes")).exists()
    assert (named & Media.objects.visible_to(alice.user.pk)).exists()


@pytest.mark.parametrize("debug", [False, True])
def test_c42_bytes_are_not_served_by_their_place(anonymous, alice, stored: Path, settings, debug):
    """C42: a path in the storage is no address, nor is a folder, with DEBUG or without."""
    settings.DEBUG = debug
    media_id = alice.upload(samples.png()).json()["media_id"]
    place = Media.objects.get(public_id=media_id).storage_name
    assert (stored / place).is_file()
    for path in (place, place.split("/")[0], place.split("/")[0] + "/", f"../media/{place}", f"{media_id}/"):
        assert (anonymous.get(path).status_code, alice.get(path).status_code) == (401, 404)
    assert alice.get("").status_code == 404


def test_c42_ids_cannot_be_guessed(alice):
    """C42: an id has 128 random bits and tells nothing of the one before it."""
    ids = {alice.upload(bytes([number])).json()["media_id"] for number in range(5)}
    assert len(ids) == 5 and all(re.fullmatch(r"med_[0-9a-f]{32}", each) for each in ids)


@pytest.mark.parametrize(
    ("name", "true"),
    [
        ("报告 2026.csv", "报告 2026.csv"),
        ('naïve "q";x.pdf', 'naïve "q";x.pdf'),
        ("\U0001f469\u200d\U0001f467.png", "\U0001f469\u200d\U0001f467.png"),
        ("a\r\nSet-Cookie: s=1.txt", "a Set-Cookie: s=1.txt"),
        ("n" * 251 + ".txt", "n" * 251 + ".txt"),
        ("%41.txt", "%41.txt"),
        ("it's (1) *!.txt", "it's (1) *!.txt"),
    ],
)
def test_c44_a_browser_saves_the_true_name(alice: Caller, name, true):
    """C44: the name goes into the header as RFC 5987 wants it, whole, and brings no other header with it."""
    answer = alice.get(alice.upload(b"bytes", name).json()["media_id"])
    assert answer.status_code == 200
    assert saved_name(answer) == true
    assert "Set-Cookie" not in answer.headers and not answer.cookies
