"""A cache of downloaded payloads."""

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from payload_stores import (
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStore,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    PublishContext,
    SupportsDelete,
    SupportsRanges,
    open_store,
)
from payload_stores.ids import sha256_digest
from payload_stores.memory import MemoryStore
from payload_stores.middleware import Cache, CachedPayloads, Deadline, Retry, Translated
from payload_stores.middleware.cache import _Flight, _Key, _own
from payload_stores.testing import FaultyStore, PayloadStoreTests
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from tests.interrupts import interrupted_at

DIGEST = sha256_digest(b"payload")


class CacheOnMemory(Cache):
    """A store by its class alone, as the suite opens it."""

    def __init__(self) -> None:
        super().__init__(Retry(MemoryStore()), 10 << 20)


class TestCache(PayloadStoreTests):
    store_class = CacheOnMemory
    extra_memory = None

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        MemoryStore.clear()
        return {}

    def open_with_id(self, config: Mapping[str, object], payload_id: str) -> PayloadStore:
        class WithId(MemoryStore):
            def id(self, data: Any, context: Any = None) -> str:
                return payload_id

        return Cache(open_store(WithId, config), 10 << 20)


@pytest.fixture
def faulty() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    yield FaultyStore(open_store("memory", {}))
    MemoryStore.clear()


def downloads(faulty: FaultyStore) -> int:
    return faulty.calls.count("download")


class Gate(FaultyStore):
    """Downloads wait until they may go on, and tell when they have begun."""

    def __init__(self, store: PayloadStore) -> None:
        super().__init__(store)
        self.begun, self.may_go_on = threading.Semaphore(0), threading.Event()

    def download(self, reference: str) -> bytes:
        self.begun.release()
        assert self.may_go_on.wait(60)
        return super().download(reference)


@pytest.fixture
def gate() -> Gate:
    MemoryStore.clear()
    return Gate(open_store("memory", {}))


def waiting(threads: ThreadPoolExecutor, job: Callable[[], Any], count: int) -> list[Any]:
    """Begin jobs that wait for one download, and return when they do."""
    arrived = threading.Barrier(count + 1)

    def run() -> Any:
        arrived.wait(60)
        return job()

    futures = [threads.submit(run) for _ in range(count)]
    arrived.wait(60)
    return futures


def test_sixteen_readers_of_one_reference_download_once(gate: Gate) -> None:
    cache = Cache(gate, 1000)
    reference = gate.store.publish("topic", b"payload")
    with ThreadPoolExecutor(16) as threads:
        futures = waiting(threads, lambda: cache.download_verified(reference, size=7, digest=DIGEST), 16)
        assert gate.begun.acquire(timeout=60)
        gate.may_go_on.set()
        assert [future.result(60) for future in futures] == [b"payload"] * 16
    assert downloads(gate) == 1
    figures = cache.figures()
    assert (figures.hits, figures.misses, figures.payloads, figures.bytes) == (15, 1, 1, 7)


def test_others_do_not_wait(gate: Gate) -> None:
    cache = Cache(gate, 1000)
    first, second = (gate.store.publish("topic", data) for data in (b"first", b"second"))
    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(cache.download, reference) for reference in (first, second)]
        for _ in futures:
            assert gate.begun.acquire(timeout=60)
        gate.may_go_on.set()
        assert [future.result(60) for future in futures] == [b"first", b"second"]


def test_each_that_waits_gets_an_error_of_its_own(gate: Gate) -> None:
    cache = Cache(gate, 1000)
    error = PayloadStoreUnavailableError("away", reference="memory:///topic/1")
    error.about_record = True
    with ThreadPoolExecutor(16) as threads:
        futures = waiting(threads, lambda: cache.download("memory:///topic/1"), 16)
        assert gate.begun.acquire(timeout=60)
        gate.fail(error)
        # Those who come later than the failure begin anew, and find nothing.
        gate.may_go_on.set()
        errors = [future.exception(60) for future in futures]
    assert len({id(each) for each in errors}) == 16
    shared = [each for each in errors if isinstance(each, PayloadStoreUnavailableError)]
    assert shared
    for each in shared:
        assert (each.message, each.reference, each.about_record, each.transient) == (
            "away", "memory:///topic/1", True, True,
        )  # fmt: skip
    assert all(isinstance(each, PayloadNotFoundError) for each in errors if each not in shared)
    assert cache.figures().payloads == 0


def test_an_error_of_another_kind_is_one_of_the_store_for_those_who_wait() -> None:
    payloads, flight = CachedPayloads(1000), _Flight()
    payloads._flights[_Key("r", None, None)] = flight
    flight.error = _own(ZeroDivisionError("odd"))
    flight.ended.set()
    for _ in range(2):
        with pytest.raises(PayloadStoreError, match="ZeroDivisionError: odd") as caught:
            payloads.get("r", None, lambda: b"a download of its own")
        assert caught.value is not flight.error


