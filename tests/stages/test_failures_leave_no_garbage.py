"""A failed call leaves no reference to its input: neither in a global, nor in a cycle for the collector to find."""

import contextlib
import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import pyarrow as pa
import pytest

from payload_stores import PayloadStore, PayloadStoreUnavailableError
from serde_chain import DeserializerChain, RecordContext, SerializationError, SerializerChain
from tests.stages.cases import STAGES

NAMES = list(STAGES)
# Stages share how they fail.
FEW = ("avro", "zstd", "large-message")


class RefusingStore(PayloadStore):
    """A store that is down."""

    scheme = "refusing"

    def publish(self, topic: str, data: Any, context: Any = None) -> str:
        raise PayloadStoreUnavailableError("the store is down", topic=topic)

    def download(self, reference: str) -> bytes:
        raise PayloadStoreUnavailableError("the store is down", reference=reference)


@contextmanager
def collected() -> Iterator[list[Any]]:
    """The frames, tracebacks and exceptions that only the collector would free."""
    found: list[Any] = []
    gc.collect()
    # What was there before takes seconds to look through. It stays frozen, as what conftest.py has frozen.
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += (item for item in gc.garbage if isinstance(item, (FrameType, TracebackType, BaseException)))
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.garbage.clear()


def test_what_only_the_collector_frees_is_found() -> None:
    def leave() -> None:
        kept = []
        try:
            raise ValueError
        except ValueError as error:
            kept.append(error)  # whose traceback refers to this frame

    with collected() as garbage:
        leave()
    assert {type(item) for item in garbage} == {FrameType, TracebackType, ValueError}


def failed(call: Callable[[Any, RecordContext], Any], data: Any) -> bool:
    try:
        call(data, RecordContext("alerts", "value", [("own", b"1")], b"key", 0))
    except SerializationError:
        return True
    return False


def damaged(data: bytes) -> Iterator[bytes]:
    yield from (data[:1], data[: len(data) // 2], data + bytes(100), b"\xff" * 5000, bytes(3))
    for at in range(0, len(data), 1 + len(data) // 8):
        yield data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def chains(name: str) -> tuple[SerializerChain, DeserializerChain]:
    case = STAGES[name]
    names = [*case.before, name]
    config = {
        **case.config,
        "value.serializers": names,
        "value.deserializers": names[::-1],
        "large.message.threshold.bytes": 100,
    }
    if not name.startswith("large"):
        del config["large.message.threshold.bytes"]
    return SerializerChain.from_config(config), DeserializerChain.from_config(config)


@pytest.mark.full
@pytest.mark.parametrize("handler", [signal.default_int_handler, lambda _number, _frame: None], ids=["C", "Python"])
@pytest.mark.parametrize("name", NAMES)
def test_undecodable_records(name: str, handler: Any) -> None:
    writer, reader = chains(name)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with writer, reader:
            ctx = RecordContext("alerts", "value", [], b"key", 0)
            inputs = list(damaged(bytes(writer(STAGES[name].values[-1], ctx))))
            failures = [data for data in inputs if failed(reader, data)]  # warm: caches, lazy imports
            with collected() as garbage:
                counts = [sys.getrefcount(data) for data in failures]
                assert all(failed(reader, data) for data in failures)
                assert [sys.getrefcount(data) for data in failures] == counts
        assert garbage == []
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * (name not in FEW)) for name in NAMES])
def test_unwritable_values(name: str) -> None:
    writer, _reader = chains(name)
    values: list[Any] = [object(), {"id": "text", "blob": b""}, {1, 2}, "text \ud800", b"bytes", 1 << 70, [[]]]
    with writer:
        failures = [value for value in values if failed(writer, value)]
        assert failures
        with collected() as garbage:
            counts = [sys.getrefcount(value) for value in failures]
            assert all(failed(writer, value) for value in failures)
            assert [sys.getrefcount(value) for value in failures] == counts
    assert garbage == []


BATCH = {"value.deserializers": "large-message, zstd, json", "large.message.payload.store.class": "memory"}


def test_a_payload_that_is_gone_and_a_format_that_is_foreign() -> None:
    """Errors of stores, of headers and of batches."""
    reference, marker = b"memory:///alerts/00000000-0000-4000-8000-000000000000", [("large-message", b"true")]
    records: list[tuple[bytes, list[tuple[str, bytes]]]] = [
        (reference, marker),
        (b"s3://elsewhere/alerts/1" + bytes(5000), marker),
        (b"damaged" * 1000, []),
    ]

    def fail(chain: DeserializerChain) -> None:
        for data, headers in records:
            with contextlib.suppress(SerializationError):
                chain(data, RecordContext("alerts", "value", list(headers)))
                raise AssertionError("it can be read")
            with contextlib.suppress(SerializationError):
                chain.to_arrow([data], [list(headers)], topic="alerts")
                raise AssertionError("it can be read")

    with DeserializerChain.from_config(BATCH) as chain:
        fail(chain)
        with collected() as garbage:
            counts = [sys.getrefcount(data) for data, _headers in records]
            fail(chain)
            assert [sys.getrefcount(data) for data, _headers in records] == counts
    assert garbage == []


def test_a_table_that_does_not_fit() -> None:
    tables = [pa.table({"id": ["text"], "blob": [b""]}), pa.table({"id": [1], "blob": [bytes(5000)]})]

    def fail(chain: SerializerChain) -> None:
        for table in tables:
            with contextlib.suppress(SerializationError):
                chain.from_arrow(table, topic="alerts")
                raise AssertionError("it can be written")

    refusing = {"large.message.payload.store.class": RefusingStore, "large.message.threshold.bytes": 100}
    config = {"value.serializers": "avro, large-message", **STAGES["avro"].config, **refusing}
    with SerializerChain.from_config(config) as chain:
        fail(chain)
        with collected() as garbage:
            fail(chain)
    assert garbage == []
