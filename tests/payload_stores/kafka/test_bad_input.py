"""Topics and references that are not what they should be: a typed error, in bounded time, about the right thing."""

import io
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from payload_stores import (
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadTooLargeError,
    PublishContext,
    UntrustedReferenceError,
    open_store,
)
from payload_stores.kafka import KafkaStore
from payload_stores.kafka.chunks import Publication, cut
from payload_stores.kafka.place import Place
from payload_stores.kafka.scan import Stored
from serde_chain.testing.services import KafkaBroker
from tests.payload_stores.kafka.test_kafka import chunks_of

if TYPE_CHECKING:
    from tests.conftest import NewTopic
    from tests.payload_stores.kafka.conftest import NewStore

# Faults and attacks; the ordinary way has tests of its own.
pytestmark = pytest.mark.full

DATA = bytes(range(251)) * 12_000  # three chunks
Records = list[tuple[bytes | None, bytes | None, list[Any]]]


def write(broker: KafkaBroker, topic: str, records: Records, **config: Any) -> list[int]:
    """Write records with a plain producer; returns their offsets."""
    offsets: list[Any] = []
    producer = confluent_kafka.Producer({**broker.client_config(), "message.max.bytes": 2_000_000, **config})
    for key, value, headers in records:
        producer.produce(
            topic,
            value,
            key,
            partition=0,
            headers=headers,
            on_delivery=lambda _, message: offsets.append(message.offset()),
        )
    assert producer.flush(30) == 0
    return offsets


def chunks(path: str, data: bytes, block_bytes: int = 1000, name: str = "0" * 16) -> Records:
    """What the store would write."""
    records = Publication(path, block_bytes, name).records(cut(memoryview(data), block_bytes), len(data))
    return [(key, None if value is None else bytes(value), list(headers)) for key, value, headers in records]


@pytest.fixture
def payloads(new_topic: "NewTopic") -> str:
    return new_topic()


@pytest.fixture
def store(new_store: "NewStore", payloads: str) -> KafkaStore:
    store = new_store(**{"kafka.payload.topic": payloads, "kafka.payload.timeout.ms": 10_000})
    store.publish("other", b"first")
    return store


@pytest.fixture
def reference(store: KafkaStore, payloads: str) -> Callable[..., str]:
    cluster = Place.of(store, store.publish("other", b"second")).cluster

    def make(first: int, last: int, path: str = "t/1", partition: int = 0) -> str:
        return f"kafka://{cluster}/{payloads}/{partition}/{first}-{last}/{path}"

    return make


def test_chunks_of_others_between_ours(
    broker: KafkaBroker, store: KafkaStore, payloads: str, reference: Callable[..., str]
) -> None:
    data = bytes(range(250)) * 20
    ours, others, again = chunks("t/1", data), chunks("t/2", data), chunks("t/1", data[::-1], name="f" * 16)
    mixed = [record for three in zip(others, ours, again, strict=True) for record in three]
    strange: Records = [(None, None, []), (b"t/1", b"no chunk", []), (b"\xff/0000000000000000/0", b"x", [])]
    offsets = write(broker, payloads, [*mixed[:7], *strange, *mixed[7:]])
    first, last = offsets[1], offsets[-2]
    assert store.download(reference(first, last)) == data
    assert store.read_range(reference(first, last), 1_500, 2_000) == data[1_500:3_500]
    with store.open(reference(first, last)) as file:
        assert file.read() == data
        file.seek(4_900)
        assert file.read() == data[4_900:]
    assert store.download(reference(offsets[2], offsets[-1])) == data[::-1]


