"""The form of a topic's pages: every field counts, and a wrong one is told beside it."""

import os
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import click
import pytest

from serde_chain.cli.browse.filters import Filter, _parsed
from serde_chain.cli.browse.preview import Preview, Shown
from serde_chain.cli.browse.topic import ListedRecord
from serde_chain.cli.selection import parse_time
from serde_chain.handles import InlineHandle
from tests.cli.browse.conftest import OpenPages, produce
from tests.cli.browse.test_pages import HOSTILE, offsets

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("11:35", "2026-11-22T11:35+00:00"),
        ("3:05:07", "2026-11-22T03:05:07+00:00"),
        ("12:01", "2026-11-21T12:01+00:00"),  # the last one
        ("yesterday", "2026-11-21T00:00+00:00"),
        (" Yesterday 11:35 ", "2026-11-21T11:35+00:00"),
        ("today", "2026-11-22T00:00+00:00"),
        ("today 13:00", "2026-11-22T13:00+00:00"),
        ("2026-11-22T10:00", "2026-11-22T10:00+00:00"),  # of an input for date and time
        ("2026-11-22 10:00+02:00", "2026-11-22T08:00+00:00"),
        ("1763805600", "2025-11-22T10:00+00:00"),
        ("1763805600000", "2025-11-22T10:00+00:00"),
    ],
)
def test_times(text: str, found: str) -> None:
    assert parse_time(text, NOW) == datetime.fromisoformat(found).timestamp() * 1000


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "25:00", "11:60", "11", "1 1:35", "yesterday at noon", "\u0661:00", HOSTILE]
)
def test_what_is_no_time(text: str) -> None:
    if text == "11":
        assert parse_time(text, NOW) == 11
        return
    with pytest.raises(ValueError, match="is neither a time, such as 11:35 or 2026-11-22T10:00Z"):
        parse_time(text, NOW)


def shown(value: Any, key: Any = None) -> Shown:
    row = ListedRecord(0, 0, 0, {}, {"reference": "s3://bucket/M51"}, None)
    return Shown(row, Preview(value, key, "", "the text", is_cut=False, size=None, images=[]))


ALERT = {
    "band": "r",
    "magnitude": 19.1,
    "exact": Decimal("19.10"),
    "flag": True,
    "nothing": None,
    "raw": b"text",
    "sources": [{"id": 1}, {"id": 2}],
    "value": {"band": "i"},
    "lost": float("nan"),
}


@pytest.mark.parametrize(
    "where",
    [
        "band = r", 'band="r"', "band != g", "band < s", "magnitude = 19.1", "magnitude=19.10", "magnitude < 20",
        "magnitude >= 19.1", "magnitude > 9", "exact = 19.1", "flag = true", "nothing = null", "raw = text",
        "sources[1].id = 2", "value.magnitude < 20", "value.band = i", "key.id = 51", "lost != 1",
        'sources = [{"id": 1}, {"id": 2}]', "  band  =  r  ",
    ],
)  # fmt: skip
def test_records_with_such_a_field(where: str) -> None:
    assert Filter(where=where).takes(shown(ALERT, {"id": 51}))


@pytest.mark.parametrize(
    "where",
    [
        "band = R", "band = g", "magnitude < 19.1", "magnitude > 100", "flag = false", "absent = r", "absent != r",
        "sources[2].id = 2", "key.id = 52", "key.band = r", "band.x = r", "lost < 1", "magnitude = NaN", "band > z",
        "magnitude = 1e400", "sources = " + "[" * 980,
    ],
)  # fmt: skip
def test_records_without_such_a_field(where: str) -> None:
    assert not Filter(where=where).takes(shown(ALERT, {"id": 51}))


class Remote(InlineHandle):
    """A field in the store that must not be fetched."""

    def read(self) -> bytes:
        raise AssertionError


def test_a_filter_fetches_no_field() -> None:
    value = {"star": {"id": 51, "stamp": Remote(bytes(5760), "s3://survey/51")}}
    for where in ("star = x", "star.stamp = x", "value.star > 1"):
        Filter(where=where).takes(shown(value))
    assert Filter(where="star.id = 51").takes(shown(value))


