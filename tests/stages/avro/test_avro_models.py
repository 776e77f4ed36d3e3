"""Values as objects of classes: schemas derived, and all Avro types there and back."""

import dataclasses
import datetime as dt
import enum
import functools
import json
import pickle
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType

import attrs
import msgspec
import pydantic
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from serde_chain import (
    ConfigError,
    Consumer,
    DecodeError,
    DeserializerChain,
    EncodeError,
    Producer,
    RecordContext,
    SchemaRegistryError,
    SerializerChain,
)
from serde_chain.models import AvroType
from serde_chain.stages.avro.models import AvroModel
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from tests.conftest import NewTopic
from tests.models.alerts import MODELS, VALUES, Band, Created, Deleted, Position


@functools.cache
def chains(model: type, **config: object) -> tuple[SerializerChain, DeserializerChain]:
    named = {"avro.type": model, **{key.replace("_", "."): value for key, value in config.items()}}
    return (
        SerializerChain.from_config({"value.serializer": "avro", **named}),
        DeserializerChain.from_config({"value.deserializer": "avro", **named}),
    )


@dataclasses.dataclass
class Alert:
    id: int
    band: Band = Band.GREEN
    tags: list[str] = dataclasses.field(default_factory=list)


@pytest.mark.parametrize("framing", ["none", "single-object", "container"])
@pytest.mark.parametrize("library", MODELS)
def test_all_types_there_and_back(library: str, framing: str) -> None:
    model = MODELS[library]
    write, read = chains(model, avro_framing=framing)
    value: Any = model(**VALUES)
    result: Any = read(write(value))
    assert [type(event) for event in result.events[:2]] == [Created, Deleted]
    assert {name: getattr(result, name) for name in VALUES} == VALUES
    assert type(result) is model


