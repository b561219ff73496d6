"""An operator in the admin: logs in as a browser does, and walks its pages."""

import html
import re
import uuid
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

import httpx

PASSWORD = "Grün-und-lang-genug-42"


@dataclass
class Page:
    """One page as it came."""

    url: str
    status: int
    text: str
    headers: httpx.Headers


class _Elements(HTMLParser):
    """Collects what a browser would build of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))


def elements(text: str) -> list[tuple[str, dict[str, str]]]:
    """The elements of a page with their attributes."""
    return _Elements(text).elements


def form_fields(text: str) -> dict[str, Any]:
    """The named inputs of a page with the values they would be sent with; several of one name as a list."""
    found: dict[str, Any] = {}
    for tag, attributes in elements(text):
        if tag == "input" and attributes.get("name"):
            if attributes.get("type") in ("checkbox", "radio") and "checked" not in attributes:
                continue
            if attributes.get("type") in ("submit", "file"):
                continue
            value, name = attributes.get("value", ""), attributes["name"]
            if attributes.get("type") == "checkbox":
                found.setdefault(name, []).append(value or "on")
            else:
                found[name] = value
    for match in re.finditer(r'<textarea[^>]*name="([^"]+)"[^>]*>(.*?)</textarea>', text, re.DOTALL):
        found[match[1]] = html.unescape(match[2]).lstrip("\r\n")
    for match in re.finditer(r'<select[^>]*name="([^"]+)"[^>]*>(.*?)</select>', text, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)"[^>]*selected', match[2])
        if chosen:
            found[match[1]] = html.unescape(chosen[1])
    return found


class Browser:
    """One browser with its cookies."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.client = httpx.AsyncClient(base_url=origin, follow_redirects=True, trust_env=False, timeout=30)

    async def __aenter__(self) -> "Browser":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()

    async def get(self, path: str) -> Page:
        """Open a page; a server error fails the test."""
        return self._page(await self.client.get(path))

    async def submit(self, path: str, fields: dict[str, Any], action: str | None = None) -> Page:
        """Open a page, fill in its form and send it, to ``action`` or to the page itself."""
        page = await self.get(path)
        sent = form_fields(page.text) | fields
        headers = {"Referer": urljoin(self.origin, path), "Origin": self.origin}
        return self._page(await self.client.post(action or page.url, data=sent, headers=headers))

    async def log_in(self, name: str, password: str) -> None:
        """Sign in to the admin."""
        page = await self.submit("/admin/login/?next=/admin/", {"username": name, "password": password})
        assert page.status == 200 and "/admin/logout/" in page.text, page.text[-2000:]

    async def list_page(self, app: str, model: str, **query: str) -> Page:
        """The list of a model."""
        return self._page(await self.client.get(f"/admin/{app}/{model}/", params=query))

    async def pages_of(self, app: str, model: str, search: str = "") -> list[Page]:
        """Every kind of page about a model's rows: `overview` and `rows`."""
        return await self.overview(app, model) + await self.rows(app, model, search)

    async def overview(self, app: str, model: str) -> list[Page]:
        """The list of a model, and the list under each of its filters."""
        pages = [await self.list_page(app, model)]
        links = [attributes.get("href", "") for tag, attributes in elements(pages[0].text) if tag == "a"]
        for link in sorted({link for link in links if link.startswith("?") and "o=" not in link}):
            pages.append(await self.get(urljoin(f"/admin/{app}/{model}/", link)))
        return pages

    async def rows(self, app: str, model: str, search: str = "", limit: int = 1) -> list[Page]:
        """The list that a search finds, and of each row, up to a limit, its detail, history and delete confirmation."""
        pages = [await self.list_page(app, model, q=search)]
        pattern = rf"/admin/{app}/{model}/[^/]+/change/"
        links = (attributes.get("href", "") for tag, attributes in elements(pages[0].text) if tag == "a")
        found = {link.split("?")[0] for link in links if re.fullmatch(pattern, link.split("?")[0])}
        for row in sorted(found)[:limit]:
            pages.append(await self.get(row))
            for other in ("history/", "delete/"):
                pages.append(self._page(await self.client.get(row.replace("change/", other))))
        return pages

    @staticmethod
    def _page(answer: httpx.Response, allowed: tuple[int, ...] = (200, 403)) -> Page:
        assert answer.status_code in allowed, f"{answer.url}: {answer.status_code}"
        return Page(str(answer.url), answer.status_code, answer.text, answer.headers)


class Staff:
    """A superuser of a gateway; its cookies are kept, so that one log-in serves many tests."""

    def __init__(self, clerk: Any, origin: str) -> None:
        self.name = f"staff-{uuid.uuid4().hex[:6]}"
        self._origin = origin
        self._cookies: httpx.Cookies | None = None
        clerk.ask("create_user", name=self.name, password=PASSWORD, is_staff=True, is_superuser=True)

    async def browse(self) -> Browser:
        """A browser in which this person is signed in."""
        browser = Browser(self._origin)
        if self._cookies is None:
            await browser.log_in(self.name, PASSWORD)
            self._cookies = browser.client.cookies
        browser.client.cookies = httpx.Cookies(self._cookies)
        return browser
