"""Reads a payload: exactly its chunks, in order, among those of others."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Final

from payload_stores.buffers import payload_buffer
from payload_stores.errors import PayloadIntegrityError, PayloadNotFoundError, PayloadStoreError
from payload_stores.kafka.broker import Broker
from payload_stores.kafka.chunks import LEAST_BLOCK_BYTES, Chunk
from payload_stores.kafka.errors import STORE, missing_topic
from payload_stores.kafka.place import Place

# A record takes about 10 µs regardless of its size, and a payload topic has those of any writer. So their number is
# bounded too, in proportion to the payload; its writer makes chunks of at least LEAST_BLOCK_BYTES.
_UNMEASURED_RECORDS: Final = 10_000
_FREE_CHUNKS: Final = 1_000
_FREE_RECORDS: Final = 100_000


class Payload:
    """One payload in its topic.

    Chunks are numbered, and each publication has a unique name, so missing, duplicate and foreign chunks are detected.
    Kafka's own checksums detect damaged bytes. The payload's digest is not computed here: it is compared where the
    referring record is read.

    Args:
        broker: The store's clients.
        place: Its location.
        reference: The reference, for errors.
        check_size: Refuses a payload that is too large.
        most_bytes: Bytes of other payloads between its chunks after which its last chunk is checked.
    """

    def __init__(
        self, broker: Broker, place: Place, reference: str, check_size: Callable[[int], object], most_bytes: int
    ) -> None:
        self._broker = broker
        self._place = place
        self._reference = reference
        self._check_size = check_size
        self._most_bytes = most_bytes
        self._publication: str | None = None
        self._size: int | None = None  # from its last chunk, once read
        self._block_bytes: int | None = None
        # Offsets of chunks read so far.
        self._offsets: dict[int, int] = {0: place.first}

    def check(self) -> None:
        """Check that topic and partition exist.

        Raises:
            PayloadStoreError: The topic does not exist.
            PayloadNotFoundError: The partition does not exist.
        """
        place = self._place
        topic = self._broker.topic(place.topic, reference=self._reference)
        if 0 < topic.partitions <= place.partition:
            self._broker.forget(place.topic)  # partitions may have been added
            topic = self._broker.topic(place.topic, reference=self._reference)
        if not topic.partitions:
            raise missing_topic(place.topic, reference=self._reference)
        if topic.partitions <= place.partition:
            raise self._gone(f"the topic {place.topic} has {topic.partitions} partitions")

    def read(self, seen: Callable[[bytes], object] | None = None) -> bytes:
        """Read the whole payload.

        Args:
            seen: Called with each chunk, while it is in the processor's cache and the next ones arrive.
        """
        file, size = io.BytesIO(), 0  # grows, if a stream's first chunk does not have the size
        with closing(self._chunks(0, to_end=True)) as chunks:
            for chunk, value in chunks:
                size += len(value)
                self._check_size(size if chunk.size is None else chunk.size)
                if seen is not None:
                    seen(value)
                if chunk.count == 1:
                    return value
                if chunk.index == 0 and chunk.size is not None:
                    file = payload_buffer(chunk.size)
                file.write(value)
        file.truncate()  # chunks may differ about the size
        return file.getvalue()

    def measure(self) -> Chunk:
        """Its last chunk, which has size and number of chunks."""
        place = self._place
        with closing(self._messages(place.last)) as messages:
            for offset, chunk, value in messages:
                if offset != place.last or chunk is None or value is None or not self._is_own(chunk):
                    break
                self._check(chunk, value, offset)
                self._offsets[chunk.index] = offset
                assert chunk.size is not None  # noqa: S101  set in the last one
                self._size = chunk.size
                self._check_size(chunk.size)
                return chunk
        raise self._gone("its last chunk is missing")

    def fill(self, whole: Chunk, view: memoryview, start: int) -> None:
        """Read a part of it.

        Args:
            whole: The result of :meth:`measure`.
            view: The buffer; its range is within the payload.
            start: Start of the part.
        """
        index, skip = divmod(start, whole.block_bytes)
        done = 0
        with closing(self._chunks(index)) as chunks:
            while done < len(view):
                _chunk, value = next(chunks)
                part = memoryview(value)[skip : skip + len(view) - done]
                view[done : done + len(part)] = part
                done, skip = done + len(part), 0

    def first(self) -> Chunk:
        """Its first chunk."""
        with closing(self._chunks(0)) as chunks:
            chunk, _value = next(chunks)
            return chunk

    def _chunks(self, index: int, *, to_end: bool = False) -> Generator[tuple[Chunk, bytes]]:
        """Its chunks from a given one to the last; ``to_end`` if they are taken without a pause."""
        known = max(each for each in self._offsets if each <= index)
        others = records = 0
        # Each chunk takes an offset, so it cannot be earlier than this.
        with closing(self._messages(self._offsets[known] + index - known, to_end=to_end)) as messages:
            for offset, chunk, value in messages:
                if offset > self._place.last:
                    break
                records += 1
                self._check_records(records)
                is_first = self._publication is None
                if chunk is None or not self._is_own(chunk):
                    if is_first:
                        raise self._gone("another payload is in its place")
                    others += len(value or b"")
                    if others > self._most_bytes and self._size is None:
                        # Any number of writers may have written between its chunks; for an incomplete payload, the
                        # whole span of its reference would be read in vain.
                        self.measure()
                    continue
                if is_first and (offset != self._place.first or chunk.index):
                    raise self._gone("its first chunk is missing")
                self._publication = chunk.publication
                if chunk.index < index:
                    continue
                if chunk.index > index or value is None:
                    break
                self._check(chunk, value, offset)
                self._offsets[index] = offset
                yield chunk, value
                if chunk.is_last:
                    return
                index += 1
        raise self._gone(f"its chunk {index} is missing")

    def _messages(self, offset: int, *, to_end: bool = False) -> Generator[tuple[int, Chunk | None, bytes | None]]:
        place, last = self._place, self._place.last if to_end else None
        with closing(
            self._broker.read(place.topic, place.partition, offset, last=last, reference=self._reference)
        ) as messages:
            for message in messages:
                chunk = Chunk.of(message)
                yield message.offset() or 0, chunk, message.value()

    def _check_records(self, records: int) -> None:
        """Check the last chunk after many records, and give up after too many for the size in it."""
        if records > _UNMEASURED_RECORDS and self._size is None:
            self.measure()
        if self._size is not None and records > _FREE_RECORDS + self._size // LEAST_BLOCK_BYTES:
            raise self._damaged(f"its {self._size} bytes lie among more than {records - 1} records")

    def _is_own(self, chunk: Chunk) -> bool:
        return chunk.path == self._place.key and self._publication in {None, chunk.publication}

    def _check(self, chunk: Chunk, value: bytes, offset: int) -> None:
        place = self._place
        if not chunk.fits(len(value)):
            raise self._damaged(f"its chunk {chunk.index} has {len(value)} bytes, which does not go with its headers")
        if self._block_bytes not in {None, chunk.block_bytes}:
            raise self._damaged(f"its chunk {chunk.index} goes with chunks of another size")
        if chunk.count is not None and chunk.count > place.last - place.first + 1:
            raise self._damaged(f"its {chunk.count} chunks cannot lie between its offsets")
        if chunk.count is not None and chunk.count > _FREE_CHUNKS + (chunk.size or 0) // LEAST_BLOCK_BYTES:
            raise self._damaged(f"it has {chunk.count} chunks for {chunk.size} bytes")
        if (chunk.index == 0) != (offset == place.first) or chunk.is_last != (offset == place.last):
            raise self._damaged(f"its chunk {chunk.index} is not where its reference says")
        self._publication, self._block_bytes = chunk.publication, chunk.block_bytes

    def _gone(self, why: str) -> PayloadNotFoundError:
        return PayloadNotFoundError(
            f"the payload is gone: {why}",
            hint="Compare the retention of the payload topic with that of the records' topic",
            store=STORE,
            reference=self._reference,
        )

    def _damaged(self, why: str) -> PayloadStoreError:
        return PayloadIntegrityError(f"the payload is damaged: {why}", store=STORE, reference=self._reference)