def test_all_libraries_give_one_schema() -> None:
    first, *others = (AvroModel(model).schema for model in MODELS.values())
    assert all(schema == first for schema in others)
    types = {field["name"]: field["type"] for field in first["fields"]}
    assert types["moment"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert types["digests"] == {"type": "array", "items": "Digest"}  # defined by the field before
    assert types["absent"] == ["null", "long"]
    assert types["event"][1]["name"] == "Deleted"


def test_a_plain_peer_reads_what_a_model_wrote(registry: SchemaRegistry) -> None:
    topic = f"models-{uuid.uuid4().hex}"
    config = {"value.serializer": "avro", "avro.type": Alert, "schema.registry.url": registry.url}
    with SerializerChain.from_config(config) as write:
        data = write(Alert(7, Band.RED, ["new"]), RecordContext(topic, "value", []))
    with registry.client() as client:
        peer = AvroDeserializer(client, conf=SchemaRegistry.serializer_conf())
        value = peer(data, SerializationContext(topic, MessageField.VALUE, []))
        text = client.get_latest_version(f"{topic}-value").schema.schema_str
    assert value == {"id": 7, "band": "r", "tags": ["new"]}
    assert [field.get("default", "none") for field in json.loads(text)["fields"]] == ["none", "g", []]


def test_the_registry_checks_compatibility(registry: SchemaRegistry) -> None:
    topic = f"models-{uuid.uuid4().hex}"
    ctx = RecordContext(topic, "value", [])

    old = dataclasses.make_dataclass("Image", [("id", int)])
    required = dataclasses.make_dataclass("Image", [("id", int), ("day", dt.date)])
    default = dataclasses.field(default=dt.date(1970, 1, 2))
    new = dataclasses.make_dataclass("Image", [("id", int), ("day", dt.date, default)])

    def written(value: Any) -> Any:
        config = {"value.serializer": "avro", "avro.type": type(value), "schema.registry.url": registry.url}
        with SerializerChain.from_config(config) as write:
            return write(value, ctx)

    with registry.client() as client:
        client.set_compatibility(f"{topic}-value", level="BACKWARD")
    data = written(old(1))
    with pytest.raises(SchemaRegistryError, match="refused registering"):
        written(required(1, dt.date(2026, 1, 1)))
    written(new(2))
    config = {"value.deserializer": "avro", "avro.type": new, "schema.registry.url": registry.url}
    with DeserializerChain.from_config(config) as read:
        assert read(data, ctx) == new(1, dt.date(1970, 1, 2))


def test_through_a_broker(broker: KafkaBroker, registry: SchemaRegistry, new_topic: NewTopic) -> None:
    topic = new_topic()
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "schema.registry.url": registry.url,
        "value.serializers": "avro, zstd",
        "value.deserializers": "zstd, avro",
        "avro.type": f"{__name__}.Alert" if "." in __name__ else Alert,
    }
    with Producer[Alert](config) as producer:
        producer.produce(topic, Alert(1, tags=["a"]))
        producer.produce(topic, None, key="gone")
    with Consumer[Alert]({**config, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        values: list[Alert | None] = []
        while len(values) < 2:
            values += [message.value() for message in consumer.consume(2, 5)]
    assert values == [Alert(1, tags=["a"]), None]


def test_records_of_other_writers_become_objects() -> None:
    """A union whose branches look the same, from writers with fewer branches, and with none."""

    event = {"type": "record", "name": "Deleted", "fields": [{"name": "id", "type": "int"}]}

    def read(kind: Any, value: Any) -> Any:
        schema = {"type": "record", "name": "Log", "fields": [{"name": "event", "type": kind}]}
        write = SerializerChain.from_config(
            {"value.serializer": "avro", "avro.framing": "container", "avro.schema": schema}
        )
        fields = [("event", Created | Deleted | None)]
        return chains(dataclasses.make_dataclass("Log", fields), avro_framing="container")[1](write(value)).event

    assert read(event, {"event": {"id": 1}}) == Deleted(1)
    assert read(["null", event], {"event": {"id": 2}}) == Deleted(2)
    assert read("null", {"event": None}) is None


def test_a_default_of_a_union_is_of_its_first_branch() -> None:
    @dataclasses.dataclass
    class Log:
        event: Created | Deleted | str = "none"
        count: int | None = 3
        day: dt.date | None = dt.date(1970, 1, 3)

    schema = AvroModel(Log).schema
    assert [field["type"][0] for field in schema["fields"][:2]] == ["string", "long"]
    assert schema["fields"][2]["default"] == 2
    empty = SerializerChain.from_config(
        {
            "value.serializer": "avro",
            "avro.framing": "container",
            "avro.schema": {"type": "record", "name": "Log", "fields": []},
        }
    )({})
    assert chains(Log, avro_framing="container")[1](empty) == Log()


def test_defaults_are_not_shared() -> None:
    empty = {"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "long"}]}
    write = SerializerChain.from_config({"value.serializer": "avro", "avro.framing": "container", "avro.schema": empty})
    read = chains(Alert, avro_framing="container")[1]
    data = write({"id": 1})
    read(data).tags.append("changed")
    assert read(data) == Alert(1)


def test_names_in_records_may_differ() -> None:
    class Renamed(msgspec.Struct, rename="camel"):
        object_id: int

    class Aliased(pydantic.BaseModel):
        object_id: int = pydantic.Field(alias="objectId")

    @attrs.define
    class Private:
        _id: int

    for value in (Renamed(1), Aliased(objectId=1)):
        assert AvroModel(type(value)).schema["fields"] == [{"name": "objectId", "type": "long"}]
        write, read = chains(type(value))
        assert read(write(value)) == value
    write, read = chains(Private)
    assert read(write(Private(1))) == Private(1)


def test_names_of_types_are_looked_through() -> None:
    Flux = NewType("Flux", float)

    @dataclasses.dataclass
    class Source:
        flux: Flux
        kind: Literal["star", "galaxy"]
        note: Annotated[str, "free text"]

    assert [field["type"] for field in AvroModel(Source).schema["fields"]] == ["double", "string", "string"]


class Number(enum.Enum):
    ONE = 1


class Other:
    pass


def model_with(kind: Any, **more: Any) -> type:
    return dataclasses.make_dataclass("Wrong", [("field", kind, dataclasses.field(**more))])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Other, "Wrong.field is of type Other, for which Avro has none"),
        (Any, "for which Avro has none"),
        (Decimal, "Name precision and scale"),
        (Number, "values of an enum are its symbols"),
        (tuple[int, str], "tuple is an array as"),
        (dict[int, str], "maps are dict"),
        (list, "Name the type of its items"),
        (int | dt.datetime, "the same in Avro: long, long"),
        (list[complex], r"Wrong.field\[\] is of type complex"),
        (Annotated[bytes, AvroType({"type": "fixed", "name": "Fixed", "size": -1})], "schema of Wrong is not an Avro"),
        ("Unknown", "annotation of Wrong is unknown"),
    ],
)
def test_types_without_avro_are_refused(kind: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        chains(model_with(kind))


def test_two_types_of_one_name_are_refused() -> None:
    other = dataclasses.make_dataclass("Position", [("x", int)])
    model = dataclasses.make_dataclass("Wrong", [("first", Position), ("second", other)])
    with pytest.raises(ConfigError, match="Names are unique"):
        chains(model)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"avro.type": Alert, "avro.schema": '"string"'}, "avro.type and avro.schema exclude each other"),
        ({"avro.type": int}, "avro.type is not a model"),
        ({"avro.type": "tests.models.alerts.Nothing"}, "Nothing"),
        ({"avro.type": dataclasses.make_dataclass("No", [("id", int, dataclasses.field(init=False))])}, "init=False"),
    ],
)
def test_wrong_configurations(config: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SerializerChain.from_config({"value.serializer": "avro", **config})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Created(1), "of type Created, expected Alert"),
        ({"id": "one"}, "id is str of length 3"),
        (Alert("one"), "id is str of length 3"),  # type: ignore[arg-type]
        (Alert(1, "blue"), "does not match its class Alert"),  # type: ignore[arg-type]
        (Alert(2**63), "does not match the schema"),
    ],
)
def test_values_that_do_not_fit(value: Any, said: str) -> None:
    with pytest.raises(EncodeError, match=said):
        chains(Alert)[0](value)


