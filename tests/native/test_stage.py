"""The stage with the compiled part: what it takes, what it leaves to fastavro, and how it is turned off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import serde_chain_native

from serde_chain import DecodeError, DeserializerChain, EncodeError, SerializerChain
from serde_chain import config as configuration
from serde_chain.arrow import Batch
from serde_chain.cli.doctor.base import Look
from serde_chain.cli.doctor.records import compiled
from serde_chain.spark import explain
from serde_chain.stages.avro.arrow.native_reader import NativeReader

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]}
RECORD = {"id": 7, "name": "x"}
DATA = b"\x0e\2x"


class Interrupt(BaseException):
    """As Ctrl-C raises it."""


def chains(schema: Any = SCHEMA, **config: Any) -> tuple[SerializerChain, DeserializerChain]:
    config["avro.schema"] = json.dumps(schema)
    return (
        SerializerChain.from_config({"value.serializers": "avro", **config}),
        DeserializerChain.from_config({"value.deserializers": "avro", **config}),
    )


@pytest.fixture
def fastavro_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """fastavro's reader and writer, to which a stage made from now on would turn."""

    def called(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("fastavro.schemaless_reader", called)
    monkeypatch.setattr("fastavro.schemaless_writer", called)


@pytest.mark.usefixtures("fastavro_is_gone")
@pytest.mark.parametrize("data", [DATA, bytearray(DATA), memoryview(DATA)])
def test_plain_records_do_not_reach_fastavro(data: Any) -> None:
    write, read = chains()
    assert write(RECORD, None) == DATA
    assert read(data, None) == RECORD
    assert read.to_arrow([bytes(data)], topic="t").to_pylist() == [RECORD]


@pytest.mark.usefixtures("fastavro_is_gone")
def test_it_can_be_turned_off() -> None:
    write, read = chains(**{"avro.native": "off"})
    with pytest.raises(EncodeError):
        write(RECORD, None)
    with pytest.raises(DecodeError):
        read(DATA, None)
    result = read.read_batch(Batch([DATA], topic="t"))
    assert list(result.errors) == [0]


@pytest.mark.usefixtures("fastavro_is_gone")
def test_keys_with_maps_are_left_to_fastavro() -> None:
    schema = {"type": "map", "values": "int"}
    config = {"key.serializers": "avro", "avro.schema": json.dumps(schema)}
    with pytest.raises(EncodeError):
        SerializerChain.from_config(config, is_key=True)({"b": 1, "a": 2}, None)


def test_checked_values_are_refused_too() -> None:
    write, _ = chains(**{"avro.validate": "true"})
    with pytest.raises(EncodeError, match=r"R\.id is 1099511627776"):
        write({"id": 2**40, "name": "x"}, None)


def test_a_budget_of_parts_holds() -> None:
    schema = {"type": "array", "items": "int"}
    write, read = chains(schema, **{"serde.max.parts": "10"})
    small, large = write([1] * 9, None), write([1] * 10, None)
    assert read(small, None) == [1] * 9
    with pytest.raises(DecodeError, match="more than 10 parts"):
        read(large, None)
    assert list(read.read_batch(Batch([small, large], topic="t")).errors) == [1]


def test_undecodable_rows_are_named_and_the_others_read() -> None:
    _, read = chains()
    records = [DATA, None, b"\x0e\x02", DATA + b"!", DATA] * 200
    result = read.read_batch(Batch(records, topic="t"))
    assert result.values.to_pylist() == [RECORD, None, None, None, RECORD] * 200
    assert list(result.errors) == [row for row in range(1000) if row % 5 in {2, 3}]
    assert "truncated" in str(result.errors[2])
    assert "followed by 1 bytes" in str(result.errors[3])


@pytest.mark.parametrize("large", [False, True])
def test_slices_of_columns(large: bool) -> None:
    _, read = chains()
    column = pa.array([b"bad", DATA, None, DATA, b"bad"], pa.large_binary() if large else pa.binary())
    assert read.to_arrow(column[1:4], topic="t").to_pylist() == [RECORD, None, RECORD]
    assert read.to_arrow(column[2:2], topic="t").to_pylist() == []


def test_interrupts_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise Interrupt

    monkeypatch.setitem(__import__("fastavro.read").read.LOGICAL_READERS, "int-interrupting", interrupted)
    monkeypatch.setitem(__import__("fastavro.write").write.LOGICAL_WRITERS, "int-interrupting", interrupted)
    write, read = chains({"type": "int", "logicalType": "interrupting"})
    with pytest.raises(Interrupt):
        write(1, None)
    with pytest.raises(Interrupt):
        read(b"\2", None)


def test_columns_outlive_the_capsule_and_may_be_dropped_before() -> None:
    _, read = chains({"type": "array", "items": "string"})
    column = read.to_arrow([b"\2\2a\0"] * 3, topic="t")
    child = column.flatten()
    del column
    assert child.to_pylist() == ["a"] * 3


def test_an_array_of_another_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[NativeReader] = []
    read_rows = NativeReader.read

    def caught(self: NativeReader, *arguments: Any) -> Any:
        taken.append(self)
        return read_rows(self, *arguments)

    monkeypatch.setattr(NativeReader, "read", caught)
    chains()[1].to_arrow([DATA], topic="t")
    with pytest.raises(ValueError, match="not an array of bytes"):
        read_rows(taken[0], pa.array([1]), 0)


def test_doctor_says_so() -> None:
    def found(**config: str) -> Iterator[str]:
        settings = {"value.deserializers": "avro", "avro.schema": '"int"', **config}
        return map(str, compiled(Look(configuration.resolve(settings), ("t",), 1.0)))

    assert list(found()) == [f"ok       avro: compiled: serde-chain-native {serde_chain_native.__version__}"]
    assert not list(found(**{"avro.native": "off"}))
    assert not list(found(**{"value.deserializers": "json"}))
    assert ["for batches" in said for said in found(**{"avro.framing": "container"})] == [True]


def test_explain_says_so() -> None:
    config = {"value.deserializers": "avro", "avro.schema": '"int"'}
    said = explain(config, engine="arrow").splitlines()
    assert said[1:] == [f"avro: serde-chain-native {serde_chain_native.__version__}"]
    assert len(explain({**config, "avro.native": "off"}, engine="arrow").splitlines()) == 1
    assert len(explain({"value.deserializers": "json"}, engine="arrow").splitlines()) == 1


def test_large_values_are_in_their_places() -> None:
    fields = [
        {"name": name, "type": type_}
        for name, type_ in zip("abcde", ("bytes", "int", "string", "bytes", "int"), strict=True)
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    record = {"a": b"a" * 70_000, "b": 1, "c": "c" * 90_000, "d": b"d" * 200_000, "e": 2}
    data, expected = (chains(schema, **{"avro.native": native})[0](record, None) for native in ("on", "off"))
    assert data == expected
    assert chains(schema)[1](data, None) == record
