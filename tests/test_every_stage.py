"""Every stage, in every framing, on every store, through the real broker with our clients."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from payload_stores.memory import MemoryStore
from serde_chain import Consumer, Producer
from serde_chain.schemas.schema_id import VALUE_HEADER
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from tests.payload_stores.cases import CASES as STORE_CASES
from tests.stages.cases import STAGES
from tests.stages.protobuf.protobuf_messages import POSITION

JSON_SCHEMA = '{"title": "R", "type": "object", "properties": {"id": {"type": "integer"}}}'


@dataclass(frozen=True)
class Case:
    """A chain, in the order of the serializers; ``large-message`` comes behind it if stores are to be used."""

    name: str
    stages: tuple[str, ...]
    values: tuple[Any, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    registry: bool = False
    after: tuple[str, ...] = ()


def of(name: str, suffix: str = "", *, registry: bool = False, **settings: Any) -> Case:
    """The case of a stage, with other settings than its row has."""
    row = STAGES[name]
    stages = row.before if row.follows_large_message else (*row.before, name)
    settings = {**row.config, **{key.replace("_", "."): value for key, value in settings.items()}}
    after = (name,) if row.follows_large_message else ()
    return Case(f"{name} {suffix}".strip(), stages, row.values, settings, registry, after)


BYTES = STAGES["bytes"].values
CODECS = ("zstd", "lz4", "gzip", "snappy", "zlib")
MESSAGES: dict[str, Any] = {
    "stages": ("protobuf",),
    "values": (POSITION(ra=1.5), POSITION(ra=2.5, dec=-3.5)),
}
MESSAGE = {"protobuf.message.class": POSITION}
CASES = [
    *(of(name) for name in STAGES if name != "large-message"),
    of("avro", "single-object", avro_framing="single-object"),
    of("avro", "container", avro_framing="container"),
    of("avro", "confluent", registry=True),
    of("avro", "header", avro_framing="header", registry=True),
    Case("protobuf messages", **MESSAGES, settings=MESSAGE),
    Case("protobuf confluent", **MESSAGES, settings=MESSAGE, registry=True),
    Case("protobuf header", **MESSAGES, settings={**MESSAGE, "protobuf.framing": "header"}, registry=True),
    *(
        of("json", framing, json_schema=JSON_SCHEMA, json_framing=framing, registry=True)
        for framing in ("confluent", "header")
    ),
    *(of("compress", name, compression_type=name) for name in CODECS),
    of("encrypt", "siv", encryption_mode="siv"),
    Case(
        "large-fields",
        ("large-fields", "avro"),
        STAGES["avro"].values,
        {**STAGES["avro"].config, "large.fields.paths": "blob", "large.fields.min.bytes": 1000},
    ),
    Case(
        "all of them",
        ("avro", "zstd", "encrypt"),
        STAGES["avro"].values,
        {**STAGES["avro"].config, **STAGES["encrypt"].config},
        after=("entry-metadata",),
    ),
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
        for codec in CODECS
        if codec != "zlib"  # bakdata's format has no number for it
    ),
]


@pytest.fixture
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, dict[str, Any]]]:
    yield {
        name: case.through_a_broker(request, tmp_path) for name, case in STORE_CASES.items() if case.through_a_broker
    }
    MemoryStore.clear()


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_through_the_broker(
    case: Case, broker: KafkaBroker, registry: SchemaRegistry, topic: str, stores: dict[str, dict[str, Any]]
) -> None:
    """Without a store, and on two: neighbours have different ones."""
    at, choice = 2 * CASES.index(case), list(stores.items())
    chosen = [choice[place % len(choice)] for place in (at, at + 1)]
    go_through(case, broker, registry, topic, [(None, {}), *chosen])


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_through_the_broker_on_every_store(
    case: Case, broker: KafkaBroker, registry: SchemaRegistry, topic: str, stores: dict[str, dict[str, Any]]
) -> None:
    go_through(case, broker, registry, topic, list(stores.items()))


def go_through(
    case: Case,
    broker: KafkaBroker,
    registry: SchemaRegistry,
    topic: str,
    stores: Sequence[tuple[str | None, dict[str, Any]]],
) -> None:
    """Write and read the values of a case on each store, and without one for the name ``None``."""
    for name, settings in stores:
        config = {**broker.client_config(), "log_level": 0, "linger.ms": 0, **case.settings, **settings}
        if case.registry:
            config["schema.registry.url"] = registry.url
        stages = [*case.stages, *case.after]
        if name is not None:
            stages = [*case.stages, "large-message", *case.after]
            config |= {"large.message.payload.store.class": name, "large.message.threshold.bytes": 3}
        elif any(key.startswith(("large.message.", "large.fields.")) for key in config):
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
