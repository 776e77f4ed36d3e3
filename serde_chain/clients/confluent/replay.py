"""Puts dead letters back into the topics that they came from."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from serde_chain.clients.confluent.acknowledgements import failure_of
from serde_chain.clients.confluent.partitions import TIMEOUT_S, PartitionReader, log_error, make_client
from serde_chain.clients.dead_letters import DeadLetter, read_dead_letter
from serde_chain.config import Config
from serde_chain.errors import ReplayError

__all__ = ["Left", "ReplayReport", "replay"]

_BATCH: Final = 200
# The broker's limit alone counts: the records were in these topics already.
_LARGEST: Final = 1_000_000_000


class Left(NamedTuple):
    """A dead letter that was left where it is.

    Attributes:
        partition: Its partition.
        offset: Its offset.
        why: What is wrong with it.
    """

    partition: int
    offset: int
    why: str


@dataclass
class ReplayReport:
    """What became of dead letters.

    Attributes:
        replayed: How many went back, by topic; in a dry run, how many would.
        left: Those that do not say where they came from.
    """

    replayed: Counter[str] = field(default_factory=Counter)
    left: list[Left] = field(default_factory=list)


def replay(
    config: Config | str | Path,
    topic: str,
    *,
    dry_run: bool = False,
    limit: int | None = None,
    keep_time: bool = True,
    stop: threading.Event | None = None,
    progress: Callable[[int], None] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> ReplayReport:
    """Put the dead letters of a topic back: with their key, value and own headers, in order, into their partitions.

    The position is committed for the group ``serde-chain-replay-<topic>`` once the broker has acknowledged the records,
    so that the next call goes on behind them; after a crash, up to 200 records may come twice. Letters that come
    meanwhile are left to the next call.

    Args:
        config: Client configuration: a mapping, or the path of a file; what belongs to chains is not used.
        topic: The dead-letter topic.
        dry_run: Only count; nothing is written or committed.
        limit: Most dead letters to look at.
        keep_time: Give records their original timestamps; otherwise the present time.
        stop: Set by another thread to end after the records under way.
        progress: Called with the number of letters that were looked at.
        timeout_s: The longest wait for the broker, in seconds.

    Raises:
        ConfigError: The Kafka client refuses its configuration.
        ReplayError: A topic is not there, or does not take a record. The next call begins with that one.

    Example:
        >>> report = replay({"bootstrap.servers": "localhost:9092"}, "images-dead", dry_run=True)  # doctest: +SKIP
        >>> report.replayed  # doctest: +SKIP
        Counter({'images': 12})
    """
    run = _Replay(config, topic, timeout_s, keep_time=keep_time)
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
    def __init__(self, config: Config | str | Path, topic: str, timeout_s: float, *, keep_time: bool) -> None:
        self._config, self._topic, self._timeout_s, self._keep_time = config, topic, timeout_s, keep_time
        self.report = ReplayReport()
        self._reader = PartitionReader(config, f"serde-chain-replay-{topic}", failure=ReplayError, timeout_s=timeout_s)
        self._producer: Any = None
        # The number of partitions, by topic.
        self._counts: dict[str, int] = {}

    def open(self, *, dry_run: bool) -> None:
        """Look for the topic, and make the producer unless nothing is to be written."""
        self._counts[self._topic] = self._reader.count(self._topic)
        if not dry_run:
            own = {
                "acks": "all",
                "enable.idempotence": True,
                "message.max.bytes": _LARGEST,
                "message.timeout.ms": int(self._timeout_s * 1000),
                "error_cb": log_error,
            }
            self._producer = make_client(self._reader.kafka.Producer, self._config, own)

    def letters(self) -> Iterator[Any]:
        """The dead letters that are there now and were not put back yet, partition by partition."""
        for place in self._reader.committed(self._topic, self._counts[self._topic]):
            low, high = self._reader.bounds(self._topic, place.partition)
            yield from self._reader.read(self._topic, place.partition, max(low, place.offset), high)

    def put_back(self, batch: list[Any]) -> None:
        """Write records, and commit the position behind those that the broker has acknowledged, up to the first other.

        Raises:
            ReplayError: One was refused.
        """
        letters = [self._read(message) for message in batch]
        refused = {} if self._producer is None else self._produce(batch, letters)
        done = min(refused, default=len(batch))
        if self._producer is not None:
            for partition, behind in {message.partition(): message.offset() + 1 for message in batch[:done]}.items():
                self._reader.commit(self._topic, partition, behind)
        for message, letter in zip(batch[:done], letters, strict=False):
            if isinstance(letter, DeadLetter):
                self.report.replayed[letter.origin.topic] += 1
            else:
                self.report.left.append(Left(message.partition(), message.offset(), letter))
        if refused:
            where = batch[done]
            raise ReplayError(
                f"the dead letter cannot be put back: {refused[done]}",
                hint="See that its topic is there and takes records of its size, and run this again",
                topic=self._topic,
                partition=where.partition(),
                offset=where.offset(),
            )

    def close(self) -> None:
        """Close both clients."""
        if self._producer is not None:
            self._producer.close()
        self._reader.close()

    def _read(self, message: Any) -> DeadLetter | str:
        """What a dead letter says; otherwise what is wrong with it."""
        try:
            letter = read_dead_letter(message.headers())
        except ValueError as error:
            return str(error)
        # It would be read again by the next call, and by all that follow.
        return "it comes from this topic itself" if letter.origin.topic == self._topic else letter

    def _produce(self, batch: list[Any], letters: list[DeadLetter | str]) -> dict[int, str]:
        """Write records; returns why some were refused, by their places in the batch."""
        waiting: dict[int, str] = {}
        for at, (message, letter) in enumerate(zip(batch, letters, strict=True)):
            if not isinstance(letter, DeadLetter):
                continue
            waiting[at] = f"the broker did not answer within {self._timeout_s:g} s"

            def delivered(error: Any, message: Any, at: int = at) -> None:
                failure = failure_of(error, message)
                if failure is None:
                    del waiting[at]
                else:
                    waiting[at] = failure.str()

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
            except (ReplayError, self._reader.kafka.KafkaException, BufferError) as error:
                waiting[at] = str(error)
                break
        # Longer than the messages' own time limit, which is the one that says why.
        self._producer.flush(2 * self._timeout_s)
        return waiting

    def _partition(self, topic: str, partition: int) -> int:
        """The partition that a record came from; -1, for one by its key, where that is no longer there."""
        if topic not in self._counts:
            self._counts[topic] = self._reader.count(topic)
        return partition if partition < self._counts[topic] else -1
