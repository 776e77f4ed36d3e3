"""Pulsar's own reader and writer of frames (PIP-70), in Java: pulsar-common 4.1.1."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from payload_stores.memory import MemoryStore
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.clients.seek import EntryTimes
from serde_chain.stamp import stamp
from serde_chain.wire.entry_metadata import EntryMetadata, frame, peek, strip
from tests.conftest import NewTopic
from tests.java_serdes import JavaSerde
from tests.schemas.java import running
from tests.stamp.conftest import Fill

BEGIN_MS = 1_700_000_000_000


class Pulsar:
    """Pulsar's functions on frames.

    Args:
        jvm: py4j's view of the JVM.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._commands = jvm.org.apache.pulsar.common.protocol.Commands
        intercept = jvm.org.apache.pulsar.common.intercept
        self._timestamp = intercept.AppendBrokerTimestampMetadataInterceptor()
        self._index = intercept.AppendIndexMetadataInterceptor()

    def read(self, value: bytes) -> tuple[EntryMetadata | None, bytes]:
        """The metadata and the payload of an entry, as a broker's subscriber gets them."""
        buffer = self._buffer(value)
        peeked = self._metadata(self._commands.peekBrokerEntryMetadataIfExist(buffer))
        assert buffer.readableBytes() == len(value)
        parsed = self._metadata(self._commands.parseBrokerEntryMetadataIfExist(buffer))
        assert parsed == peeked
        payload = self._bytes(buffer)
        assert self._bytes(self._commands.skipBrokerEntryMetadataIfExist(self._buffer(value))) == payload
        return parsed, payload

    def entry_time(self, value: bytes) -> int:
        """The time by which a broker seeks."""
        return int(self._commands.getEntryTimestamp(self._buffer(value)))

    def message(self, payload: bytes, publish_time: int) -> bytes:
        """A message as a producer sends it."""
        metadata = self._jvm.org.apache.pulsar.common.api.proto.MessageMetadata()
        metadata.setProducerName("peer").setSequenceId(7).setPublishTime(publish_time)
        kind = self._jvm.org.apache.pulsar.common.protocol.Commands.ChecksumType.valueOf("None")
        return self._bytes(self._commands.serializeMetadataAndPayload(kind, metadata, self._buffer(payload)))

    def frame(self, payload: bytes, messages: int = 1, *, timestamp: bool = True, index: bool = True) -> bytes:
        """An entry as a broker writes it."""
        interceptors = self._jvm.java.util.HashSet()
        for interceptor, is_used in ((self._timestamp, timestamp), (self._index, index)):
            if is_used:
                interceptors.add(interceptor)
        return self._bytes(self._commands.addBrokerEntryMetadata(self._buffer(payload), interceptors, messages))

    def _metadata(self, found: Any) -> EntryMetadata | None:
        if found is None:
            return None
        return EntryMetadata(
            found.getBrokerTimestamp() if found.hasBrokerTimestamp() else None,
            found.getIndex() if found.hasIndex() else None,
        )

    def _buffer(self, data: bytes) -> Any:
        return self._jvm.io.netty.buffer.Unpooled.wrappedBuffer(data)

    def _bytes(self, buffer: Any) -> bytes:
        return bytes(self._jvm.io.netty.buffer.ByteBufUtil.getBytes(buffer))


@pytest.fixture(scope="module")
def pulsar(pulsar_reader: JavaSerde) -> Iterator[Pulsar]:
    with running(pulsar_reader.folder) as peer:
        yield Pulsar(peer.jvm)


