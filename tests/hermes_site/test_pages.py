"""The chat page and its files: ours alone, no script inside the page."""

import re

import pytest
from django.test import AsyncClient, Client


def test_the_chat_page_runs_only_files_of_ours(client: Client) -> None:
    """No inline script or style, no foreign address; every file it names is there, with its type."""
    answer = client.get("/")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"<style|\son\w+=|\sstyle=", text)
    files = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(files) >= 3
    for file in files:
        assert file.startswith("/static/chat/")
        found = client.get(file)
        assert found.status_code == 200
        assert found["Content-Type"].split(";")[0] in ("text/javascript", "text/css", "image/svg+xml")
        assert found["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("header", [{}, {"Range": "bytes=0-9"}])
async def test_files_are_whole_under_asgi(
    async_client: AsyncClient, client: Client, header: dict[str, str]
) -> None:
    """And in parts; no iterator that Django has to warn of."""
    answer = await async_client.get("/static/chat/page.css", headers=header)
    whole = client.get("/static/chat/page.css").content
    assert not answer.streaming
    assert answer.content == (whole[:10] if header else whole)
    assert (await async_client.get("/static/none.css")).status_code == 404


def test_files_know_when_they_changed(client: Client) -> None:
    """304 for a browser that has them; no body for HEAD; nothing is written to them."""
    answer = client.get("/static/chat/page.js")
    assert client.get("/static/chat/page.js", headers={"If-None-Match": answer["ETag"]}).status_code == 304
    head = client.head("/static/chat/page.js")
    assert (head.status_code, head.content) == (200, b"")
    assert client.post("/static/chat/page.js").status_code == 405


def test_the_admin_has_its_style(client: Client) -> None:
    """Static files of other apps are served too."""
    assert client.get("/static/admin/css/base.css").status_code == 200


def test_no_stored_file_is_served_by_its_path(client: Client) -> None:
    """There is no folder behind /media/ or anywhere else."""
    for address in (
        "/static/../manage.py",
        "/static/%2e%2e/manage.py",
        "/static//etc/passwd",
        "/static/",
        "/var/db.sqlite3",
    ):
        assert client.get(address).status_code == 404