def test_markers_of_transactions_between_ours(
    broker: KafkaBroker, store: KafkaStore, payloads: str, reference: Callable[..., str]
) -> None:
    producer = confluent_kafka.Producer({**broker.client_config(), "transactional.id": str(uuid.uuid4())})
    producer.init_transactions(30)
    offsets = []
    for number, record in enumerate(chunks("t/1", bytes(5_000))):
        producer.begin_transaction()
        producer.produce(payloads, b"of another", partition=0)
        assert producer.flush(30) == 0
        producer.commit_transaction(30) if number % 2 else producer.abort_transaction(30)
        offsets += write(broker, payloads, [record])
    assert offsets[-1] - offsets[0] > 8, "there are markers between them"
    assert store.download(reference(offsets[0], offsets[-1])) == bytes(5_000)
    assert store.read_range(reference(offsets[0], offsets[-1]), 4_000, 10) == bytes(10)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda records: records[:2] + records[3:], PayloadIntegrityError),
        (lambda records: [*records[:2], (b"x", b"", []), *records[3:]], PayloadNotFoundError),
        (lambda records: records[1:], PayloadNotFoundError),
        (lambda records: [*records[:-1], (b"t/9/0000000000000000/0", b"other", [])], PayloadNotFoundError),
        (lambda records: [(records[0][0], None, []), *records[1:]], PayloadNotFoundError),
        (lambda records: [records[0], (records[1][0], None, []), *records[2:]], PayloadNotFoundError),
        (lambda records: [records[1], records[0], *records[2:]], PayloadNotFoundError),
        (lambda records: [records[0], (*records[1][:1], b"cut", records[1][2]), *records[2:]], PayloadIntegrityError),
        (lambda records: [*records[:-1], (records[-1][0], b"cut", records[-1][2])], PayloadIntegrityError),
        (lambda records: [(records[0][0], records[0][1], []), *records[1:]], PayloadIntegrityError),
        (lambda records: [*records, (b"x", b"", [])], PayloadIntegrityError),
    ],
    ids=[
        "too few", "one is missing", "the first is missing", "the last is missing", "the first was deleted",
        "one was deleted", "another order", "one is cut", "the last is cut", "no headers", "an offset too many",
    ],
)  # fmt: skip
def test_chunks_that_are_not_all_there(  # noqa: PLR0917, fixtures
    broker: KafkaBroker,
    store: KafkaStore,
    payloads: str,
    reference: Callable[..., str],
    change: Callable[[Records], Records],
    error: type[PayloadStoreError],
) -> None:
    offsets = write(broker, payloads, change(chunks("t/1", bytes(4_500))))
    url = reference(offsets[0], offsets[-1])
    for call in (store.download, lambda url: store.read_range(url, 0, 4_500), lambda url: store.open(url).read()):
        with pytest.raises(PayloadStoreError) as caught:
            call(url)
        assert type(caught.value) in {error, PayloadNotFoundError, PayloadIntegrityError}
        assert caught.value.about_record
    with pytest.raises(error):
        store.download(url)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("payload-size", b"1", PayloadIntegrityError),
        ("payload-size", b"999999999999999999", PayloadTooLargeError),
        ("payload-size", b"-1", PayloadIntegrityError),
        ("payload-size", b"9" * 5_000, PayloadIntegrityError),
        ("payload-chunks", b"4", PayloadIntegrityError),
        ("payload-chunks", b"0", PayloadIntegrityError),
        ("payload-chunks", b"999999999999", PayloadIntegrityError),
        ("payload-chunk-bytes", b"0", PayloadIntegrityError),
        ("payload-chunk-bytes", b"999999999999", PayloadIntegrityError),
    ],
)
def test_sizes_that_lie(  # noqa: PLR0917, fixtures
    broker: KafkaBroker,
    store: KafkaStore,
    payloads: str,
    reference: Callable[..., str],
    name: str,
    value: bytes,
    error: type[PayloadStoreError],
) -> None:
    records = [
        (key, data, [(each, value if each == name else true) for each, true in headers])
        for key, data, headers in chunks("t/1", bytes(4_500))
    ]
    offsets = write(broker, payloads, records)
    url = reference(offsets[0], offsets[-1])
    for call in (store.download, store.open, lambda url: store.read_range(url, 0, 1)):
        with pytest.raises(PayloadStoreError) as caught:
            call(url)
        assert isinstance(caught.value, (error, PayloadIntegrityError))
        assert caught.value.about_record


@pytest.mark.parametrize("sizes", [(10, 1000), (1000, 10)])
def test_chunks_of_two_sizes(
    broker: KafkaBroker, store: KafkaStore, payloads: str, reference: Callable[..., str], sizes: tuple[int, int]
) -> None:
    """Each goes with its own headers, and not with the other."""
    first, last = (chunks("t/1", bytes(size + 5), size) for size in sizes)
    key, data, headers = first[0]
    offsets = write(broker, payloads, [(key, data, headers[:1]), last[1]])
    url = reference(offsets[0], offsets[-1])
    for call in (store.download, lambda url: store.open(url).read(), lambda url: store.read_range(url, 0, 500)):
        with pytest.raises(PayloadIntegrityError):
            call(url)


