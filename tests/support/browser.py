"""Debian's Chromium, headless, for pages that are opened as a reader opens them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; where there is none the test is skipped, but not on a machine for continuous integration."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        reason = "no chromium on this machine (apt-get install chromium)"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        browser.close()


class Opened:
    """A page, with everything that it said and asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))


@contextmanager
def opened(browser: Any, path: Path, *, width: int = 1200, scheme: str = "light") -> Iterator[Opened]:
    """A file opened from disk; at the end it must have said nothing and asked for nothing but itself."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = Opened(context.new_page())
    page.page.goto(path.as_uri())
    yield page
    context.close()
    assert page.complaints == []
    assert page.requests == [path.as_uri()]
