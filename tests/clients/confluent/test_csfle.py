"""Confluent's field encryption (CSFLE): its serializers with their encryption executors, as stages and as peers.

The registries of schemas and of keys are Confluent's own mocks; the key encryption key is derived from a secret by its
local KMS.
"""

import errno
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.schema_registry import Rule, RuleMode, RuleSet, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.rules.encryption.encrypt_executor import AeadWrapper, FieldEncryptionExecutor
from confluent_kafka.schema_registry.rules.encryption.kms_driver_registry import reset_kms_drivers
from confluent_kafka.schema_registry.rules.encryption.localkms.local_driver import LocalKmsDriver
from confluent_kafka.serialization import MessageField, SerializationContext

from payload_stores.memory import MemoryStore
from serde_chain import DeserializerChain, RecordContext, SchemaRegistryError, SerializationError, SerializerChain
from serde_chain.schemas.confluent import ConfluentRegistry
from serde_chain.testing.services import KafkaBroker
from tests.schemas.encrypted import AVRO, JSON, SECRET, SETTINGS, encrypting
from tests.stages.protobuf.protobuf_messages import POSITION

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer

STARS = [{"name": "Vega", "numbers": "1"}, {"name": "Deneb", "numbers": " ".join(map(str, range(1000)))}]
LARGE = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 1000}


@pytest.fixture(autouse=True)
def local_kms() -> Iterator[None]:
    MemoryStore.clear()
    LocalKmsDriver.register()
    yield
    reset_kms_drivers()
    MemoryStore.clear()


Given = Callable[[Any], None]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """Gives our stages a mock of their registry, which knows its own schemas only."""
    return lambda client: monkeypatch.setattr(SchemaRegistryClient, "new_client", lambda _conf: client)


def registered(subject: str, text: str, kind: str = "AVRO", rule: Rule | None = None) -> Any:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    client.register_schema(subject, Schema(text, kind, [], None, RuleSet(None, [rule or encrypting()])))
    return client


def executors(other: FieldEncryptionExecutor | None = None) -> tuple[RuleRegistry, FieldEncryptionExecutor]:
    """An executor of its own; with another one's registry of keys, since each mock begins empty, but not its keys."""
    registry, executor = RuleRegistry(), FieldEncryptionExecutor()  # type: ignore[no-untyped-call]  # theirs
    if other is not None:
        client: Any = other.executor.client
        for dek in client._dek_cache.deks.values():  # otherwise it would have them unwrapped
            dek.key_material = dek.key_material_bytes = None
        executor.executor.client = client
    registry.register_executor(executor)
    return registry, executor


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_each_reads_what_the_other_wrote(  # noqa: PLR0917, fixtures
    kind: str,
    broker: KafkaBroker,
    topic: str,
    new_producer: "NewProducer",
    new_consumer: "NewConsumer",
    fetch: "Fetch",
) -> None:
    text = {"AVRO": AVRO, "JSON": JSON}[kind]
    client = registered(f"{topic}-value", text, kind)
    rules, executor = executors()
    write: Any
    reader: Callable[[RuleRegistry], Any]
    if kind == "AVRO":
        write = AvroSerializer(client, text, conf=SETTINGS, rule_conf=SECRET, rule_registry=rules)
        reader = lambda rules: AvroDeserializer(client, rule_conf=SECRET, rule_registry=rules)  # noqa: E731
    else:
        write = JSONSerializer(text, client, conf=SETTINGS, rule_conf=SECRET, rule_registry=rules)
        reader = lambda rules: JSONDeserializer(  # noqa: E731
            None, schema_registry_client=client, rule_conf=SECRET, rule_registry=rules
        )
    ctx = SerializationContext(topic, MessageField.VALUE, [])
    producer = new_producer({**LARGE, "value.serializers": [write, "large-message"]})
    for star in STARS:
        producer.produce(topic, dict(star))  # their rules change it
    assert producer.flush(30) == 0
    theirs = confluent_kafka.Producer(broker.client_config())
    theirs.produce(topic, write(dict(STARS[0]), ctx))
    assert theirs.flush(30) == 0

    consumer = new_consumer({**LARGE, "value.deserializers": ["large-message", reader(executors(executor)[0])]})
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, 3)] == [*STARS, STARS[0]]

    # The small record, as it is in Kafka: without the name, and for their reader.
    plain = confluent_kafka.Consumer({**broker.client_config(), "group.id": f"{topic}-theirs"})
    plain.assign([TopicPartition(topic, 0, 0)])
    first = plain.consume(1, 30)[0].value() or b""
    plain.close()
    store = MemoryStore()
    (stored,) = [store.download(info.reference) for info in store.list(topic)]
    assert b"Vega" not in first
    assert b"Deneb" not in stored
    assert reader(executors(executor)[0])(first, ctx) == STARS[0]
    assert reader(executors(executor)[0])(stored, ctx) == STARS[1]