@pytest.mark.parametrize("claimed", [1_500, 3_500])
def test_chunks_that_differ_about_the_size(
    broker: KafkaBroker, store: KafkaStore, payloads: str, reference: Callable[..., str], claimed: int
) -> None:
    """Those that are there are the payload, whatever the first one claims."""
    data = bytes(range(1, 251)) * 10
    first = chunks("t/1", (data + data)[:claimed])[0]
    another: Records = [(None, None, [])]  # so that four chunks fit between the offsets
    offsets = write(broker, payloads, [first, *another, *chunks("t/1", data)[1:]])
    assert store.download(reference(offsets[0], offsets[-1])) == data


def test_offsets_that_lie(broker: KafkaBroker, store: KafkaStore, payloads: str, reference: Callable[..., str]) -> None:
    offsets = write(broker, payloads, chunks("t/1", bytes(4_500)))
    first, last = offsets[0], offsets[-1]
    shorter, elsewhere = [(first + 1, last), (first, last - 1), (first, first)], [(last + 1, last + 5), (900, 999)]
    for lie in (*shorter, *elsewhere, (0, last), (first, last + 1)):
        for call in (store.download, lambda url: store.open(url).read(1), lambda url: store.read_range(url, 0, 1)):
            with pytest.raises(PayloadStoreError) as caught:
                call(reference(*lie))
            assert isinstance(caught.value, (PayloadNotFoundError, PayloadIntegrityError)), lie
    with pytest.raises(PayloadNotFoundError, match="has 1 partitions"):
        store.download(reference(first, last, partition=1))
    assert store.download(reference(first, last)) == bytes(4_500)


def test_a_wide_range_is_not_read_for_ever(
    broker: KafkaBroker, new_store: "NewStore", payloads: str, reference: Callable[..., str]
) -> None:
    """A reference whose last chunk is missing, with much of others behind it."""
    records = chunks("t/1", bytes(4_500))
    offsets = write(broker, payloads, [*records[:-1], *[(b"x", bytes(900_000), [])] * 20])
    small = new_store(**{"kafka.payload.topic": payloads, "large.message.max.payload.bytes": 5_000_000})
    with pytest.raises(PayloadNotFoundError, match="its last chunk is missing"):
        small.download(reference(offsets[0], offsets[-1]))


def test_more_of_others_between_ours_than_a_payload_may_have(
    broker: KafkaBroker, new_store: "NewStore", payloads: str, reference: Callable[..., str]
) -> None:
    """As where many upload at once, and a reader's limit is that of one payload."""
    records = chunks("t/1", bytes(4_500))
    offsets = write(broker, payloads, [*records[:2], *[(b"x", bytes(900_000), [])] * 6, *records[2:]])
    small = new_store(**{"kafka.payload.topic": payloads, "large.message.max.payload.bytes": 5_000})
    assert small.download(reference(offsets[0], offsets[-1])) == bytes(4_500)


def test_another_cluster(
    store: KafkaStore, new_store: "NewStore", payloads: str, reference: Callable[..., str]
) -> None:
    url = reference(0, 0, "other/1")
    foreign = f"kafka://{'x' * 22}/{url.split('/', 3)[3]}"
    assert store.owns(url)
    assert not store.owns(foreign)
    fresh = new_store(**{"kafka.payload.topic": payloads})
    assert fresh.claim(foreign) < store.claim(url)
    for reader in (store, fresh):
        with pytest.raises(UntrustedReferenceError):
            reader.download(foreign)
        with pytest.raises(UntrustedReferenceError):
            reader.delete(foreign)
    wrong = new_store(**{"kafka.payload.topic": payloads, "kafka.cluster.id": "x" * 22})
    with pytest.raises(PayloadStoreError, match="has the id") as caught:
        wrong.publish("t", b"data")
    assert not caught.value.about_record


def test_references_are_checked_before_a_request() -> None:
    store = open_store("kafka", {"bootstrap.servers": "127.0.0.1:1", "kafka.payload.timeout.ms": 100_000})
    for reference in (
        "kafka://c/u.payloads/0/0-0/t/1",
        "kafka://c/t.payloads/0/5-0/t/1",
        "kafka://c/t.payloads/0/0/t/1",
    ):
        with pytest.raises(UntrustedReferenceError):
            store.download(reference)
    store.close()


