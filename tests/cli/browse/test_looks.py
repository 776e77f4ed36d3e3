"""A topic whose records were written by another chain than the configured one."""

import json
import re
import sys
import zlib
from typing import Any
from urllib.parse import quote

import confluent_kafka
import pytest

from serde_chain import SerializerChain
from serde_chain.cli.browse.looks import look, misfit
from serde_chain.codecs import CODECS
from serde_chain.testing.services import KafkaBroker
from tests.cli.browse.conftest import OpenPages, produce
from tests.cli.browse.test_pages import HOSTILE, link

SCHEMA = json.dumps({"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "long"}]})


def packed(stages: str, data: Any) -> bytes:
    with SerializerChain.from_config({"value.serializers": stages}) as chain:
        return bytes(chain(data))


@pytest.mark.parametrize(
    ("data", "stages", "words"),
    [
        (b'{"id": 51}', ("json",), "JSON"),
        (packed("json, zstd", {"id": 51}), ("zstd", "json"), "JSON, compressed with zstd"),
        (
            packed("string, gzip, lz4", "M 51"),
            ("lz4", "gzip", "string"),
            "text, compressed with lz4 and gzip",
        ),
        (b"51", ("string",), "text"),
        (b"[" * 100_000, ("string",), "text"),
        (b"\x00\xff", (), "binary data"),
        (b"Obj\x01more", ("avro",), "an Avro container file"),
        (packed("bytes, zstd", b"\x00\xff"), ("zstd",), "binary data, compressed with zstd"),
        (
            packed("bytes, zstd", bytes(2 << 20)),
            ("zstd",),
            "binary data, compressed with zstd",
        ),  # of which 1 MiB is read
        (packed("json, zstd", {"id": 51})[:-3], ("zstd",), "binary data, compressed with zstd"),
    ],
)
def test_what_bytes_look_like(data: bytes, stages: tuple[str, ...], words: str) -> None:
    seen = look(data)
    assert (seen.stages, seen.words) == (stages, words)


@pytest.mark.parametrize("name", ["zstd", "lz4", "snappy"])
def test_a_codec_that_the_configuration_does_not_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed(f"json, {name}", {"id": 51})
    for attribute in ("_library", "_failure"):  # as before the first chain with it
        monkeypatch.delattr(CODECS[name], attribute, raising=False)
    assert look(data).stages == (name, "json")


def test_a_codec_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed("json, zstd", {"id": 51})
    monkeypatch.delattr(CODECS["zstd"], "_library")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert look(data) == (("zstd",), None)


def test_most_values_decide() -> None:
    some = [look(b"{}"), look(b"[1]"), look(zlib.compress(b""))]
    assert misfit(some, 2) == ("This configuration does not fit this topic. Its values look like JSON", "json")
    assert misfit(some, 3) is None
    assert misfit(some[:1], 0) is None


def test_a_topic_of_another_chain_is_reported_in_a_sentence(
    open_pages: OpenPages, config: dict[str, Any], topic: str
) -> None:
    writer = {**config, "value.serializers": "json, zstd"}
    produce(writer, topic, *((None, {"id": number, "note": HOSTILE}) for number in range(3)))
    avro = {"value.serializers": "avro", "value.deserializers": "avro", "avro.schema": SCHEMA}
    ask = open_pages({**config, **avro}, topic)
    page = ask("/").text
    assert page.count("This configuration does not fit this topic") == 1
    assert "look like JSON, compressed with zstd: <a href=" in page
    assert 'class="problem"' not in page
    assert "{&#34;id&#34;:2,&#34;note&#34;:" in page
    assert HOSTILE not in page
    [tail] = re.findall(r'data-tail="([^"]+)"', page)
    produce(writer, topic, (None, {"id": 3}))
    assert 'class="problem"' not in ask(tail.replace("&amp;", "&")).text  # nor of one row that comes later
    read = ask(link(page, "value.deserializers = zstd, json")).text
    assert "does not fit" not in read
    assert "<span>id 2 · note " in read
    assert "<span>id 3</span>" in read
    assert 'name="format" value="zstd, json"' in read
    assert "<b>id</b> <i>integer</i> <span>0</span>" in ask("/records/0/0").text  # so is each page of the topic
    assert "This configuration does not fit" in ask("/?format=").text
    record = ask("/records/0/0").text
    assert "It looks like JSON, compressed with zstd: value.deserializers = zstd, json" in record
    assert "<pre>{&#34;id&#34;:0," in record
    assert HOSTILE not in record


def test_errors_are_reported_where_no_other_chain_is_known(
    open_pages: OpenPages, config: dict[str, Any], topic: str
) -> None:
    produce({**config, "value.serializers": "bytes"}, topic, *((None, b"\x00\xff") for _ in range(2)))
    ask = open_pages(config, topic)
    page = ask("/").text
    assert "Its values look like binary data</p>" in page
    assert page.count('class="problem"') == 2
    [tail] = re.findall(r'data-tail="([^"]+)"', page)
    produce({**config, "value.serializers": "bytes"}, topic, (None, b"\x00\xff"))
    assert ask(tail.replace("&amp;", "&")).text.count('class="problem"') == 1


def test_a_few_bad_records_are_no_other_chain(
    open_pages: OpenPages, config: dict[str, Any], topic: str, broker: KafkaBroker
) -> None:
    produce(config, topic, *((None, {"id": number}) for number in range(3)))
    producer = confluent_kafka.Producer(broker.client_config())
    for _ in range(2):
        producer.produce(topic, b"no alert")
    producer.flush(30)
    page = open_pages(config, topic)("/").text
    assert "does not fit" not in page
    assert page.count('class="problem"') == 2


@pytest.mark.parametrize(
    ("stages", "told"),
    [("os.system", "Format: there is no stage &#39;os.system&#39;"), ("json, zstd", "Format: "), (HOSTILE, "Format: ")],
)
def test_a_format_that_is_no_chain(
    open_pages: OpenPages, config: dict[str, Any], topic: str, stages: str, told: str
) -> None:
    ask = open_pages(config, topic)
    for page in ("/", "/search", "/sizes"):
        answer = ask(f"{page}?contains=x&format={quote(stages)}")
        assert answer.status == 400
        assert f'<p class="problem">{told}' in answer.text
        assert HOSTILE not in answer.text
    assert ask("/").status == 200
