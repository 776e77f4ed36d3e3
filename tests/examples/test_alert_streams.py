"""The configurations of docs/alerts.md read packets of each stream's layout; its program's Parquet is right.

The packets are made here: the schemas of Rubin and ZTF may not be copied into a package under the Apache License.
"""

import base64
import gzip
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any

import bson
import fastavro
import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from examples import raw_to_parquet as example
from serde_chain import Consumer, DecodeError, DeserializerChain, Producer, RecordContext, SerializerChain
from serde_chain.cli.files import files_in
from serde_chain.cli.fits import is_gzipped_fits
from serde_chain.config import load
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from tests.cli.test_fits import fits, star
from tests.environments import python_blocks, section

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
VERSIONS_PAGE = (ROOT / "docs" / "registries.md").read_text(encoding="utf-8")
TWO_VERSIONS = "Two schema versions in one topic"
STAMP = gzip.compress(fits(star()))


def configured(heading: str, folder: Path) -> dict[str, Any]:
    """The configuration below a heading."""
    page = VERSIONS_PAGE if heading == TWO_VERSIONS else PAGE
    file = folder / "stream.properties"
    file.write_text(re.findall(r"```properties\n(.*?)```", section(page, heading), re.DOTALL)[0])
    return dict(load(file))


def read(config: dict[str, Any], data: bytes, key: bytes | None = None) -> Any:
    with DeserializerChain.from_config(config) as chain:
        return chain(data, RecordContext("t", "value", [], key))


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, **field} for key, field in fields.items()]}


