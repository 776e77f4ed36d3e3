"""The site in a real browser, as wide as a telephone and as a desk's screen."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browsers import BROKEN_IMAGES, OVERFLOW, watched

CUT = "[...document.querySelectorAll('.highlight pre')].some(code => code.scrollWidth > code.clientWidth + 1)"
HIDDEN = """[...document.querySelectorAll('.genindextable td')].some(
    cell => cell.getBoundingClientRect().right > innerWidth)"""
NO_CUE = """[...document.querySelectorAll('.table-wrapper')].some(table =>
    table.scrollWidth > table.clientWidth + 1 && !getComputedStyle(table).backgroundImage.includes('gradient'))"""
BROKEN_WORDS = r"""[...document.querySelectorAll('h1')].some(heading => [...heading.childNodes].some(node =>
    [...(node.data ?? '').matchAll(/\w+/g)].some(word => {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        return range.getClientRects().length > 1;
    })))"""

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_load_whole(width: int, site: Path, address: str, browser: Browser) -> None:
    """The site is built, and each of its pages is opened."""
    with browser.new_page(viewport={"width": width, "height": 844}) as page:
        faults = watched(page)
        pages = sorted(path.relative_to(site) for path in site.rglob("*.html") if "_static" not in path.parts)
        assert len(pages) > 30
        for path in pages:
            page.goto(f"{address}/{path}", wait_until="load")
            faults += page.evaluate(BROKEN_IMAGES)
            if page.evaluate(OVERFLOW) > 0:
                faults.append(f"{path} is wider than {width} pixels")
            if width >= 1280 and page.evaluate(CUT):
                faults.append(f"{path} has programs that are cut at {width} pixels")
            if page.evaluate(HIDDEN):
                faults.append(f"{path} has a column beyond {width} pixels")
            if page.evaluate(NO_CUE):
                faults.append(f"{path} has a table that goes on without a shadow at {width} pixels")
            if page.evaluate(BROKEN_WORDS):
                faults.append(f"{path} has a heading with a broken word at {width} pixels")
    assert faults == []


def test_search(address: str, browser: Browser) -> None:
    with browser.new_page() as page:
        page.goto(f"{address}/search.html?q=threshold")
        # Results come one after another, each when its page has been fetched for the excerpt.
        expect(page.locator("#search-results")).to_contain_text("Configuration keys", timeout=30_000)
