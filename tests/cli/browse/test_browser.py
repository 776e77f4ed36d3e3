"""The pages in a real browser, as wide as a telephone and as a desk's screen."""

from pathlib import Path

import matplotlib.image
import pytest
from playwright.sync_api import Browser, expect

from serde_chain.testing.services import KafkaBroker, S3Server
from tests.browsers import BROKEN_IMAGES, OVERFLOW, watched
from tests.cli.browse.picture import HEIGHT, WIDTH, draw
from tests.cli.browse.running import browsing, fill
from tests.environments import ROOT

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


@pytest.fixture
def config(broker: KafkaBroker, topic: str, s3_server: S3Server, bucket: str, tmp_path: Path) -> Path:
    return fill(broker, topic, s3_server, bucket, tmp_path)


@pytest.mark.parametrize("width", [390, 1280])
def test_from_the_list_to_an_image(width: int, config: Path, topic: str, browser: Browser) -> None:
    with browsing(config, topic) as link, browser.new_page(viewport={"width": width, "height": 844}) as page:
        faults = watched(page)
        page.goto(link)
        assert "token" not in page.url
        expect(page.locator("tbody tr")).to_have_count(25)
        assert page.evaluate(OVERFLOW) <= 0
        page.get_by_role("link", name="Older").first.click()
        expect(page.locator("tbody tr")).to_have_count(5)
        page.get_by_role("link", name="Newer").first.click()
        page.get_by_role("link", name="Ask whether").click()
        expect(page.locator(".good").first).to_have_text("yes")
        page.get_by_label("Offsets").fill("4..6")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("tbody tr")).to_have_count(3)
        page.get_by_role("link", name="0 / 4", exact=True).click()
        expect(page.locator("img")).to_have_count(3)
        page.wait_for_load_state("load")
        assert page.evaluate(BROKEN_IMAGES) == []
        assert page.evaluate(OVERFLOW) <= 0
        expect(page.locator("pre").first).to_contain_text("magnitude")
        with page.expect_download() as saving:
            page.locator("figure a").first.click()
        assert saving.value.suggested_filename == f"{topic}-0-4-SRV26031676.png"
        assert matplotlib.image.imread(saving.value.path()).shape == (96, 96)
        assert faults == []


def test_the_pictures_on_the_page(config: Path, topic: str, browser: Browser, tmp_path: Path) -> None:
    with browsing(config, topic) as link, browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}) as page:
        draw(page, link, tmp_path)
    for name in ("browse", "browse-record"):
        drawn, shown = (
            matplotlib.image.imread(folder / f"{name}.png") for folder in (tmp_path, ROOT / "docs" / "pictures")
        )
        assert drawn.shape == shown.shape
        assert drawn.std() > 0.05
