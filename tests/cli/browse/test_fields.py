"""Fields in the store on pages: images on request, and whether each reference resolves."""

import re
from pathlib import Path
from typing import Any

import pytest

from payload_stores import open_store
from payload_stores.testing import FaultyStore
from tests.cli.browse.conftest import OpenPages, produce
from tests.cli.browse.test_pages import PICTURE, link, with_fields
from tests.cli.test_fits import fits, star


@pytest.mark.full
def test_images_are_fetched_for_a_list_on_request(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    store = FaultyStore(open_store("memory", {}))
    config = with_fields(config) | {"large.message.payload.store.class": store}
    produce(
        config,
        topic,
        ("a", {"id": 7, "cutout": PICTURE, "note": "n" * 100}),
        ("b", {"id": 8, "cutout": b"", "note": ""}),
    )
    ask = open_pages(config, topic)
    store.calls.clear()
    page = ask("/").text
    assert "<img" not in page
    assert store.calls == []
    assert f"Show the fields in the store ({len(PICTURE) + 100} bytes)" in page
    page = ask(link(page, "Show the fields")).text
    [address] = re.findall(r'<img src="([^"]+)"', page)
    image = ask(address.replace("&amp;", "&"))
    assert (image.body, image.headers["content-type"]) == (PICTURE, "image/png")
    assert "Show the fields" not in page
    assert "Ask whether" not in page  # fetched fields are no longer references


def test_each_reference_of_a_field_is_checked(
    open_pages: OpenPages, config: dict[str, Any], topic: str, tmp_path: Path
) -> None:
    config = with_fields(config)
    produce(config, topic, ("a", {"id": 7, "cutout": PICTURE, "note": "n" * 100}))
    ask = open_pages(config, topic)
    page = ask(link(ask("/").text, "Ask whether")).text
    assert len(re.findall(r'(?:cutout|note) <span class="good">resolves</span>', page)) == 2
    for payload in (tmp_path / "payloads").rglob("*"):
        if payload.is_file() and payload.stat().st_size == 100:
            payload.unlink()
    for page in (ask("/?check=1").text, ask("/records/0/0").text):
        assert page.count('<span class="good">resolves</span>') == 1
        assert page.count('<span class="bad">') == 1


def test_images_in_the_store_are_on_the_page_of_their_record(
    open_pages: OpenPages, config: dict[str, Any], topic: str
) -> None:
    stamp = fits(star(side=25))
    config = with_fields(config)
    produce(
        config,
        topic,
        ("a", {"id": 7, "cutout": stamp, "note": "n" * 100}),
        ("b", {"id": 8, "cutout": b"<svg>" * 20, "note": ""}),
    )
    ask = open_pages(config, topic)
    page = ask("/records/0/0").text
    [address] = re.findall(r'<img src="([^"]+)"', page)
    assert address.endswith("/field?path=cutout")
    assert ask(address).headers["content-type"] == "image/png"
    assert f"cutout, FITS, 25 \N{MULTIPLICATION SIGN} 25, {len(stamp):,} bytes" in page
    assert "<img" not in ask("/records/0/1").text