def test_a_reader_without_the_key_is_refused(given: Given) -> None:
    client = registered("stars-value", AVRO)
    rules, _ = executors()
    write = SerializerChain([AvroSerializer(client, AVRO, conf=SETTINGS, rule_conf=SECRET, rule_registry=rules)])
    ctx = RecordContext("stars", "value", [])
    data = write(dict(STARS[0]), ctx)
    without = RuleRegistry()  # type: ignore[no-untyped-call]  # theirs
    with pytest.raises(SerializationError, match="executor of type ENCRYPT") as caught:
        DeserializerChain([AvroDeserializer(client, rule_conf=SECRET, rule_registry=without)])(data, ctx)
    assert "Vega" not in str(caught.value)
    # A registry without the key.
    stranger, _ = executors()
    with pytest.raises(SerializationError, match=r"encrypt|kek") as caught:
        DeserializerChain([AvroDeserializer(client, rule_conf=SECRET, rule_registry=stranger)])(data, ctx)
    assert "Vega" not in str(caught.value)
    # The stage avro runs no rules: the field as it was written.
    given(client)
    with DeserializerChain.from_config({"value.deserializer": "avro", "schema.registry.url": "mock://"}) as own:
        star = own(data, ctx)
    assert star["numbers"] == "1"
    assert "Vega" not in star["name"]


def test_the_record_is_not_blamed_for_a_key_management_service_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    client = registered("stars-value", AVRO)
    rules, executor = executors()
    ctx = RecordContext("stars", "value", [])
    data = AvroSerializer(client, AVRO, conf=SETTINGS, rule_conf=SECRET, rule_registry=rules)(dict(STARS[0]), ctx)
    chain = DeserializerChain(
        [AvroDeserializer(client, rule_conf=SECRET, rule_registry=executors(executor)[0])],
    )

    def refuse(*_: object) -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(AeadWrapper, "_get_aead", refuse)
        with pytest.raises(SerializationError, match="KEKs for stars") as caught:
            chain(data, ctx)
        assert not caught.value.about_record
    assert chain(data, ctx) == STARS[0]


@pytest.mark.parametrize("stage", ["avro", "json"])
@pytest.mark.parametrize("latest", [True, False])
def test_our_stages_refuse_to_write_in_clear(stage: str, latest: bool, given: Given) -> None:
    text = {"avro": AVRO, "json": JSON}[stage]
    client = registered("stars-value", text, stage.upper())
    # The mock compares schemas with their rules; a registry may find a schema by its text.
    client.lookup_schema = lambda subject, *_: client.get_latest_version(subject)
    given(client)
    config = {"value.serializer": stage, "schema.registry.url": "mock://", "auto.register.schemas": False}
    config |= {f"{stage}.schema": text, f"{stage}.framing": "confluent", "use.latest.version": latest}
    with SerializerChain.from_config(config) as write:
        ctx = RecordContext("stars", "value", [])
        with pytest.raises(SchemaRegistryError, match=r"stars-value requires encryption \(rule 'encrypt'\)") as caught:
            write(STARS[0], ctx)
        assert not caught.value.about_record
        assert "Confluent's serializer" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        (encrypting(RuleMode.WRITE), True),
        (encrypting(type="ENCRYPT_PAYLOAD", tags=[]), True),
        (encrypting(RuleMode.READ), False),
        (encrypting(disabled=True), False),
        (encrypting(type="CEL_FIELD"), False),
    ],
)
def test_which_rules_are_refused(rule: Rule, refused: bool, given: Given) -> None:
    given(registered("stars-value", AVRO, rule=rule))
    config = {"value.serializer": "avro", "schema.registry.url": "mock://", "use.latest.version": True}
    with SerializerChain.from_config(config) as write:
        ctx = RecordContext("stars", "value", [])
        if refused:
            with pytest.raises(SchemaRegistryError, match="requires encryption"):
                write(STARS[0], ctx)
        else:
            assert b"Vega" in write(STARS[0], ctx)


def test_a_reader_may_ask_for_such_a_schema(given: Given) -> None:
    """Spark types a column by the latest schema."""
    given(registered("stars-value", AVRO))
    registry = ConfluentRegistry({"schema.registry.url": "mock://"}, is_key=False)
    assert registry.latest("stars-value", "AVRO").text == AVRO
    with pytest.raises(SchemaRegistryError, match="requires encryption"):
        registry.schema_for("stars-value", None, "AVRO")


def test_protobuf_refuses_too(given: Given) -> None:
    text = 'syntax = "proto3"; package test; message Position { double ra = 1; }'
    given(registered("stars-value", text, "PROTOBUF"))
    config = {"value.serializer": "protobuf", "protobuf.message.class": POSITION, "use.latest.version": True}
    chain = SerializerChain.from_config({**config, "schema.registry.url": "mock://"})
    with chain as write, pytest.raises(SchemaRegistryError, match="requires encryption"):
        write(POSITION(), RecordContext("stars", "value", []))
