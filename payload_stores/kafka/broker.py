"""The store's own clients: their configuration, cluster metadata, and reading from an offset."""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from payload_stores import forks
from payload_stores.client_log import folded_log
from payload_stores.errors import PayloadStoreError
from payload_stores.kafka.errors import AUTHENTICATION, missing_topic, translated, unavailable
from payload_stores.kafka.readers import IdleReaders, Position, Reader
from payload_stores.plugins import require

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message
    from confluent_kafka.admin import AdminClient

# In the log of the store, one line for a broker that does not answer: above INFO, which has each connection.
_LOG: Final[Mapping[str, object]] = {"logger": folded_log("payload_stores.kafka"), "log_level": 4}

# A consumer has one request in flight. This bounds the memory of a download besides its payload.
_FETCH_BYTES: Final = 4 << 20
_QUEUED_KBYTES: Final = 8 << 10
# Silence after which the topic is looked up: librdkafka waits silently for a missing one.
_PATIENCE_S: Final = 1.0

_LEAST_TIMEOUT_MS: Final = 1_100
_RECONNECT_MS: Final = 500

_READER: Final[Mapping[str, object]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # An offset outside the log is an answer: the payload is gone.
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "fetch.max.bytes": _FETCH_BYTES,
    "fetch.message.max.bytes": _FETCH_BYTES,
    "queued.max.messages.kbytes": _QUEUED_KBYTES,
    # At the end of a partition, the next payload must wait for the pending fetch request.
    "fetch.wait.max.ms": 5,
    "fetch.queue.backoff.ms": 5,
}


class TopicMetadata(NamedTuple):
    """A topic's metadata.

    Attributes:
        cluster: Id of the cluster.
        partitions: Number of partitions; 0 if the topic does not exist.
    """

    cluster: str
    partitions: int