def test_a_record_that_lies_does_not_fail_those_that_do_not(gate: Gate) -> None:
    cache = Cache(gate, 1000)
    reference = gate.store.publish("topic", b"payload")
    with ThreadPoolExecutor(2) as threads:
        lie = threads.submit(cache.download_verified, reference, size=9, digest=DIGEST)
        assert gate.begun.acquire(timeout=60)
        truth = threads.submit(cache.download_verified, reference, size=7, digest=DIGEST)
        assert gate.begun.acquire(timeout=60)
        gate.may_go_on.set()
        assert truth.result(60) == b"payload"
        assert isinstance(lie.exception(60), PayloadIntegrityError)


def test_what_was_published_anew_is_not_what_was_on_its_way(gate: Gate) -> None:
    cache = Cache(gate, 1000)
    context = PublishContext(payload_id="1")
    reference = cache.publish("topic", b"old", context)

    def slow() -> bytes:
        data = gate.store.download(reference)
        gate.begun.release()
        assert gate.may_go_on.wait(60)
        return data

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(cache.payloads.get, reference, None, slow)
        assert gate.begun.acquire(timeout=60)
        cache.publish("topic", b"new", context)
        assert cache.payloads.get(reference, None, lambda: gate.store.download(reference)) == b"new"
        gate.may_go_on.set()
        assert first.result(60) == b"old"
    assert cache.payloads.peek(reference) == b"new"


def test_what_fails_is_not_kept(faulty: FaultyStore) -> None:
    cache = Cache(faulty, 1000)
    reference = cache.publish("topic", b"payload")
    faulty.fail(PayloadStoreUnavailableError("away"))
    with pytest.raises(PayloadStoreUnavailableError):
        cache.download(reference)
    assert cache.download(reference) == b"payload"


def test_what_is_damaged_on_its_way_is_not_kept(faulty: FaultyStore) -> None:
    cache = Cache(faulty, 1000)
    reference = cache.publish("topic", b"payload")
    faulty.flip_bit()
    with pytest.raises(PayloadIntegrityError):
        cache.download_verified(reference, size=7, digest=DIGEST)
    assert cache.download_verified(reference, size=7, digest=DIGEST) == b"payload"
    assert downloads(faulty) == 2


def test_a_record_that_names_another_digest_is_compared_with_it(faulty: FaultyStore) -> None:
    cache = Cache(faulty, 1000)
    reference = cache.publish("topic", b"payload")
    assert cache.download_verified(reference, size=7, digest=DIGEST) == b"payload"
    with pytest.raises(PayloadIntegrityError, match="digest"):
        cache.download_verified(reference, size=7, digest=sha256_digest(b"another"))
    with pytest.raises(PayloadIntegrityError, match="8 were published"):
        cache.download_verified(reference, size=8, digest=DIGEST)
    assert cache.download_verified(reference, size=7, digest=DIGEST) == b"payload"
    assert downloads(faulty) == 2


def test_what_was_not_verified_is_not_taken_for_verified(faulty: FaultyStore) -> None:
    cache = Cache(faulty, 1000)
    reference = cache.publish("topic", b"payload")
    faulty.flip_bit()
    assert cache.download(reference) == b"qayload"
    assert cache.download_verified(reference, digest=DIGEST) == b"payload"
    assert cache.download(reference) == b"payload"
    assert downloads(faulty) == 2


def test_the_payloads_that_were_asked_for_last_stay(faulty: FaultyStore) -> None:
    cache = Cache(faulty, 30)
    references = [cache.publish("topic", bytes(10)) for _ in range(4)]
    for reference in (*references[:3], references[0], references[3]):
        cache.download(reference)
    faulty.calls.clear()
    for reference in (references[0], references[2], references[3]):
        cache.download(reference)
    assert downloads(faulty) == 0
    cache.download(references[1])
    assert downloads(faulty) == 1
    assert (cache.figures().bytes, cache.figures().evictions) == (30, 2)


def test_a_payload_that_is_larger_than_the_cache_passes_by(faulty: FaultyStore) -> None:
    cache = Cache(faulty, 10)
    small, large = cache.publish("topic", bytes(10)), cache.publish("topic", bytes(11))
    for reference in (small, large, small, large):
        cache.download(reference)
    assert downloads(faulty) == 3
    assert cache.figures().evictions == 0


def test_what_is_deleted_is_gone_here_too(faulty: FaultyStore) -> None:
    cache = Cache(faulty, 1000)
    reference = cache.publish("topic", b"payload")
    cache.download(reference)
    assert isinstance(cache, SupportsDelete)
    cache.delete(reference)
    with pytest.raises(PayloadNotFoundError):
        cache.download(reference)


def test_what_is_deleted_while_it_is_on_its_way_is_not_kept(gate: Gate) -> None:
    cache = Cache(gate, 1000)
    reference = gate.store.publish("topic", b"payload")
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(cache.download, reference)
        assert gate.begun.acquire(timeout=60)
        cache.payloads.forget(reference)
        gate.may_go_on.set()
        assert future.result(60) == b"payload"
    assert cache.figures().payloads == 0


def test_parts_of_a_kept_payload_need_no_request(faulty: FaultyStore) -> None:
    cache = Cache(faulty, 1000)
    reference = cache.publish("topic", b"payload")
    assert isinstance(cache, SupportsRanges)
    assert cache.read_range(reference, 1, 3) == b"ayl"
    cache.download(reference)
    faulty.calls.clear()
    assert cache.read_range(reference, 1, 3) == b"ayl"
    assert faulty.calls == []