def test_a_comparison_is_short() -> None:
    with pytest.raises(click.UsageError, match="Where: it has 1,001 characters, more than 1,000"):
        Filter(where="x" + " " * 999 + "=")
    for wrong in ("", "band", "= r", " = ", "a..b = r"):
        with pytest.raises(click.UsageError, match="is not a comparison of a field"):
            _parsed(wrong)


def test_both_filters_count() -> None:
    for contains, where, is_taken in (("TEXT", "band = r", True), ("m51", "band = r", True), ("q", "band = r", False)):
        assert Filter(contains, where).takes(shown(ALERT)) is is_taken
    assert not Filter("", " ")
    assert not Filter(where="band = r").takes(Shown(shown(ALERT).row))


def test_a_field_that_is_filled_in_counts(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    stars = [(f"key {number}", {"star": f"M {number}", "band": "gr"[number % 2]}) for number in range(20)]
    produce(config, topic, *stars)
    ask = open_pages(config, topic)
    answer = ask("/?partition=&key=&contains=M+11")  # Enter in a field
    assert (answer.status, answer.headers["location"]) == (303, f"/topics/{topic}/search?contains=M+11")
    assert offsets(ask(answer.headers["location"]).text) == ["0/11"]
    assert offsets(ask("/search?contains=M+1&where=value.band+%3D+r").text) == [
        f"0/{at}" for at in (19, 17, 15, 13, 11, 1)
    ]
    assert "<th>Records that match<td>10\n" in ask("/sizes?where=band+%3D+r").text
    assert "<th>Records that match<td>1\n" in ask("/sizes?contains=M+11").text


@pytest.mark.parametrize("wrong", ["from=nonsense", "offsets=9..1", "where=band", "partition=x", "format=jsn"])
@pytest.mark.parametrize("page", ["/", "/search", "/sizes"])
def test_a_wrong_field_keeps_the_form(
    open_pages: OpenPages, config: dict[str, Any], topic: str, page: str, wrong: str
) -> None:
    ask = open_pages(config, topic)
    answer = ask(f"{page}?{wrong}&key=M+51&contains=%3Cb%3E")
    if page == "/" and not wrong.startswith(("where", "format")):  # of a search
        answer = ask(answer.headers["location"])
    name, _, value = wrong.partition("=")
    assert answer.status == 400
    assert f'name="{name}" value="{value}"' in answer.text
    assert 'name="key" value="M 51"' in answer.text
    assert 'name="contains" value="&lt;b&gt;"' in answer.text
    assert f'<a href="/topics/{topic}">{topic}</a>' in answer.text
    assert f'<p class="problem">{name.capitalize()}: ' in answer.text
    assert "--" not in answer.text.split("</form>")[1]


def test_live_rows_come_with_the_count_and_times_of_records(
    open_pages: OpenPages, config: dict[str, Any], topic: str
) -> None:
    produce(config, topic, ("a", {"id": 1}))
    ask = open_pages(config, topic)
    assert "1 partition, 1 record," in ask("/").text
    produce(config, topic, *(("b", {"id": number}) for number in range(1500)))
    shown = ask("/newer?at=0:1").headers["x-topic"]
    assert shown.startswith("1 partition, 1,501 records, ")
    assert f'<p class="facts">{shown}</p>' in ask("/").text


def test_the_parts_of_a_row_are_fetched_when_it_is_expanded(
    open_pages: OpenPages, config: dict[str, Any], topic: str
) -> None:
    produce(config, topic, ("a", {"star": {"name": HOSTILE, "noise": os.urandom(20).hex()}}))
    ask = open_pages(config, topic)
    [address] = re.findall(r'<details data-from="([^"]+)"', ask("/").text)
    part = ask(address)
    assert part.status == 200
    assert "<html" not in part.text
    assert "<b>name</b> <i>string</i> <span>&lt;script&gt;alert(1)&lt;/script&gt;</span>" in part.text
    assert HOSTILE not in part.text
