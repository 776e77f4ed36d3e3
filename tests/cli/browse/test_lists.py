"""Topics, lists with decoded values, searches, sizes, and rows that come later."""

import json
import os
import re
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest

from payload_stores import open_store
from payload_stores.errors import PayloadStoreUnavailableError
from payload_stores.testing import FaultyStore
from serde_chain.cli.browse.app import Pages
from serde_chain.cli.browse.guard import Guard
from serde_chain.clients.confluent.partitions import make_client
from serde_chain.testing.services import KafkaBroker
from tests.cli.browse.conftest import PORT, TOKEN, OpenPages, ask, png, produce
from tests.cli.browse.test_pages import HOSTILE, PICTURE, link, offsets, with_fields
from tests.conftest import NewTopic


def test_topics_with_counts_and_times(open_pages: OpenPages, broker: KafkaBroker, new_topic: NewTopic) -> None:
    full, empty = new_topic(2), new_topic(3)
    producer = confluent_kafka.Producer(broker.client_config())
    for number in range(5):
        producer.produce(full, b"x", partition=number % 2, timestamp=1_000_000_000_000 + 1000 * number)
    producer.flush(30)
    pages = Pages(broker.client_config(), 30)
    app = Guard(pages.app, TOKEN, PORT)
    rows = ask(app, f"/?name={full[-8:]}").text.split("<tbody>")[1]
    assert re.findall(r'data-label="(?:Partitions|Records)">([^\n]*)', rows) == ["2", "5"]
    assert re.findall(r'data-label="(?:Oldest|Newest)">([^\n]*)', rows) == [
        "2001-09-09 01:46:40.000",
        "2001-09-09 01:46:44.000",
    ]
    whole = ask(app, "/").text
    assert f'<a href="/topics/{full}">{full}</a>' in whole
    assert f'<a href="/topics/{empty}">{empty}</a>' in whole
    assert "__consumer_offsets" not in whole
    assert "No topic has a name that contains this" in ask(app, "/?name=%3Cscript%3E").text
    pages.close()
    page = open_pages(broker.client_config(), full)("/").text
    assert "2 partitions, 5 records, 2001-09-09 01:46:40.000 to 2001-09-09 01:46:44.000" in page
    assert '<td class="number">1<td class="number">0<td class="number">2' in page
    assert "3 partitions, 0 records</p>" in open_pages(broker.client_config(), empty)("/").text


@pytest.mark.parametrize("name", ["..", "a b", "x" * 250, "%3Cscript%3E", "no-such-topic"])
def test_topics_that_do_not_exist(broker: KafkaBroker, name: str) -> None:
    pages = Pages(broker.client_config(), 30)
    answer = ask(Guard(pages.app, TOKEN, PORT), f"/topics/{quote(name)}")
    pages.close()
    assert answer.status == 404
    assert "<script>" not in answer.text.replace('<script src="/script.js" defer></script>', "")


def test_keys_and_values_are_decoded(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    schema = {
        "type": "record",
        "name": "Alert",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": "string"},
            {"name": "stamp", "type": "bytes"},
            {"name": "past", "type": {"type": "array", "items": "double"}},
        ],
    }
    config |= {
        "key.serializer": "long",
        "key.deserializer": "long",
        "value.serializers": "avro, zstd",
        "value.deserializers": "zstd, avro",
        "avro.schema": json.dumps(schema),
    }
    produce(config, topic, (51, {"id": 7, "note": HOSTILE, "stamp": PICTURE, "past": [1.0, 2.0]}))
    produce(config | {"value.serializers": "bytes"}, topic, (52, b"\x00no alert"))
    ask = open_pages(config, topic)
    page = ask("/").text
    assert re.findall(r'data-label="Key">(\d+)\n', page) == ["51"]
    size = len(PICTURE)
    assert (
        f"<span>id 7 · note &lt;script&gt;alert(1)&lt;/script&gt; · stamp &lt;{size} bytes&gt; · past [2]</span>"
        in page
    )
    assert f'<img src="/topics/{topic}/records/0/0/image?field=.stamp" alt=".stamp" loading="lazy">' in page
    assert HOSTILE not in page
    assert page.count('<span class="problem">') == 1
    record = ask("/records/0/0").text
    assert "<li><b>id</b> <i>integer</i> <span>7</span>" in record
    assert "<summary><b>past</b> <i>array (2)</i></summary>" in record
    assert f"<li><b>stamp</b> <i>bytes</i> <span>&lt;{size} bytes&gt;</span>" in record
    assert "<tr><th>Key<td>51" in record