def delete_records(broker: KafkaBroker, topic: str, before: int) -> None:
    admin = broker.admin()
    (future,) = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, before)]).values()
    future.result(30)


def test_a_topic_that_was_emptied(broker: KafkaBroker, store: KafkaStore, payloads: str) -> None:
    first, second = (store.publish("t", DATA) for _ in range(2))
    delete_records(broker, payloads, Place.of(store, first).last)
    for call in (store.download, lambda url: store.open(url).read(1), lambda url: store.read_range(url, 0, 1)):
        with pytest.raises(PayloadNotFoundError, match="retention") as caught:
            call(first)
        assert caught.value.about_record
    assert store.download(second) == DATA
    assert [info.reference for info in store.list("t")] == [second]
    store.delete(first)
    delete_records(broker, payloads, -1)

    def download_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            store.download(second)

    with pytest.raises(PayloadNotFoundError):
        download_for(30)  # a waiting consumer may have fetched it, and waits for a second
    assert list(store.list("t")) == []


def test_a_topic_that_was_made_anew(broker: KafkaBroker, store: KafkaStore, payloads: str) -> None:
    old = [store.publish("t", DATA) for _ in range(3)][-1]
    admin = broker.admin()
    admin.delete_topics([payloads])[payloads].result(30)
    broker.create_topic(payloads)
    with pytest.raises(PayloadNotFoundError):
        store.download(old)
    new = [store.publish("t", DATA[::-1]) for _ in range(4)][-1]
    with pytest.raises(PayloadNotFoundError):
        store.download(old)
    assert store.download(new) == DATA[::-1]


@pytest.mark.full
def test_compaction_removes_what_was_deleted_and_nothing_else(
    broker: KafkaBroker, new_topic: "NewTopic", new_store: "NewStore"
) -> None:
    """The broker's cleaner comes by every fifteen seconds."""
    settings = {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576",
        "max.compaction.lag.ms": "100", "min.compaction.lag.ms": "0", "delete.retention.ms": "0", "segment.ms": "100",
    }  # fmt: skip
    payloads = new_topic(1, settings)
    store = new_store(**{"kafka.payload.topic": payloads})
    content = PublishContext("content")
    gone, twice, kept = (store.publish("t", data, content) for data in (DATA, DATA, DATA[::-1]))
    store.delete(gone)
    until = time.monotonic() + 90
    while chunks_of(broker, gone):  # until the cleaner comes by
        store.publish("other", b"so that there is something to clean")
        assert time.monotonic() < until
    with pytest.raises(PayloadNotFoundError):
        store.download(gone)
    assert store.download(twice) == DATA, "of the same id"
    assert store.download(kept) == DATA[::-1]
    store.delete(gone)


def test_chunks_that_lie_in_another_order_are_leftovers(broker: KafkaBroker, store: KafkaStore, payloads: str) -> None:
    first, *others = chunks("t/1", DATA[:2500])
    write(broker, payloads, [others[0], first, *others[1:]])
    assert not list(store.list("t")), "a download of it would fail"
    assert store.remove_leftovers(0) == 1


def test_leftovers_of_killed_writers(broker: KafkaBroker, store: KafkaStore, payloads: str) -> None:
    kept = store.publish("t", DATA)
    write(broker, payloads, chunks("t/2", bytes(5_000))[:3])
    write(broker, payloads, chunks("t/3", bytes(5_000))[2:])
    assert [info.reference for info in store.list("t")] == [kept]
    assert store.remove_leftovers() == 0, "they may belong to a writer that is alive"
    assert store.remove_leftovers(0) == 2
    assert store.remove_leftovers(0) == 0
    assert store.download(kept) == DATA


