"""Messages into tables: what is read again behind records that cannot be read, and when reading stops."""

from typing import Any, NamedTuple

import pyarrow as pa

from serde_chain import DeserializerChain
from serde_chain.clients.confluent.arrow import ArrowReader
from serde_chain.errors import DecodeError


class FakeMessage:
    """What the reader asks of a ``confluent_kafka.Message``."""

    def __init__(self, at: int, value: bytes) -> None:
        self._at = at
        self._value = value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._at

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at

    def key(self) -> bytes:
        return b"k"

    def headers(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value


class Counting:
    """A stage that knows how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def arrow_type(self) -> pa.DataType:
        return pa.int64()

    def __call__(self, data: bytes, _ctx: Any) -> int:
        self.calls += 1
        if data == b"bad":
            raise DecodeError("it is bad")
        return int(data)


class Read(NamedTuple):
    """What a loop over batches has read."""

    offsets: list[int]
    bad: list[int]


def read_all(reader: ArrowReader, messages: list[FakeMessage], seconds: float = 60) -> Read:
    found = Read([], [])
    while messages:
        table, error = reader.read(messages, seconds)
        found.offsets.extend(table.column("offset").to_pylist())
        done = len(table)
        if error is not None:
            assert error.record is messages[done]
            found.bad.append(messages[done].offset())
            done += 1
        assert done
        messages = messages[done:]
    return found


def test_what_stands_behind_bad_records_is_not_read_again_and_again() -> None:
    stage = Counting()
    messages = [FakeMessage(at, b"bad" if at % 50 == 7 else b"%d" % at) for at in range(5000)]
    found = read_all(ArrowReader(None, DeserializerChain([stage])), messages)
    assert found.bad == list(range(7, 5000, 50))
    assert found.offsets == [at for at in range(5000) if at % 50 != 7]
    assert stage.calls < 5000 + 5000 + 100 * 64  # once whole, then in short steps


def test_a_reader_without_time_hands_over_what_it_has() -> None:
    messages = [FakeMessage(at, b"bad" if at == 0 else b"%d" % at) for at in range(500)]
    reader = ArrowReader(None, DeserializerChain([Counting()]))
    assert reader.read(messages, 0).error is not None
    assert len(reader.read(messages[1:], 0).table) == 64
    assert len(reader.read(messages[65:], 60).table) == 435


def test_without_chains_bytes_stay_bytes() -> None:
    table = ArrowReader(None, None).read([FakeMessage(3, b"x")], 60).table
    assert table.to_pylist()[0] | {"timestamp": None} == {
        "topic": "t",
        "partition": 0,
        "offset": 3,
        "timestamp": None,
        "key": b"k",
        "headers": None,
        "value": b"x",
    }
