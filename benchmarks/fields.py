"""Large fields against whole payloads: alerts with three cut-outs in S3, read whole, filtered, or by columns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from confluent_kafka import TopicPartition

from benchmarks.harness import Row, Table, measure, per_second
from serde_chain import Consumer, DeserializerChain, Producer, RecordContext, SerializerChain
from serde_chain.testing.services import KafkaBroker, S3Server

_ALERTS: Final = 1_000
_CUTOUT_BYTES: Final = 40_000
_CUTOUTS: Final = ("cutoutDifference", "cutoutScience", "cutoutTemplate")
_ROUNDS: Final = 5
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
    count = 200 if quick else _ALERTS
    rates: dict[str, list[float]] = {}
    with KafkaBroker() as broker, S3Server() as server:
        config: dict[str, Any] = {
            **broker.client_config(),
            "log_level": 0,
            "avro.schema": _SCHEMA,
            "large.message.payload.store.class": "s3",
            **server.store_config(server.create_bucket()),
        }
        for number in range((1 if quick else _ROUNDS) + 1):  # the first round warms everything up
            for way, seconds in _round(config, broker, count, number):
                if number:
                    rates.setdefault(way, []).extend(per_second(count, [seconds]))
    rows = [
        Row(name, rates[ours], "whole payloads", rates[theirs])
        for name, ours, theirs in (
            ("write", "write fields", "write whole"),
            ("read, all cut-outs", "read fields", "read whole"),
            ("filter on a flux, lazy", "filter fields", "read whole"),
            ("consume_arrow, two columns", "columns fields", "columns whole"),
        )
    ]
    yield Table("fields", f"Alerts with three cut-outs of {_CUTOUT_BYTES // 1000} KB in S3", "records/s", rows)
    yield Table("fields-small", "Records without large fields: the stage's own cost", "µs", list(_small(quick=quick)))


def _alert(number: int, size: int) -> dict[str, Any]:
    return {"id": number, "flux": number / 10, **{name: random.randbytes(size) for name in _CUTOUTS}}


def _round(config: dict[str, Any], broker: KafkaBroker, count: int, number: int) -> Iterator[tuple[str, float]]:
    alerts = [_alert(at, _CUTOUT_BYTES) for at in range(count)]
    for form, settings in (("whole", _WHOLE), ("fields", _FIELDS)):
        topic = f"{form}-{number}"
        broker.create_topic(topic)
        whole = {**config, **settings}
        yield f"write {form}", _timed(partial(_write, whole, topic, alerts))
        yield f"read {form}", _timed(partial(_read, whole, topic, count))
        yield f"columns {form}", _timed(partial(_columns, whole, topic, count))
        if form == "fields":
            lazy = {**whole, "large.fields.fetch": "lazy"}
            yield "filter fields", _timed(partial(_read, lazy, topic, count))


def _timed(call: Callable[[], None]) -> float:
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