class Broker:
    """Creates and keeps the clients of one store.

    Performs no I/O before the first call. Consumers are reused: a connected one reads a payload within milliseconds.

    Args:
        settings: Connection settings, including secrets.
        timeout_ms: Timeout of each step.
    """

    def __init__(self, settings: Mapping[str, object], timeout_ms: int) -> None:
        # Drop a hanging connection in time, and reconnect soon after a loss.
        own = {
            "socket.timeout.ms": max(timeout_ms, _LEAST_TIMEOUT_MS),
            "socket.connection.setup.timeout.ms": max(timeout_ms, _LEAST_TIMEOUT_MS),
            "reconnect.backoff.max.ms": _RECONNECT_MS,
        }
        self._settings = {**settings, **own, **_LOG}
        self.timeout_s = timeout_ms / 1000
        self._topics: dict[str, TopicMetadata] = {}
        self._refused: KafkaError | None = None
        self._is_closed = False
        self._begin()
        forks.watch(self, Broker._leave_to_parent)

    def _begin(self) -> None:
        self._idle = IdleReaders()
        self._admin: AdminClient | None = None

    def settings(self, own: Mapping[str, object]) -> dict[str, Any]:
        """A client's configuration: the connection settings and its own."""
        return {**self._settings, **own}

    def _leave_to_parent(self) -> list[object]:
        left: list[object] = [*self._idle.consumers(), self._admin]
        self._begin()
        return left

    def admin(self) -> AdminClient:
        """The admin client."""
        self._check_open()
        if self._admin is None:
            module = require("confluent_kafka.admin", "kafka")
            with self.errors("connect"):
                self._admin = module.AdminClient(self.settings({}))
        self._admin.poll(0)  # fetches a token if there is a token callback, and serves log callbacks
        return self._admin

    def topic(self, name: str, **where: str) -> TopicMetadata:
        """A topic's metadata; cached if the topic exists.

        Raises:
            PayloadStoreError: The cluster did not answer in time, or denied access.
        """
        known = self._topics.get(name)
        if known is None:
            known = self._ask(name, **where)
            if known.partitions:
                self._topics[name] = known
        return known

    def forget(self, name: str) -> None:
        """Drop the cached metadata."""
        self._topics.pop(name, None)

    def is_missing(self, name: str) -> bool:
        """Whether the cluster reports within a second that the topic does not exist."""
        errors = require("confluent_kafka", "kafka").KafkaError
        with suppress(PayloadStoreError), self._reader() as reader, self.errors(f"describe the topic {name}"):
            described = reader.consumer.list_topics(name, timeout=min(self.timeout_s, _PATIENCE_S)).topics[name]
            if described.error is not None and described.error.code() == errors.UNKNOWN_TOPIC_OR_PART:
                self.forget(name)
                return True
        return False

    def topics(self) -> list[str]:
        """The names of all topics visible to this user."""
        with self._reader(committed=True) as reader, self.errors("list its topics"):
            return list(reader.consumer.list_topics(timeout=self.timeout_s).topics)

    def _ask(self, name: str, **where: str) -> TopicMetadata:
        errors = require("confluent_kafka", "kafka").KafkaError
        with self._reader() as reader, self.errors(f"describe the topic {name}", **where):
            try:
                metadata = reader.consumer.list_topics(name, timeout=self.timeout_s)
            finally:
                reader.consumer.poll(0)  # which calls `_note`
            described = metadata.topics[name]
        if described.error is not None and described.error.code() != errors.UNKNOWN_TOPIC_OR_PART:
            raise translated(described.error, f"describe the topic {name}", **where)
        return TopicMetadata(metadata.cluster_id, len(described.partitions))

    def read(
        self, name: str, partition: int, offset: int, *, last: int | None = None, **where: str
    ) -> Generator[Message]:
        """Yield the records of a partition from an offset, until its end or a missing offset.

        Close it: it holds a consumer.

        Args:
            name: The topic.
            partition: The partition.
            offset: The first offset.
            last: The last offset, if the caller reads up to it without a pause.
            **where: For errors.

        Raises:
            PayloadStoreError: The topic is missing or unreadable, or nothing arrived within the timeout.
        """
        kafka = require("confluent_kafka", "kafka")
        # Uncommitted: the commit of the referring record decides, and that was checked when it was read. Otherwise any
        # open transaction in this partition would hide the records after it.
        wanted = Position(name, partition, offset)
        with (
            self._idle.turn(wanted, None if last is None else wanted._replace(offset=last + 1), self.timeout_s / 4),
            self._reader(wanted) as reader,
            self.errors(f"read the topic {name}", **where),
        ):
            may_be_stale = reader.position is not None
            if not may_be_stale:
                reader.consumer.assign([kafka.TopicPartition(name, partition, offset)])
            while True:
                message = self._next(reader.consumer, name, **where)
                if message is not None and (message.offset() or 0) >= offset:
                    offset = (message.offset() or 0) + 1
                    reader.position = Position(name, partition, offset)
                    yield message
                elif message is None and may_be_stale:
                    # The end that a waiting consumer saw may have been the end before this payload was written.
                    reader.consumer.assign([kafka.TopicPartition(name, partition, offset)])
                    may_be_stale = False
                elif message is None:
                    reader.position = None
                    return

    def read_all(self, name: str, partition: int, **where: str) -> Generator[Message]:
        """Yield all committed records in a partition, up to an open transaction. Otherwise like :meth:`read`."""
        kafka = require("confluent_kafka", "kafka")
        with (
            self._reader(committed=True) as reader,
            self.errors(f"read the topic {name}", **where),
        ):
            consumer = reader.consumer
            place = kafka.TopicPartition(name, partition, kafka.OFFSET_BEGINNING)
            watermarks = consumer.get_watermark_offsets(place, timeout=self.timeout_s)
            if watermarks is None:
                raise unavailable(f"Kafka did not return the end of the topic {name} in time", **where)
            low, high = watermarks
            if low == high:
                return
            consumer.assign([place])
            while (message := self._next(consumer, name, **where)) is not None:
                yield message
                if (message.offset() or 0) >= high - 1:
                    return

    def _next(self, consumer: Consumer, name: str, **where: str) -> Message | None:
        errors = require("confluent_kafka", "kafka").KafkaError
        until = time.monotonic() + self.timeout_s
        reason = "no answer"
        while (left := until - time.monotonic()) > 0:
            message = consumer.poll(min(left, _PATIENCE_S))
            if message is None:
                self.forget(name)
                if not self.topic(name, **where).partitions:
                    raise missing_topic(name, **where)
                continue
            error = message.error()
            if error is None:
                return message
            if error.code() in {errors._PARTITION_EOF, errors._AUTO_OFFSET_RESET, errors.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001, documented names
                return None
            if error.code() in {errors.UNKNOWN_TOPIC_OR_PART, errors._UNKNOWN_TOPIC}:  # noqa: SLF001
                self.forget(name)
                raise missing_topic(name, **where)
            if error.code() == errors.GROUP_AUTHORIZATION_FAILED:
                continue  # librdkafka looks for the coordinator of an unused group
            failure = translated(error, f"read the topic {name}", **where)
            if not failure.transient or error.fatal():
                raise failure
            reason = error.str()  # the client retries
        raise unavailable(f"nothing came from the topic {name} within {self.timeout_s:g} s: {reason}", **where)

    @contextmanager
    def _reader(self, wanted: Position | None = None, *, committed: bool = False) -> Iterator[Reader]:
        """A consumer, exclusive during a ``with`` block; those reading uncommitted records are reused.

        Args:
            wanted: The first record to read, if one will be read.
            committed: Whether to read committed records only.
        """
        self._check_open()
        reader = None if committed else self._idle.take(wanted)
        if reader is None:
            # Not a group member: the name is never sent.
            isolation = "read_committed" if committed else "read_uncommitted"
            group = f"payloads-{uuid.uuid4().hex[:10]}"
            own = {**_READER, "group.id": group, "isolation.level": isolation, "error_cb": self._note}
            with self.errors("connect"):
                consumer = require("confluent_kafka", "kafka").Consumer(self.settings(own))
            consumer.poll(0)  # as in `admin`
            reader = Reader(consumer) if committed else self._idle.new(consumer)
        is_sound = False
        try:
            yield reader
            is_sound = True
        except GeneratorExit:
            is_sound = True
            raise
        finally:
            if is_sound and not committed:
                self._idle.give(reader)
            else:
                self._idle.drop(reader)

    @contextmanager
    def errors(self, doing: str, **where: str) -> Iterator[None]:
        """Convert Kafka's errors to those of payload stores.

        Args:
            doing: The attempted action.
            **where: ``topic`` or ``reference``.
        """
        kafka = require("confluent_kafka", "kafka")
        self._refused = None
        try:
            yield
        except kafka.KafkaException as error:
            raise self._of(error, doing, **where) from None

    def _note(self, error: KafkaError) -> None:
        """Keep the reason for a failed connection: the waiting call only reports that there is none."""
        if error.name() in AUTHENTICATION:
            self._refused = error

    def _of(self, error: KafkaException, doing: str, **where: str) -> PayloadStoreError:
        failure = translated(error.args[0], doing, **where)
        return translated(self._refused, doing, **where) if failure.transient and self._refused else failure

    def _check_open(self) -> None:
        if self._is_closed:
            raise PayloadStoreError("the store is closed", store="kafka")

    def close(self) -> None:
        """Close the clients; those in use close when returned."""
        self._is_closed = True
        self._idle.close()
        self._admin = None
