"""The topics of a cluster: partitions, counts, offsets and times, without reading a record."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require
from serde_chain.cli.browse.topic import Readers
from serde_chain.clients.confluent.partitions import make_client
from serde_chain.config import Config

_INTERNAL: Final = "__"
# A list names more topics than it asks about.
_MOST_ASKED: Final = 200
_MOST_NAMED: Final = 2_000


class Partition(NamedTuple):
    """The bounds of a partition.

    Attributes:
        number: The partition.
        first: Offset of its first record.
        end: Offset after its last record.
        oldest_ms: Time of its first record, in ms since the epoch; None if it has none, or the broker does not say.
        newest_ms: The latest time of its records, likewise.
    """

    number: int
    first: int
    end: int
    oldest_ms: int | None
    newest_ms: int | None


@dataclass(frozen=True)
class TopicFacts:
    """A topic.

    Attributes:
        name: Its name.
        count: Number of its partitions.
        partitions: Their bounds, in order; empty if not asked, or the broker does not say.
    """

    name: str
    count: int
    partitions: Sequence[Partition] = ()

    @property
    def records(self) -> int | None:
        """Number of offsets, an upper bound of the number of records; None if unknown."""
        return sum(each.end - each.first for each in self.partitions) if self.partitions else None

    @property
    def oldest_ms(self) -> int | None:
        """The earliest of its partitions' first times."""
        return min((each.oldest_ms for each in self.partitions if each.oldest_ms is not None), default=None)

    @property
    def newest_ms(self) -> int | None:
        """The latest time of its records."""
        return max((each.newest_ms for each in self.partitions if each.newest_ms is not None), default=None)


class TopicQueries:
    """Asks the brokers of a configuration about topics.

    Args:
        config: Flat configuration.
        timeout_s: Maximum wait for the broker, in seconds.
        readers: Readers of the broker.
    """

    def __init__(self, config: Config, timeout_s: float, readers: Readers) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._readers = readers
        self._lock = threading.Lock()
        self._opened: Any = None

    def all(self, containing: str = "") -> list[TopicFacts]:
        """The topics by name, without Kafka's own; the first 200 with their bounds.

        Args:
            containing: Only topics whose names contain this.

        Raises:
            RecordUnavailableError: The broker does not answer.
        """
        with self._readers.open() as reader:
            counts = reader.topics()
        names = [name for name in sorted(counts) if containing in name and not name.startswith(_INTERNAL)]
        asked = {name: counts[name] for name in names[:_MOST_ASKED]}
        bounds = self._bounds(asked)
        return [TopicFacts(name, counts[name], bounds.get(name, ())) for name in names[:_MOST_NAMED]]

    def one(self, name: str) -> TopicFacts:
        """One topic with its bounds.

        Raises:
            RecordUnavailableError: It does not exist, or the broker does not answer.
        """
        with self._readers.open() as reader:
            count = reader.count(name)
        return TopicFacts(name, count, self._bounds({name: count}).get(name, ()))

    def _bounds(self, counts: Mapping[str, int]) -> dict[str, list[Partition]]:
        """The bounds of all partitions, by four requests; without topics that the login may not describe."""
        kafka, admin_of = require("confluent_kafka", "kafka"), require("confluent_kafka.admin", "kafka")
        places = [kafka.TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
        if not places:
            return {}
        admin = self._admin()
        spec = admin_of.OffsetSpec
        first, end, oldest, newest = (
            self._answers(admin, places, each)
            for each in (spec.earliest(), spec.latest(), spec.for_timestamp(0), spec.max_timestamp())
        )
        bounds: dict[str, list[Partition]] = {}
        for name, count in counts.items():
            known = [number for number in range(count) if (name, number) in first and (name, number) in end]
            bounds[name] = [
                Partition(
                    number,
                    first[name, number].offset,
                    end[name, number].offset,
                    _time(oldest.get((name, number))),
                    _time(newest.get((name, number))),
                )
                for number in known
            ]
        return bounds

    def _admin(self) -> Any:
        """The client of all questions, which threads share."""
        with self._lock:
            if self._opened is None:
                kind = require("confluent_kafka.admin", "kafka").AdminClient
                self._opened = make_client(kind, self._config, {})
            return self._opened

    def _answers(self, admin: Any, places: Iterable[Any], spec: Any) -> dict[tuple[str, int], Any]:
        kafka = require("confluent_kafka", "kafka")
        futures = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=self._timeout_s)
        answers = {}
        for place, future in futures.items():
            with suppress(kafka.KafkaException):
                answers[place.topic, place.partition] = future.result(self._timeout_s)
        return answers


def _time(answer: Any) -> int | None:
    return None if answer is None or answer.offset < 0 or answer.timestamp < 0 else int(answer.timestamp)
