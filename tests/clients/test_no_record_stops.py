"""No record stops a consumer, whatever its writer put into it, or another writer into the store.

For every record that a writer of the topic can make, and every object that another writer of the store can put there,
the good records behind it are delivered under ``skip`` and ``dead-letter``.
"""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from payload_stores import PayloadStore, PublishContext, SupportsDelete, SupportsRecords, open_store
from payload_stores.registry import ConfiguredStore
from serde_chain import ConfigError, Producer, RecordContext, SerializerChain
from serde_chain.catalogue import FORMATS, find_format
from serde_chain.record import header_pairs
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from tests.clients.conftest import QUICK
from tests.hostile import (
    GOOD,
    MOST_BYTES,
    PASSING,
    READERS,
    assert_the_last_is_delivered,
    mutated,
    placeholders,
    policy_config,
    write,
)
from tests.payload_stores.cases import CASES
from tests.test_every_stage import CASES as STAGES
from tests.test_every_stage import Case

if TYPE_CHECKING:
    from tests.conftest import NewTopic

# Hostile records; the ordinary way has tests of its own.
pytestmark = pytest.mark.full

# hop's store and format go with each other alone: tests/hop/test_no_record_stops.py.
STORES = [name for name, case in CASES.items() if case.through_a_broker is not None]
# Those that are only read: tests/wire/test_foreign.py.
WRITTEN = [name for name in FORMATS.builtins if find_format(name).writes]
PLACEHOLDERS = [name for name in WRITTEN if not find_format(name).whole_record]
# Confluent's client takes each format from each store. Other clients share its chains; their loops are their own.
WAYS = [
    *(("Consumer", store, name) for store in STORES for name in PLACEHOLDERS),
    *(("Consumer, columns", store, PLACEHOLDERS[0]) for store in STORES),
    *((client, "local", name) for client in READERS if "Consumer" not in client.split(", ") for name in PLACEHOLDERS),
]
# Any bytes are bytes.
VALUES = [case for case in STAGES if case.stages != ("bytes",) or case.after]


def test_what_is_left_out_is_tried_elsewhere() -> None:
    left = set(CASES) - set(STORES)
    stores = [ConfiguredStore.of(name, {}).target for name in left]
    assert all(isinstance(store, type) and issubclass(store, SupportsRecords) for store in stores)
    assert {"hop"} == left == set(WRITTEN) - set(PLACEHOLDERS)


def read_config(config: dict[str, Any], policy: str, dead: str) -> dict[str, Any]:
    """Of a consumer that passes over what it cannot read, and takes no payload above `MOST_BYTES`."""
    own = {"group.id": f"group-{uuid.uuid4()}", "log_level": 0, "large.message.max.payload.bytes": MOST_BYTES}
    return {**config, **QUICK, **policy_config(policy, dead), **own}


def odd_payloads(store: PayloadStore, topic: str) -> list[str]:
    """Payloads that writers of any store can put there: of the wrong size, replaced, deleted."""
    large, empty, other = (store.publish(topic, data) for data in (bytes(2 * MOST_BYTES), b"", b"another"))
    taken = PublishContext(payload_id="taken")
    replaced = store.publish(topic, GOOD, taken)
    store.publish(topic, b"another", taken)
    elsewhere = store.publish("another", b"another")
    if isinstance(store, SupportsDelete):
        store.delete(other)
    return [large, empty, other, replaced, elsewhere]


@pytest.mark.full
@pytest.mark.parametrize("policy", PASSING)
@pytest.mark.parametrize(("client", "name", "reference_format"), WAYS)
def test_no_placeholder_stops_a_consumer(  # noqa: PLR0917, fixtures
    request: pytest.FixtureRequest,
    tmp_path: Path,
    broker: KafkaBroker,
    new_topic: "NewTopic",
    client: str,
    name: str,
    reference_format: str,
    policy: str,
) -> None:
    case = CASES[name]
    assert case.through_a_broker is not None
    topic, dead = new_topic(), new_topic()
    config: dict[str, Any] = {
        **broker.client_config(),
        **case.through_a_broker(request, tmp_path),
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.payload.store.class": name,
        "large.message.threshold.bytes": 100,
        "large.message.format": reference_format,
        "large.message.accept": reference_format,
    }
    store = open_store(name, config)
    good = store.publish(topic, GOOD)
    odd = [*odd_payloads(store, topic), *case.odd_objects(request, good)]
    # One at a time it is the first that meets a consumer that has read nothing yet.
    write(broker.client_config(), topic, placeholders(reference_format, good, topic, [*case.foreign, *odd]))
    with Producer(config) as producer:
        producer.produce(topic, GOOD[::-1])
    assert_the_last_is_delivered(broker, client, read_config(config, policy, dead), topic, GOOD[::-1], seconds=100)
    store.close()


