"""Fetches messages again that an interrupted call of confluent_kafka had taken from librdkafka.

A signal handler or a callback that raises ends ``poll`` and ``consume`` in C code, which drops the messages in hand;
librdkafka counts them as delivered. Before the next fetch, the consumer seeks to the end of its records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, KafkaException, TopicPartition

from payload_stores.threads import DaemonPool
from serde_chain.clients.confluent.partitions import is_transient
from serde_chain.clients.window import Place, Window

# Longest wait in seconds for the broker's answer about partitions without a record so far.
_PATIENCE: Final = 10.0
_TICK: Final = 0.1
_EARLIEST: Final = frozenset({"smallest", "earliest", "beginning"})
# The partition is being revoked, or its topic was deleted.
_GONE: Final = frozenset({"_STATE", "_PREV_IN_PROGRESS", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"})


class Rewind:
    """Rewinds a consumer.

    Each of its calls can be interrupted and repeated.

    Args:
        client: confluent_kafka's consumer.
        window: Fetched messages; ``torn`` bounds the number of dropped ones.
        reset: ``auto.offset.reset`` of the client.
        reports_ends: ``enable.partition.eof`` of the client: dropped events come again, too.
    """

    def __init__(self, client: Any, window: Window, *, reset: object, reports_ends: bool) -> None:
        self._client = client
        self._window = window
        self._resets_to_first = reset in _EARLIEST
        self._reports_ends = reports_ends
        # Start offsets set by the caller.
        self._starts: dict[Place, int] = {}
        # Offsets of rewinds.
        self._sought: dict[Place, int] = {}
        # An answer takes as long as a fetch that waits at the broker, and the wait may be interrupted.
        self._thread = DaemonPool(1)
        self._found: dict[Place, Future[int]] = {}

    def note_start(self, partitions: Iterable[TopicPartition]) -> None:
        """Note the start offsets that the caller sets."""
        for partition in partitions:
            place = partition.topic, partition.partition
            self._found.pop(place, None)
            self._sought.pop(place, None)
            if partition.offset not in {OFFSET_INVALID, OFFSET_STORED}:
                self._starts[place] = partition.offset

    def forget(self, places: Collection[Place] | None = None) -> None:
        """Forget the start offsets of revoked partitions; of all if none are named."""
        for noted in (self._found, self._sought, self._starts):
            for place in [*noted] if places is None else places:
                noted.pop(place, None)

    def close(self) -> None:
        """Wait for pending questions to the broker, before the client is closed."""
        self._thread.shutdown(cancel_futures=True)

    def go_back(self) -> None:
        """After an interrupted call, continue each partition after its last fetched record.

        Raises:
            confluent_kafka.KafkaException: The broker does not answer; the next call retries.
        """
        window = self._window
        if not window.torn:
            return
        assigned = self._client.assignment()
        ends = window.ends()
        # A rebalance callback may have been interrupted, too.
        places = {(each.topic, each.partition) for each in assigned}
        window.expect(places)
        if gone := ends.keys() - places:
            window.drop(gone)
            self.forget(gone)
        for position in self._client.position(assigned):
            place = position.topic, position.partition
            end = ends.get(place)
            if end is None and position.offset >= 0:
                end = self._start(position)
            elif end is None and self._reports_ends and self._starts.get(place) != OFFSET_END:
                # The end may have moved: its event is not worth the records before it.
                end = self._starts.get(place)
            # A rewound partition has no position until a record comes. Another seek would restart the fetch.
            is_there = end == position.offset or (position.offset < 0 and end == self._sought.get(place))
            if end is not None and (not is_there or self._reports_ends):
                self._seek(TopicPartition(*place, end))
                self._sought[place] = end
        self._found.clear()
        window.torn = 0

    def _seek(self, target: TopicPartition) -> None:
        try:
            self._client.seek(target)
        except KafkaException as error:
            if error.args[0].name() not in _GONE:
                raise

    def _start(self, position: TopicPartition) -> int:
        """The start of a partition of which librdkafka has delivered records, but none arrived."""
        if self._window.torn == 1:
            return int(position.offset) - 1  # at most one record was dropped: this one
        place = position.topic, position.partition
        found = self._found.get(place)
        if found is None:
            found = self._found[place] = self._thread.submit(self._find, position, self._starts.get(place))
        try:
            return found.result()
        except KafkaException:
            self._found.pop(place, None)
            raise

    def _find(self, position: TopicPartition, start: int | None) -> int:
        """Ask the broker for the start of a partition."""
        place = TopicPartition(position.topic, position.partition)
        first: int = _ask(partial(self._client.get_watermark_offsets, place))[0]
        if start is None:
            start = _ask(partial(self._client.committed, [place]))[0].offset
        if start >= first:
            return min(start, position.offset)
        if start == OFFSET_BEGINNING or (self._resets_to_first and (start >= 0 or start == OFFSET_INVALID)):
            return first
        # At the end of that time. At most the requested records were dropped, each with a transaction marker.
        return max(first, position.offset - 2 * self._window.torn)


def _ask(question: Callable[..., Any]) -> Any:
    """Ask the broker, again if a leader or coordinator has moved."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return question(timeout=_PATIENCE)
        except KafkaException as error:
            if not is_transient(error.args[0]) or time.monotonic() >= until:
                raise
            time.sleep(_TICK)