def nullable(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


def avro(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    return buffer.getvalue()


CUTOUT = record("cutout", fileName={"type": "string"}, stampData={"type": "bytes"})
ZTF = record(
    "alert",
    schemavsn={"type": "string"},
    objectId={"type": "string"},
    candid={"type": "long"},
    candidate={"type": record("candidate", jd={"type": "double"}, magpsf={"type": "float"})},
    prv_candidates=nullable({"type": "array", "items": record("prv", jd={"type": "double"}, magpsf=nullable("float"))}),
    cutoutScience=nullable(CUTOUT),
    cutoutTemplate=nullable("cutout"),
)
ALERT = {
    "schemavsn": "4.02",
    "objectId": "ZTF18abc",
    "candid": 2**50,
    "candidate": {"jd": 2460000.5, "magpsf": 18.5},
    "prv_candidates": [{"jd": 2459999.5, "magpsf": None}],
    "cutoutScience": {"fileName": "a.fits.gz", "stampData": STAMP},
    "cutoutTemplate": None,
}


def test_ztf(tmp_path: Path) -> None:
    file = io.BytesIO()
    fastavro.writer(file, ZTF, [ALERT])
    alert = read(configured("ZTF", tmp_path), file.getvalue())
    assert alert == ALERT
    assert [name for name, data, _ in files_in(alert) if is_gzipped_fits(data)] == [".cutoutScience.stampData"]


def test_fink(tmp_path: Path) -> None:
    config = configured("Fink", tmp_path)
    assert read(config, avro(ZTF, ALERT), json.dumps(ZTF).encode()) == ALERT
    assert DeserializerChain.from_config(config, is_key=True)(b"{}") == "{}"


@pytest.mark.full
def test_fink_through_a_broker(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    writer = {"key.serializer": "string", "value.serializers": "avro", "avro.framing": "record-key"}
    schema = json.dumps(ZTF)
    with Producer({**broker.client_config(), **writer, "avro.schema": schema}) as producer:
        producer.produce(topic, ALERT, key=schema)
        producer.flush(30)
    reader = {
        **broker.client_config(),
        **configured("Fink", tmp_path),
        "group.id": "g",
        "auto.offset.reset": "earliest",
    }
    with Consumer(reader) as consumer:
        consumer.subscribe([topic])
        message: Any = consumer.poll(30)
        assert message is not None
        assert (message.key(), message.value()) == (schema, ALERT)
    with Consumer({**reader, "group.id": "h"}) as consumer:
        consumer.subscribe([topic])
        assert consumer.consume_arrow(1, 30)["value"].to_pylist() == [ALERT]


def test_antares(tmp_path: Path) -> None:
    alert = {"alert_id": "ztf_candidate:1", "mjd": 60000.5, "properties": {"ztf_fid": 1, "flags": [True, None]}}
    assert read(configured("ANTARES", tmp_path), zlib.compress(bson.encode(alert))) == alert


@pytest.mark.parametrize("stream", ["Lasair", "GCN", "Hopskotch"])
def test_json(stream: str, tmp_path: Path) -> None:
    notice = {"superevent_id": "MS1", "event": {"skymap": base64.b64encode(fits(star())).decode(), "far": 1e-9}}
    read_back = read(configured(stream, tmp_path), json.dumps(notice).encode())
    assert read_back == notice
    assert base64.b64decode(read_back["event"]["skymap"]).startswith(b"SIMPLE  =")


# The versions of Rubin's schema, each as far as it differs: keys, images, and numbers that may be null.
VERSIONS = ("3.0", "4.0", "5.0", "6.0", "6.1", "7.0", "7.1", "7.2", "7.3", "7.4", "8.0", "9.0", "10.0", "11.0")


def rubin(version: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema and an alert of a version."""
    number = float(version)
    flux: dict[str, Any] = {"type": "float"} if number >= 11 else nullable("float")
    source = record("diaSource", diaSourceId={"type": "long"}, psfFlux=flux, ra={"type": "double"})
    source_value = {"diaSourceId": 7, "psfFlux": 1234.5, "ra": 10.0}
    if number >= 4:
        source["fields"].append({"name": "band", **nullable("string")})
        source_value["band"] = "r"  # type: ignore[assignment]
    if number >= 6:
        source["fields"].append({"name": "visit", "type": "long"})
        source_value["visit"] = 3
    key = "diaSourceId" if number >= 8 else "alertId"
    fields: dict[str, Any] = {key: {"type": "long"}, "diaSource": {"type": source}, "cutoutTemplate": nullable("bytes")}
    value = {key: 7, "diaSource": source_value, "cutoutTemplate": STAMP}
    if number >= 6.1:
        fields["cutoutScience"] = nullable("bytes")
        value["cutoutScience"] = STAMP
    schema = record("alert", **fields)
    return {**schema, "namespace": f"lsst.v{version.replace('.', '_')}"}, value


@pytest.mark.full
def test_all_versions_of_rubin_in_one_topic(registry: SchemaRegistry, tmp_path: Path) -> None:
    config = configured("Rubin", tmp_path) | {"schema.registry.url": registry.url}
    own = configured(TWO_VERSIONS, tmp_path)
    records = []
    for version in VERSIONS:
        schema, value = rubin(version)
        settings = {**config, "value.serializer": "avro", "avro.schema": json.dumps(schema)}
        with SerializerChain.from_config({**settings, "subject.name.strategy": "record"}) as write:
            records.append(write(value, RecordContext("alerts", "value", [])))
        assert read(config, records[-1]) == value
    with DeserializerChain.from_config({**config, **own}) as chain:
        column = chain.to_arrow(records, topic="alerts").to_pylist()
        assert column == [chain(data, RecordContext("alerts", "value", [])) for data in records]
    assert len(column) == 14
    for version, alert in zip(VERSIONS, column, strict=True):
        value = rubin(version)[1]
        assert alert["diaSource"]["psfFlux"] == 1234.5
        assert alert["diaSource"]["band"] == value["diaSource"].get("band")
        assert alert["cutoutScience"] == value.get("cutoutScience")
        assert alert["diaSourceId"] == value.get("diaSourceId")
    newest = {**config, "avro.reader.schema": json.dumps(rubin("11.0")[0])}
    with pytest.raises(DecodeError, match=r'diaSourceId: .* it has no default: write "type": .*"long"'):
        read(newest, records[0])


def test_the_error_on_the_page() -> None:
    writer = record("alert", id={"type": "long"})
    target = record("alert", cutoutScience={"type": "bytes"})
    config = {"value.deserializer": "avro", "avro.schema": json.dumps(writer), "avro.reader.schema": json.dumps(target)}
    with pytest.raises(DecodeError) as caught:
        read(config, b"\2")
    assert caught.value.message in " ".join(VERSIONS_PAGE.split())


def test_the_page_has_the_program() -> None:
    program = (ROOT / "examples" / "raw_to_parquet.py").read_text(encoding="utf-8")
    (code,) = python_blocks(section(PAGE, "Raw alerts to Parquet"))
    assert program.endswith(code)
    for function in re.findall(r"^def .*?(?=^def |\Z)", code, re.DOTALL | re.MULTILINE):
        assert len(function.strip().splitlines()) <= 40


@pytest.mark.full
@pytest.mark.spark
def test_parquet_is_equal(spark: SparkSession, broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    """The example in full, which starts Spark."""
    schema, value = rubin("10.0")
    config = {
        **broker.client_config(),
        "value.serializers": "avro",
        "value.deserializers": "avro",
        "avro.schema": json.dumps(schema),
        "group.id": topic,
        "auto.offset.reset": "earliest",
    }
    source = value["diaSource"]
    alerts = [{**value, "diaSourceId": n, "diaSource": {**source, "psfFlux": float(n)}} for n in range(2500)]
    with Producer(config) as producer:
        for alert in alerts:
            producer.produce(topic, alert)
        producer.flush(60)
    example.with_pyarrow(config, topic, str(tmp_path / "arrow"), "lsst.v10_0", timeout=10)
    example.with_spark(spark, config, topic, str(tmp_path / "spark"), "lsst.v10_0")
    example.with_spark(spark, config, topic, str(tmp_path / "spark"), "lsst.v10_0")  # nothing twice
    expected = [{**alert, "lsst_schema_version": "lsst.v10_0"} for alert in alerts]
    for way in ("arrow", "spark"):
        table = pq.read_table(tmp_path / way).sort_by("diaSourceId")
        assert np.all(table["diaSourceId"].to_numpy() == np.arange(2500))
        assert table.to_pylist() == expected
