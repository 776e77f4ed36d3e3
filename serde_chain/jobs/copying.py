"""Copies a partition, with its payloads, exactly once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaException, TopicPartition

from serde_chain.clients.client_chains import ClientChains
from serde_chain.clients.confluent.dead_letters import DeadLetters
from serde_chain.clients.confluent.messages import decode_message
from serde_chain.clients.confluent.partitions import TIMEOUT_S, PartitionReader
from serde_chain.clients.confluent.producer import Producer
from serde_chain.clients.window_reader import prefetch_for
from serde_chain.codec import Decoder
from serde_chain.errors import ContextualError, JobError, SerializationError
from serde_chain.jobs.migration_plan import Done, MigratePlan
from serde_chain.transfer import Prefetched, Transfer, finish

_TAKE: Final = 100
_WAIT_S: Final = 0.2
_TRANSACTION_S: Final = 5.0
# Longer than librdkafka's own minute: a transaction waits for its uploads.
_COMMIT_MS: Final = 300_000
_TRANSACTIONS: Final = {"transaction.timeout.ms": _COMMIT_MS}
# Memory for one partition's records, besides payloads.
_QUEUE: Final = {"queued.max.messages.kbytes": 16_384}


@dataclass(frozen=True)
class CopyError:
    """The error that ended the copy of a partition.

    Attributes:
        message: Its message.
        hint: What to do.
        transient: Whether a retry may succeed.
        offset: The offset of the record, if it is about one.
    """

    message: str
    hint: str | None
    transient: bool
    offset: int | None = None


class Copied(NamedTuple):
    """The progress of a partition, as it was committed.

    Attributes:
        partition: The partition.
        done: Its progress; None if the copy did not start.
        error: The error that ended the copy, if any.
    """

    partition: int
    done: Done | None
    error: CopyError | None


def copy_partition(plan: MigratePlan, partition: int, end: int) -> Copied:
    """Copy a partition for a while, at most up to an end.

    Records and their end position are committed in one Kafka transaction. A call ends a transaction left open by
    another one, fences it off (KIP-98), and continues from the committed position.
    """
    copy = _Copy(plan, partition)
    error: CopyError | None = None
    try:
        copy.run(end)
    except ContextualError as failure:
        error = CopyError(failure.message, failure.hint, failure.transient, failure.context.get("offset"))
    except KafkaException as failure:
        hint = "Is another migration with this checkpoint running? Otherwise run it again"
        error = CopyError(failure.args[0].str(), hint, transient=True)
    return Copied(partition, None if copy.done.position < 0 else copy.done, error)


class _Copy:
    """The copy of a partition.

    Attributes:
        done: The committed progress.
    """

    def __init__(self, plan: MigratePlan, partition: int) -> None:
        self._plan, self._partition = plan, partition
        self.done = self._next = Done(-1)
        self._failures: list[ContextualError] = []

    def run(self, end: int) -> None:
        """Copy records up to an offset, within the plan's time.

        Raises:
            ContextualError: A record is unreadable or unwritable, or the broker does not answer.
            KafkaException: A transaction failed.
        """
        plan, name = self._plan, self._plan.name_of(self._partition)
        until = time.monotonic() + plan.seconds
        with ExitStack() as stack:
            self._open(stack, name)
            first, _ = self._reader.bounds(plan.topic, self._partition)
            # Records removed by retention in the meantime are gone for all readers.
            self.done = replace(self.done, position=max(self.done.position, first))
            self._reader.assign(plan.topic, {self._partition: self.done.position})
            while self.done.position < end and time.monotonic() < until:
                self._producer.begin_transaction()
                try:
                    failure = self._fill(end)
                    self._commit()
                except BaseException as error:
                    self._abort(error)
                    raise
                if failure is not None:
                    raise failure

    def _open(self, stack: ExitStack, name: str) -> None:
        plan = self._plan
        setup = ClientChains.of_reader(plan.source)
        stack.callback(setup.close)
        self._decoder = Decoder(setup.key, setup.value)
        self._fetching = prefetch_for(setup.key, setup.value)
        # Its errors are raised, and librdkafka's own lines look like failures.
        own = {"log_level": 0, **_TRANSACTIONS, **plan.target, "transactional.id": name}
        self._producer = stack.enter_context(Producer(own))
        # First, because it ends a transaction left open by another copy, which settles the position.
        self._producer.init_transactions(TIMEOUT_S)
        self._group = stack.enter_context(PartitionReader(plan.target, name, failure=JobError))
        [place] = self._group.committed(plan.target_topic, 1)
        if place.offset < 0:
            raise JobError("the position of the migration is unknown: the group's offsets are gone")
        self.done = Done.of(place.offset, place.metadata)
        self._reader = stack.enter_context(PartitionReader(plan.source, name, failure=JobError, **_QUEUE))
        setup.set_cluster(self._reader.client.cluster_id)
        self._policy = plan.policy
        self._dead: DeadLetters | None = None
        if (dead_letter_topic := plan.policy.dead_letter_topic) is not None:
            self._dead = DeadLetters(self._reader.client, setup.client, dead_letter_topic, setup.limit_ms)
            stack.callback(self._dead.close)

    def _fill(self, end: int) -> SerializationError | None:
        """Put records into a transaction; returns the first error that ends the migration."""
        self._next, self._failures = self.done, []
        until = time.monotonic() + _TRANSACTION_S
        idle_until = time.monotonic() + TIMEOUT_S
        while self._next.position < end and time.monotonic() < until:
            records, ended = self._reader.take(_TAKE, _WAIT_S)
            if not records and time.monotonic() > idle_until:
                raise JobError(f"no record came within {TIMEOUT_S:g} s", offset=self._next.position)
            idle_until = time.monotonic() + TIMEOUT_S if records else idle_until
            failure = self._put([record for record in records if record.offset() < end])
            if failure is not None:
                return failure
            if max(ended.values(), default=0) >= end:
                # The last record is followed by transaction markers.
                self._next = replace(self._next, position=end)
        return None

    def _put(self, records: Iterable[Any]) -> SerializationError | None:
        """Put records into the transaction, up to one that ends the migration."""
        begun = deque((record, self._begun(record)) for record in records)
        transfers = [step for _, step in begun if isinstance(step, Transfer)]
        aheads = deque(self._fetching.add(transfers) if self._fetching is not None else ())
        while begun:
            record, step = begun.popleft()
            moved = isinstance(step, Transfer)
            try:
                final = self._finished(step, aheads).finish()
            except SerializationError as error:
                error.offset = record.offset()
                if not self._policy.passes_over(error):
                    return error
                if self._dead is not None:
                    self._dead.put(record, error)
                self._next = replace(self._next, position=record.offset() + 1, skipped=self._next.skipped + 1)
                continue
            kind, moment = final.timestamp()
            self._producer.produce(
                self._plan.target_topic,
                final.value(),
                final.key(),
                self._partition if self._plan.same_partitions else -1,
                on_delivery=self._note,
                timestamp=0 if kind == TIMESTAMP_NOT_AVAILABLE else moment,
                headers=final.headers(),
            )
            self._producer.poll(0)
            count, payloads = self._next.records + 1, self._next.payloads + moved
            self._next = replace(self._next, position=record.offset() + 1, records=count, payloads=payloads)
        return None

    def _finished(self, step: Any, aheads: deque[Prefetched]) -> Any:
        """The record's final form, once its payload has arrived."""
        if isinstance(step, SerializationError):
            raise step
        if self._fetching is None or not isinstance(step, Transfer):
            return finish(step)
        return self._fetching.finish(aheads.popleft())

    def _begun(self, record: Any) -> Any:
        """The record's final form, a transfer that leads to it, or the error for its turn."""
        try:
            return decode_message(record, self._decoder)
        except SerializationError as error:
            return error

    def _commit(self) -> None:
        plan, done = self._plan, self._next
        place = TopicPartition(plan.target_topic, 0, done.position, done.metadata)
        try:
            self._producer.send_offsets_to_transaction([place], self._group.group(), TIMEOUT_S)
            self._producer.commit_transaction(_COMMIT_MS / 1000)
        except KafkaException as error:
            if self._failures:  # the transaction has only the text of a store's error
                raise self._failures[0] from error
            raise
        self.done = done

    def _abort(self, error: BaseException) -> None:
        """Abort the transaction, unless the next copy must do it."""
        if isinstance(error, KafkaException) and error.args[0].fatal():
            return
        try:
            self._producer.abort_transaction(TIMEOUT_S)
        except KafkaException as failure:
            error.add_note(f"the transaction could not be aborted: {failure}")

    def _note(self, error: Any, _message: object) -> None:
        # The client's own errors are not exceptions, and the transaction has them too.
        if isinstance(error, BaseException) and isinstance(error.__cause__, ContextualError):
            self._failures.append(error.__cause__)
