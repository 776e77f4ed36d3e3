"""Confluent's serializers, with the rules of their schemas, in chains."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Rule, RuleKind, RuleMode, RuleSet, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import FieldContext, FieldRuleExecutor, RuleContext, RuleExecutor
from confluent_kafka.serialization import StringDeserializer, StringSerializer

from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, DeserializerChain, RecordContext, SerializationError, SerializerChain
from serde_chain.testing.services import SchemaRegistry
from tests.stages.protobuf.protobuf_messages import POSITION

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer

LARGE = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 1000}


@pytest.fixture(autouse=True)
def payloads() -> Iterator[None]:
    MemoryStore.clear()
    yield
    MemoryStore.clear()


AVRO = """{"type": "record", "name": "Star", "fields": [
    {"name": "name", "type": "string", "confluent:tags": ["PII"]}, {"name": "numbers", "type": "string"}]}"""
JSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Star", "type": "object", "properties": {
    "name": {"type": "string", "confluent:tags": ["PII"]}, "numbers": {"type": "string"}}}"""
STARS = [{"name": "Vega", "numbers": "1"}, {"name": "Deneb", "numbers": " ".join(map(str, range(1000)))}]
PLAIN_PROTOBUF = {"use.deprecated.format": False}


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    """Their serializers leave it open, and so does a chain that has them."""
    with registry.client() as found:
        yield found


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_confluents_serializers_are_stages(  # noqa: PLR0917, fixtures
    kind: str,
    registry: SchemaRegistry,
    client: SchemaRegistryClient,
    topic: str,
    new_producer: "NewProducer",
    new_consumer: "NewConsumer",
    fetch: "Fetch",
) -> None:
    conf = registry.serializer_conf()
    theirs: dict[str, tuple[Any, Any, list[Any]]] = {
        "avro": (AvroSerializer(client, AVRO, conf=conf), AvroDeserializer(client, conf=conf), STARS),
        "json": (
            JSONSerializer(JSON, client, conf=conf),
            JSONDeserializer(JSON, schema_registry_client=client, conf=conf),
            STARS,
        ),
        "protobuf": (
            ProtobufSerializer(POSITION, client, {**PLAIN_PROTOBUF, **conf}),
            ProtobufDeserializer(POSITION, {**PLAIN_PROTOBUF, **conf}, client),
            [POSITION(ra=1.5), POSITION(dec=2.5)],
        ),
    }
    write, read, values = theirs[kind]
    key = {"key.serializers": [StringSerializer("utf_8"), "zstd"], "key.deserializers": ["zstd", StringDeserializer()]}
    chain: dict[str, Any] = {**LARGE, **key, "large.message.threshold.bytes": 50}
    producer = new_producer({**chain, "value.serializers": [write, "gzip", "large-message"]})
    for value in (*values, None):
        producer.produce(topic, value, "key")
    assert producer.flush(30) == 0
    settings = {"json.framing": "confluent"} if kind == "json" else {}
    for last in (read, kind):  # and our own stages read what theirs have written
        consumer = new_consumer(
            {
                **chain,
                "schema.registry.url": registry.url,
                **settings,
                "value.deserializers": ["large-message", "gzip", last],
            }
        )
        consumer.subscribe([topic])
        messages = fetch(consumer, 3)
        found = [message.value() for message in messages]
        if kind == "protobuf":
            found = [value and (value.ra, value.dec) for value in found]
            assert found == [(1.5, 0.0), (0.0, 2.5), None]
        else:
            assert found == [*STARS, None]
        assert {message.key() for message in messages} == {"key"}