class Counted:
    """Counts the records that a store reads."""

    def __init__(self, store: KafkaStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = 0
        read = store._broker.read

        def counted(*args: Any, **options: Any) -> Any:
            for message in read(*args, **options):
                self.records += 1
                yield message

        monkeypatch.setattr(store._broker, "read", counted)


def without_counts(records: Records) -> Records:
    """As those of a stream, whose last chunk alone says how many there are."""
    return [*((key, value, headers[:1]) for key, value, headers in records[:-1]), records[-1]]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_payload_of_many_small_chunks_is_not_read(  # noqa: PLR0917, fixtures
    broker: KafkaBroker, store: KafkaStore, payloads: str, reference: Callable[..., str], streamed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A record costs the same however small it is: four million of one byte would take 39 s."""
    monkeypatch.setattr("payload_stores.kafka.payload._UNMEASURED_RECORDS", 500)
    records = chunks("t/1", bytes(5_000), 1)
    offsets = write(broker, payloads, without_counts(records) if streamed else records)
    url = reference(offsets[0], offsets[-1])
    counted = Counted(store, monkeypatch)
    for call in (store.download, store.open, lambda url: store.read_range(url, 0, 5_000)):
        with pytest.raises(PayloadIntegrityError, match="5000 chunks for 5000 bytes") as caught:
            call(url)
        assert caught.value.about_record
    assert counted.records < 600


def test_a_forged_size_is_not_a_memory_error(
    broker: KafkaBroker, new_store: "NewStore", payloads: str, reference: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The last chunk of a stream names the size, which no process has room for, and fits to it."""
    store = new_store(**{"kafka.payload.topic": payloads, "large.message.max.payload.bytes": 1 << 60})
    block = 1 << 58
    records: Records = [
        *chunks("t/1", bytes(1_000)),
        (b"t/1/0000000000000000/1", b"end", [
            ("payload-chunk-bytes", b"%d" % block), ("payload-chunks", b"2"), ("payload-size", b"%d" % (block + 3)),
        ]),
    ]  # fmt: skip
    offsets = write(broker, payloads, records)
    url = reference(offsets[0], offsets[-1])
    with store.open(url) as file:
        with pytest.raises(PayloadTooLargeError, match="does not fit into the memory") as caught:
            store.read_range(url, 0, block)
        assert caught.value.about_record
        with pytest.raises(PayloadTooLargeError, match="does not fit into the memory"):
            file.read()

    def no_memory(_size: int) -> io.BytesIO:
        raise MemoryError

    # The chunks of a download have the size that they say, so only a machine's memory decides.
    url = store.publish("t", DATA)
    monkeypatch.setattr("payload_stores.buffers.bytes", no_memory, raising=False)
    with pytest.raises(PayloadTooLargeError, match="does not fit into the memory"):
        store.download(url)


@pytest.mark.parametrize("ends", [False, True], ids=["unfinished", "whole"])
def test_many_tombstones_between_chunks_are_not_read(  # noqa: PLR0917, fixtures
    broker: KafkaBroker, store: KafkaStore, payloads: str, reference: Callable[..., str], ends: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("payload_stores.kafka.payload._UNMEASURED_RECORDS", 500)
    monkeypatch.setattr("payload_stores.kafka.payload._FREE_RECORDS", 1_000)
    first, last = chunks("t/1", bytes(2_000))
    tombstones: Records = [(b"t/2/0000000000000000/0", None, [])] * 3_000
    offsets = write(broker, payloads, [first, *tombstones, *([last] if ends else tombstones[:1])])
    counted = Counted(store, monkeypatch)
    with pytest.raises(
        PayloadIntegrityError if ends else PayloadNotFoundError, match=r"1020 records|last chunk"
    ) as caught:
        store.download(reference(offsets[0], offsets[-1]))
    assert caught.value.about_record
    assert counted.records < 1_100
    if ends:
        monkeypatch.setattr("payload_stores.kafka.payload._FREE_RECORDS", 3_000)
        assert store.download(reference(offsets[0], offsets[-1])) == bytes(2_000)


def test_keys_that_no_reference_can_name_are_not_kept(
    broker: KafkaBroker, store: KafkaStore, payloads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing has an entry for each payload: with keys of a megabyte, a few thousand would fill the memory."""
    kept: list[Stored] = []

    def keeping(*args: Any, **options: Any) -> Stored:
        kept.append(Stored(*args, **options))
        return kept[-1]

    monkeypatch.setattr("payload_stores.kafka.scan.Stored", keeping)
    write(broker, payloads, [*chunks("t/" + "x" * 900_000, b"data"), *chunks("t/" + "x" * 1_022, b"data")])
    assert [len(info.reference) > 1_000 for info in store.list("t")] == [True]
    assert max(len(each.path) for each in kept) == 1_024