@pytest.mark.parametrize("exposure", [dt.timedelta(microseconds=1), dt.timedelta(-1)])
def test_durations_that_avro_lacks(exposure: dt.timedelta) -> None:
    model = model_with(dt.timedelta)
    with pytest.raises(EncodeError, match="a timedelta is"):
        chains(model)[0](model(exposure))


def test_a_class_that_refuses_a_record_does_not_show_it() -> None:
    class Strict(pydantic.BaseModel):
        name: Annotated[str, pydantic.Field(max_length=3)]

    loose = dataclasses.make_dataclass("Strict", [("name", str)])
    with pytest.raises(DecodeError, match="Strict refuses the record: name: String should have at most 3") as raised:
        chains(Strict)[1](chains(loose)[0](loose("secret")))
    assert "secret" not in f"{raised.value}{raised.value.__cause__}{raised.value.__context__}"
    assert raised.value.about_record


def test_columns_and_copies_of_the_chain() -> None:
    write, read = chains(Alert)
    data = pickle.loads(pickle.dumps(write))(Alert(1, Band.RED))  # noqa: S301, our own
    assert pickle.loads(pickle.dumps(read))(data) == Alert(1, Band.RED)  # noqa: S301, our own
    assert read.to_arrow([data], topic="alerts").to_pylist() == [{"id": 1, "band": "r", "tags": []}]


def test_keys_of_models_are_equal_if_the_objects_are() -> None:
    config = {"key.serializer": "avro", "avro.type": model_with(dict[str, int])}
    write = SerializerChain.from_config(config, is_key=True)
    model: Any = config["avro.type"]
    assert write(model({"a": 1, "b": 2})) == write(model({"b": 2, "a": 1}))


@pytest.mark.parametrize(
    ("framing", "said"),
    [
        ("none", "truncated.*older version of the class"),
        ("single-object", "not configured.*older version of the class.*container"),
        ("container", None),
    ],
)
def test_records_of_an_older_class(framing: str, said: str | None) -> None:
    old = dataclasses.make_dataclass("Sighting", [("id", int)])
    new = dataclasses.make_dataclass("Sighting", [("id", int), ("count", int, 5)])
    chain = {"value.serializer": "avro", "value.deserializer": "avro", "avro.framing": framing}
    record = SerializerChain.from_config({**chain, "avro.type": old})(old(1))
    read = DeserializerChain.from_config({**chain, "avro.type": new})
    if said is None:
        assert read(record) == new(1, 5)
    else:
        with pytest.raises(DecodeError, match=said):
            read(record)