def test_a_kept_payload_keeps_the_limit(faulty: FaultyStore) -> None:
    cache = Cache(faulty, 1000)
    reference = cache.publish("topic", b"payload")
    cache.download(reference)
    cache.max_payload_bytes = 6
    with pytest.raises(PayloadTooLargeError):
        cache.download(reference)


def test_a_download_that_hangs_holds_up_those_who_wait_for_a_while_only(gate: Gate) -> None:
    payloads = CachedPayloads(1000, patience_ms=50)
    cache = Cache(gate, 1000, payloads=payloads)
    reference = gate.store.publish("topic", b"payload")
    with ThreadPoolExecutor(1) as threads:
        hangs = threads.submit(cache.download, reference)
        assert gate.begun.acquire(timeout=60)
        assert payloads.get(reference, None, lambda: b"payload") == b"payload"
        gate.may_go_on.set()
        assert hangs.result(60) == b"payload"


def test_those_who_wait_have_the_deadline(gate: Gate) -> None:
    store = Deadline(Cache(gate, 1000), 200)
    reference = gate.store.publish("topic", b"payload")
    with ThreadPoolExecutor(4) as threads:
        errors = [future.exception(60) for future in [threads.submit(store.download, reference) for _ in range(4)]]
        gate.may_go_on.set()
    assert all(isinstance(error, PayloadStoreUnavailableError) and "200 ms" in str(error) for error in errors)


def test_ctrl_c_at_any_point_leaves_nothing_to_wait_for(faulty: FaultyStore) -> None:
    for number in itertools.count():
        cache = Cache(faulty.store, 20)
        references = [cache.publish("topic", bytes([kind]) * 10) for kind in range(3)]
        cache.download(references[0])
        cache.download(references[1])
        try:
            with interrupted_at(number, ("payload_stores/middleware/cache.py",)):
                cache.download_verified(references[2], size=10)
                cache.download(references[0])
                break
        except KeyboardInterrupt:
            pass
        assert cache.payloads._flights == {}
        assert [cache.download(reference)[0] for reference in references] == [0, 1, 2]
        assert cache.figures().bytes <= 20
    assert number > 20


def test_an_error_does_not_hold_the_payload_of_a_download() -> None:
    watched = weakref.ref(threading.Event())

    def fail() -> bytes:
        nonlocal watched
        event = threading.Event()  # stands for the payload
        watched = weakref.ref(event)
        raise PayloadIntegrityError(f"damaged: {event.is_set()}")

    gc.disable()
    try:
        with pytest.raises(PayloadIntegrityError):
            CachedPayloads(10_000).get("r", None, fail)
        assert watched() is None
    finally:
        gc.enable()


# By configuration


def chains(**settings: Any) -> tuple[SerializerChain, DeserializerChain]:
    config = {
        "value.serializers": "large-message",
        "value.deserializers": "large-message",
        "large.message.threshold.bytes": 0,
        **{f"large.message.{name.replace('_', '.')}": value for name, value in settings.items()},
    }
    return SerializerChain.from_config(config), DeserializerChain.from_config(config)


def test_a_configuration_puts_a_cache_and_retries_around_a_store(faulty: FaultyStore) -> None:
    write, read = chains(payload_store_class=faulty, store_cache_bytes="1000", store_retry_attempts="3")
    ctx = RecordContext("topic", "value", [])
    faulty.fail(PayloadStoreUnavailableError("away"), times=2)
    data = write(b"payload", ctx)
    headers: Any = list(ctx.headers or ())
    faulty.calls.clear()
    faulty.fail(PayloadStoreUnavailableError("away"), times=2)
    for _ in range(3):
        assert read(data, RecordContext("topic", "value", list(headers))) == b"payload"
    assert faulty.calls == ["download"] * 3
    batch = read.to_arrow([data] * 5, [headers] * 5, topic="topic")
    assert batch.to_pylist() == [b"payload"] * 5
    assert faulty.calls == ["download"] * 3


def test_chains_of_the_same_configuration_share_a_cache(faulty: FaultyStore) -> None:
    write, read = chains(payload_store_class=faulty, store_cache_bytes=1000)
    _, again = chains(payload_store_class=faulty, store_cache_bytes=1000)
    _, other = chains(payload_store_class=faulty, store_cache_bytes=999)
    ctx = RecordContext("topic", "value", [])
    data = write(b"payload", ctx)
    headers: Any = list(ctx.headers or ())
    for chain, expected in ((read, 1), (again, 1), (other, 2)):
        assert chain(data, RecordContext("topic", "value", list(headers))) == b"payload"
        assert downloads(faulty) == expected


def test_without_the_keys_there_is_only_the_deadline() -> None:
    write, read = chains(payload_store_class="memory")
    for stage in (write.stages[0], read.stages[0]):
        (store,) = stage._stores.all
        assert isinstance(store, Deadline)
        assert isinstance(store.store, Translated)
        assert isinstance(store.store.store, MemoryStore)
