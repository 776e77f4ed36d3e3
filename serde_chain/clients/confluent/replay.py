"""Returns dead letters to their original topics, if the operator names these.

Otherwise any writer of the dead-letter topic could write to every topic that the operator may write to.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from payload_stores.callbacks import shielded
from serde_chain.clients.confluent.delivery_reports import failure_of
from serde_chain.clients.confluent.partitions import PartitionReader, log_error, make_client
from serde_chain.clients.dead_letters import DeadLetter, read_dead_letter
from serde_chain.config import Config
from serde_chain.errors import ConfigError, ReplayError

_BATCH: Final = 200
# Only the broker's limit applies: the records were in these topics before.
_LARGEST: Final = 1_000_000_000
# Errors of the record itself.
_ABOUT_RECORD: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD}
)
_NOT_NAMED: Final = "which is not among those to write to"


class Left(NamedTuple):
    """A dead letter that was not returned.

    Attributes:
        partition: Its partition.
        offset: Its offset.
        why: The reason.
    """

    partition: int
    offset: int
    why: str


class _Unnamed(NamedTuple):
    """A letter's topic that is not allowed."""

    topic: str


@dataclass
class ReplayReport:
    """The outcome of a replay.

    Attributes:
        replayed: Number of returned letters by topic; in a dry run, of those that would be returned.
        left: Letters that cannot be returned.
        unnamed: Number of these whose topic is not in ``to``, by topic.
    """

    replayed: Counter[str] = field(default_factory=Counter)
    left: list[Left] = field(default_factory=list)
    unnamed: Counter[str] = field(default_factory=Counter)


def replay(
    config: Config | str | Path,
    topic: str,
    *,
    to: Collection[str] = (),
    dry_run: bool = False,
    limit: int | None = None,
    keep_time: bool = True,
    stop: threading.Event | None = None,
    progress: Callable[[int], None] | None = None,
    timeout_s: float | None = None,
) -> ReplayReport:
    """Return the dead letters of a topic with key, value and original headers, in order, to their partitions.

    The position is committed for the group ``serde-chain-replay-<topic>`` once the broker has acknowledged the records,
    so that the next call continues after them; after a crash, up to 200 records may be duplicated. Letters that arrive
    meanwhile are left to the next call.

    Letters that cannot be returned are reported and skipped: those without an origin, with a topic that is not in
    ``to``, with a missing part of their record, or refused for their size or timestamp.

    Args:
        config: Client configuration: a mapping, or the path of a file; keys of chains are ignored.
        topic: The dead-letter topic.
        to: The topics that may be written to. Without any, a dry run counts letters of all topics.
        dry_run: Only count; nothing is written or committed.
        limit: Most dead letters to examine.
        keep_time: Give records their original timestamps; otherwise the current time.
        stop: Set by another thread to stop after the current records.
        progress: Called with the number of examined letters.
        timeout_s: The longest wait for the broker, in seconds. By default 60, and 8 for the first answer.

    Raises:
        ConfigError: The Kafka client refuses its configuration, or ``to`` is empty.
        ReplayError: A topic does not exist or refuses writes. The next call starts with that letter.

    Example:
        >>> config = {"bootstrap.servers": "localhost:9092"}
        >>> report = replay(config, "images-dead", to=["images"], dry_run=True)  # doctest: +SKIP
        >>> report.replayed  # doctest: +SKIP
        Counter({'images': 12})
    """
    if isinstance(to, str):
        raise ConfigError("to is a text", hint=f"Name the topics in a list: to=[{to!r}]", key="to")
    if not to and not dry_run:
        raise ConfigError(
            "no topic is named to which dead letters may go back",
            hint="Name those that they came from: --to TOPIC, or to=[…]; a dry run lists them",
            key="to",
        )
    run = _Replay(config, topic, to, timeout_s, keep_time=keep_time)
    try:
        run.open(dry_run=dry_run)
        letters = itertools.islice(run.letters(), limit)
        looked_at = 0
        while batch := list(itertools.islice(letters, _BATCH)):
            run.put_back(batch)
            looked_at += len(batch)
            if progress is not None:
                progress(looked_at)
            if stop is not None and stop.is_set():
                break
        return run.report
    finally:
        run.close()


