"""Decimals of Avro: exact, and with no more digits than their precision."""

import io
import json
import re
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from serde_chain import ConfigError, DecodeError, DeserializerChain, EncodeError, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.stages.avro.schema import AvroSchema

BYTES = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 16, "logicalType": "decimal", "precision": 10, "scale": 2}
LONG = b"\x12" * 40_000


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Price", "fields": [{"name": "amount", "type": kind}]}


def chain(kind: Any) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializer": "avro", "avro.schema": json.dumps(record(kind))})


def sized(data: bytes) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, "bytes", data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "kind",
    [
        BYTES,
        FIXED,
        {"type": "int", "logicalType": "time-millis"},
        {"type": "array", "items": BYTES},
        {"type": "map", "values": BYTES},
        ["null", BYTES],
        {"type": "record", "name": "Inner", "fields": [{"name": "amount", "type": BYTES}]},
        "Elsewhere",
    ],
    ids=["bytes", "fixed", "time", "item", "map", "branch", "record", "elsewhere"],
)
def test_logical_types_are_found_wherever_they_are(kind: Any) -> None:
    """Only a schema with one is prepared for reading: others are read as fastavro reads them."""
    elsewhere = {**record(BYTES), "name": "Elsewhere"}
    for schema in (
        AvroSchema.parse(record(kind), [json.dumps(elsewhere)]),
        AvroSchema.parse(record(kind), look_up=lambda _: elsewhere),
    ):
        assert schema.readable != schema.parsed


def test_a_schema_without_logical_types_is_read_as_it_is() -> None:
    schema = AvroSchema.parse(record("bytes"))
    assert schema.readable is schema.parsed


@pytest.mark.parametrize(
    ("unscaled", "value"),
    [
        (b"", "0.00"),
        (b"\x01", "0.01"),
        (b"\xff", "-0.01"),
        ((10**10 - 1).to_bytes(5), "99999999.99"),
        ((1 - 10**10).to_bytes(5, signed=True), "-99999999.99"),
        (bytes(15) + b"\x07", "0.07"),  # as writers with numbers of 128 bits fill them up
        (bytes(40_000), "0.00"),
    ],
)
def test_decimals_that_fit(unscaled: bytes, value: str) -> None:
    assert chain(BYTES)(sized(unscaled)) == {"amount": Decimal(value)}
    if 0 < len(unscaled) <= 16:
        filled = unscaled.rjust(16, b"\xff" if unscaled[0] > 0x7F else b"\0")
        assert chain(FIXED)(filled) == {"amount": Decimal(value)}


@pytest.mark.parametrize("unscaled", [LONG, (10**10).to_bytes(5), b"\x12" * 16])
def test_longer_ones_are_refused(unscaled: bytes) -> None:
    with pytest.raises(DecodeError, match="its precision of 10"):
        chain(BYTES)(sized(unscaled))


def test_a_fixed_type_of_too_many_digits() -> None:
    with pytest.raises(DecodeError, match="more digits than its precision of 10"):
        chain(FIXED)(b"\x12" * 16)


@pytest.mark.parametrize("validate", ["false", "true", "strict"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"amount": Decimal("1.255")}, r"Price\.amount is a decimal with 3 digits behind the point, more than .* of 2"),
        (
            {"amount": Decimal("123456789.25")},
            r"Price\.amount is .* more digits before .* precision of 10 leaves: 8",
        ),
        ({"amount": Decimal(123456789)}, r"Price\.amount is a decimal with more digits before the point"),
        ({"amount": Decimal("1E+8")}, r"Price\.amount is a decimal with more digits before the point"),
        ({"amount": Decimal("1E+1000000000")}, r"Price\.amount is a decimal with more digits before the point"),
        ({"amount": Decimal("NaN")}, r"Price\.amount is a decimal that is not a finite number"),
        ({"amount": {"a": [Decimal(1), Decimal("0.125")]}}, r"Price\.amount is a decimal with 3 digits"),
    ],
)
def test_a_decimal_that_cannot_be_written_is_named(value: Any, said: str, validate: str) -> None:
    schema = record(["null", BYTES, {"type": "map", "values": {"type": "array", "items": FIXED}}])
    config = {"value.serializer": "avro", "avro.schema": schema, "avro.validate": validate}
    with SerializerChain.from_config(config) as write, pytest.raises(EncodeError, match=said) as caught:
        write(value)
    assert "quantize" in str(caught.value.hint)


