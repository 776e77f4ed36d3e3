"""Numbers of JSON: exact, or an error, on both sides."""

import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from hop.models import JSONBlob
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import DecodeError, DeserializerChain, EncodeError, SerializerChain
from serde_chain.arrow import Batch

write = SerializerChain.from_config({"value.serializer": "json"})
write_key = SerializerChain.from_config({"key.serializer": "json"}, is_key=True)
read = DeserializerChain.from_config({"value.deserializer": "json"})


@dataclass
class Alert:
    mag: float
    note: str | None = None


class Limit(Enum):
    DEEP = math.inf


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"mag": math.nan}, r"\$\.mag is nan"),
        ({"a": [1.0, {"b": -math.inf}], "c": None}, r"\$\.a\[1\]\.b is -inf"),
        (math.inf, r"\$ is inf"),
        ((None, math.nan), r"\$\[1\] is nan"),
        ({"alert": Alert(math.nan)}, r"\$\.alert\.mag is nan"),
        ([Limit.DEEP], r"\$\[0\] is inf"),
    ],
)
def test_what_json_does_not_have_is_not_written(value: Any, where: str) -> None:
    for chain in (write, write_key):
        with pytest.raises(EncodeError, match=where):
            chain(value)


def test_nulls_are_written() -> None:
    value = {"text": "null", "none": None, "alerts": [Alert(1.5)]}
    assert read(write(value)) == {"text": "null", "none": None, "alerts": [{"mag": 1.5, "note": None}]}


EDGES = [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**19, -(10**19), 12345678901234567891234567]


@pytest.mark.parametrize("number", EDGES)
def test_integers_of_any_size_are_read(number: int) -> None:
    value = {"b": number, "a": [number, {"c": [number]}], "text": str(number), "float": 0.1234567890123456789}
    found = read(json.dumps(value).encode())
    assert found == value
    assert isinstance(found["b"], int)
    assert read(memoryview(b" " + str(number).encode())) == number


@pytest.mark.parametrize("number", EDGES)
def test_integers_are_written_as_they_are_or_refused(number: int) -> None:
    if -(2**63) <= number < 2**64:
        assert json.loads(write({"a": number}) or b"") == {"a": number}
    else:
        with pytest.raises(EncodeError, match="64-bit"):
            write({"a": number})


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
))  # fmt: skip
def test_as_pythons_json(value: Any) -> None:
    assert read(json.dumps(value).encode()) == value


def test_what_hop_client_writes() -> None:
    content = {"mag": math.nan, "limits": [math.inf, -math.inf], "id": 12345678901234567891234567}
    data = JSONBlob(content).serialize()["content"]
    assert b"NaN" in data
    found = read(data)
    assert math.isnan(found.pop("mag"))
    assert found == {"limits": [math.inf, -math.inf], "id": 12345678901234567891234567}


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": NaN', b"nan", b"NAN", b"+Infinity", b"-NaN", b"Infinity1", b"[NaN, 1,]", b"{NaN: 1}", b'{"a": "NaN}',
        b"1e400", b"[" * 100_000 + b"NaN", b"[" * 100_000 + b"1" * 20, b"1" * 5000, b"\xff" + b"1" * 20, b'"\xffNaN"',
        b"00000000000000000000001", b"1" * 20 + b" 2",
    ],
)  # fmt: skip
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="the bytes are not JSON"):
        read(data)


def test_the_error_does_not_hold_the_document() -> None:
    with pytest.raises(DecodeError) as caught:
        read(b'{"password": "hunter2')
    assert "hunter2" not in str(getattr(caught.value.__cause__, "doc", ""))


def test_batches_keep_the_text() -> None:
    good = [b'{"mag": NaN}', b"12345678901234567891234567"]
    result = read.read_batch(Batch([*good, b"nan"], topic="t"))
    assert result.values.to_pylist() == [*(data.decode() for data in good), None]
    assert list(result.errors) == [2]


def test_members_of_keys_are_in_one_order() -> None:
    one, two = {"b": 1, "a": {"d": 1, "c": 2}}, {"a": {"c": 2, "d": 1}, "b": 1}
    keys = SerializerChain.from_config({"key.serializer": "json"}, is_key=True)
    assert keys(one) == keys(two) == b'{"a":{"c":2,"d":1},"b":1}'
    assert SerializerChain.from_config({"value.serializer": "json"})(one) == b'{"b":1,"a":{"d":1,"c":2}}'


@pytest.mark.parametrize("text", [b'{"a": 1}', b"12345678901234567890123", b"NaN", b'" \xef\xbb\xbf"'])
def test_a_byte_order_mark_is_skipped(text: bytes) -> None:
    """RFC 8259, 8.1; .NET's Encoding.UTF8 writes it."""
    marked = b"\xef\xbb\xbf" + text
    assert repr(read(marked)) == repr(read(text))
    assert repr(read(memoryview(marked))) == repr(read(text))
    assert read.to_arrow([marked], topic="t").to_pylist() == [text.decode()]
    for more in (b"\xef\xbb\xbf" + marked, b"\xef\xbb\xbf"):
        with pytest.raises(DecodeError):
            read(more)
