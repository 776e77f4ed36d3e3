"""Records of ugly schemas are those of the plain ones: in rows, columns and files, as fastavro and Java read them."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import fastavro
import pyspark
import pytest
from py4j import java_gateway
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import get_return_value

from serde_chain import DeserializerChain
from serde_chain.arrow import Batch
from serde_chain.stages.avro.parsing import Role
from serde_chain.stages.avro.schema import SCHEMA_FILE, AvroSchema
from serde_chain.stages.avro.types import bare, kind
from serde_chain.testing.services.java import system_java
from tests.stages.avro.test_avro_java import in_order, outcome, without_logical_types
from tests.stages.avro.test_schemas_of_others import in_a_file
from tests.stages.avro.ugly import Ugly

SEEDS: Final = range(80)
_KNOWN: Final = {
    "decimal", "date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "local-timestamp-millis",
    "local-timestamp-micros", "uuid",
}  # fmt: skip


def joined(ugly: Ugly) -> AvroSchema:
    return AvroSchema.parse(ugly.schema, [json.dumps(part) for part in reversed(ugly.parts)])


def records(ugly: Ugly, count: int = 3) -> list[bytes]:
    raw = fastavro.parse_schema(without_logical_types(ugly.plain))
    made = []
    for _ in range(count):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, raw, ugly.value())
        made.append(buffer.getvalue())
    return made


def text(value: Any) -> str:
    return repr(in_order(value)).replace("s-", "s_")


@pytest.mark.parametrize("native", ["auto", "off"])
def test_rows_are_those_of_the_plain_schema(native: str) -> None:
    """Files bring their schemas; and what is read without logical types is what fastavro reads."""
    config = {"value.deserializers": "avro", "avro.native": native}
    files = DeserializerChain.from_config({**config, "avro.framing": "container"})
    parts = 0
    for seed in SEEDS:
        ugly = Ugly(seed)
        parts += bool(ugly.parts)
        plain = DeserializerChain.from_config({**config, "avro.schema": ugly.plain})
        whole = json.loads(joined(ugly).text)
        underlying = fastavro.parse_schema(without_logical_types(ugly.plain))
        target = {**config, "avro.framing": "container", "avro.reader.schema": without_logical_types(whole)}
        raw = DeserializerChain.from_config(target)
        for data in records(ugly):
            assert text(outcome(files, in_a_file(whole, data))) == text(outcome(plain, data)), seed
            theirs = fastavro.schemaless_reader(io.BytesIO(data), underlying, None)
            assert text(raw(in_a_file(whole, data))) == text(theirs), seed
    assert parts > len(SEEDS) / 4


@pytest.mark.full
def test_columns_are_those_of_the_plain_schema() -> None:
    config = {"value.deserializers": "avro"}
    files = DeserializerChain.from_config({**config, "avro.framing": "container"})
    for seed in SEEDS:
        ugly = Ugly(seed)
        plain = DeserializerChain.from_config({**config, "avro.schema": ugly.plain})
        whole, data = json.loads(joined(ugly).text), records(ugly)
        for times in (1, 300):
            expected = plain.read_batch(Batch(data * times, topic="t"))
            found = files.read_batch(Batch([in_a_file(whole, each) for each in data * times], topic="t"))
            assert found.values.type == expected.values.type, seed
            assert found.errors.keys() == expected.errors.keys(), seed
            assert text(found.values.to_pylist()) == text(expected.values.to_pylist()), seed


def test_several_files(tmp_path: Path) -> None:
    for seed in SEEDS:
        ugly = Ugly(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        for part in ugly.parts:
            (folder / f"{part['name']}.avsc").write_text(json.dumps(part), encoding="utf-8-sig")
        (folder / "root.avsc").write_text(json.dumps(ugly.schema), encoding="utf-8")
        assert callable(SCHEMA_FILE.file)
        assert AvroSchema.parse(SCHEMA_FILE.file(str(folder / "root.avsc")).decode()).parsed == joined(ugly).parsed


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    jars = Path(pyspark.__file__).parent / "jars"
    port = launch_gateway(
        classpath=str(jars / "*"), jarpath=str(next(jars.glob("py4j-*.jar"))), java_path=system_java(), die_on_exit=True
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(java_gateway, "get_return_value", get_return_value)
            yield gateway.jvm
    finally:
        gateway.shutdown()


@pytest.mark.full
def test_java_ignores_the_same_logical_types(jvm: Any) -> None:
    """Avro's Java implementation without checks of names and defaults, as Confluent's readers use it."""
    avro, counts = jvm.org.apache.avro, {True: 0, False: 0}
    for seed in SEEDS:
        ugly = Ugly(seed)
        parser = avro.Schema.Parser(avro.NameValidator.NO_VALIDATION).setValidateDefaults(False)
        for part in ugly.parts:
            parser.parse(json.dumps(part))
        theirs, ours = parser.parse(json.dumps(ugly.schema)), joined(ugly)
        for is_kept, is_theirs in compared(ours.parsed, theirs, ours):
            assert is_kept == is_theirs, seed
            counts[is_kept] += 1
    assert min(counts.values()) > 20


def compared(schema: Any, theirs: Any, whole: AvroSchema) -> Iterator[tuple[bool, bool]]:
    """For each leaf, whether its logical type is kept here, and in Java."""
    schema = bare(schema, whole.named)
    match kind(schema):
        case "union":
            for branch, other in zip(schema, theirs.getTypes(), strict=True):
                yield from compared(branch, other, whole)
        case "record":
            for field, other in zip(schema["fields"], theirs.getFields(), strict=True):
                yield from compared(field["type"], other.schema(), whole)
        case "array":
            yield from compared(schema["items"], theirs.getElementType(), whole)
        case "map":
            yield from compared(schema["values"], theirs.getValueType(), whole)
        case _:
            logical = theirs.getLogicalType()
            own = schema.get("logicalType") if isinstance(schema, dict) else None
            is_text = own == "uuid" and kind(schema) in {"string", "fixed"}
            yield (
                own in _KNOWN and (own != "uuid" or is_text),
                logical is not None and logical.getName() in _KNOWN,
            )


def test_ones_own_schema_names_the_first_fault() -> None:
    faults = [fault for fault in map(fault_of, map(Ugly, SEEDS)) if fault is not None]
    assert len(faults) > len(SEEDS) / 4
    assert all("default" in fault or "decimal" in fault for fault in faults)


def fault_of(ugly: Ugly) -> str | None:
    try:
        AvroSchema.parse(ugly.schema, list(map(json.dumps, ugly.parts)), role=Role.OWN)
    except ValueError as error:
        return str(error)
    return None