@pytest.mark.parametrize("payload", [b"", b"M 51", b"\x0e\x02\x00", os.urandom(3000)], ids=len)
@pytest.mark.parametrize("with_index", [False, True])
def test_pulsar_reads_what_the_stage_writes(pulsar: Pulsar, payload: bytes, *, with_index: bool) -> None:
    MemoryStore.clear()
    config = {
        "value.serializers": "bytes, large-message, entry-metadata",
        "entry.metadata.index": with_index,
        "large.message.threshold.bytes": 1000,
        "large.message.payload.store.class": "memory",
    }
    with SerializerChain.from_config(config) as chain:
        for number in range(3):
            ctx = RecordContext("events", "value", headers=[], partition=0)
            value = chain(payload, ctx)
            metadata, inner = pulsar.read(value)
            assert metadata == peek(value)
            assert metadata is not None
            assert metadata.index == (number if with_index else None)
            assert pulsar.entry_time(value) == metadata.broker_timestamp
            # A large payload's placeholder is in the frame.
            assert inner == strip(value)
            assert (inner == payload) is (len(payload) <= 1000)


def test_pulsar_reads_what_the_relay_writes(
    pulsar: Pulsar, config: dict[str, Any], new_topic: NewTopic, fill: Fill
) -> None:
    source, target = new_topic(2), new_topic(2)
    values = [None if number % 5 == 4 else b"value %d" % number for number in range(40)]
    fill(source, [{"value": value, "key": b"k", "partition": at % 2} for at, value in enumerate(values)])
    assert stamp(config, source, target, until_end=True) == 40
    reader = confluent_kafka.Consumer({**config, "group.id": target})
    reader.assign([confluent_kafka.TopicPartition(target, partition, 0) for partition in range(2)])
    got: dict[int, list[Any]] = {0: [], 1: []}
    while sum(map(len, got.values())) < 40:
        message: Any = reader.poll(30)
        assert message.error() is None
        got[message.partition()].append(message.value())
    reader.close()
    for partition, records in got.items():
        read = [pulsar.read(value) for value in records if value is not None]
        assert [payload for _, payload in read] == [value for value in values[partition::2] if value is not None]
        assert [metadata and metadata.index for metadata, _ in read] == list(range(len(read)))
        times = [metadata.broker_timestamp or 0 for metadata, _ in read if metadata is not None]
        assert times == sorted(times)
        assert times[0] > BEGIN_MS


def test_the_chain_reads_what_pulsar_writes(pulsar: Pulsar) -> None:
    chain = DeserializerChain.from_config({"value.deserializers": "entry-metadata", "entry.metadata.headers": True})
    last = -1
    for messages in (1, 1, 3, 10):  # the index of a batch is that of its last message
        value = pulsar.frame(b"M 51", messages)
        last += messages
        metadata = peek(value)
        assert metadata is not None
        assert metadata.index == last
        ctx = RecordContext("events", "value", headers=[])
        assert chain(value, ctx) == b"M 51"
        assert ctx.headers == [
            ("serde-chain-entry-timestamp", b"%d" % (metadata.broker_timestamp or 0)),
            ("serde-chain-entry-index", b"%d" % last),
        ]
        assert frame(b"M 51", **metadata._asdict()) == value
    value = pulsar.frame(b"M 51", timestamp=False)
    assert peek(value) == (None, last + 1)
    assert EntryTimes().of(0, value, None, 9).time_ms == 9


def test_a_record_has_the_time_by_which_pulsar_seeks(pulsar: Pulsar) -> None:
    message = pulsar.message(b"M 51", BEGIN_MS)
    # Old behaviour without a frame: the producer's time, which is Kafka's timestamp here.
    assert pulsar.entry_time(message) == BEGIN_MS
    assert EntryTimes().of(0, message, None, BEGIN_MS).time_ms == BEGIN_MS
    for value in (pulsar.frame(message, index=False), frame(message, broker_timestamp=BEGIN_MS + 5, index=3)):
        entered = pulsar.entry_time(value)
        assert entered > BEGIN_MS
        assert EntryTimes().of(0, value, None, BEGIN_MS).time_ms == entered
    # A frame without a time.
    value = frame(message, index=3)
    assert pulsar.entry_time(value) == BEGIN_MS
    assert EntryTimes().of(0, value, None, BEGIN_MS).time_ms == BEGIN_MS
