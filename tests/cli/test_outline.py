"""A value on one line."""

import re

from serde_chain.cli.outline import as_line, json_text, summary, tree
from serde_chain.handles import InlineHandle
from tests.cli.test_fits import fits, star

STAMP = fits(star(side=25))
SHOWN = f"<FITS, 25 \N{MULTIPLICATION SIGN} 25, {len(STAMP):,} bytes>"


def test_an_image_in_fits_is_shown_with_its_size() -> None:
    assert as_line({"cutout": STAMP}) == f'{{"cutout": "{SHOWN}"}}'
    assert summary({"cutout": STAMP}) == f"cutout {SHOWN}"  # and not as the text with which it begins
    assert tree(STAMP).text == SHOWN
    assert as_line(STAMP[:2880]) == as_line(STAMP[:2880].decode())  # all of which is text


def test_text_is_cut_between_its_letters() -> None:
    for ahead in range(4):
        text = "x" * ahead + "\N{TELESCOPE}" * 3000
        assert tree(text.encode()).text == f"{text[:500]}…"
    assert tree(b"x" + b"\x80" * 3000).text == "<3,001 bytes>"
    assert tree(b"x" * 99 + b"\xf0").text == "<100 bytes>"  # nothing of it is cut


def test_sizes_are_not_cut() -> None:
    line = summary({"x" * 30 + str(number): b"\xff" * 1_234_567 for number in range(8)})
    assert re.fullmatch(r"(x{30}\d <1,234,567 bytes> · )+…", line)
    assert len(line) < 170


def test_a_field_in_the_store_is_shown_with_its_size_and_not_fetched() -> None:
    class Remote(InlineHandle):
        def read(self) -> bytes:
            raise AssertionError

    value = {"id": 7, "cutout": Remote(bytes(5760), "s3://survey/7")}
    assert summary(value) == "id 7 · cutout <5,760 bytes in the store>"
    assert json_text(value) == ('{\n  "id": 7,\n  "cutout": "<5,760 bytes in the store>"\n}', False)
