"""Draws the pictures of docs/command-line.md: ``python -m tests.cli.browse.picture docs/pictures``."""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, FloatRect

from serde_chain.testing.services import KafkaBroker, S3Server
from tests.browsers import chromium
from tests.cli.browse.running import browsing, fill

WIDTH, HEIGHT = 1100, 760
# Down to the bytes in the record.
RECORD_HEIGHT = 1320
NAMES = ("browse", "browse-record", "browse-sizes", "browse-phone")


def draw(browser: Browser, link: str, folder: Path) -> None:
    """Take pictures of a list, a record and the sizes, as wide as a desk's screen; and of a telephone in the dark."""
    with browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}) as page:
        page.goto(link)
        page.get_by_role("link", name="Show the values").click()
        page.wait_for_load_state("networkidle")  # with images
        page.screenshot(path=folder / "browse.png")
        page.get_by_role("link", name="0 / 28", exact=True).click()
        page.wait_for_load_state("networkidle")  # with images
        part: FloatRect = {"x": 0, "y": 0, "width": WIDTH, "height": RECORD_HEIGHT}
        page.screenshot(path=folder / "browse-record.png", full_page=True, clip=part)
        page.locator("header a").last.click()
        page.get_by_role("button", name="Sizes").click()
        page.screenshot(path=folder / "browse-sizes.png")
    with browser.new_page(viewport={"width": 390, "height": HEIGHT}, color_scheme="dark") as page:
        page.goto(link)
        page.get_by_role("link", name="Show the values").click()
        page.wait_for_load_state("networkidle")  # with images
        page.screenshot(path=folder / "browse-phone.png")


def main() -> None:
    """Start a broker, fill a topic, and draw."""
    with tempfile.TemporaryDirectory() as folder, KafkaBroker() as broker, S3Server() as store, chromium() as browser:
        broker.create_topic("alerts", config={"retention.ms": "-1"})  # fixed times
        config = fill(broker, "alerts", store, store.create_bucket("survey"), Path(folder))
        with browsing(config, "alerts") as link:
            draw(browser, link, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
