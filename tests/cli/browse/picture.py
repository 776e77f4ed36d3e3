"""Draws the pictures of docs/command-line.md: ``python -m tests.cli.browse.picture docs/pictures``."""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import FloatRect, Page

from serde_chain.testing.services import KafkaBroker, S3Server
from tests.browsers import chromium
from tests.cli.browse.running import browsing, fill

WIDTH, HEIGHT = 1100, 760
# Down to the bytes in the record.
RECORD_HEIGHT = 1320


def draw(page: Page, link: str, folder: Path) -> None:
    """Take the pictures of a list and of a record, in a window of a desk's screen."""
    page.goto(link)
    page.get_by_role("link", name="Ask whether").click()
    page.screenshot(path=folder / "browse.png")
    page.get_by_role("link", name="0 / 28", exact=True).click()
    page.wait_for_load_state("load")
    part: FloatRect = {"x": 0, "y": 0, "width": WIDTH, "height": RECORD_HEIGHT}
    page.screenshot(path=folder / "browse-record.png", full_page=True, clip=part)


def main() -> None:
    """Start a broker, fill a topic, and draw."""
    with tempfile.TemporaryDirectory() as folder, KafkaBroker() as broker, S3Server() as store, chromium() as browser:
        broker.create_topic("alerts")
        config = fill(broker, "alerts", store, store.create_bucket("survey"), Path(folder))
        with browsing(config, "alerts") as link, browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}) as page:
            draw(page, link, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
