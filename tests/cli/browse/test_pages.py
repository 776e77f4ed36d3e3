"""What the pages show, of records as they come and as an attacker writes them."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from payload_stores import open_store
from payload_stores.errors import PayloadStoreUnavailableError
from payload_stores.testing import FaultyStore
from serde_chain.cli.browse.preview import MOST_BYTES
from serde_chain.cli.fits import picture
from serde_chain.testing.services import KafkaBroker
from tests.cli.browse.conftest import OpenPages, png, produce
from tests.cli.test_fits import fits as fits_of
from tests.cli.test_fits import star
from tests.conftest import NewTopic

PICTURE = png(8, 8, lambda x, y: 16 * (x ^ y))
HOSTILE = "<script>alert(1)</script>"


def offsets(page: str) -> list[str]:
    return re.findall(r'<td data-label="Record"><a href="/topics/[^/"]+/records/(\d+/\d+)">', page)


def link(page: str, text: str) -> str:
    [address] = re.findall(rf'<a href="([^"]+)"[^>]*>{text}', page)[:1]
    return str(address).replace("&amp;", "&")


def test_records_with_what_they_are(open_pages: OpenPages, config: dict[str, Any], topic: str, tmp_path: Path) -> None:
    produce(config, topic, ("small", {"id": 1}), ("large", {"id": os.urandom(2000).hex()}), ("gone", None))
    [payload] = [path for path in (tmp_path / "payloads").rglob("*") if path.is_file()]
    ask = open_pages(config, topic)
    page = ask("/").text
    assert offsets(page) == ["0/2", "0/1", "0/0"]
    for shown in ("small", "inline, compressed with zstd", "a reference (kip1159)", payload.name, "a tombstone"):
        assert shown in page
    checked = link(page, "Ask whether")
    assert '<span class="good">resolves' in ask(checked).text
    payload.unlink()
    assert '<span class="bad">' in ask(checked).text


@pytest.mark.full
def test_a_record_with_its_value_and_its_bytes(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    produce(config, topic, ("M 51", {"name": HOSTILE, "noise": os.urandom(2000).hex()}), headers=[("band", b"g")])
    ask = open_pages(config, topic)
    page = ask("/records/0/0").text
    assert "&#34;name&#34;: &#34;&lt;script&gt;alert(1)&lt;/script&gt;&#34;" in page
    assert HOSTILE not in page
    assert "large-message → zstd → json" in page
    assert "Header band<td>g" in page
    assert "|file:///" in page
    assert "28 b5 2f fd" in page  # the payload begins as zstd does
    value = ask("/records/0/0/value")
    assert json.loads(value.body)["name"] == HOSTILE
    assert value.headers["content-disposition"] == f'attachment; filename="{topic}-0-0-M_51.json"'
    payload = ask("/records/0/0/payload")
    assert payload.body.startswith(b"\x28\xb5\x2f\xfd")
    assert payload.headers["content-disposition"].endswith('.zst"')
    assert ask("/records/0/0/stored").body.startswith(b"file:///")
    assert ask("/records/0/1").status == 404
    assert "<span>← First offset</span>" in page
    assert "<span>Last offset →</span>" in page
    produce(config, topic, ("M 87", {"id": 1}))
    assert f'<a href="/topics/{topic}/records/0/1" rel="next">Offset 1 →</a>' in ask("/records/0/0").text
    assert "<span>Last offset →</span>" in ask("/records/0/1").text
    assert ask("/records/7/0").status == 404
    assert ask("/records/0/0/image?field=.name").status == 404


@pytest.mark.full
def test_images_are_shown_and_nothing_else_is(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    config |= {"value.serializers": "bytes, large-message", "value.deserializers": "large-message, bytes"}
    svg = f"<svg xmlns='http://www.w3.org/2000/svg'>{HOSTILE}</svg>".encode()
    fits = b"SIMPLE  =                    T" + bytes(2000)
    produce(config, topic, *((None, value) for value in (PICTURE, svg, fits)))
    ask = open_pages(config, topic)
    assert f'<img src="/topics/{topic}/records/0/0/image?field="' in ask("/records/0/0").text
    image = ask("/records/0/0/image?field=")
    assert (image.body, image.headers["content-type"]) == (PICTURE, "image/png")
    assert image.headers["x-content-type-options"] == "nosniff"
    assert "<img" not in ask("/records/0/1").text
    assert "<svg" not in ask("/records/0/1").text
    assert ask("/records/0/1/image?field=").status == 404
    assert ask("/records/0/1/value").headers["content-type"] == "application/octet-stream"
    assert "FITS, 2,030 bytes: <a" in ask("/records/0/2").text
    saved = ask("/records/0/2/image?field=")
    assert saved.headers["content-type"] == "application/octet-stream"
    assert saved.headers["content-disposition"].startswith("attachment")


def test_images_among_fields(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    schema = {
        "type": "record",
        "name": "Alert",
        "fields": [{"name": "id", "type": "long"}, {"name": "cutouts", "type": {"type": "array", "items": "bytes"}}],
    }
    config |= {"value.serializers": "avro", "value.deserializers": "avro", "avro.schema": json.dumps(schema)}
    produce(config, topic, (None, {"id": 51, "cutouts": [b"none", PICTURE]}))
    ask = open_pages(config, topic)
    page = ask("/records/0/0").text
    assert "&#34;id&#34;: 51" in page
    assert f"&lt;{len(PICTURE)} bytes&gt;" in page
    assert ask("/records/0/0/image?field=.cutouts.1").body == PICTURE
    assert ask("/records/0/0/image?field=.cutouts.0").status == 404


@pytest.mark.parametrize("compressed", [False, True])
def test_a_truncated_fits_is_a_file_to_save(
    open_pages: OpenPages, config: dict[str, Any], topic: str, compressed: bool
) -> None:
    """Its header promises pixels that are not there; it is sent as no image, whatever its header says."""
    stamp = fits_of(star())[:2900]
    stamp = gzip.compress(stamp) if compressed else stamp
    config |= {"value.serializers": "bytes", "value.deserializers": "bytes"}
    produce(config, topic, (None, stamp))
    reply = open_pages(config, topic)("/records/0/0/image?field=")
    assert reply.body == stamp
    assert reply.headers["content-type"] == "application/octet-stream"


def test_a_gzipped_fits_is_shown(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    stamp = gzip.compress(fits_of(star()))
    config |= {"value.serializers": "bytes", "value.deserializers": "bytes"}
    produce(config, topic, (None, stamp))
    ask = open_pages(config, topic)
    assert f"FITS.GZ, 63 \N{MULTIPLICATION SIGN} 63, {len(stamp):,} bytes: <a" in ask("/records/0/0").text
    assert f'<img src="/topics/{topic}/records/0/0/image?field="' in ask("/records/0/0").text
    image = ask("/records/0/0/image?field=")
    assert (image.body, image.headers["content-type"]) == (picture(stamp), "image/png")
    saved = ask("/records/0/0/image?save=1&field=")
    assert saved.body == stamp
    assert saved.headers["content-disposition"].endswith('.fits.gz"')


def test_hostile_keys_and_headers(open_pages: OpenPages, broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    headers: Any = [(HOSTILE, HOSTILE.encode()), ("raw", b"\xff\x00"), ("long", b"x" * 5000), ("empty", None)]
    producer.produce(topic, HOSTILE.encode(), HOSTILE.encode(), headers=headers)
    producer.produce(topic, b"\x0e\x02\x00", "\u202eevil".encode())
    producer.produce(topic, b"\xff" * 100, b'"><img src=x>')
    producer.flush(30)
    ask = open_pages(broker.client_config(), topic)
    pages = [ask(address).text for address in ("/", *(f"/records/0/{offset}" for offset in range(3)))]
    for page in pages:
        assert HOSTILE not in page
        assert "<img src=x" not in page
        assert "\u202e" not in page
    assert "ff 00" in pages[1]
    assert "x" * 300 + "…" in pages[1]
    assert "malformed entry metadata" in pages[0]
    assert ask("/records/0/2/stored").headers["content-disposition"].count('"') == 2
    for address in ("/?partition=x", "/?offsets=9..1", "/?from=tomorrow", f"/?key={HOSTILE}&offsets={HOSTILE}"):
        answer = ask(address.replace("<", "%3C"))
        assert HOSTILE not in answer.text
        assert answer.status == 400
    assert ask("/?at=0:99999999999999999999&to=older").status == 200
    assert ask("/?partition=3").status == 404
    assert ask("/nothing").status == 404


def test_records_that_the_chain_cannot_read(
    open_pages: OpenPages, broker: KafkaBroker, config: dict[str, Any], topic: str
) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, b"no chain's")
    marker: Any = [("__kip1159-value-reference", b"1")]
    producer.produce(topic, b"file:///etc/passwd", headers=marker)
    producer.flush(30)
    ask = open_pages(config, topic)
    page = ask("/records/0/0").text
    assert 'class="problem"' in page
    assert "|no chain&#39;s|" in page


def test_references_are_followed_by_the_rules_of_readers(
    open_pages: OpenPages, config: dict[str, Any], new_topic: NewTopic, tmp_path: Path
) -> None:
    mine, other = new_topic(), new_topic()
    produce(config, mine, (None, {"noise": os.urandom(2000).hex()}))
    strict = {**config, "large.message.reference.topics": other}
    ask = open_pages(strict, mine)
    assert "its payload belongs to the topic" in ask("/?check=1").text
    page = ask("/records/0/0").text
    assert "its payload belongs to the topic" in page
    assert "Bytes of the payload" not in page
    assert ask("/records/0/0/payload").status == 502
    elsewhere = {**config, "local.path": str(tmp_path / "elsewhere")}
    ask = open_pages(elsewhere, mine)
    assert '<span class="bad">' in ask("/?check=1").text
    assert ask("/records/0/0/payload").status == 502


@pytest.mark.full
def test_a_store_that_is_down(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    store = FaultyStore(open_store("memory", {}))
    config["large.message.payload.store.class"] = store
    produce(config, topic, (None, {"noise": os.urandom(2000).hex()}))
    ask = open_pages(config, topic)
    store.fail(PayloadStoreUnavailableError("the store is down", store="memory"), 3)
    page = ask("/records/0/0").text
    assert page.count("the store is down") >= 2
    store.calls.clear()
    assert '<span class="good">resolves' in ask("/?check=1").text
    assert store.calls == ["read_range"]


def test_payloads_that_are_too_large_are_not_fetched(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    store = FaultyStore(open_store("memory", {}))
    config |= {
        "large.message.payload.store.class": store,
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
    }
    produce(config, topic, (None, bytes(MOST_BYTES + 1)))
    ask = open_pages(config, topic)
    store.calls.clear()
    page = ask("/records/0/0").text
    assert "the value has 16,777,217 bytes, but" in page
    assert "00000000  00 00" in page  # but its beginning
    assert set(store.calls) == {"read_range"}
    assert ask("/records/0/0/value").status == 404


def test_encrypted_values_and_secrets(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    config |= {
        "value.serializers": "string, encrypt",
        "value.deserializers": "encrypt, string",
        "encryption.keys": {"2026": key},
        "encryption.key.id": "2026",
        "sasl.password": "hunter2",
    }
    produce(config, topic, (None, "classified"))
    ask = open_pages(config, topic)
    pages = [ask(address).text for address in ("/", "/records/0/0")]
    assert "inline, encrypted with the key 2026" in pages[0]
    assert "<pre>classified</pre>" in pages[1]
    without = {**config, "encryption.keys": {"2025": key}, "encryption.key.id": "2025"}
    pages.append(open_pages(without, topic)("/records/0/0").text)
    assert 'class="problem"' in pages[2]
    assert "classified" not in pages[2]
    for page in pages:
        assert key not in page
        assert "hunter2" not in page


def test_large_values_are_cut(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    produce(config, topic, (None, {"lines": ["line"] * 100_000}))
    page = open_pages(config, topic)("/records/0/0")
    assert "Only the beginning is shown." in page.text
    assert len(page.body) < 500_000


def test_pages_of_a_topic_with_partitions(open_pages: OpenPages, broker: KafkaBroker, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    producer = confluent_kafka.Producer(broker.client_config())
    for number in range(60):
        # The third partition's clock is wrong, and goes backwards.
        time = 1_000_000 + (number if number % 3 != 2 else -number)
        producer.produce(topic, b"x", str(number % 7), partition=number % 3, timestamp=time)
    producer.flush(30)
    ask = open_pages(broker.client_config(), topic)
    page = ask("/").text
    pages = [offsets(page)]
    while "Older →</a>" in page:
        page = ask(link(page, "Older")).text
        pages.append(offsets(page))
    assert [len(rows) for rows in pages] == [25, 25, 10]
    seen = [row for rows in pages for row in rows]
    assert len(set(seen)) == 60
    for partition in range(3):
        rows = [int(row.split("/")[1]) for row in seen if row.startswith(f"{partition}/")]
        assert rows == [*range(19, -1, -1)]
    places = [tuple(map(int, row.split("/"))) for row in seen]
    by_time = [3 * offset + partition for partition, offset in places if partition != 2]
    assert by_time == sorted(by_time, reverse=True)
    back = []
    while "← Newer</a>" in page:
        page = ask(link(page, "← Newer")).text
        back.append(offsets(page))
    assert sum(map(len, back)) == 50
    assert {row for rows in back for row in rows} == {row for rows in pages[:2] for row in rows}


def test_selected_records(open_pages: OpenPages, broker: KafkaBroker, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    producer = confluent_kafka.Producer(broker.client_config())
    for number in range(400):
        key = "rare" if number % 150 == 0 else "common"
        producer.produce(topic, b"x", key, partition=0, timestamp=1_000_000_000_000 + number)
    producer.flush(30)
    ask = open_pages(broker.client_config(), topic)
    assert offsets(ask("/?key=rare").text) == ["0/300", "0/150", "0/0"]
    assert offsets(ask("/?key=nothing").text) == []
    assert offsets(ask("/?partition=1").text) == []
    assert offsets(ask("/?partition=0&offsets=10..12").text) == ["0/12", "0/11", "0/10"]
    page = ask("/?from=1000000000390").text
    assert offsets(page) == [f"0/{offset}" for offset in range(399, 389, -1)]
    assert "Older →</a>" not in page
    assert "2001-09-09 01:46:40.399" in page


def test_gaps_of_transactions(open_pages: OpenPages, broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer({**broker.client_config(), "transactional.id": f"browse-{topic}"})
    producer.init_transactions(60)
    for value in (b"0", b"1", b"2"):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.commit_transaction(60)
    ask = open_pages(broker.client_config(), topic)
    page = ask("/").text
    assert offsets(page) == ["0/4", "0/2", "0/0"]
    assert "Older →</a>" not in page
    assert "no record has this offset" in ask("/records/0/1").text


@pytest.mark.full
def test_a_broker_that_is_not_there(open_pages: OpenPages) -> None:
    answer = open_pages({"bootstrap.servers": "127.0.0.1:1"}, "images", 2)("/")
    assert answer.status == 502
    assert "bootstrap.servers" in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_but_reading(open_pages: OpenPages, broker: KafkaBroker, topic: str, method: str) -> None:
    assert open_pages(broker.client_config(), topic)("/", method=method).status == 405


def with_fields(config: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, {"name": "cutout", "type": "bytes"}, {"name": "note", "type": "string"}]
    return {
        **config,
        "value.serializers": "large-fields, avro",
        "value.deserializers": "avro, large-fields",
        "avro.schema": json.dumps({"type": "record", "name": "Alert", "fields": fields}),
        "avro.framing": "none",
        "large.fields.paths": "cutout, note",
        "large.fields.min.bytes": 50,
    }


@pytest.mark.full
def test_fields_in_the_store_are_fetched_when_they_are_opened(
    open_pages: OpenPages, config: dict[str, Any], topic: str, tmp_path: Path
) -> None:
    config = with_fields(config)
    produce(
        config,
        topic,
        ("a", {"id": 7, "cutout": PICTURE, "note": HOSTILE * 5}),
        ("b", {"id": 8, "cutout": b"", "note": ""}),
    )
    ask = open_pages(config, topic)
    page = ask("/").text
    assert "in the store: cutout, note" in page
    assert f'<span class="stored">+ {len(PICTURE) + 5 * len(HOSTILE):,}' in page
    page = ask("/records/0/0").text
    assert f"&#34;cutout&#34;: &#34;&lt;{len(PICTURE)} bytes in the store&gt;&#34;" in page
    picture = ask(link(page, "open"))
    assert (picture.body, picture.headers["content-type"]) == (PICTURE, "image/png")
    saved = ask(link(page, "save"))
    assert (saved.body, saved.headers["content-type"]) == (PICTURE, "application/octet-stream")
    note = ask("/records/0/0/field?path=note")
    assert (note.text, note.headers["content-type"]) == (HOSTILE * 5, "application/octet-stream")
    for absent in ("id", "nothing", "cutout.more", "cutout[0]", "", "a..b"):
        assert ask(f"/records/0/0/field?path={absent}").status == 404
    value = json.loads(ask("/records/0/0/value").body)
    assert value["note"] == HOSTILE * 5
    for payload in (tmp_path / "payloads").rglob("*"):
        if payload.is_file():
            payload.unlink()
    page = ask("/records/0/0").text  # nothing is fetched for it
    assert "&#34;id&#34;: 7" in page
    assert "Fields in the store" not in ask("/records/0/1").text


def test_a_malformed_header_of_fields_is_shown(
    open_pages: OpenPages, config: dict[str, Any], topic: str, broker: KafkaBroker
) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, b"\x02\x00\x00", headers=[("large-fields", b"[{}]")])
    producer.flush(30)
    ask = open_pages(with_fields(config), topic)
    assert "the header large-fields is malformed" in ask("/").text
    page = ask("/records/0/0").text
    assert "Value: fields<td>the header large-fields is malformed" in page
    assert ask("/records/0/0/field?path=cutout").status == 502