def test_classes_take_their_options_as_arguments() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://arguments"})
    write = {"class": AvroSerializer, "schema_registry_client": client, "schema_str": AVRO}
    read = {"class": "confluent_kafka.schema_registry.avro.AvroDeserializer", "schema_registry_client": client}
    with (
        SerializerChain.from_config({"value.serializers": [write, "zstd"]}) as writing,
        DeserializerChain.from_config({"value.deserializers": ["zstd", read]}) as reading,
    ):
        ctx = RecordContext("stars", "value", [])
        assert reading(writing(STARS[0], ctx), ctx) == STARS[0]
    item = {"class": StringSerializer, "codec": "utf_16_be"}
    assert SerializerChain.from_config({"value.serializers": [item]})("a") == b"\x00a"
    with pytest.raises(ConfigError, match=r"StringSerializer cannot be made with these arguments: .*'codek'"):
        SerializerChain.from_config({"value.serializers": [{"class": StringSerializer, "codek": "utf_8"}]})
    conf = {"class": AvroSerializer, "schema_registry_client": client, "schema_str": AVRO, "conf": {"no.such": 1}}
    with pytest.raises(ConfigError, match=r"AvroSerializer cannot be made with these arguments: .*no\.such"):
        SerializerChain.from_config({"value.serializers": [conf]})
    with pytest.raises(ConfigError, match=r"AvroSerializer cannot be made without arguments"):
        SerializerChain.from_config({"value.serializers": [AvroSerializer]})


# Data contracts: rules of a schema


class Mask(FieldRuleExecutor):
    """Turns tagged fields around, on the way in and again on the way out."""

    def configure(self, client_conf: dict[str, Any], rule_conf: dict[str, Any]) -> None:
        pass

    def type(self) -> str:
        return "MASK"

    def new_transform(self, ctx: RuleContext) -> Any:
        def turn(_context: RuleContext, field: FieldContext, value: Any) -> Any:
            return value[::-1] if "PII" in field.tags else value

        return turn

    def close(self) -> None:
        pass


class NotEmpty(RuleExecutor):
    """A condition: stars have names."""

    def configure(self, client_conf: dict[str, Any], rule_conf: dict[str, Any]) -> None:
        pass

    def type(self) -> str:
        return "NOT_EMPTY"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        return bool(message["name"])

    def close(self) -> None:
        pass


def _rule(name: str, kind: RuleKind, mode: RuleMode, type_: str, tags: list[str]) -> Rule:
    return Rule(name, "", kind, mode, type_, tags, None, "", None, None, False)


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_the_rules_of_a_schema_run(
    kind: str, topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    text = {"AVRO": AVRO, "JSON": JSON}[kind]
    client = SchemaRegistryClient.new_client({"url": f"mock://{topic}"})
    contract = RuleSet(
        None,
        [
            _rule("named", RuleKind.CONDITION, RuleMode.WRITE, "NOT_EMPTY", []),
            _rule("mask", RuleKind.TRANSFORM, RuleMode.WRITEREAD, "MASK", ["PII"]),
        ],
    )
    client.register_schema(f"{topic}-value", Schema(text, kind, [], None, contract))
    rules = RuleRegistry()  # type: ignore[no-untyped-call]  # theirs
    rules.register_executor(Mask())
    rules.register_executor(NotEmpty())
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    write: Any
    reads: list[Any]
    if kind == "AVRO":
        write = AvroSerializer(client, text, conf=settings, rule_registry=rules)
        reads = [AvroDeserializer(client, rule_registry=registry) for registry in (rules, RuleRegistry())]  # type: ignore[no-untyped-call]
    else:
        write = JSONSerializer(text, client, conf=settings, rule_registry=rules)
        reads = [
            JSONDeserializer(None, schema_registry_client=client, rule_registry=registry)
            for registry in (rules, RuleRegistry())  # type: ignore[no-untyped-call]
        ]
    producer = new_producer({**LARGE, "value.serializers": [write, "large-message"]})
    for star in STARS:
        producer.produce(topic, dict(star))  # their rules change it
    with pytest.raises(SerializationError, match=rf"named.*stage={type(write).__name__} \(1 of 2\)") as caught:
        producer.produce(topic, {"name": "", "numbers": "x" * 2000})
    assert caught.value.topic == topic
    assert producer.flush(30) == 0
    assert len(list(MemoryStore().list(topic))) == 1
    consumer = new_consumer({**LARGE, "value.deserializers": ["large-message", reads[0]]})
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, 2)] == STARS
    # A reader without the rules' executors is refused what was masked.
    stranger = new_consumer({**LARGE, "value.deserializers": ["large-message", reads[1]]})
    stranger.subscribe([topic])
    with pytest.raises(SerializationError, match=r"MASK|mask"):
        fetch(stranger, 1)
