"""A payload store in Kafka itself: payloads as chunks in a separate topic.

References are ``kafka://<cluster id>/<payload topic>/<partition>/<first>-<last>/<topic>/<id>``, with the offsets of the
first and last chunk. So a reader seeks directly to a payload, and equal payloads have different references.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, ClassVar, Final, Self

from payload_stores import references
from payload_stores.base import Buffer, PayloadInfo, PayloadStore, PublishContext, RecordWriter
from payload_stores.buffers import checked_range, payload_buffer
from payload_stores.connection import can_connect, connection_settings
from payload_stores.errors import (
    ConfigError,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    UntrustedReferenceError,
)
from payload_stores.ids import DIGEST_PREFIX, sha256_digest
from payload_stores.kafka.broker import Broker
from payload_stores.kafka.chunks import LEAST_BLOCK_BYTES, MOST_PATH_BYTES, ROOM, Publication, cut
from payload_stores.kafka.payload import Payload
from payload_stores.kafka.payload_topics import PayloadTopic, PayloadTopics
from payload_stores.kafka.place import Place
from payload_stores.kafka.scan import Stored, scan
from payload_stores.kafka.writer import OwnWriter
from payload_stores.multipart import open_ranges, read_parts, released, stream_digest
from payload_stores.options import Option, integer, text
from payload_stores.plugins import require

_TOPIC: Final = "{topic}"
_MOST_NAME: Final = 249
_MOST_CHUNKS: Final = 1 << 22
_NAME: Final = re.compile(r"[A-Za-z0-9._-]*")


def _payload_topic(value: object) -> str:
    """A topic name, in which ``{topic}`` is the records' topic."""
    name = text(value)
    before, _, after = name.partition(_TOPIC)
    if (
        not (_NAME.fullmatch(before) and _NAME.fullmatch(after))
        or name in {_TOPIC, ".", ".."}
        or len(name) > _MOST_NAME
    ):
        raise ValueError(f"expected a topic, or a pattern such as {_TOPIC}.payloads")
    return name


