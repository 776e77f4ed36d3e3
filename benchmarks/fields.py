"""Large fields against whole payloads: alerts with three cut-outs in S3, read whole, filtered, or by columns."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from confluent_kafka import TopicPartition

from benchmarks.harness import Row, Table, measure, per_second
from serde_chain import Consumer, DeserializerChain, Producer, RecordContext, SerializerChain
from serde_chain.testing.services import KafkaBroker
from tests.servers.versitygw import VersityGateway

# Bytes of a cut-out, and the alerts of a turn.
_SIZES: Final = {40_000: 1_000, 400_000: 150, 2_000_000: 40}
_STORES: Final = ("s3", "objects")
_CUTOUTS: Final = ("cutoutDifference", "cutoutScience", "cutoutTemplate")
_ROUNDS: Final = 3
_SECONDS: Final = 120
_SCHEMA: Final = {
    "type": "record",
    "name": "alert",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "flux", "type": "double"},
        *({"name": name, "type": ["null", "bytes"]} for name in _CUTOUTS),
    ],
}
_WHOLE: Final = {
    "value.serializers": "avro, large-message",
    "value.deserializers": "large-message, avro",
    "large.message.threshold.bytes": 10_000,
}
_FIELDS: Final = {
    "value.serializers": "large-fields, avro",
    "value.deserializers": "avro, large-fields",
    "large.fields.paths": "cutout*",
}


def run(*, quick: bool) -> Iterator[Table]:
    """Alerts through a broker and S3, in both forms; then records without large fields."""
    rates: dict[tuple[str, str, int], list[float]] = {}
    with KafkaBroker() as broker, VersityGateway() as server:
        bucket = server.create_bucket()
        stores = {"s3": server.store_config(bucket), "objects": server.objects_config(bucket)}
        for number in range((1 if quick else _ROUNDS) + 1):  # the first round warms everything up
            for store in _STORES:
                for size, count in _SIZES.items():
                    alerts = [_alert(at, size) for at in range(20 if quick else count)]
                    config: dict[str, Any] = {
                        **broker.client_config(),
                        "log_level": 0,
                        "avro.schema": _SCHEMA,
                        "large.message.payload.store.class": store,
                        **stores[store],
                    }
                    for way, seconds in _round(config, broker, alerts, f"{store}-{size}-{number}"):
                        if number:
                            rates.setdefault((way, store, size), []).extend(per_second(len(alerts), [seconds]))
    rows = [
        Row(
            f"{name}, {store}", rates[ours, store, size], "whole payloads", rates[theirs, store, size], _kilobytes(size)
        )
        for name, ours, theirs in (
            ("write", "write fields", "write whole"),
            ("read, all cut-outs", "read fields", "read whole"),
            ("filter on a flux, lazy", "filter fields", "read whole"),
            ("consume_arrow, two columns", "columns fields", "columns whole"),
        )
        for store in _STORES
        for size in _SIZES
    ]
    yield Table("fields", "Alerts with three cut-outs in S3", "records/s", rows, "size of a cut-out")
    yield Table("fields-small", "Records without large fields: the stage's own cost", "µs", list(_small(quick=quick)))


def _kilobytes(size: int) -> str:
    return f"{size // 1000:,} KB"


def _alert(number: int, size: int) -> dict[str, Any]:
    return {"id": number, "flux": number / 10, **{name: random.randbytes(size) for name in _CUTOUTS}}


def _round(
    config: dict[str, Any], broker: KafkaBroker, alerts: list[dict[str, Any]], name: str
) -> Iterator[tuple[str, float]]:
    for form, settings in (("whole", _WHOLE), ("fields", _FIELDS)):
        topic = f"{form}-{name}"
        broker.create_topic(topic)
        own = {**config, **settings}
        yield f"write {form}", _timed(partial(_write, own, topic, alerts))
        yield f"read {form}", _timed(partial(_read, own, topic, len(alerts)))
        yield f"columns {form}", _timed(partial(_columns, own, topic, len(alerts)))
        if form == "fields":
            lazy = {**own, "large.fields.fetch": "lazy"}
            yield "filter fields", _timed(partial(_read, lazy, topic, len(alerts)))


def _timed(call: Callable[[], None]) -> float:
    gc.collect()  # an earlier client's boto3: that takes three times as long as opening the next client
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _write(config: dict[str, Any], topic: str, alerts: list[dict[str, Any]]) -> None:
    with Producer(config) as producer:
        for alert in alerts:
            producer.produce(topic, alert)
        if producer.flush(_SECONDS):
            raise AssertionError("not all were sent")


def _consumer(config: dict[str, Any], topic: str) -> Consumer:
    consumer = Consumer({**config, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def _read(config: dict[str, Any], topic: str, count: int) -> None:
    with _consumer(config, topic) as consumer:
        seen = bright = 0
        while seen < count:
            for message in consumer.consume(min(500, count - seen), _SECONDS):
                value: Any = message.value()
                bright += value["flux"] > 1
                seen += 1
        if not bright:
            raise AssertionError("no alert is bright")


def _columns(config: dict[str, Any], topic: str, count: int) -> None:
    with _consumer(config, topic) as consumer:
        seen = 0
        while seen < count:
            seen += len(consumer.consume_arrow(min(500, count - seen), _SECONDS, columns=["id", "flux"]))


def _small(*, quick: bool) -> Iterator[Row]:
    config = {"avro.schema": _SCHEMA, "large.message.payload.store.class": "memory", **_FIELDS}
    alert = _alert(1, 100)
    writers = [SerializerChain.from_config({**config, "value.serializers": stages}) for stages in _both("serializers")]
    data = writers[0](alert, RecordContext("alerts", "value", []))
    yield measure(
        "serialize",
        lambda: writers[1](alert, RecordContext("alerts", "value", [])),
        "the chain without large-fields",
        lambda: writers[0](alert, RecordContext("alerts", "value", [])),
        quick=quick,
    )
    readers = [
        DeserializerChain.from_config({**config, "value.deserializers": stages}) for stages in _both("deserializers")
    ]
    yield measure(
        "deserialize",
        lambda: readers[1](data, RecordContext("alerts", "value", [])),
        "the chain without large-fields",
        lambda: readers[0](data, RecordContext("alerts", "value", [])),
        quick=quick,
    )


def _both(side: str) -> tuple[str, str]:
    return "avro", _FIELDS[f"value.{side}"]
