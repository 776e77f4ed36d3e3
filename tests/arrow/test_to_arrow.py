"""Batches through whole chains: what goes in, what comes out, and which record an error names."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from serde_chain import Deserializer, DeserializerChain, RecordContext, SerializationError, SerializerChain
from serde_chain.arrow import Batch, BatchForm
from serde_chain.arrow.batch import Untouched
from serde_chain.arrow.loop import declared_type
from serde_chain.base import Data
from serde_chain.errors import ConfigError, DecodeError, PayloadIntegrityError, PayloadNotFoundError
from serde_chain.stages.avro.stage import AvroDeserializer

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}'
RECORDS = [{"n": n, "s": f"text {n}"} for n in range(2000)]


def chains(**config: Any) -> tuple[SerializerChain, DeserializerChain]:
    return SerializerChain.from_config(config), DeserializerChain.from_config(config)


def encoded(write: SerializerChain, records: list[Any]) -> tuple[list[Any], list[Any]]:
    values, headers = [], []
    for record in records:
        ctx = RecordContext("t", "value", [])
        values.append(write(record, ctx))
        headers.append(ctx.headers)
    return values, headers


@pytest.fixture
def avro() -> tuple[list[Any], DeserializerChain]:
    write, read = chains(**{"value.serializers": "avro", "value.deserializers": "avro", "avro.schema": SCHEMA})
    return encoded(write, RECORDS)[0], read


def test_a_sequence(avro: tuple[list[Any], DeserializerChain]) -> None:
    values, read = avro
    assert read.to_arrow(values, topic="t").to_pylist() == RECORDS


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_arrays_chunks_and_slices(avro: tuple[list[Any], DeserializerChain], kind: pa.DataType) -> None:
    values, read = avro
    array = pa.array(values, kind)
    assert read.to_arrow(array, topic="t").to_pylist() == RECORDS
    assert read.to_arrow(array.slice(5, 1500), topic="t").to_pylist() == RECORDS[5:1505]
    assert read.to_arrow(pa.chunked_array([array[:7], array[7:]]), topic="t").to_pylist() == RECORDS


def test_nulls_stay_null(avro: tuple[list[Any], DeserializerChain]) -> None:
    values, read = avro
    values[3] = values[1999] = None
    found = read.to_arrow(values, topic="t").to_pylist()
    assert found == [None if at in {3, 1999} else record for at, record in enumerate(RECORDS)]
    assert read.to_arrow([None, None], topic="t").to_pylist() == [None, None]


def test_an_empty_batch_has_its_type(avro: tuple[list[Any], DeserializerChain]) -> None:
    values, read = avro
    kind = read.to_arrow(values, topic="t").type
    assert read.to_arrow([], topic="t").type == kind


@pytest.mark.parametrize("row", [0, 1000, 1999])
def test_a_bad_record_is_named_and_the_others_are_usable(avro: tuple[list[Any], DeserializerChain], row: int) -> None:
    values, read = avro
    values[row] = values[row][:-1]
    with pytest.raises(DecodeError, match="truncated") as caught:
        read.to_arrow(values, topic="t")
    assert (caught.value.row, caught.value.topic, caught.value.stage) == (row, "t", "avro (1 of 1)")
    result = read.read_batch(Batch(values, topic="t"))
    assert list(result.errors) == [row]
    assert result.values.to_pylist() == [None if at == row else record for at, record in enumerate(RECORDS)]


def test_records_that_make_up_for_each_other_are_both_found(avro: tuple[list[Any], DeserializerChain]) -> None:
    values, read = avro
    values[7], values[8] = values[7][:-3], values[7][-3:] + values[8]
    assert set(read.read_batch(Batch(values, topic="t")).errors) == {7, 8}


def test_stages_without_a_batch_form() -> None:
    config = {"value.serializers": "string, zstd", "value.deserializers": "zstd, string"}
    write, read = chains(**config)
    values = encoded(write, ["a", None, "c"])[0]
    assert read.to_arrow(values, topic="t").equals(pa.array(["a", None, "c"]))
    values[2] = b"?"
    with pytest.raises(SerializationError) as caught:
        read.to_arrow(values, topic="t")
    assert (caught.value.row, caught.value.stage) == (2, "zstd (1 of 2)")


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("string", pa.string()),
        ("bytes", pa.binary()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("uuid", pa.string()),
        ("json", pa.string()),
    ],
)
def test_a_column_has_the_declared_type_whatever_is_in_it(stage: str, expected: pa.DataType) -> None:
    chain = DeserializerChain.from_config({"value.deserializer": stage})
    assert declared_type(chain.stages[0]) == expected
    assert chain.to_arrow([None, None], topic="t").type == expected


def test_foreign_callables_may_declare_their_type() -> None:
    class Length:
        def __call__(self, data: bytes, _ctx: object) -> int:
            return len(data)

        def arrow_type(self) -> pa.DataType:
            return pa.int16()

    assert DeserializerChain([Length()]).to_arrow([b"abc", None], topic="t").equals(pa.array([3, None], pa.int16()))
    assert declared_type(Length()) == pa.int16()
    assert declared_type(len) is None


class Whole(Deserializer[bytes]):
    """Bytes as they are, by a batch form of some kind."""

    gives = Data.BYTES
    form: ClassVar[type[BatchForm]]

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return data

    def batch_form(self) -> BatchForm:
        return self.form()


class OneRowLess(BatchForm):
    def __call__(self, batch: Batch, /) -> Any:
        return batch.column[1:]


class FirstPartOnly(Untouched):
    def parts(self, batch: Batch, most_bytes: int | None) -> Iterator[Batch]:
        yield batch.part(0, 2)


@pytest.mark.parametrize("form", [OneRowLess, FirstPartOnly])
@pytest.mark.parametrize("most_bytes", [None, 1 << 20])
def test_a_batch_form_that_loses_rows_is_an_error_and_no_records_fault(
    form: type[BatchForm], most_bytes: int | None
) -> None:
    stage = type("Losing", (Whole,), {"form": form})()
    chain = DeserializerChain([stage, lambda data, _ctx: data])
    with pytest.raises(DecodeError, match=r"gave 2 rows for 3 records \[stage=Losing \(1 of 2\)") as caught:
        list(chain.read_parts(Batch([b"a", b"b", b"c"], topic="t"), most_bytes))
    assert not caught.value.about_record


class Shorter(Untouched):
    def at_once(self, values: Any, topic: str, /) -> Any:
        return pa.array(["the shorter way" for _ in values])


def test_an_only_stage_may_know_a_shorter_way_for_records_without_headers() -> None:
    stage = type("Short", (Whole,), {"form": Shorter})()
    alone, first = DeserializerChain([stage]), DeserializerChain([stage, lambda data, _ctx: data + b"!"])
    for chain, known in ((alone, "the shorter way"), (first, b"a!")):
        chain.to_arrow([b"a"], topic="t")  # makes the forms
        assert chain.to_arrow([b"a"], topic="t").to_pylist() == [known]
    assert alone.to_arrow([b"a"], [[("user", b"1")]], topic="t").to_pylist() == [b"a"]


@pytest.mark.parametrize(
    ("stage", "data", "expected"), [("json", b'{"n": 1}', "{'n': 1}"), ("long", bytes(7) + b"\5", "5")]
)
def test_a_later_stage_takes_what_it_would_take_of_a_single_record(stage: str, data: bytes, expected: str) -> None:
    chain = DeserializerChain.from_config({"value.deserializers": [stage, lambda value, _ctx: repr(value)]})
    assert chain(data) == expected
    assert chain.to_arrow([data, None], topic="t").to_pylist() == [expected, None]


def test_a_stage_may_make_numbers_of_numbers() -> None:
    chain = DeserializerChain.from_config({"value.deserializers": ["long", lambda value, _ctx: value + 1]})
    assert chain.to_arrow([bytes(8), None], topic="t").to_pylist() == [1, None]


def test_large_messages(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "large.message.threshold.bytes": 100,
        "large.message.id": "content",
    }
    write, read = chains(**config)
    payloads = [b"small", b"x" * 1000, None, b"y" * 2000, b"x" * 1000]
    values, headers = encoded(write, payloads)
    assert read.to_arrow(values, headers, topic="t").to_pylist() == payloads
    column = pa.array(
        [[{"key": name, "value": value} for name, value in found] for found in headers],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    result = read.read_batch(Batch(values, column, topic="t"))
    assert result.values.to_pylist() == payloads
    assert not any(result.headers.to_pylist())
    file = next(path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size == 2000)
    file.write_bytes(b"z" * 2000)
    result = read.read_batch(Batch(values, headers, topic="t"))
    assert isinstance(result.errors[3], PayloadIntegrityError)
    file.unlink()
    result = read.read_batch(Batch(values, headers, topic="t"))
    assert isinstance(result.errors[3], PayloadNotFoundError)
    assert list(result.errors) == [3]
    assert result.values.to_pylist() == [*payloads[:3], None, payloads[4]]
    assert hashlib.sha256(payloads[1] or b"").hexdigest() in str(headers[1])


def plus_hundred(read: Any) -> Any:
    return read if not isinstance(read, dict) else {**read, "n": read["n"] + 100}


class CallsMore(AvroDeserializer):
    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return plus_hundred(super().__call__(data, ctx))


class BeginsMore(AvroDeserializer):
    def begin(self, data: Any, ctx: Any, /) -> Any:
        return plus_hundred(super().begin(data, ctx))


@pytest.mark.parametrize("stage", [CallsMore, BeginsMore])
def test_what_a_subclass_does_to_a_record_it_does_to_a_batch(stage: Any) -> None:
    write, read = chains(**{"value.serializers": "avro", "value.deserializers": [stage], "avro.schema": SCHEMA})
    values, _ = encoded(write, RECORDS[:3])
    alone = [read(value, RecordContext("t", "value", [])) for value in values]
    assert [record["n"] for record in alone] == [100, 101, 102]
    assert read.to_arrow(values, topic="t").to_pylist() == alone


class Halves(Deserializer[bytes]):
    """Refuses less than two bytes."""

    takes = gives = Data.BYTES

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        if len(data) < 2:
            raise DecodeError("too short")
        return data[: len(data) // 2]


def test_an_error_names_the_position_of_a_stage_that_is_in_the_chain_twice() -> None:
    halves = Halves()
    errors = DeserializerChain([halves, halves]).read_batch(Batch([b"1234", b"12", b"1"], topic="t")).errors
    assert {row: error.stage for row, error in errors.items()} == {1: "Halves (2 of 2)", 2: "Halves (1 of 2)"}


class Row(NamedTuple):
    """A header as Spark's rows are: a tuple that knows its names."""

    key: str
    value: bytes