def test_nothing_is_fetched_for_a_list_unless_it_is_asked_for(
    open_pages: OpenPages, config: dict[str, Any], topic: str
) -> None:
    store = FaultyStore(open_store("memory", {}))
    config["large.message.payload.store.class"] = store
    produce(config, topic, ("large", {"noise": os.urandom(2000).hex()}), ("small", {"id": 51}))
    ask = open_pages(config, topic)
    store.calls.clear()
    page = ask("/").text
    assert "<span>id 51</span>" in page
    assert "noise" not in page
    assert store.calls == []
    page = ask(link(page, "Show the values")).text
    assert "<span>noise " in page
    assert set(store.calls) == {"download"}
    assert "Show the values" not in page


def test_a_page_without_references_asks_nothing_about_them(
    open_pages: OpenPages, config: dict[str, Any], topic: str
) -> None:
    produce(config, topic, ("small", {"id": 51}))
    page = open_pages(config, topic)("/").text
    assert "references" not in page
    assert "in the store</a>" not in page


def test_a_store_that_is_down_is_reported_once(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    store = FaultyStore(open_store("memory", {}))
    config["large.message.payload.store.class"] = store
    produce(config, topic, *((None, {"noise": os.urandom(2000).hex()}) for _ in range(3)))
    ask = open_pages(config, topic)
    store.fail(PayloadStoreUnavailableError("the store is down", store="memory"), 1)
    page = ask("/?fetch=1").text
    assert page.count("the store is down") == 1
    assert page.count("noise") == 0


def test_a_search_in_keys_values_and_references(
    open_pages: OpenPages, config: dict[str, Any], new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    produce(config, topic, *((f"key {number}", {"star": f"M {number}"}) for number in range(60)))
    produce(config, topic, ("large", {"noise": os.urandom(2000).hex()}))
    [payload] = [path for path in (tmp_path / "payloads").rglob("*") if path.is_file()]
    ask = open_pages(config, topic)
    page = ask("/search?contains=m%2051").text
    assert len(offsets(page)) == 1
    assert "star M 51" in page
    assert "1 record of 61 offsets read.</p>" in page
    assert len(offsets(ask("/search?contains=KEY%201").text)) == 11
    assert len(offsets(ask(f"/search?contains={payload.name[:12]}").text)) == 1
    assert "0 records of 61" in ask(f"/search?contains={quote(HOSTILE)}").text
    assert HOSTILE not in ask(f"/search?contains={quote(HOSTILE)}").text
    assert ask("/search?contains=").headers["location"] == f"/topics/{topic}?"
    assert ask("/search?contains=x&partition=9").text.count('class="problem"') == 1
    assert ask("/search?contains=x&partition=a").status == 400


def test_a_search_goes_on_where_it_stopped(
    open_pages: OpenPages, config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serde_chain.cli.browse.topic._MOST_RECORDS", 10)
    monkeypatch.setattr("serde_chain.cli.browse.topic._SCANNED", 7)
    produce(config, topic, *((f"key {number}", {"id": number}) for number in range(30)))
    ask = open_pages(config, topic)
    address, found = "/search?contains=key", []
    while True:
        page = ask(address).text
        found.append(offsets(page))
        if "Go on</a>" not in page:
            break
        address = link(page, "Go on")
    assert [len(some) for some in found] == [14, 14, 2]
    assert [offset for some in found for offset in some] == [f"0/{offset}" for offset in reversed(range(30))]
    forward = ask("/search?contains=key&offsets=3..").text
    assert offsets(forward) == [f"0/{offset}" for offset in range(3, 17)]


def test_the_count_of_a_search_stands_above_its_rows(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    produce(config, topic, ("key", {"id": 1}))
    page = open_pages(config, topic)("/search?contains=key").text
    assert '<p class="count">1 record of 1 offsets read' in page
    style = files("serde_chain.cli.browse").joinpath("style.css").read_text()
    assert ".found .count, .found .problem, .found .running { order: -1;" in style


def test_pages_share_a_consumer_and_an_admin_client(
    config: dict[str, Any], topic: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(config, topic, *((f"key {number}", {"id": number}) for number in range(60)))
    made: list[str] = []

    def counted(kind: Any, *arguments: Any) -> Any:
        made.append(kind.__name__)
        return make_client(kind, *arguments)

    for module in ("clients.confluent.partitions", "cli.browse.topic_queries"):
        monkeypatch.setattr(f"serde_chain.{module}.make_client", counted)
    other = new_topic()
    produce(config, other, ("only", {"id": 1}))
    made.clear()
    with closing(Pages(config, 30)) as pages:
        app = Guard(pages.app, TOKEN, PORT)
        newest = [f"0/{number}" for number in range(59, 34, -1)]
        assert offsets(ask(app, f"/topics/{topic}").text) == newest
        for address in ("/newer?at=0:50", "/search?contains=key", "/sizes", "/records/0/7"):
            assert ask(app, f"/topics/{topic}{address}").status == 200
        assert offsets(ask(app, f"/topics/{topic}/newer?at=0:50").text) == newest[:10]
        assert offsets(ask(app, f"/topics/{other}").text) == ["0/0"]  # a partition of the same number
        assert offsets(ask(app, f"/topics/{topic}").text) == newest
    assert made == ["Consumer", "AdminClient"]


def test_a_search_is_sent_while_it_runs(
    open_pages: OpenPages, config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serde_chain.cli.browse.rendering._PIECE_S", 0.0)
    produce(config, topic, *((f"key {number}", {"id": number}) for number in range(5)))
    page = open_pages(config, topic)("/search?contains=key")
    assert page.pieces > 5
    assert len(offsets(page.text)) == 5


def test_records_of_one_size_have_one_label(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    produce(config, topic, ("k", {"id": 1}))
    assert re.search(r'<p class="axis"><span>below [^<]+</span></p>', open_pages(config, topic)("/sizes").text)


def test_sizes(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    produce(config, topic, *(("k", {"noise": os.urandom(2000).hex()}) for _ in range(3)), ("k", {"id": 1}))
    produce(with_fields(config) | {"key.serializer": "string"}, topic, ("k", {"id": 7, "cutout": PICTURE, "note": ""}))
    page = open_pages(config, topic)("/sizes").text
    assert "<th>Records read<td>5\n" in page
    assert "<th>With payloads in the store<td>4 (80.0 %)" in page
    bars = re.findall(r"<title>\n?below ([\d.]+ [KM]?i?B): (\d+) in Kafka, (\d+) in the store</title>", page)
    assert sum(int(inline) for _, inline, _ in bars) == 1
    assert sum(int(stored) for *_, stored in bars) == 4
    assert bars[-1] == ("4.0 KiB", "0", "3")
    assert page.count("in Kafka,") == len(bars) + 24


def test_sizes_tell_which_records_a_filter_cannot_decide(
    open_pages: OpenPages, config: dict[str, Any], topic: str
) -> None:
    produce(config, topic, *((None, {"id": 1, "noise": os.urandom(2000).hex()}) for _ in range(3)))
    produce(config, topic, *((None, {"id": number}) for number in range(2)))
    ask = open_pages(config, topic)
    page = ask("/sizes?where=id+%3D+1").text
    assert "<th>Records that match<td>1\n" in page
    assert "Not decided: 3 records, whose values are in the store, too large or unreadable." in page
    page = ask("/sizes?where=id+%3D+7").text
    assert "<p>No record.</p>" in page
    assert "Not decided: 3 records" in page
    assert "Not decided" not in ask("/sizes").text


def test_sizes_of_an_empty_topic(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    assert "<p>No record.</p>" in open_pages(config, topic)("/sizes").text


def test_rows_that_come_later(open_pages: OpenPages, config: dict[str, Any], new_topic: NewTopic) -> None:
    topic = new_topic(2)
    produce(config, topic, ("first", {"id": 1}))
    ask = open_pages(config, topic)
    [tail] = re.findall(r'data-tail="([^"]+)"', ask("/").text)
    answer = ask(tail.replace("&amp;", "&"))
    assert (answer.status, offsets(answer.text)) == (200, [])
    produce(config, topic, ("second", {"id": 2}), ("third", {"id": 3}))
    at = answer.headers["x-position"]
    answer = ask(f"/newer?at={at}")
    assert sorted(re.findall(r'data-label="Key">(\w+)', answer.text)) == ["second", "third"]
    assert "<html" not in answer.text
    assert offsets(ask(f"/newer?at={answer.headers['x-position']}").text) == []
    assert ask("/newer?at=x&most=y").status == 200


def test_a_thumbnail_is_small(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    config |= {"value.serializers": "bytes", "value.deserializers": "bytes"}
    noise = png(600, 600, lambda _x, _y: os.urandom(1)[0])
    assert len(noise) > 256 << 10
    produce(config, topic, (None, noise), (None, PICTURE))
    page = open_pages(config, topic)("/").text
    assert re.findall(r'<img src="/topics/[^/]+/records/0/(\d)/', page) == ["1"]


@pytest.mark.parametrize(
    ("stage", "value", "shown"),
    [
        ("npy", np.arange(6, dtype="float32").reshape(2, 3), "float32"),
        ("safetensors", {"weights": np.zeros((4, 5))}, "weights"),
        ("arrow", pa.table({"id": [51, 52]}), "2 rows"),
        ("msgpack", {"id": 51, "tags": ["a"]}, "id 51"),
        ("bson", {"id": 51}, "id 51"),
    ],
)
def test_values_of_science(
    *, open_pages: OpenPages, config: dict[str, Any], topic: str, stage: str, value: Any, shown: str
) -> None:
    produce(config | {"value.serializers": stage, "value.deserializers": stage}, topic, (None, value))
    ask = open_pages(config | {"value.deserializers": stage}, topic)
    for address in ("/", "/records/0/0", "/search?contains=0", "/sizes"):
        page = ask(address)
        assert page.status == 200
        assert 'class="problem"' not in page.text
    assert shown in ask("/").text
    assert shown.split(" ", maxsplit=1)[0] in ask("/records/0/0").text
