"""Values as objects of classes against dictionaries; tables out against a loop over their rows."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any, Final

import attrs
import msgspec
import pyarrow as pa
import pydantic
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.harness import Row, Table, in_turns, measure, per_second
from benchmarks.records import BIG, SMALL
from serde_chain import DeserializerChain, Producer, SerializerChain
from serde_chain.stages.avro.models import AvroModel
from serde_chain.testing.services import KafkaBroker, SchemaRegistry

_ROUNDS: Final = 5
_ROWS: Final = 10_000
_TOPIC: Final = "tables"
_FLAT: Final = {"id": 1234567890, "name": "SRV26-alert", "flux": 3.14159, "seen": True, "stamp": b"x" * 100}


def run(*, quick: bool) -> Iterator[Table]:
    """Records of 20 and of 3 fields; tables of 10,000 rows, through a real registry and broker."""
    yield Table("models", "Avro of objects of classes, against dictionaries", "µs a record", list(_models(quick)))
    with SchemaRegistry() as registry, KafkaBroker() as broker:
        yield Table("arrow-out", "Tables into records", "µs a table of 10,000 rows", list(_tables(registry, quick)))
        yield _producing(registry, broker, quick)


def _models(quick: bool) -> Iterator[Row]:
    for name, record in (("20 fields", BIG), ("3 fields", SMALL)):
        types = {field: _type(value) for field, value in record.items()}
        create: Any = pydantic.create_model
        kinds: dict[str, Any] = {
            "msgspec": msgspec.defstruct("Record", [*types.items()]),
            "dataclass": dataclasses.make_dataclass("Record", [*types.items()], slots=True),
            "attrs": attrs.make_class("Record", {name: attrs.field(type=kind) for name, kind in types.items()}),
            "pydantic": create("Record", **{name: (kind, ...) for name, kind in types.items()}),
        }
        schema = AvroModel(kinds["msgspec"]).schema
        plain_out = SerializerChain.from_config({"value.serializer": "avro", "avro.schema": schema})
        plain_in = DeserializerChain.from_config({"value.deserializer": "avro", "avro.schema": schema})
        data = plain_out(record)
        for kind, model in kinds.items():
            out = SerializerChain.from_config({"value.serializer": "avro", "avro.type": model})
            back = DeserializerChain.from_config({"value.deserializer": "avro", "avro.type": model})
            value = back(data)
            if out(value) != data:
                raise AssertionError("the bytes differ")
            ways: Any = {
                "serialize": (lambda out=out, value=value: out(value), lambda: plain_out(record)),  # noqa: B023
                "deserialize": (lambda back=back: back(data), lambda: plain_in(data)),  # noqa: B023
            }
            for way, (ours, theirs) in ways.items():
                yield measure(f"{way}, {name}, {kind}", ours, "dictionaries", theirs, quick=quick)


def _type(value: Any) -> Any:
    if isinstance(value, list):
        return list[type(value[0])]  # type: ignore[misc]
    if isinstance(value, dict):
        return dict[str, float]
    return str | None if value is None else type(value)


def _chains(registry: SchemaRegistry) -> dict[str, dict[str, object]]:
    fields = [("id", "long"), ("name", "string"), ("flux", "double"), ("seen", "boolean"), ("stamp", "bytes")]
    schema = {"type": "record", "name": "Flat", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    file = descriptor_pb2.FileDescriptorProto(name="flat.proto", package="flat", syntax="proto3")
    message = file.message_type.add(name="Flat")
    for number, (name, kind) in enumerate(zip(_FLAT, ("INT64", "STRING", "DOUBLE", "BOOL", "BYTES"), strict=True), 1):
        message.field.add(number=number, name=name, type=f"TYPE_{kind}", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    flat = message_factory.GetMessageClass(pool.FindMessageTypeByName("flat.Flat"))
    url = {"schema.registry.url": registry.url}
    return {
        "avro": {"value.serializer": "avro", "avro.schema": schema, **url},
        "protobuf": {"value.serializer": "protobuf", "protobuf.type": flat, **url},
    }


def _tables(registry: SchemaRegistry, quick: bool) -> Iterator[Row]:
    table = pa.Table.from_pylist([_FLAT] * _ROWS)
    for name, config in _chains(registry).items():
        chain = SerializerChain.from_config(config)
        if chain.from_arrow(table, topic=name).values.to_pylist() != _row_by_row(chain, table, name):
            raise AssertionError("the records differ")
        ours: Any = lambda chain=chain, name=name: chain.from_arrow(table, topic=name)  # noqa: E731
        theirs: Any = lambda chain=chain, name=name: _row_by_row(chain, table, name)  # noqa: E731
        yield measure(f"from_arrow, {name}", ours, "a loop over to_pylist", theirs, quick=quick)


def _row_by_row(chain: SerializerChain, table: Any, topic: str) -> list[Any]:
    from serde_chain import RecordContext

    return [chain(row, RecordContext(topic, "value", [])) for row in table.to_pylist()]


def _producing(registry: SchemaRegistry, broker: KafkaBroker, quick: bool) -> Table:
    table = pa.Table.from_pylist([_FLAT] * _ROWS)
    rows: list[Row] = []
    for name, config in _chains(registry).items():
        topic = f"{_TOPIC}-{name}"
        broker.create_topic(topic)
        settings = {**broker.client_config(), "log_level": 0, "linger.ms": 5, **config}
        with Producer(settings) as producer:

            def by_columns(producer: Any = producer, topic: str = topic) -> None:
                producer.produce_arrow(table, topic)
                producer.flush()

            def by_rows(producer: Any = producer, topic: str = topic) -> None:
                for row in table.to_pylist():
                    producer.produce(topic, row)
                producer.flush()

            ways = {"columns": by_columns, "rows": by_rows}
            times = in_turns(ways, 2 if quick else _ROUNDS, time.process_time)
        ours, theirs = (per_second(_ROWS / 1000, times[way]) for way in ways)
        rows.append(Row(f"produce_arrow, {name}", ours, "produce in a loop over to_pylist", theirs))
    return Table("produce-arrow", "Tables to a broker: produce and flush", "records per ms of CPU", rows)