def row(headers: list[tuple[str, bytes]]) -> list[Row]:
    return [Row(*pair) for pair in headers]


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        dict,
        row,
        lambda pairs: np.fromiter(pairs, dtype=object, count=len(pairs)),
        lambda pairs: np.array(pairs, dtype=object).reshape(-1, 2),
        lambda pairs: [{"key": name, "value": value} for name, value in pairs],
        lambda pairs: pd.Series(pairs, index=range(5, 5 + len(pairs)), dtype=object),
    ],
)
@pytest.mark.parametrize("outer", [list, tuple, lambda rows: pd.Series(rows, index=[7, 8, 0], dtype=object)])
def test_headers_in_any_sequence(tmp_path: Path, form: Any, outer: Any) -> None:
    write, read = chains(
        **{
            "value.serializers": "large-message",
            "value.deserializers": "large-message",
            "large.message.payload.store.class": "local",
            "large.message.threshold.bytes": 10,
            "local.path": str(tmp_path),
        }
    )
    payloads = [b"small", b"a payload of the store", b"another one of the store"]
    values, headers = encoded(write, payloads)
    assert headers[1]
    for none in (False, True):
        given = [None if none and not each else form(each) for each in headers]
        assert read.to_arrow(values, outer(given), topic="t").to_pylist() == payloads
        assert not any(read.read_batch(Batch(values, outer(given), topic="t")).headers)


@pytest.mark.parametrize("headers", [3, "name", [("name",)], [("name", b"value", 0)], [3]])
def test_headers_that_are_none(headers: Any) -> None:
    read = DeserializerChain.from_config(
        {
            "value.deserializers": "large-message",
            "large.message.payload.store.class": "memory",
        }
    )
    with pytest.raises(ConfigError, match="headers are not pairs of name and value, but"):
        read.to_arrow([b"small"], [headers], topic="t")
