"""Every stage, in every framing, on every store, through the real broker with our clients."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from payload_stores.memory import MemoryStore
from serde_chain import Consumer, Producer
from serde_chain.catalogue import DESERIALIZERS, SERIALIZERS
from serde_chain.schemas.schema_id import VALUE_HEADER
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from tests.payload_stores.cases import CASES as STORE_CASES
from tests.stages.protobuf.protobuf_messages import ALERT, POSITION

SCHEMA = """{"type": "record", "name": "R", "fields": [
    {"name": "id", "type": "long"}, {"name": "blob", "type": "bytes"}]}"""
JSON_SCHEMA = '{"title": "R", "type": "object", "properties": {"id": {"type": "integer"}}}'
SMALL, LARGE = {"id": 1, "blob": b"small"}, {"id": 2, "blob": bytes(range(256)) * 20}
TEXTS: tuple[Any, ...] = ("small", "large " * 2000)
BYTES: tuple[Any, ...] = (b"small", bytes(range(256)) * 40)
KEYS = {"encryption.keys": {"k": bytes(range(32))}}


@dataclass(frozen=True)
class Case:
    """A chain, in the order of the serializers; ``large-message`` comes behind it if stores are to be used."""

    name: str
    stages: tuple[str, ...]
    values: tuple[Any, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    registry: bool = False
    after: tuple[str, ...] = ()

    @property
    def covers(self) -> set[str]:
        return {*self.stages, *self.after}


AVRO = {"avro.schema": SCHEMA}
ALERT_FIELDS: dict[str, Any] = {
    "id": 1,
    "name": "",
    "tags": [],
    "band": "U",
    "cutout": b"",
    "scores": {},
    "history": [],
}
DICTS = (
    ALERT_FIELDS,
    {**ALERT_FIELDS, "cutout": bytes(5000), "scores": {"a": 0.5}, "position": {"ra": 1.5, "dec": 0.0}},
)
MESSAGES = (POSITION(ra=1.5), POSITION(ra=2.5, dec=-3.5))
CASES = [
    Case("avro", ("avro",), (SMALL, LARGE), AVRO),
    Case("avro single-object", ("avro",), (SMALL, LARGE), {**AVRO, "avro.framing": "single-object"}),
    Case("avro container", ("avro",), (SMALL, LARGE), {**AVRO, "avro.framing": "container"}),
    Case("avro confluent", ("avro",), (SMALL, LARGE), AVRO, registry=True),
    Case("avro header", ("avro",), (SMALL, LARGE), {**AVRO, "avro.framing": "header"}, registry=True),
    Case("protobuf dict", ("protobuf",), DICTS, {"protobuf.message.class": ALERT, "protobuf.values": "dict"}),
    Case("protobuf", ("protobuf",), MESSAGES, {"protobuf.message.class": POSITION}),
    Case("protobuf confluent", ("protobuf",), MESSAGES, {"protobuf.message.class": POSITION}, registry=True),
    Case(
        "protobuf header",
        ("protobuf",),
        MESSAGES,
        {"protobuf.message.class": POSITION, "protobuf.framing": "header"},
        registry=True,
    ),
    Case("json", ("json",), ({"id": 1}, {"id": 2, "text": "x" * 5000})),
    *(
        Case(
            f"json {framing}",
            ("json",),
            ({"id": 1}, {"id": 2}),
            {"json.schema": JSON_SCHEMA, "json.framing": framing},
            registry=True,
        )
        for framing in ("confluent", "header")
    ),
    Case("string", ("string",), TEXTS),
    Case("bytes", ("bytes",), BYTES),
    Case("integer", ("integer",), (1, -(2**31))),
    Case("long", ("long",), (1, 2**63 - 1)),
    Case("float", ("float",), (1.5, -0.25)),
    Case("double", ("double",), (1.5, 1e300)),
    Case("uuid", ("uuid",), (uuid.UUID(int=0), uuid.UUID(int=2**128 - 1))),
    *(Case(name, ("bytes", name), BYTES) for name in ("zstd", "lz4", "gzip", "snappy")),
    *(
        Case(f"compress {name}", ("bytes", "compress"), BYTES, {"compression.type": name})
        for name in ("zstd", "lz4", "gzip", "snappy")
    ),
    *(
        Case(f"encrypt {mode}", ("bytes", "encrypt"), BYTES, {**KEYS, "encryption.mode": mode})
        for mode in ("gcm", "siv")
    ),
    Case("entry-metadata", ("bytes",), BYTES, after=("entry-metadata",)),
    Case("all of them", ("avro", "zstd", "encrypt"), (SMALL, LARGE), {**AVRO, **KEYS}, after=("entry-metadata",)),
    *(
        Case(f"large-message {name}", ("bytes",), BYTES, {"large.message.format": name, "large.message.accept": name})
        for name in ("kip1159", "bakdata-flag", "bakdata-headers")
    ),
    *(
        Case(
            f"bakdata {codec}",
            ("bytes",),
            BYTES,
            {"large.message.format": "bakdata-headers", "large.message.compression": codec},
        )
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
]


@pytest.fixture
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, dict[str, Any]]]:
    yield {
        name: case.through_a_broker(request, tmp_path) for name, case in STORE_CASES.items() if case.through_a_broker
    }
    MemoryStore.clear()


def test_every_stage_has_a_case() -> None:
    names = set(SERIALIZERS.builtins) & set(DESERIALIZERS.builtins)
    assert names - {"large-message"} == set().union(*(case.covers for case in CASES))


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_through_the_broker(
    case: Case, broker: KafkaBroker, registry: SchemaRegistry, topic: str, stores: dict[str, dict[str, Any]]
) -> None:
    for name, settings in ((None, {}), *stores.items()):
        config = {**broker.client_config(), "log_level": 0, "linger.ms": 0, **case.settings, **settings}
        if case.registry:
            config["schema.registry.url"] = registry.url
        stages = [*case.stages, *case.after]
        if name is not None:
            stages = [*case.stages, "large-message", *case.after]
            config |= {"large.message.payload.store.class": name, "large.message.threshold.bytes": 3}
        elif any(key.startswith("large.message.") for key in config):
            continue
        with Producer({**config, "value.serializers": stages}) as producer:
            for value in (*case.values, None):
                producer.produce(topic, value, "key", headers=[("user", b"1")])
            assert producer.flush(30) == 0
        found = read(config, stages, topic, len(case.values) + 1)
        assert [message.value() for message in found] == [*case.values, None], name
        for message in found:
            # Schema ids stay, as Confluent's clients leave them too.
            assert [pair for pair in message.headers() if pair[0] != VALUE_HEADER] == [("user", b"1")]


def read(config: dict[str, Any], stages: list[str], topic: str, count: int) -> list[Any]:
    """The last records of a topic, by a consumer that needs no group."""
    whole = {**config, "value.deserializers": stages[::-1], "group.id": topic, "enable.auto.commit": False}
    with Consumer(whole) as consumer:
        place = confluent_kafka.TopicPartition(topic, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        place.offset = end - count
        consumer.assign([place])
        return consumer.consume(count, 60)
