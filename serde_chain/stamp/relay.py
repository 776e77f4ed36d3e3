"""The relay: copies a topic partition by partition, with timestamp and index in front of each value, exactly once.

One Kafka transaction commits the records, the group's position in the source, and thereby the index. A relay started
with the same transactional id ends a transaction left open by its predecessor, and fences it off (KIP-98). The index
continues from the last frame in the target; for a target emptied by retention, the metadata of the committed position
has it too.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from serde_chain.clients.confluent.delivery_reports import failure_of
from serde_chain.clients.confluent.partitions import PartitionReader, log_error, make_client
from serde_chain.config import Config
from serde_chain.errors import StampError
from serde_chain.wire.entry_metadata import EntryMetadata, EntryMetadataError, frame, peek

_log = logging.getLogger("serde_chain")

_BATCH_RECORDS: Final = 500
_WAIT_S: Final = 0.2
_MOST_FAILURES: Final = 5
_BACKOFF_S: Final = 1.0
_ABORT_S: Final = 5.0
_POSITION: Final = re.compile(r"serde-chain index=(\d{1,20}) time=(\d{1,20})")
_FIRST_LOOK_BACK: Final = 16


def stamp(
    config: Config | str | Path,
    source: str,
    target: str,
    *,
    until_end: bool = False,
    stop: threading.Event | None = None,
    progress: Callable[[int], None] | None = None,
    timeout_s: float | None = None,
    transactional_id: str | None = None,
) -> int:
    """Relay a topic, with entry metadata in front of every value. Keys, headers and timestamps are unchanged.

    Tombstones stay tombstones and get no index: otherwise a compacted topic would never drop their keys.

    Args:
        config: Client configuration: a mapping, or the path of a file; settings of chains are ignored.
        source: Topic to read.
        target: Topic to write, with at least as many partitions; nothing else may write to it.
        until_end: Return once all existing records are relayed.
        stop: Set by another thread to end the relay after the current transaction.
        progress: Called after each transaction with the number of records relayed.
        timeout_s: Maximum wait for the broker, in seconds. By default 60, and 8 for the first answer.
        transactional_id: Name of the relay (default: derived from both topics). Two relays of one name never run
            concurrently: the newer one wins.

    Returns:
        Number of records relayed.

    Raises:
        ConfigError: The Kafka client refuses its configuration.
        StampError: A topic does not exist or is unsuitable, another relay has taken over, a record is unwritable, or
            the broker does not answer.

    Example:
        >>> stamp({"bootstrap.servers": "localhost:9092"}, "events", "events-stamped", until_end=True)  # doctest: +SKIP
        1000
    """
    if source == target:
        raise StampError("a topic cannot be relayed into itself", topic=source)
    name = transactional_id or f"serde-chain-stamp-{source}-{target}"
    relay = _Relay(config, source, target, name, timeout_s)
    try:
        relay.open()
        return relay.run(until_end=until_end, stop=stop or threading.Event(), progress=progress or (lambda _: None))
    finally:
        relay.close()


@dataclass(frozen=True, slots=True)
class _State:
    """A partition's state: next offset to read, next index to write, and the latest time written."""

    offset: int
    index: int = 0
    latest_ms: int = 0

    def metadata(self) -> str:
        """The metadata of the committed position."""
        return f"serde-chain index={self.index} time={self.latest_ms}"


