"""A real browser for tests that look at pages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

BROKEN_IMAGES = "() => [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
OVERFLOW = "() => document.scrollingElement.scrollWidth - window.innerWidth"


@contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium of the machine, without a window."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "install Chromium (on Debian and Ubuntu: chromium), or set CHROMIUM to its path"
    # Its sandbox does not work for root. What it would ask its maker for at the start is switched off.
    switches = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=found, args=switches) as browser:
        yield browser


def watched(page: Page) -> list[str]:
    """What goes wrong on a page from now on: errors on its console, and answers that are errors."""
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("response", lambda answer: faults.append(answer.url) if answer.status >= 400 else None)
    return faults