class KafkaStore(PayloadStore):
    """Stores payloads as chunks in a topic of the records' own cluster, without a further server.

    A missing payload topic is created, with partitions, replicas, cleanup policy and (20 % longer) retention of the
    records' topic. With a transactional producer, payloads are written in its transaction.

    Deleting a payload writes tombstones for its chunks: listings omit it at once, and the broker removes it when it
    compacts the topic, or when the topic's retention ends. Until then its reference is readable.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("kafka", {"bootstrap.servers": "localhost:9092"})  # doctest: +SKIP
        >>> store.publish("images", b"payload")  # doctest: +SKIP
        'kafka://5L6g3nShT-eMCtK--X86sw/images.payloads/0/17-17/images/6c8f2c2e-5d0c-4f5e-9d8e-0a6f2f1f3b7a'
    """

    scheme = "kafka"
    stable_references = False
    joins_transactions: bool = True

    TOPIC: ClassVar[Option[str]] = Option(
        "kafka.payload.topic",
        _payload_topic,
        f"{_TOPIC}.payloads",
        doc=f"the payload topic; {_TOPIC} stands for the records' topic",
    )
    RETENTION: ClassVar[Option[int | None]] = Option(
        "kafka.payload.retention.ms",
        integer(-1),
        None,
        doc="retention of payload topics that are created; -1 for ever; default: 1.2 times that of the records",
    )
    TIMEOUT: ClassVar[Option[int]] = Option(
        "kafka.payload.timeout.ms", integer(1), 30_000, doc="longest wait for the broker to answer, or to go on"
    )
    CLUSTER: ClassVar[Option[str]] = Option(
        "kafka.cluster.id", text, "", doc="the cluster's id; default: asked for; needed to read from several clusters"
    )
    CONNECTION: ClassVar[tuple[Option[Any], ...]] = (
        Option("kafka.bootstrap.servers", text, "", doc="another cluster than the client's own"),
        Option("kafka.security.*", text, "", doc="security.* of that cluster"),
        Option("kafka.sasl.*", text, "", secret=True, doc="sasl.* of that cluster"),
        Option("kafka.ssl.*", text, "", secret=True, doc="ssl.* of that cluster"),
    )
    options = (TOPIC, RETENTION, TIMEOUT, CLUSTER, *CONNECTION)

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the ``kafka.*`` keys and the client's connection settings, without I/O.

        See :meth:`PayloadStore.configure`.
        """
        super().configure(config)
        require("confluent_kafka", "kafka")
        self._pattern = self.TOPIC.read(config)
        self._timeout_ms = self.TIMEOUT.read(config)
        self._cluster = self.CLUSTER.read(config)
        self._trusted = tuple(
            references.parse_prefix(self, prefix)
            for prefix in self.trusted_references
            if prefix.startswith(f"{self.scheme}:")
        )
        self._broker = Broker(self._connection(config), self._timeout_ms)
        self.joins_transactions = not can_connect(self._own_connection(config))
        self._topics = PayloadTopics(self._broker, self.RETENTION.read(config))
        self._own_writer = OwnWriter(self._broker)
        self._writer: RecordWriter = self._own_writer
        self._turns = itertools.count(random.randrange(1 << 16))  # noqa: S311  the first partition is no secret

    def within(self, writer: RecordWriter) -> Self:
        """The store, writing through a client's producer. See :class:`~payload_stores.SupportsTransactions`."""
        bound = copy.copy(self)
        vars(bound)["_writer"] = writer
        return bound

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Write a payload as chunks, from the caller's buffer. See :meth:`PayloadStore.publish`."""
        view = memoryview(data).cast("B")
        context = (context or PublishContext()).with_digest(lambda: sha256_digest(view))
        path = references.object_path(self, topic, view, context)
        return self._publish(path, lambda block_bytes: cut(view, block_bytes), len(view), context.digest)

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Write the contents of a reader, a chunk at a time. See :class:`~payload_stores.SupportsStreaming`.

        A deterministic id must be known before the first chunk: either the context has the digest, or the reader must
        be seekable. ``id`` is called with the digest and no data.
        """
        context = (context or PublishContext()).with_digest(lambda: stream_digest(reader))
        path = references.object_path(self, topic, b"", context)

        def blocks(block_bytes: int) -> Iterator[memoryview]:
            parts = read_parts(reader, _MOST_CHUNKS, block_bytes)
            return released([next(parts, memoryview(b""))], parts)

        return self._publish(path, blocks, None, context.digest)

    def owns(self, reference: str) -> bool:
        """See :meth:`PayloadStore.owns`. The own cluster's id is known after the first request."""
        try:
            self._locate(reference)
        except UntrustedReferenceError:
            return False
        return True

    def claim(self, reference: str) -> int:
        """See :meth:`PayloadStore.claim`; lower while the own cluster's id is unknown."""
        try:
            location = references.parse(self, reference)
            self._locate(reference)
        except UntrustedReferenceError:
            return 0
        trusted = [1 + len(prefix.segments) for prefix in self._trusted if prefix.covers(location)]
        return max(2 if self._cluster else 1, *trusted, 0)

    def download(self, reference: str) -> bytes:
        """Read a payload's chunks. See :meth:`PayloadStore.download`."""
        with self._payload(reference) as payload:
            return payload.read()

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        """Read a payload's chunks, and hash them meanwhile. See :meth:`PayloadStore.download_verified`."""
        if digest is None or type(self).download is not KafkaStore.download:  # a subclass may return something else
            return super().download_verified(reference, size=size, digest=digest)
        sha256 = hashlib.sha256()
        with self._expecting(reference, size), self._payload(reference) as payload:
            data = payload.read(sha256.update)
        self.verify(data, reference, size=size, digest=digest, computed=DIGEST_PREFIX + sha256.hexdigest())
        return data

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Read the chunks of a part of a payload. See :class:`~payload_stores.SupportsRanges`."""
        wanted = checked_range(start, length)
        with self._payload(reference) as payload:
            whole = payload.measure()
            buffer = payload_buffer(max(0, min(wanted.stop, whole.size or 0) - start))
            with buffer.getbuffer() as view:
                if len(view):
                    payload.fill(whole, view, start)
        return buffer.getvalue()

    def open(self, reference: str) -> BinaryIO:
        """Open a payload for reading and seeking. See :class:`~payload_stores.SupportsStreaming`."""
        with self._payload(reference) as payload:
            whole = payload.measure()
        return open_ranges(
            whole.size or 0, lambda view, start: payload.fill(whole, view, start), block_bytes=whole.block_bytes
        )

    def delete(self, reference: str) -> None:
        """Write tombstones for a payload's chunks. See :class:`~payload_stores.SupportsDelete`, and the class.

        Not in a transaction: deleted payloads are not needed, whether or not the records are committed.
        """
        place = self._locate(reference, own_only=True)
        self._check_cluster(place, reference)
        if not self._broker.topic(place.topic, reference=reference).partitions:
            return
        payload = Payload(self._broker, place, reference, lambda _size: None, self.max_payload_bytes)
        with suppress(PayloadNotFoundError):
            payload.check()
            whole = payload.measure()
            payload.first()
            publication = Publication(place.key, whole.block_bytes, whole.publication)
            self._own_writer.write_beside(place.topic, place.partition, publication.tombstones(range(whole.count or 0)))

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """List the payloads of a topic; reads all of its payload topic. See :class:`~payload_stores.SupportsList`.

        Payloads after an open transaction are not listed until it ends.
        """
        self.check_topic(topic)
        name = self._payload_topic(topic)
        begin = f"{topic}/{prefix}"
        for place, stored in self._scan(name, topic=topic):
            modified = datetime.fromtimestamp(stored.modified_ms / 1000, UTC)
            if stored.is_whole and stored.path.startswith(begin) and (before is None or modified < before):
                reference = place.url(self.scheme)
                with suppress(UntrustedReferenceError):  # of another writer, under a name that no reference can have
                    self._locate(reference, own_only=True)
                    yield PayloadInfo(reference, stored.size or 0, modified)

    def remove_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """Write tombstones for leftover chunks of killed writers; reads all payload topics of this pattern.

        See :class:`~payload_stores.SupportsLeftovers`.
        """
        limit_ms = (datetime.now(UTC) - timedelta(milliseconds=older_than_ms)).timestamp() * 1000
        before, _, after = map(re.escape, self._pattern.partition(_TOPIC))
        pattern = re.compile(f"{before}.+{after}" if _TOPIC in self._pattern else re.escape(self._pattern))
        removed = 0
        for name in filter(pattern.fullmatch, self._broker.topics()):
            for place, stored in self._scan(name):
                if not stored.is_whole and stored.modified_ms <= limit_ms:
                    publication = Publication(stored.path, 0, stored.name)
                    self._own_writer.write_beside(name, place.partition, publication.tombstones(stored.offsets))
                    removed += 1
        return removed

    def topic_of(self, reference: str) -> str:
        """The topic in a reference. See :class:`~payload_stores.SupportsTopics`."""
        return self._locate(reference).path[0]

    def unprepared(self, topic: str) -> str | None:
        """The payload topic, if it is missing. See :class:`~payload_stores.SupportsPreparation`."""
        name = self._payload_topic(self.check_topic(topic))
        return None if self._broker.topic(name, topic=topic).partitions else f"the payload topic {name}"

    def expiration(self, topic: str) -> timedelta | None:
        """The retention of the payload topic. See :class:`~payload_stores.SupportsExpiration`."""
        return self._topics.expiration(topic, self._payload_topic(self.check_topic(topic)))

    def set_expiration(self, topic: str, age: timedelta | None) -> None:
        """Set the retention of the payload topic, to the millisecond. See :class:`~payload_stores.SupportsExpiration`.

        If several data topics share the payload topic, it applies to all.
        """
        self._topics.set_expiration(topic, self._payload_topic(self.check_topic(topic)), age)

    def worst_case_ms(self) -> int:
        """Timeout of each step of the broker: ``kafka.payload.timeout.ms``."""
        return self._timeout_ms

    def close(self) -> None:
        """Close the clients; uploads in flight fail. See :meth:`PayloadStore.close`."""
        self._own_writer.close()
        self._broker.close()

    def _connection(self, config: Mapping[str, object]) -> dict[str, object]:
        own = self._own_connection(config)
        # Credentials belong to a cluster: the client's are never sent to another one.
        settings = own if can_connect(own) else {**connection_settings(config), **own}
        if not can_connect(settings):
            raise ConfigError(
                "the kafka payload store needs bootstrap.servers",
                hint="Set the client's bootstrap.servers, or kafka.bootstrap.servers for another cluster",
                key="bootstrap.servers",
            )
        return settings

    def _own_connection(self, config: Mapping[str, object]) -> dict[str, object]:
        """Settings for the store only: those of another cluster, if its address is set."""
        return {
            key.removeprefix("kafka."): value
            for key, value in config.items()
            if any(option.matches(key) for option in self.CONNECTION)
        }

    def _publish(
        self,
        path: tuple[str, ...],
        blocks: Callable[[int], Iterable[Buffer]],
        size: int | None,
        digest: str | None,
    ) -> str:
        topic, key = path[0], "/".join(path)
        if len(key) > MOST_PATH_BYTES:
            raise PayloadStoreError(
                f"topic and id have {len(key)} bytes, more than the {MOST_PATH_BYTES} that chunks have room for",
                hint="Use shorter ids",
                store=self.scheme,
                topic=topic,
            )
        target = self._topics.prepare(topic, self._payload_topic(topic))
        self._check_own(target.cluster)
        block_bytes = min(target.block_bytes, self._writer.max_record_bytes - ROOM)
        if block_bytes < LEAST_BLOCK_BYTES:
            raise PayloadStoreError(
                f"the producer's message.max.bytes ({self._writer.max_record_bytes}) leaves no room for chunks",
                hint=f"Set it to at least {ROOM + LEAST_BLOCK_BYTES}",
                store=self.scheme,
                topic=topic,
            )
        partition = next(self._turns) % target.partitions
        publication = Publication(key, block_bytes)
        try:
            offsets = self._writer.write(target.name, partition, publication.records(blocks(block_bytes), size, digest))
        except PayloadStoreUnavailableError as error:
            # librdkafka waits silently for a deleted topic.
            if self._broker.is_missing(target.name):
                self._topics.forget()
                error.hint = f"The payload topic {target.name} was deleted; the next payload recreates it"
            raise
        except BaseException:
            self._topics.forget()  # its limit may have changed, or the topic may be gone
            self._take_back(target, partition, publication)
            raise
        return Place(target.cluster, target.name, partition, offsets[0], offsets[-1], path).url(self.scheme)

    def _take_back(self, target: PayloadTopic, partition: int, publication: Publication) -> None:
        """Delete the chunks of a payload that failed; an aborted transaction does it itself."""
        if self._writer is self._own_writer:
            with suppress(PayloadStoreError):  # the original error says more, and remove_leftovers finds the chunks
                self._own_writer.write_beside(target.name, partition, publication.tombstones(range(publication.begun)))

    def _payload_topic(self, topic: str) -> str:
        name = self._pattern.replace(_TOPIC, topic)
        if len(name) > _MOST_NAME:
            digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
            name = self._pattern.replace(_TOPIC, f"{topic[: len(topic) - (len(name) - _MOST_NAME) - 17]}-{digest}")
        if name == topic:
            raise PayloadStoreError(
                f"the topic {topic} would hold its own payloads",
                hint=f"Set {self.TOPIC.name} to another topic",
                store=self.scheme,
                topic=topic,
            )
        return name

    @contextmanager
    def _payload(self, reference: str) -> Iterator[Payload]:
        """A payload to read; errors say whether they are about its topic."""
        place = self._locate(reference)
        try:
            self._check_cluster(place, reference)
            payload = Payload(
                self._broker, place, reference, lambda size: self.check_size(size, reference), self.max_payload_bytes
            )
            payload.check()
            yield payload
        except PayloadStoreError as error:
            # The configuration names a shared payload topic, or a trusted one.
            error.about_topic &= _TOPIC in self._pattern and place.topic == self._payload_topic(place.path[0])
            raise

    def _locate(self, reference: str, *, own_only: bool = False) -> Place:
        """Parse a reference, and refuse foreign ones, without a request."""
        place = Place.of(self, reference)
        if self._cluster and place.cluster != self._cluster:
            raise self.untrusted(reference, f"its cluster is not {self._cluster}")
        try:
            is_own = place.topic == self._payload_topic(self.check_topic(place.path[0]))
        except PayloadStoreError:
            is_own = False
        if not is_own and (
            own_only or not any(prefix.covers(references.parse(self, reference)) for prefix in self._trusted)
        ):
            raise self.untrusted(reference, f"its payload topic is not {self._pattern}")
        return place

    def _check_cluster(self, place: Place, reference: str) -> None:
        """Refuse a reference to another cluster; asks the own cluster for its id if unknown."""
        if not self._cluster:
            self._check_own(self._broker.topic(place.topic, reference=reference).cluster)
        if place.cluster != self._cluster:
            raise self.untrusted(reference, f"its cluster is not {self._cluster}")

    def _check_own(self, cluster: str) -> None:
        if self._cluster not in {"", cluster}:
            raise PayloadStoreError(
                f"the cluster has the id {cluster}, not {self._cluster}",
                hint=f"Check bootstrap.servers and {self.CLUSTER.name}",
                store=self.scheme,
            )
        self._cluster = cluster

    def _scan(self, name: str, **where: str) -> Iterator[tuple[Place, Stored]]:
        described = self._broker.topic(name, **where)
        if described.partitions:
            self._check_own(described.cluster)
        for partition in range(described.partitions):
            for stored in scan(self._broker, name, partition, **where):
                offsets = sorted(stored.offsets.values())
                path = tuple(stored.path.split("/"))
                yield Place(described.cluster, name, partition, offsets[0], offsets[-1], path), stored
