"""Generated schemas and messages through Spark's workers, judged by fastavro and google.protobuf record by record."""

import io
import json
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from pprint import pformat
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from serde_chain import DeserializerChain, SerializerChain
from serde_chain.spark.chains import worker as chains
from serde_chain.spark.chains.plan import ReadPlan
from serde_chain.spark.reading.worker import decode_batches
from serde_chain.spark.writing.plan import WritePlan
from serde_chain.spark.writing.worker import encode_batches
from serde_chain.stages.protobuf.schema import is_map, is_repeated
from tests.schemas.contexts import context_registry
from tests.spark.records import whole_plan
from tests.stages.avro.test_ugly_schemas import joined, records, text
from tests.stages.avro.ugly import Ugly
from tests.stages.protobuf.random_messages import is_flat
from tests.stages.protobuf.test_as_google import case

FEW = 8


def in_tiers(seeds: Sequence[int]) -> list[Any]:
    parts = [seeds[at : at + FEW] for at in range(0, len(seeds), FEW)]
    return [parts[0], *(pytest.param(part, marks=pytest.mark.full) for part in parts[1:])]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    chains.close_all()


def written(config: Mapping[str, Any], column: Any, topic: str) -> list[Any]:
    plan = WritePlan(config, ("value", "topic"), ("value",))
    batch = column, pa.array([topic] * len(column))
    return [row["value"] for part in encode_batches(pickle.dumps(plan), iter([batch])) for row in part.to_pylist()]


@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize("seeds", in_tiers(range(80)), ids=str)
def test_ugly_schemas_of_avro(seeds: range, native: str) -> None:
    """The latest schema of a topic, of every second seed a union at the top; by ``from_arrow`` too."""
    with context_registry() as registry:
        config = {"schema.registry.url": registry.url, "use.latest.version": True, "avro.native": native}
        write = SerializerChain.from_config({**config, "value.serializer": "avro"})
        read = DeserializerChain.from_config({**config, "value.deserializer": "avro"})
        for seed in seeds:
            ugly, topic = Ugly(seed), f"t{seed}"
            plain, whole, data = ugly.plain, json.loads(joined(ugly).text), records(ugly, 20)
            if seed % 2:
                other = {"type": "record", "name": "Other", "fields": [{"name": "text", "type": "string"}]}
                plain, whole, data = [plain, other], [whole, other], [b"\0" + each for each in data]
            number = registry.register(f"{topic}-value", json.dumps(whole))
            framed = [b"\0" + number.to_bytes(4, "big") + each for each in data]
            column = read.to_arrow(framed, topic=topic)
            found = write.from_arrow(column, topic=topic).values.to_pylist()
            assert written({**config, "value.serializer": "avro"}, column, topic) == found, seed
            assert [each[:5] for each in found] == [each[:5] for each in framed]
            ours = DeserializerChain.from_config({"value.deserializer": "avro", "avro.schema": json.dumps(plain)})
            for one, expected in zip(found, data, strict=True):
                assert by_fastavro(plain, one[5:]) == by_fastavro(plain, expected), seed
                assert text(ours(one[5:])) == text(ours(expected)), seed
        write.close()
        read.close()


def by_fastavro(schema: Any, data: bytes) -> str:
    """What fastavro reads, with the names of branches; nothing may be left."""
    stream, parsed = io.BytesIO(data), fastavro.parse_schema(schema)
    value = fastavro.schemaless_reader(stream, parsed, None, return_record_name=True, return_named_type=True)
    assert not stream.read()
    return pformat(value)  # which sorts maps


@pytest.mark.parametrize("seeds", in_tiers(range(1000, 1048)), ids=str)
def test_messages_of_protobuf(tmp_path: Path, seeds: range) -> None:
    """Each value is that of google.protobuf's message, in Spark's types; and its bytes are written again."""
    count = 0
    for seed in seeds:
        (tmp_path / str(seed)).mkdir()
        one = case(seed, tmp_path / str(seed))
        for kind, messages in zip(one.types, one.messages, strict=True):
            if not is_flat(kind):
                continue
            count += 1
            data = [*(message.SerializeToString(deterministic=True) for message in messages), None]
            config = described(kind, tmp_path / str(seed) / f"{kind.DESCRIPTOR.full_name}.desc")
            reading, writing = ({**config, f"value.{side}": "protobuf"} for side in ("deserializer", "serializer"))
            field = whole_plan(reading, is_key=False)
            plan = ReadPlan(reading, ("value",), field, None, gives=(), mode="FAILFAST", python=sys.executable)
            parts = decode_batches(pickle.dumps(plan), iter([(pa.array(data, pa.binary()),)]))
            column = pa.concat_arrays(list(parts))
            expected = [*(row_of(message) for message in messages), None]
            assert repr(list(map(in_order, column.to_pylist()))) == repr(expected), kind.DESCRIPTOR.full_name
            assert written(writing, column, "t") == data, kind.DESCRIPTOR.full_name
    assert count > len(seeds)


def described(kind: Any, path: Path) -> dict[str, Any]:
    """The configuration of a class, by a file of descriptors."""
    files: dict[str, Any] = {}

    def add(file: Any) -> None:
        for imported in file.dependencies:
            add(imported)
        files[file.name] = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(files[file.name])

    add(kind.DESCRIPTOR.file)
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=list(files.values())).SerializeToString())
    return {"protobuf.descriptor.set.file": str(path), "protobuf.message.name": kind.DESCRIPTOR.full_name}


def row_of(message: Any) -> dict[str, Any]:
    """A message as Spark has it: null is an absent field, maps are pairs, and 64 bits without a sign a decimal."""
    return {field.name: _cell(message, field) for field in message.DESCRIPTOR.fields}


def _cell(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return in_order([(_one(at, key), _one(value[at], item)) for at in value])
    if is_repeated(field):
        return [_one(each, field) for each in value]
    return None if field.has_presence and not message.HasField(field.name) else _one(value, field)


def _one(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return row_of(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return Decimal(value) if field.cpp_type == field.CPPTYPE_UINT64 else value


def in_order(value: Any) -> Any:
    """A value with the pairs of its maps in one order."""
    if isinstance(value, dict):
        return {name: in_order(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(in_order, value))
    if not isinstance(value, list):
        return value
    items = list(map(in_order, value))
    return sorted(items, key=lambda pair: repr(pair[0])) if items and isinstance(items[0], tuple) else items
