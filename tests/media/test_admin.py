"""Media in the admin."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from accounts import services
from media.models import Media
from tests.media import samples

HTML = b"<script>document.title='ran'</script>"


@pytest.fixture
def media(alice) -> Media:
    """A file of Alice's, with a name that is markup."""
    return Media.objects.get(public_id=alice.upload(HTML, "<b>x.html").json()["media_id"])


@pytest.fixture
def staff(database):
    """Makes a browser logged in as somebody of the staff with these permissions."""

    def make(*permissions: str) -> Client:
        user = services.create_user("carol", "carol has a password", staff=True)
        for permission in permissions:
            app, codename = permission.split(".")
            user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
        client = Client()
        client.force_login(user)
        return client

    return make


def test_a_file_is_found_and_not_changed(staff, media):
    """Staff that may view media find it by id, name and user; nobody adds, changes or deletes."""
    client = staff("media.view_media", "media.add_media", "media.change_media", "media.delete_media")
    for words in (media.public_id, "x.html", "alice"):
        page = client.get(reverse("admin:media_media_changelist"), {"q": words}).content.decode()
        assert media.public_id in page
    assert (
        media.public_id
        not in client.get(reverse("admin:media_media_changelist"), {"q": "nobody"}).content.decode()
    )
    assert client.get(reverse("admin:media_media_add")).status_code == 403
    change = reverse("admin:media_media_change", args=[media.pk])
    assert client.post(change, {"name": "other"}).status_code == 403
    assert (
        client.post(reverse("admin:media_media_delete", args=[media.pk]), {"post": "yes"}).status_code == 403
    )
    media.refresh_from_db()
    assert media.name == "<b>x.html"


def test_a_page_never_holds_the_bytes(staff, media):
    """The page of a file names it, escaped, and shows nothing of what is in it."""
    page = (
        staff("media.view_media").get(reverse("admin:media_media_change", args=[media.pk])).content.decode()
    )
    assert "&lt;b&gt;x.html" in page and "<b>x.html" not in page
    assert "document.title" not in page and "/content" not in page and "<img" not in page
    assert f"/media/{media.public_id}" not in page


@pytest.mark.usefixtures("alice")
def test_the_bytes_need_their_own_permission(staff, media):
    """Viewing a row is not reading what people send."""
    content = reverse("admin:media_media_content", args=[media.pk])
    assert staff("media.view_media").get(content).status_code == 403
    assert Client().get(content).status_code == 302


def test_who_may_read_saves_the_bytes(staff, media):
    """With the permission there is a link, and behind it the file, to be saved whatever it is."""
    client = staff("media.view_media", "chat.read_content")
    content = reverse("admin:media_media_content", args=[media.pk])
    assert content in client.get(reverse("admin:media_media_change", args=[media.pk])).content.decode()
    answer = client.get(content)
    answer.close()
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/octet-stream")
    assert answer["Content-Disposition"].startswith("attachment;")
    assert "sandbox" in answer["Content-Security-Policy"]


def test_the_permission_alone_is_not_enough(staff, media):
    """Who may read content but not view media gets nothing here."""
    assert (
        staff("chat.read_content").get(reverse("admin:media_media_content", args=[media.pk])).status_code
        == 403
    )


def test_a_picture_is_saved_too(staff, alice):
    """What is shown in place elsewhere is an attachment in the admin."""
    media_id = alice.upload(samples.png(), "x.png").json()["media_id"]
    content = reverse("admin:media_media_content", args=[Media.objects.get(public_id=media_id).pk])
    answer = staff("media.view_media", "chat.read_content").get(content)
    answer.close()
    assert answer["Content-Disposition"].startswith("attachment;")
