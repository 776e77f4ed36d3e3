"""Schema resolution as Avro's Java implementation does it, for schemas that evolved at random."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import fastavro
import pyspark
import pytest
from py4j import java_gateway
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError, get_return_value

from serde_chain import DecodeError, DeserializerChain
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.testing.services.java import QUICK_START, system_java
from tests.stages.avro.evolution import Evolution

SEEDS: Final = range(600)
PER_SCHEMA: Final = 3
REFUSED: Final = "refused"


class Java:
    """Avro in a JVM: resolves a record, and writes it with the reader's schema, which leaves nothing to resolve."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._jvm = gateway.jvm
        # The fast reader of 1.12 fails on defaults that are arrays of a union.
        self._data = self._jvm.org.apache.avro.generic.GenericData().setFastReaderEnabled(False)

    def schema(self, source: Any) -> Any:
        return self._jvm.org.apache.avro.Schema.Parser().parse(json.dumps(source))

    def resolved(self, writer: Any, reader: Any, data: bytes) -> bytes | None:
        """The record as bytes of the reader's schema; None where it cannot be read."""
        generic, factory = self._jvm.org.apache.avro.generic, self._jvm.org.apache.avro.io
        decoder = factory.DecoderFactory.get().binaryDecoder(data, None)
        try:
            value = generic.GenericDatumReader(writer, reader, self._data).read(None, decoder)
        except Py4JJavaError as error:
            if "org.apache.avro.AvroTypeException" in str(error.java_exception):
                return None
            raise
        output = self._jvm.java.io.ByteArrayOutputStream()
        encoder = factory.EncoderFactory.get().directBinaryEncoder(output, None)
        generic.GenericDatumWriter(reader).write(value, encoder)
        encoder.flush()
        return bytes(output.toByteArray())


class Case(NamedTuple):
    """Two schemas, and records of the first, each as Java resolves it into the second."""

    writer: Any
    reader: Any
    records: list[tuple[bytes, bytes | None]]

    def chains(self, **more: object) -> tuple[DeserializerChain, DeserializerChain]:
        """The chain that resolves, and the one that reads what Java has resolved."""
        common = {"value.deserializer": "avro", **more}
        writer, reader = json.dumps(self.writer), json.dumps(self.reader)
        return (
            DeserializerChain.from_config({**common, "avro.schema": writer, "avro.reader.schema": reader}),
            DeserializerChain.from_config({**common, "avro.schema": reader}),
        )


@pytest.fixture(scope="module")
def cases() -> Iterator[list[Case]]:
    jars = Path(pyspark.__file__).parent / "jars"
    port = launch_gateway(
        classpath=str(jars / "*"),
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        java_path=system_java(),
        javaopts=[*QUICK_START],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        java = Java(gateway)
        with pytest.MonkeyPatch.context() as patch:
            # pyspark puts its own in place, which asks the JVM of a session about errors of this one.
            patch.setattr(java_gateway, "get_return_value", get_return_value)
            made_cases = [made(java, Evolution(seed)) for seed in SEEDS]
        yield made_cases
    finally:
        gateway.shutdown()


def made(java: Java, evolution: Evolution) -> Case:
    raw = AvroSchema.parse(without_logical_types(evolution.writer)).parsed
    writer, reader = java.schema(evolution.writer), java.schema(evolution.reader)
    records = []
    for _ in range(PER_SCHEMA):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, raw, evolution.value())
        records.append((buffer.getvalue(), java.resolved(writer, reader, buffer.getvalue())))
    return Case(evolution.writer, evolution.reader, records)


def without_logical_types(schema: Any) -> Any:
    """The schema with which values are written as they are."""
    if isinstance(schema, list):
        return [without_logical_types(item) for item in schema]
    if isinstance(schema, dict):
        return {key: without_logical_types(item) for key, item in schema.items() if key != "logicalType"}
    return schema


@pytest.mark.full
def test_there_are_cases_of_both_kinds(cases: list[Case]) -> None:
    refused = sum(resolved is None for case in cases for _, resolved in case.records)
    assert 50 < refused < len(cases) * PER_SCHEMA / 2


@pytest.mark.full
def test_objects_are_resolved_as_in_java(cases: list[Case]) -> None:
    for seed, case in enumerate(cases):
        resolve, read = case.chains()
        for data, resolved in case.records:
            expected = REFUSED if resolved is None else outcome(read, resolved)
            assert repr(in_order(outcome(resolve, data))) == repr(in_order(expected)), seed


def outcome(read: DeserializerChain, data: bytes) -> Any:
    """What a chain returns, or that it cannot read it: a number may be no date."""
    try:
        return read(data)
    except DecodeError:
        return REFUSED


def in_order(value: Any) -> Any:
    """A value with its fields and maps in one order, which has no meaning."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    if isinstance(value, tuple):  # of a map's entry
        return (value[0], in_order(value[1]))
    if isinstance(value, list):
        items = [in_order(item) for item in value]
        return sorted(items, key=lambda item: item[0]) if items and isinstance(items[0], tuple) else items
    return value


@pytest.mark.full
@pytest.mark.parametrize("reader", ["auto", "record"])
def test_columns_are_resolved_as_in_java(cases: list[Case], reader: str) -> None:
    """Each pair of schemas is resolved by Java as well."""
    for seed, case in enumerate(cases):
        resolve, read = case.chains(**{"avro.arrow.reader": reader})
        good = [
            (data, resolved) for data, resolved in case.records if resolved is not None and is_readable(read, resolved)
        ]
        expected = read.to_arrow([resolved for _, resolved in good], topic="t")
        found = resolve.to_arrow([data for data, _ in good], topic="t")
        assert found.type == expected.type, seed
        assert rows(found) == rows(expected), seed
        for data in {data for data, _ in case.records} - {data for data, _ in good}:
            assert not is_readable(resolve, data), seed


def rows(array: Any) -> str:
    """All values of a column, as text; Arrow's own where Python has no such date."""
    try:
        return repr(in_order(array.to_pylist()))
    except OverflowError:
        return str(array.to_string(window=1000, container_window=1000))


def is_readable(chain: DeserializerChain, data: bytes) -> bool:
    """Whether a chain reads some bytes into a column: a decimal may have too many digits."""
    try:
        chain.to_arrow([data], topic="t")
    except DecodeError:
        return False
    return True