class _Replay:
    def __init__(
        self, config: Config | str | Path, topic: str, to: Collection[str], timeout_s: float | None, *, keep_time: bool
    ) -> None:
        self._config, self._topic, self._to, self._keep_time = config, topic, to, keep_time
        self.report = ReplayReport()
        self._reader = PartitionReader(config, f"serde-chain-replay-{topic}", failure=ReplayError, timeout_s=timeout_s)
        self._timeout_s = self._reader.timeout_s
        self._producer: Any = None
        # The number of partitions, by topic.
        self._counts: dict[str, int] = {}

    def open(self, *, dry_run: bool) -> None:
        """Find the topics, and make the producer unless in a dry run."""
        for topic in (self._topic, *self._to):
            self._counts[topic] = self._reader.count(topic)
        if not dry_run:
            own = {
                "acks": "all",
                "enable.idempotence": True,
                "message.max.bytes": _LARGEST,
                "message.timeout.ms": int(self._timeout_s * 1000),
                # The broker refuses whole batches because of a single record.
                "batch.num.messages": 1,
                "error_cb": log_error,
            }
            self._producer = make_client(self._reader.kafka.Producer, self._config, own)

    def letters(self) -> Iterator[Any]:
        """The current dead letters that were not returned yet, partition by partition."""
        for place in self._reader.committed(self._topic, self._counts[self._topic]):
            low, high = self._reader.bounds(self._topic, place.partition)
            yield from self._reader.read(self._topic, place.partition, max(low, place.offset), high)

    def put_back(self, batch: list[Any]) -> None:
        """Write records, and commit the position after the acknowledged ones, up to the first other.

        Raises:
            ReplayError: A record was refused.
        """
        letters = [self._read(message) for message in batch]
        refused = {} if self._producer is None else self._produce(batch, letters)
        for at, why in refused.items():
            if isinstance(why, KafkaError) and why.code() in _ABOUT_RECORD:
                letters[at] = why.str()
        stopping = {at: why for at, why in refused.items() if isinstance(letters[at], DeadLetter)}
        done = min(stopping, default=len(batch))
        if self._producer is not None:
            for partition, behind in {message.partition(): message.offset() + 1 for message in batch[:done]}.items():
                self._reader.commit(self._topic, partition, behind)
        for message, letter in zip(batch[:done], letters, strict=False):
            if isinstance(letter, DeadLetter):
                self.report.replayed[letter.origin.topic] += 1
            else:
                why = letter if isinstance(letter, str) else f"it names the topic {letter.topic}, {_NOT_NAMED}"
                self.report.left.append(Left(message.partition(), message.offset(), why))
                if isinstance(letter, _Unnamed):
                    self.report.unnamed[letter.topic] += 1
        if stopping:
            where, why = batch[done], stopping[done]
            raise ReplayError(
                f"the dead letter cannot be put back: {why.str() if isinstance(why, KafkaError) else why}",
                hint="See that its topic is there and may be written to, and run this again",
                topic=self._topic,
                partition=where.partition(),
                offset=where.offset(),
            )

    def close(self) -> None:
        """Close both clients."""
        if self._producer is not None:
            self._producer.close()
        self._reader.close()

    def _read(self, message: Any) -> DeadLetter | _Unnamed | str:
        """The parsed dead letter; otherwise the reason why it cannot be returned."""
        try:
            letter = read_dead_letter(message.headers())
        except ValueError as error:
            return str(error)
        topic, partition, offset, _ = letter.origin
        if topic == self._topic:
            # Every later call would read it again.
            return "it comes from this topic itself"
        if self._to and topic not in self._to:
            return _Unnamed(topic)
        if letter.dropped:
            lost = " and ".join(letter.dropped)
            return f"it lacks the record's {lost}; the record was in {topic}, partition {partition}, offset {offset}"
        return letter

    def _produce(self, batch: list[Any], letters: list[DeadLetter | _Unnamed | str]) -> dict[int, KafkaError | str]:
        """Write records; returns the reasons of refusals, by position in the batch."""
        waiting: dict[int, KafkaError | str] = {}
        for at, (message, letter) in enumerate(zip(batch, letters, strict=True)):
            if not isinstance(letter, DeadLetter):
                continue
            waiting[at] = f"the broker did not answer within {self._timeout_s:g} s"

            @shielded
            def delivered(error: Any, message: Any, at: int = at) -> None:
                failure = failure_of(error, message)
                if failure is None:
                    del waiting[at]
                else:
                    waiting[at] = failure

            origin = letter.origin
            known = origin.timestamp is not None and self._keep_time
            try:
                self._producer.produce(
                    origin.topic,
                    message.value(),
                    message.key(),
                    partition=self._partition(origin.topic, origin.partition),
                    timestamp=origin.timestamp if known else 0,
                    headers=letter.headers or None,
                    on_delivery=delivered,
                )
            except KafkaException as error:
                waiting[at] = error.args[0]
                if error.args[0].code() not in _ABOUT_RECORD:
                    break
            except BufferError as error:
                waiting[at] = str(error)
                break
        try:
            # Longer than the messages' own timeout, whose error names the reason.
            self._producer.flush(2 * self._timeout_s)
        except KafkaException as error:  # a fatal one
            waiting = dict.fromkeys(waiting, error.args[0])
        return waiting

    def _partition(self, topic: str, partition: int) -> int:
        """A record's original partition; -1, for a partition by key, if that no longer exists."""
        return partition if partition < self._counts[topic] else -1
