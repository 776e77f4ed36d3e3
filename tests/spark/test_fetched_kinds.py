"""What queries of JSON and Protobuf fetch: the values of Avro are in ``test_fetched.py``."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from serde_chain.errors import ConfigError
from serde_chain.spark import decode, explain
from tests.spark import stages_of_a_user
from tests.spark.counting import counting, downloads
from tests.spark.records import encoded, kafka, row
from tests.spark.stages_of_a_user import OwnMark, Voids
from tests.spark.test_decode import plan_of

COUNT = 6
ENGINES = ["arrow", "native"]
# Conditions on Kafka's columns, with the offsets that they keep.
FILTERS = {
    "partition = 0 and offset < 3": {0, 2},
    "key = 'k4'": {4},
    "timestamp is null and offset >= 4": {4, 5},
    "topic = 'others'": set(),
}


def stamp(at: int) -> str:
    return f"{at}" * 200


def descriptors(path: Path) -> Path:
    file = descriptor_pb2.FileDescriptorProto(name="alerts.proto", package="alerts", syntax="proto3")
    message = file.message_type.add(name="Alert")
    for number, (name, kind) in enumerate({"flux": "DOUBLE", "band": "STRING", "stamp": "BYTES"}.items(), 1):
        message.field.add(name=name, number=number, type=f"TYPE_{kind}", label="LABEL_OPTIONAL")
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return path


def settings(folder: Path, stages: str) -> dict[str, Any]:
    config = {
        "value.serializers": ", ".join(reversed(stages.split(", "))),
        "value.deserializers": stages,
        "key.deserializer": "string",
        "large.message.threshold.bytes": 100,
        "large.fields.paths": "stamp",
        "large.fields.min.bytes": 100,
        **counting(folder),
    }
    if "protobuf" not in stages:
        return config
    path = str(descriptors(folder / "alerts.desc"))
    return config | {"protobuf.descriptor.set.file": path, "protobuf.message.name": "alerts.Alert"}


def read(spark: SparkSession, config: dict[str, Any]) -> DataFrame:
    rows = []
    for at in range(COUNT):
        content = stamp(at).encode() if "protobuf" in config["value.deserializers"] else stamp(at)
        headers: list[Any] = []
        value = encoded(config, {"flux": float(at), "band": "g", "stamp": content}, headers)
        key, value, topic, _, *others = row(value, headers, at, key=b"k%d" % at)
        rows.append((key, value, topic, at % 2, *others))
    return kafka(spark, rows).transform(decode(config))


def stamps(frame: DataFrame, stages: str) -> dict[int, str]:
    """Those of a query, by offset."""
    if "json" in stages:
        return {
            each["offset"]: json.loads(each["value"])["stamp"] for each in frame.select("offset", "value").collect()
        }
    found = frame.select("offset", "value.stamp").collect()
    return {each["offset"]: bytes(each["stamp"]).decode() for each in found}


@pytest.mark.parametrize(
    "stages", ["large-message, json", "json, large-fields", "large-message, protobuf", "protobuf, large-fields"]
)
def test_what_queries_of_other_formats_fetch(spark: SparkSession, tmp_path: Path, stages: str) -> None:
    config = settings(tmp_path, stages)
    alerts = read(spark, config)
    assert downloads(tmp_path).total() == 0
    for small in (alerts.select("key", "headers"), alerts.select("offset").where("partition = 1")):
        small.collect()
        assert downloads(tmp_path).total() == 0
    for condition, kept in FILTERS.items():
        assert stamps(alerts.where(condition), stages) == {at: stamp(at) for at in kept}, condition
        counts = downloads(tmp_path)
        assert (counts.total(), max(counts.values(), default=1)) == (len(kept), 1), condition


def test_small_fields_of_messages(spark: SparkSession, tmp_path: Path) -> None:
    """They fetch nothing; JSON is one text, whose fields are fetched with it."""
    config = settings(tmp_path, "protobuf, large-fields")
    alerts = read(spark, config)
    for query in (
        alerts.select("value.flux", "value.band"),
        alerts.where("value.flux > 2").select("value.*").select("band").distinct(),
        alerts.groupBy("value.band").avg("value.flux"),
    ):
        assert "fetch_field" not in plan_of(query)
        query.collect()
    assert downloads(tmp_path).total() == 0
    assert stamps(alerts.where("value.flux > 3"), "protobuf") == {at: stamp(at) for at in (4, 5)}
    counts = downloads(tmp_path)
    assert (counts.total(), max(counts.values())) == (2, 1)
    assert "fields: each fetched by the queries that use it (stamp)" in explain(config)
    text = settings(tmp_path, "json, large-fields")
    assert "fields: fetched with the value (the fields are unknown before the values are read)" in explain(text)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        (["avro", OwnMark], "the last stage marks records with references by another header than large-fields"),
        ([Voids, "avro", "large-fields"], "an earlier stage removes large-fields"),
    ],
)
def test_headers_that_do_not_tell_of_references(
    spark: SparkSession, tmp_path: Path, stages: list[Any], reason: str, engine: str
) -> None:
    """All fields are then fetched with the value."""
    cloudpickle.register_pickle_by_value(stages_of_a_user)  # type: ignore[no-untyped-call]  # pyspark's
    fields = [{"name": "flux", "type": "double"}, {"name": "stamp", "type": "string"}]
    config = settings(tmp_path, "avro, large-fields") | {
        "avro.schema": {"type": "record", "name": "R", "fields": fields}
    }
    rows = []
    for at in range(COUNT):
        headers: list[Any] = []
        value = encoded(config, {"flux": float(at), "stamp": stamp(at)}, headers)
        headers += [("own-mark", b""), *([("void", b"")] if at == 2 else [])]
        rows.append(row(value, headers, at))
    config["value.deserializers"] = stages
    if Voids in stages and engine == "native":
        with pytest.raises(ConfigError, match="all records pass through Python for Voids"):
            kafka(spark, rows).transform(decode(config, engine=engine))
        return
    alerts = kafka(spark, rows).transform(decode(config, engine=engine))
    assert f"fields: fetched with the value ({reason})" in explain(config)
    found = {each["offset"]: each["stamp"] for each in alerts.select("offset", "value.stamp").collect()}
    voided = {2} if Voids in stages else set()
    assert {at for at, text in found.items() if text != stamp(at)} == voided
    assert downloads(tmp_path).total() == COUNT - len(voided)
    alerts.select("value.flux").collect()
    assert downloads(tmp_path).total() == COUNT - len(voided)