@pytest.mark.parametrize("kind", [BYTES, FIXED, ["null", BYTES], [FIXED, "string"]])
@pytest.mark.parametrize("validate", ["false", "true", "strict"])
@pytest.mark.parametrize("value", ["0", "0E+20", "99999999", "-99999999", "9.9E+7", "99999999.99", "1E-2"])
def test_whatever_is_written_is_read(kind: Any, validate: str, value: str) -> None:
    schema = {"avro.schema": record(kind), "avro.validate": validate}
    with SerializerChain.from_config({"value.serializer": "avro", **schema}) as write, chain(kind) as read:
        assert read(write({"amount": Decimal(value)})) == {"amount": Decimal(value)}


def test_the_field_is_named_in_rows_and_columns() -> None:
    """As of Oracle's NUMBER, read into a schema with the 38 digits that columns have."""
    record = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "AMT", "type": ["null", {**BYTES, "precision": 64}]}],
    }
    narrow = json.loads(json.dumps(record).replace("64", "38"))
    config = {"value.deserializers": "avro", "avro.framing": "single-object", "avro.reader.schema": narrow}
    with SerializerChain.from_config(
        {"value.serializers": "avro", "avro.framing": "single-object", "avro.schema": record}
    ) as write:
        good, wide = (write({"AMT": Decimal(10) ** digits}, None) for digits in (20, 45))
    with DeserializerChain.from_config({**config, "avro.schema": record}) as read:
        said = (
            r"the field AMT is a decimal with more digits than its precision of 38.* in which its precision is larger"
        )
        with pytest.raises(DecodeError, match=said):
            read(wide)
        result = read.read_batch(Batch([good, wide], topic="t"))
        assert result.values.to_pylist() == [{"AMT": Decimal(10) ** 20}, None]
        assert re.search(said, str(result.errors[1]))


def test_in_a_batch_they_are_the_rows_that_fail() -> None:
    good = sized(b"\x07")
    result = chain(BYTES).read_batch(Batch([good, sized(LONG), sized(bytes(40_000)), sized(LONG)], topic="t"))
    assert result.values.to_pylist() == [{"amount": Decimal("0.07")}, None, {"amount": Decimal("0.00")}, None]
    assert {row: type(error) for row, error in result.errors.items()} == {1: DecodeError, 3: DecodeError}
    assert all("its precision of 10" in error.message for error in result.errors.values())


def fields_of(kind: Any) -> str:
    parsed: Any = fastavro.parse_schema(record(kind))
    return json.dumps(parsed["fields"])[1:-1]


# A container file brings its schema, and so the precision, along.
@pytest.mark.parametrize("precision", [10, 90_000])
def test_in_container_files(precision: int) -> None:
    kind = {**BYTES, "precision": precision}
    buffer = io.BytesIO()
    plain = {key: value for key, value in kind.items() if key == "type"}
    fastavro.writer(buffer, record(plain), [{"amount": LONG}])
    before, after = (fields_of(part) for part in (plain, kind))
    data = buffer.getvalue()
    file: Any = fastavro.reader(io.BytesIO(data))
    text = file.metadata["avro.schema"]
    assert before in text
    data = data.replace(sized(text.encode()), sized(text.replace(before, after).encode()))
    read = DeserializerChain.from_config({"value.deserializer": "avro", "avro.framing": "container"})
    with pytest.raises(DecodeError, match=f"its precision of {precision}"):
        read(data)


def test_writer_and_other_users_of_fastavro_do_not_notice() -> None:
    config = {"value.serializer": "avro", "value.deserializer": "avro", "avro.schema": json.dumps(record(BYTES))}
    value = {"amount": Decimal("1.50")}
    data = SerializerChain.from_config(config)(value)
    assert DeserializerChain.from_config(config)(data) == value
    found: Any = fastavro.schemaless_reader(io.BytesIO(sized(b"\x12" * 20)), record(BYTES), None)
    assert found["amount"]


def test_ones_own_schema_without_a_precision_is_refused() -> None:
    with pytest.raises(ConfigError, match="amount: the precision of a decimal is not a positive number"):
        chain({"type": "bytes", "logicalType": "decimal"})
