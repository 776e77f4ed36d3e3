"""The store's own clients: who they are, what the cluster says of itself, and reading from an offset on."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from payload_stores.errors import PayloadStoreError
from payload_stores.kafka.errors import AUTHENTICATION, missing_topic, translated, unavailable
from payload_stores.plugins import require

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message
    from confluent_kafka.admin import AdminClient

__all__ = ["Broker", "Topic"]

_log = logging.getLogger("payload_stores.kafka")

_MOST_IDLE: Final = 8
# A consumer has one request under way; what it fetches ahead is lost when a payload has been read. Together this bounds
# the memory of one download beside its payload.
_FETCH_BYTES: Final = 4 << 20
_QUEUED_KBYTES: Final = 8 << 10
# How long nothing comes until the topic is looked up: librdkafka waits without a word for one that is missing.
_PATIENCE_S: Final = 1.0

_LEAST_TIMEOUT_MS: Final = 1_100
_RECONNECT_MS: Final = 500

_READER: Final[Mapping[str, object]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # An offset outside of the log is an answer: the payload is gone.
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "fetch.max.bytes": _FETCH_BYTES,
    "fetch.message.max.bytes": _FETCH_BYTES,
    "queued.max.messages.kbytes": _QUEUED_KBYTES,
    # The next payload waits until a request that was sent for more has come back, at the end of a partition.
    "fetch.wait.max.ms": 5,
    "fetch.queue.backoff.ms": 5,
    "log_level": 4,
}


class Topic(NamedTuple):
    """What the cluster says of a topic.

    Attributes:
        cluster: Id of the cluster.
        partitions: How many it has; 0 if it does not exist.
    """

    cluster: str
    partitions: int


class Broker:
    """Makes and keeps the clients of one store.

    Nothing is sent before the first call. Consumers are used again: one that is connected reads a payload within
    milliseconds.

    Args:
        settings: How to connect; secrets are among it.
        timeout_ms: Longest wait for any one thing.
    """

    def __init__(self, settings: Mapping[str, object], timeout_ms: int) -> None:
        # A connection that hangs is given up in time, and one that was lost is soon tried again.
        own = {
            "socket.timeout.ms": max(timeout_ms, _LEAST_TIMEOUT_MS),
            "socket.connection.setup.timeout.ms": max(timeout_ms, _LEAST_TIMEOUT_MS),
            "reconnect.backoff.max.ms": _RECONNECT_MS,
        }
        self._settings = {**settings, **own, "logger": _log}
        self.timeout_s = timeout_ms / 1000
        self._topics: dict[str, Topic] = {}
        self._forked: list[object] = []
        self._refused: KafkaError | None = None
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Consumer] = []
        self._admin: AdminClient | None = None

    def settings(self, own: Mapping[str, object]) -> dict[str, Any]:
        """The configuration of a client: how to connect, and its own settings."""
        return {**self._settings, **own}

    def forget_parent(self) -> None:
        """After a fork: the threads of the parent's clients are not here, and ending these would wait for them."""
        if self._pid != os.getpid():
            self._forked += [self._idle, self._admin]
            self._begin()

    def admin(self) -> AdminClient:
        """The client for questions about topics."""
        self._check_open()
        self.forget_parent()
        if self._admin is None:
            module = require("confluent_kafka.admin", "kafka")
            with self.errors("connect"):
                self._admin = module.AdminClient(self.settings({"log_level": 4}))
        self._admin.poll(0)  # a token is fetched here, where there is a callback for tokens; and what it logs
        return self._admin

    def topic(self, name: str, **where: str) -> Topic:
        """What the cluster says of a topic; asked for once, if it exists.

        Raises:
            PayloadStoreError: The cluster does not answer in time, or not to this user.
        """
        known = self._topics.get(name)
        if known is None:
            known = self._ask(name, **where)
            if known.partitions:
                self._topics[name] = known
        return known

    def forget(self, name: str) -> None:
        """Ask again when it is needed next."""
        self._topics.pop(name, None)

    def is_missing(self, name: str) -> bool:
        """Whether the cluster says, within a second, that it has no such topic."""
        errors = require("confluent_kafka", "kafka").KafkaError
        with suppress(PayloadStoreError), self._reader() as consumer, self.errors(f"describe the topic {name}"):
            described = consumer.list_topics(name, timeout=min(self.timeout_s, _PATIENCE_S)).topics[name]
            if described.error is not None and described.error.code() == errors.UNKNOWN_TOPIC_OR_PART:
                self.forget(name)
                return True
        return False

    def topics(self) -> list[str]:
        """The names of all topics that this user may see."""
        with self._reader(committed=True) as consumer, self.errors("list its topics"):
            return list(consumer.list_topics(timeout=self.timeout_s).topics)

    def _ask(self, name: str, **where: str) -> Topic:
        errors = require("confluent_kafka", "kafka").KafkaError
        with self._reader() as consumer, self.errors(f"describe the topic {name}", **where):
            try:
                metadata = consumer.list_topics(name, timeout=self.timeout_s)
            finally:
                consumer.poll(0)  # which calls `_note`
            described = metadata.topics[name]
        if described.error is not None and described.error.code() != errors.UNKNOWN_TOPIC_OR_PART:
            raise translated(described.error, f"describe the topic {name}", **where)
        return Topic(metadata.cluster_id, len(described.partitions))

    def read(self, name: str, partition: int, offset: int, **where: str) -> Generator[Message]:
        """Yield the records of a partition from an offset on, until its end or an offset that it does not have.

        To be closed: it holds a consumer.

        Args:
            name: The topic.
            partition: The partition.
            offset: The first offset.
            **where: For errors.

        Raises:
            PayloadStoreError: The topic is missing, may not be read, or nothing has come within the time limit.
        """
        kafka = require("confluent_kafka", "kafka")
        # Uncommitted: whether the record that refers to a payload is committed decides, and was decided before it was
        # read. Otherwise any transaction that is open in this partition would hide what comes behind it.
        with self._reader() as consumer, self.errors(f"read the topic {name}", **where):
            consumer.assign([kafka.TopicPartition(name, partition, offset)])
            while (message := self._next(consumer, name, **where)) is not None:
                yield message

    def read_all(self, name: str, partition: int, **where: str) -> Generator[Message]:
        """Yield all committed records that a partition has now, up to a transaction that is open.

        As :meth:`read` in all else.
        """
        kafka = require("confluent_kafka", "kafka")
        with (
            self._reader(committed=True) as consumer,
            self.errors(f"read the topic {name}", **where),
        ):
            place = kafka.TopicPartition(name, partition, kafka.OFFSET_BEGINNING)
            watermarks = consumer.get_watermark_offsets(place, timeout=self.timeout_s)
            if watermarks is None:
                raise unavailable(f"Kafka did not tell the end of the topic {name} in time", **where)
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
                continue  # librdkafka looks for the coordinator of a group that is not used
            failure = translated(error, f"read the topic {name}", **where)
            if not failure.transient or error.fatal():
                raise failure
            reason = error.str()  # the client tries it again
        raise unavailable(f"nothing came from the topic {name} within {self.timeout_s:g} s: {reason}", **where)

    @contextmanager
    def _reader(self, *, committed: bool = False) -> Iterator[Consumer]:
        """A consumer, by itself for the time of a ``with`` block; one that reads uncommitted records is used again."""
        self._check_open()
        self.forget_parent()
        consumer: Consumer | None = None
        if not committed:
            with suppress(IndexError):
                consumer = self._idle.pop()
        if consumer is None:
            # No member of a group: the name is never sent.
            isolation = "read_committed" if committed else "read_uncommitted"
            group = f"payloads-{uuid.uuid4().hex[:10]}"
            own = {**_READER, "group.id": group, "isolation.level": isolation, "error_cb": self._note}
            with self.errors("connect"):
                consumer = require("confluent_kafka", "kafka").Consumer(self.settings(own))
            consumer.poll(0)  # as in `admin`
        is_sound = False
        try:
            yield consumer
            is_sound = True
        except GeneratorExit:
            is_sound = True
            raise
        finally:
            if is_sound and not committed and not self._is_closed and len(self._idle) < _MOST_IDLE:
                consumer.unassign()
                self._idle.append(consumer)
            else:
                consumer.close()

    @contextmanager
    def errors(self, doing: str, **where: str) -> Iterator[None]:
        """Raise Kafka's errors as a payload store's.

        Args:
            doing: What is being done.
            **where: ``topic`` or ``reference``.
        """
        kafka = require("confluent_kafka", "kafka")
        self._refused = None
        try:
            yield
        except kafka.KafkaException as error:
            raise self._of(error, doing, **where) from None

    def _note(self, error: KafkaError) -> None:
        """Keep the reason for which no connection is made: the call that waits for one only says that there is none."""
        if error.name() in AUTHENTICATION:
            self._refused = error

    def _of(self, error: KafkaException, doing: str, **where: str) -> PayloadStoreError:
        failure = translated(error.args[0], doing, **where)
        return translated(self._refused, doing, **where) if failure.transient and self._refused else failure

    def _check_open(self) -> None:
        if self._is_closed:
            raise PayloadStoreError("the store is closed", store="kafka")

    def close(self) -> None:
        """Close the clients; those that are in use close when they are given back."""
        self._is_closed = True
        self.forget_parent()
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()
        self._admin = None
