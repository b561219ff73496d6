"""The chat page in a real browser: log in, talk to the demo agent, come back."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.hermes_site.local import Running

CHROMIUM = shutil.which("chromium")
IN_CI = os.environ.get("CI") == "true"
pytestmark = pytest.mark.skipif(CHROMIUM is None and not IN_CI, reason="there is no chromium on this machine")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Everything, as `make run` has it."""
    made = Running(tmp_path_factory.mktemp("site"))
    made.wait_for("connected; capabilities")
    yield made
    made.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a screen."""
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


class Visit:
    """One page, and everything that it complained of."""

    def __init__(self, browser: Browser, site: Running, **options: Any) -> None:
        self.site = site
        self.page: Page = browser.new_context(**options).new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console", lambda line: self.complaints.append(line.text) if line.type == "error" else None
        )
        self.page.goto(f"http://127.0.0.1:{site.port}/")

    def log_in(self) -> None:
        """With the keyboard alone."""
        user, password = self.site.login()
        expect(self.page.locator("input[name=username]")).to_be_focused()
        self.page.keyboard.type(user)
        self.page.keyboard.press("Tab")
        self.page.keyboard.type(password)
        self.page.keyboard.press("Enter")
        expect(self.page.locator("#state")).to_have_text("Connected")

    def say(self, text: str) -> None:
        """Write a message and send it by Enter."""
        self.page.locator("#text").fill(text)
        self.page.keyboard.press("Enter")

    def bubbles(self) -> list[str]:
        """What the conversation shows."""
        return self.page.locator("#messages li").all_inner_texts()


def test_a_conversation_with_the_demo_agent(browser: Browser, site: Running) -> None:
    """Own message, streamed answer; after a reload both are there, once; a new conversation is empty."""
    visit = Visit(browser, site)
    visit.log_in()
    visit.say("hello <b>there</b>\nsecond line")
    answer = visit.page.locator("#messages li:not(.mine):not(.open)")
    expect(answer).to_have_count(1)
    expect(answer).to_contain_text("hello <b>there</b>")
    before = visit.bubbles()
    assert before[0] == "hello <b>there</b>\nsecond line"
    visit.page.reload()
    expect(visit.page.locator("#state")).to_have_text("Connected")
    expect(visit.page.locator("#messages li")).to_have_count(2)
    assert visit.bubbles() == before
    visit.page.get_by_text("New conversation").click()
    assert visit.bubbles() == []
    expect(visit.page.locator("#text")).to_be_focused()
    assert visit.complaints == []


def test_a_wrong_password_is_said(browser: Browser, site: Running) -> None:
    """And a log-out leads back to the login."""
    visit = Visit(browser, site)
    visit.page.locator("input[name=username]").fill("demo")
    visit.page.locator("input[name=password]").fill("wrong")
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_role("alert")).to_have_text("Wrong username or password.")
    visit.page.reload()
    visit.log_in()
    visit.page.get_by_text("Log out").click()
    expect(visit.page.locator("#login")).to_be_visible()
    visit.page.reload()
    expect(visit.page.locator("#login")).to_be_visible()
    assert [text for text in visit.complaints if "401" not in text] == []


def test_it_speaks_chinese_and_is_dark_when_asked(browser: Browser, site: Running) -> None:
    """By the browser's language and its colours."""
    visit = Visit(browser, site, locale="zh-CN", color_scheme="dark")
    expect(visit.page.get_by_role("button", name="登录")).to_be_visible()
    assert visit.page.evaluate("document.documentElement.lang") == "zh-Hans"
    ground = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = Visit(browser, site, color_scheme="light").page
    assert ground != light.evaluate("getComputedStyle(document.body).backgroundColor")
    assert visit.complaints == []


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_it_fits_a_phone(browser: Browser, site: Running, locale: str) -> None:
    """Nothing is wider than the screen, however long a word is; the composer stays in sight."""
    width, height = 360, 640
    visit = Visit(browser, site, locale=locale, viewport={"width": width, "height": height})
    user, password = site.login()
    visit.page.locator("input[name=username]").fill(user)
    visit.page.locator("input[name=password]").fill(password)
    visit.page.keyboard.press("Enter")
    expect(visit.page.locator("#state")).to_have_text({"en-GB": "Connected", "zh-CN": "已连接"}[locale])
    visit.say("w" * 300)
    expect(visit.page.locator("#messages li:not(.mine):not(.open)").last).to_contain_text("w" * 300)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    box = visit.page.locator("#composer").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
    assert box["y"] + box["height"] <= height
    assert visit.complaints == []


def test_c30_switching_conversations_loses_and_mixes_nothing(browser: Browser, site: Running) -> None:
    """From one conversation to another and back while both are answered; and two tabs, one for each."""
    visit = Visit(browser, site)
    visit.log_in()
    words = {name: " ".join(f"{name}{number}" for number in range(60)) for name in "xy"}
    page = visit.page
    visit.say(words["x"])
    expect(page.locator("#messages li.open")).to_have_count(1)
    page.get_by_text("New conversation").click()
    assert visit.bubbles() == []
    visit.say(words["y"])
    expect(page.locator("#messages li.open")).to_have_count(1)
    page.go_back()
    expect(page.locator("#messages li.mine")).to_have_text([words["x"]])
    tab = page.context.new_page()
    tab.goto(page.url)  # a second tab has its own login: it shares nothing but the address
    expect(page.locator("#messages li:not(.mine):not(.open)")).to_have_text([words["x"]])
    page.go_forward()
    expect(page.locator("#messages li:not(.mine):not(.open)")).to_have_text([words["y"]])
    expect(page.locator("#messages li.mine")).to_have_text([words["y"]])
    page.go_back()
    expect(page.locator("#messages li")).to_have_text([words["x"], words["x"]])
    user, password = site.login()
    tab.locator("input[name=username]").fill(user)
    tab.locator("input[name=password]").fill(password)
    tab.keyboard.press("Enter")
    expect(tab.locator("#messages li")).to_have_text([words["x"], words["x"]])
    page.go_forward()
    visit.say("in this tab only")
    expect(page.locator("#messages li").last).to_have_text("in this tab only")
    expect(tab.locator("#messages li")).to_have_count(2)
    assert visit.complaints == []
