"""The pages in a real browser, as wide as a telephone and as a desk's screen."""

from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
from playwright.sync_api import Browser, expect

from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker, S3Server
from tests.browsers import BROKEN_IMAGES, OVERFLOW, watched
from tests.cli.browse.picture import NAMES, draw
from tests.cli.browse.running import alert, browsing, fill
from tests.conftest import NewTopic
from tests.environments import ROOT

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    """A topic whose records have fixed times, however long ago."""
    return new_topic(1, {"retention.ms": "-1"})


@pytest.fixture
def config(broker: KafkaBroker, topic: str, s3_server: S3Server, bucket: str, tmp_path: Path) -> Path:
    return fill(broker, topic, s3_server, bucket, tmp_path)


@pytest.mark.parametrize("width", [390, 1280])
def test_from_the_list_to_an_image(width: int, config: Path, topic: str, browser: Browser) -> None:
    """A browser loads several pages."""
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
        expect(page.locator(".good").first).to_have_text("resolves")
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


def test_rows_come_while_the_page_is_open(config: Path, topic: str, browser: Browser) -> None:
    with browsing(config, topic) as link, browser.new_page() as page:
        faults = watched(page)
        page.goto(link)
        expect(page.locator("tbody tr")).to_have_count(25)
        page.get_by_label("Live").check()
        expect(page.get_by_role("status")).to_contain_text("updated")
        with Producer(config) as producer:
            producer.produce(topic, alert(1), "newest <b>")
        expect(page.locator("tbody tr")).to_have_count(26, timeout=30_000)
        expect(page.locator("tbody tr").first).to_contain_text("newest <b>")
        expect(page.locator("p.facts")).to_contain_text("31 records")
        page.get_by_label("Live").uncheck()
        expect(page.get_by_role("status")).to_have_text("")
        assert faults == []


def test_enter_searches_and_rows_expand(config: Path, topic: str, browser: Browser) -> None:
    with browsing(config, topic) as link, browser.new_page() as page:
        faults = watched(page)
        page.goto(link)
        page.get_by_label("Contains").fill("SRV26007919")
        page.get_by_label("Contains").press("Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.get_by_label("Contains")).to_have_value("SRV26007919")
        expect(page.locator("details .tree")).to_have_count(0)
        page.locator("td summary").click()
        expect(page.locator("details .tree")).to_contain_text("magnitude")
        page.get_by_label("Date and time").fill("2026-11-18T11:00")
        assert page.locator("input[name=from]").input_value() == "2026-11-18T11:00"
        assert faults == []


def test_a_row_that_could_not_be_expanded_is_asked_for_again(config: Path, topic: str, browser: Browser) -> None:
    with browsing(config, topic) as link, browser.new_page() as page:
        page.goto(link)
        page.route("**/tree", lambda route: route.fulfill(status=503), times=1)
        row = page.locator("td details").first
        row.locator("summary").click()
        expect(row).to_contain_text("not shown: the server answers 503")
        row.locator("summary").click()
        row.locator("summary").first.click()
        expect(row.locator(".tree")).to_be_visible()
        expect(row).not_to_contain_text("not shown")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_telephone(
    broker: KafkaBroker, config: Path, topic: str, browser: Browser, scheme: Any
) -> None:
    """A browser loads every page."""
    broker.create_topic(f"{topic}-{'x' * (249 - len(topic) - 1)}")  # as long as Kafka allows
    with (
        browsing(config, topic) as link,
        browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme) as page,
    ):
        faults = watched(page)
        page.goto(link)
        topic_page = page.url
        for address in ("", "?fetch=1", "/search?contains=u", "/sizes", "/records/0/28", "/records/0/1"):
            page.goto(topic_page + address)
            page.wait_for_load_state("networkidle")  # a request that is given up would be a fault
            assert page.evaluate(OVERFLOW) <= 0, address
            if "/records/" in address:  # images of lists are loaded when they come into view
                assert page.evaluate(BROKEN_IMAGES) == []
            dark = (
                page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor") != "rgb(255, 255, 255)"
            )
            assert dark == (scheme == "dark")
        page.get_by_role("link", name="Topics").click()
        page.wait_for_url("**/")
        page.wait_for_load_state("networkidle")  # with its style
        expect(page.get_by_role("link", name=topic, exact=True)).to_be_visible()
        assert page.evaluate(OVERFLOW) <= 0
        assert faults == []


def test_the_pictures_on_the_page(config: Path, topic: str, browser: Browser, tmp_path: Path) -> None:
    """A browser starts, and draws several pages."""
    with browsing(config, topic) as link:
        draw(browser, link, tmp_path)
    for name in NAMES:
        drawn, shown = (
            matplotlib.image.imread(folder / f"{name}.png") for folder in (tmp_path, ROOT / "docs" / "pictures")
        )
        assert drawn.shape == shown.shape
        assert drawn.std() > 0.05