class _Relay:
    def __init__(
        self, config: Config | str | Path, source: str, target: str, name: str, timeout_s: float | None
    ) -> None:
        self._source, self._target, self._name = source, target, name
        self._states: dict[int, _State] = {}
        self._failed: list[tuple[int, Any]] = []
        self._unknown: Any = None
        self._is_open = False
        # Bounds the memory per partition: a record is in the consumer's queue, then in the producer's.
        queue = {"queued.max.messages.kbytes": 16_384}
        self._reader = PartitionReader(config, name, failure=StampError, timeout_s=timeout_s, **queue)
        self._timeout_s = self._reader.timeout_s
        self._kafka = self._reader.kafka
        own = {"transactional.id": name, "enable.idempotence": True, "acks": "all", "error_cb": log_error}
        try:
            self._producer = make_client(self._kafka.Producer, config, own)
        except BaseException:
            self._reader.close()
            raise

    def open(self) -> None:
        """Check the topics, end a predecessor's open transaction, then recover the positions."""
        # First, because a metadata request reports a broker that is down; a transaction only reports a timeout.
        count, other = self._reader.count(self._source), self._reader.count(self._target)
        if other < count:
            raise StampError(
                f"it has {other} partitions, fewer than the {count} of {self._source}: each partition is copied to "
                "the one with the same number",
                topic=self._target,
            )
        self._call("the broker does not open a transaction", self._producer.init_transactions, self._timeout_s)
        for place in self._reader.committed(self._source, count):
            self._states[place.partition] = self._recover(place)
        self._assign()

    def run(self, *, until_end: bool, stop: threading.Event, progress: Callable[[int], None]) -> int:
        """Relay until stopped."""
        relayed = failures = 0
        ended: set[int] = set()
        while not stop.is_set() and not (until_end and len(ended) == len(self._states)):
            records, at_end = self._reader.take(_BATCH_RECORDS, _WAIT_S)
            ended.update(at_end)
            if not records:
                continue
            before = dict(self._states)
            try:
                self._transact(records)
            except self._kafka.KafkaException as error:
                failures += 1
                ended.clear()
                self._give_up_or_abort(error, failures)
                self._states = before
                self._assign()
                stop.wait(_BACKOFF_S)
                continue
            failures, relayed = 0, relayed + len(records)
            progress(relayed)
        return relayed

    def close(self) -> None:
        """Close both clients. The next relay, or the broker, ends a transaction that cannot be aborted."""
        if self._is_open:
            with contextlib.suppress(self._kafka.KafkaException):
                self._producer.abort_transaction(_ABORT_S)
        self._producer.purge()
        self._reader.close()

    def _recover(self, place: Any) -> _State:
        """A partition's state, from its last frame and the position committed with it."""
        partition = place.partition
        noted = _POSITION.fullmatch(place.metadata or "")
        state = None if noted is None else _State(place.offset, int(noted[1]), int(noted[2]))
        last = self._last_frame(partition)
        if last is not None and last.index is not None:
            if place.offset < 0:
                raise StampError(
                    f"{self._target} has records up to index {last.index}, but the offset to continue from is unknown",
                    hint="The group's offsets have expired, or a relay with another name wrote the target: relay into "
                    "a new topic, or commit the offset for the group",
                    topic=self._source,
                    partition=partition,
                )
            if state is not None and state.index != last.index + 1:
                raise StampError(
                    f"its last index is {last.index}, but this relay wrote up to {state.index - 1}",
                    hint="Another program writes to it: the relay requires a topic of its own",
                    topic=self._target,
                    partition=partition,
                )
            return _State(place.offset, last.index + 1, last.broker_timestamp or 0)
        if state is not None:
            return state
        first, _ = self._reader.bounds(self._source, partition)
        return _State(place.offset if place.offset >= 0 else first)

    def _last_frame(self, partition: int) -> EntryMetadata | None:
        """The frame of the last record in a target partition that is not a tombstone."""
        low, high = self._reader.bounds(self._target, partition)
        step = _FIRST_LOOK_BACK
        while high > low:
            start = max(low, high - step)
            values = [message.value() for message in self._reader.read(self._target, partition, start, high)]
            last = next((value for value in reversed(values) if value is not None), None)
            if last is not None:
                return self._read_frame(last, partition)
            high, step = start, step * 4
        return None

    def _read_frame(self, value: bytes, partition: int) -> EntryMetadata:
        try:
            metadata = peek(value)
        except EntryMetadataError:
            metadata = None
        if metadata is None or metadata.index is None:
            raise StampError(
                "its last record has no index",
                hint="Relay into a separate topic that nothing else writes to",
                topic=self._target,
                partition=partition,
            )
        return metadata

    def _assign(self) -> None:
        self._reader.assign(self._source, {partition: at.offset for partition, at in self._states.items()})

    def _transact(self, records: list[Any]) -> None:
        """Write records and positions in one transaction."""
        self._failed.clear()
        self._unknown = None
        self._producer.begin_transaction()
        self._is_open = True
        for message in records:
            self._produce(message)
        places = [
            self._kafka.TopicPartition(self._source, partition, at.offset, at.metadata())
            for partition, at in self._states.items()
            if partition in {message.partition() for message in records}
        ]
        self._serve(self._producer.flush, self._timeout_s)
        if self._unknown is not None:
            raise self._kafka.KafkaException(self._unknown)
        self._producer.send_offsets_to_transaction(places, self._reader.group(), self._timeout_s)
        self._commit()

    def _commit(self) -> None:
        for attempt in range(_MOST_FAILURES):
            try:
                self._producer.commit_transaction(self._timeout_s)
                self._is_open = False
                break
            except self._kafka.KafkaException as error:
                # The commit's outcome is unknown until the same call returns.
                if not error.args[0].retriable() or attempt == _MOST_FAILURES - 1:
                    raise

    def _produce(self, message: Any) -> None:
        partition, value = message.partition(), message.value()
        state = replace(self._states[partition], offset=message.offset() + 1)
        if value is not None:
            now = max(state.latest_ms, time.time_ns() // 1_000_000)
            value = frame(value, broker_timestamp=now, index=state.index)
            state = replace(state, index=state.index + 1, latest_ms=now)
        record = {"key": message.key(), "headers": message.headers(), "timestamp": max(message.timestamp()[1], 0)}
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(
                    self._target, value, partition=partition, on_delivery=self._note_failure, **record
                )
                break
            except BufferError:
                if time.monotonic() > deadline:
                    raise StampError("the broker does not accept records", topic=self._target) from None
                self._serve(self._producer.poll, _WAIT_S)
        self._states[partition] = state

    @staticmethod
    def _serve(method: Callable[[float], object], timeout_s: float) -> None:
        """Wait for deliveries. The client raises fatal errors before its callback, which then fails in Python."""
        try:
            method(timeout_s)
        except SystemError as error:
            if error.__cause__ is not None:
                raise error.__cause__ from None
            # A callback has swallowed it. The client keeps it, and raises it again at the next call.
            _log.debug("%s failed: %s", method, error)

    def _note_failure(self, error: Any, message: Any) -> None:
        failure = failure_of(error, message)
        if failure is not error:
            self._unknown = failure
        elif error is not None:
            self._failed.append((message.partition(), error))

    def _give_up_or_abort(self, error: Any, failures: int) -> None:
        """Abort the transaction so that it can be retried; or raise an error that a retry cannot fix."""
        cause = error.args[0]
        refused = next(
            (item for item in self._failed if item[1].code() == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE), None
        )
        if refused is not None:
            raise StampError(
                f"a record is too large: {refused[1].str()}",
                hint="A frame takes up to 28 bytes: raise max.message.bytes of the target and message.max.bytes",
                topic=self._target,
                partition=refused[0],
            ) from error
        if cause.fatal() or failures >= _MOST_FAILURES or self._is_fenced(cause):
            raise self._failure("the relay failed", error, self._source) from error
        _log.warning("relay from %s to %s: %s; retrying", self._source, self._target, cause.str())
        if self._is_open:
            self._call("the transaction cannot be aborted", self._producer.abort_transaction, self._timeout_s)
            self._is_open = False

    def _call(self, what: str, method: Callable[..., Any], *arguments: object) -> None:
        try:
            method(*arguments)
        except self._kafka.KafkaException as error:
            raise self._failure(what, error, self._target) from error

    def _failure(self, what: str, error: Any, topic: str) -> StampError:
        if self._is_fenced(error.args[0]):
            return StampError(
                "another relay of this name has taken over",
                hint=f"Only one relay may use the transactional id {self._name} at a time: give others their own ids",
                topic=topic,
            )
        return StampError(f"{what}: {error.args[0].str()}", topic=topic)

    def _is_fenced(self, cause: Any) -> bool:
        """Whether an error, or that of an earlier record, reports a newer producer of this name (KIP-360).

        The broker reports it by the epoch, the client by its own code; which one comes depends on the call.
        """
        codes = {cause.code(), *(failed.code() for _, failed in self._failed)}
        error = self._kafka.KafkaError
        return not codes.isdisjoint({error._FENCED, error.PRODUCER_FENCED, error.INVALID_PRODUCER_EPOCH})  # noqa: SLF001, documented