@pytest.mark.full
@pytest.mark.parametrize("policy", PASSING)
@pytest.mark.parametrize("case", VALUES, ids=lambda case: case.name)
def test_no_value_stops_a_consumer(
    request: pytest.FixtureRequest,
    broker: KafkaBroker,
    new_topic: "NewTopic",
    case: Case,
    policy: str,
) -> None:
    """The formats of values: every stage, in every framing."""
    topic, good, dead = new_topic(), new_topic(), new_topic()
    stages = [*case.stages, *case.after]
    config = {key: value for key, value in case.settings.items() if not key.startswith("large.message.")}
    if case.registry:
        registry: SchemaRegistry = request.getfixturevalue("registry")
        config["schema.registry.url"] = registry.url
    config |= {**broker.client_config(), "value.serializers": stages, "value.deserializers": stages[::-1]}
    moves_fields = "large-fields" in stages
    if moves_fields:
        config["large.message.payload.store.class"] = "memory"
    with Producer(config) as producer:
        producer.produce(good, case.values[-1 if moves_fields else 0])
    reader = confluent_kafka.Consumer({**broker.client_config(), "group.id": "good"})
    reader.assign([confluent_kafka.TopicPartition(good, 0, 0)])
    [message] = reader.consume(1, 30)
    reader.close()
    bad = [*mutated(message.value() or b"", [*(message.headers() or [])]), (b"\xff" * 100, []), (b"\0" * 100, [])]
    write(broker.client_config(), topic, bad)
    with Producer(config) as producer:
        # Not the last good one alone: some of the others may be read as one.
        producer.produce(topic, case.values[1])
    assert_the_last_is_delivered(broker, "Consumer", read_config(config, policy, dead), topic, case.values[1])


def takes_keys(case: Case) -> bool:
    """Whether a chain of keys may have the stages of a case."""
    try:
        with SerializerChain.from_config(
            {**case.settings, "key.serializers": [*case.stages, *case.after]}, is_key=True
        ):
            return not case.registry
    except ConfigError:
        return False


KEYS = [case for case in VALUES if takes_keys(case)]


def test_keys_are_tried() -> None:
    assert {"string", "json", "avro"} <= {case.stages[0] for case in KEYS}


@pytest.mark.parametrize("policy", PASSING)
@pytest.mark.parametrize("case", KEYS, ids=lambda case: case.name)
def test_no_key_stops_a_consumer(broker: KafkaBroker, new_topic: "NewTopic", case: Case, policy: str) -> None:
    topic, dead = new_topic(), new_topic()
    stages = [*case.stages, *case.after]
    config = {**case.settings, **broker.client_config(), "key.serializers": stages, "key.deserializers": stages[::-1]}
    with SerializerChain.from_config(config, is_key=True) as encode:
        ctx = RecordContext(topic, "key", [])
        good = encode(case.values[0], ctx)
    bad = [*mutated(good or b"", [*header_pairs(ctx)]), (b"\xff" * 100, []), (b"\0" * 100, [])]
    write(broker.client_config(), topic, bad, as_keys=True)
    with Producer(config) as producer:
        producer.produce(topic, b"last", case.values[1])
    assert_the_last_is_delivered(broker, "Consumer", read_config(config, policy, dead), topic, b"last")


@pytest.mark.parametrize("policy", PASSING)
@pytest.mark.parametrize("reference_format", PLACEHOLDERS)
def test_no_placeholder_of_a_key_stops_a_consumer(
    tmp_path: Path,
    broker: KafkaBroker,
    new_topic: "NewTopic",
    reference_format: str,
    policy: str,
) -> None:
    topic, dead = new_topic(), new_topic()
    config: dict[str, Any] = {
        **broker.client_config(),
        "key.serializers": "bytes, large-message",
        "key.deserializers": "large-message, bytes",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "large.message.threshold.bytes": 100,
        "large.message.format": reference_format,
        "large.message.accept": reference_format,
    }
    store = open_store("local", config)
    good = store.publish(topic, GOOD)
    bad = placeholders(reference_format, good, topic, odd_payloads(store, topic), is_key=True)
    write(broker.client_config(), topic, bad, as_keys=True)
    with Producer(config) as producer:
        producer.produce(topic, b"last", GOOD[::-1])
    assert_the_last_is_delivered(broker, "Consumer", read_config(config, policy, dead), topic, b"last")
    store.close()
