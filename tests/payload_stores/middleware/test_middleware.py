"""Deadlines and retries around stores."""

import contextvars
import copy
import gc
import inspect
import io
import multiprocessing
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import update_wrapper
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast, runtime_checkable

import pytest

import payload_stores
from payload_stores import (
    ConfigError,
    PayloadAccessDeniedError,
    PayloadNotFoundError,
    PayloadStore,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    PublishContext,
    SupportsDelete,
    SupportsLeftovers,
    SupportsOptOut,
    SupportsStreaming,
    SupportsTransactions,
    UntrustedReferenceError,
    open_store,
)
from payload_stores.base import CAPABILITIES, Buffer, RecordWriter, SupportsRetryCount
from payload_stores.base.capability import Capability
from payload_stores.hop import HopStore
from payload_stores.ids import sha256_digest
from payload_stores.local import LocalStore
from payload_stores.memory import MemoryStore
from payload_stores.middleware import Cache, Deadline, Middleware, Retry
from payload_stores.offload_server import FileCredentials, Limits, OffloadApp, add_user
from payload_stores.testing import FaultyStore, PayloadStoreTests
from payload_stores.threads import run_in_daemon_thread
from serde_chain import DeserializerChain, RecordContext, SerializerChain

AWAY = PayloadStoreUnavailableError("away")


class PlainStore(PayloadStore):
    """A store that can do no more than it must."""

    scheme = "plain"

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return f"plain:///{topic}/{self.id(data, context)}"

    def download(self, reference: str) -> bytes:
        raise PayloadNotFoundError("the payload is gone", store=self.scheme, reference=reference)


class SwitchedStore(PlainStore):
    """A store that can be switched off."""

    sender: str | None = None
    offloads = True
    fetches = True

    def why_not(self) -> str | None:
        return None


class DeadlineOnMemory(Middleware):
    """A store by its class alone, as the suite opens it."""

    def __init__(self) -> None:
        super().__init__(Deadline(Retry(MemoryStore()), 30_000))


class TestDeadlineAndRetry(PayloadStoreTests):
    store_class = DeadlineOnMemory
    extra_memory = None

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        MemoryStore.clear()
        return {}


@pytest.fixture
def faulty() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    yield FaultyStore(open_store("memory", {}))
    MemoryStore.clear()


# Wrapping


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("memory", r"Deadline needs a store, not str: pass an instance, such as open_store\(name, config\)"),
        (30_000, "Deadline needs a store, not int"),
        (None, "Deadline needs a store, not NoneType"),
        (MemoryStore, r"Deadline needs a store, not the class MemoryStore: .* open_store\(MemoryStore, config\)"),
    ],
)
def test_other_things_than_stores_are_refused(given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Deadline(given, 30_000)


@pytest.mark.parametrize("wrap", [Middleware, FaultyStore, Retry, lambda store: Deadline(store, 1000)])
@pytest.mark.parametrize("protocol", CAPABILITIES)
@pytest.mark.parametrize("inner", [PlainStore, MemoryStore, LocalStore, HopStore])
def test_a_wrapped_store_can_do_what_the_inner_one_can(
    wrap: type[Middleware], inner: type[PayloadStore], protocol: type
) -> None:
    expected = isinstance(inner(), protocol) or (wrap is Retry and protocol is SupportsRetryCount)
    assert isinstance(wrap(inner()), protocol) is expected
    assert isinstance(wrap(wrap(inner())), protocol) is expected


def test_every_optional_protocol_is_handed_on() -> None:
    protocols = {getattr(payload_stores, name) for name in dir(payload_stores) if name.startswith("Supports")}
    assert protocols == set(CAPABILITIES)


def _contract(part: type) -> tuple[set[str], set[str]]:
    """The methods and the attributes of a part of the contract, inherited ones included."""
    classes = [cls for cls in part.__mro__ if cls.__module__ not in {"abc", "builtins", "typing"}]
    methods = {name for cls in classes for name, item in vars(cls).items() if inspect.isfunction(item)}
    kinds = {name: str(kind) for cls in classes for name, kind in inspect.get_annotations(cls).items()}
    return (
        {name for name in methods if not name.startswith("_")},
        {name for name, kind in kinds.items() if "ClassVar" not in kind},
    )


@pytest.mark.parametrize("part", [PayloadStore, *CAPABILITIES])
def test_every_member_of_the_contract_is_forwarded(part: type) -> None:
    """Members are read from the contract, so a new one without a forward fails."""
    _check_forwards(part)


def test_a_capability_that_is_not_forwarded_fails() -> None:
    class SupportsMore(Protocol, metaclass=Capability):
        more: int

        def do_more(self, topic: str) -> None: ...

    assert _contract(SupportsMore) == ({"do_more"}, {"more"})
    with pytest.raises(AttributeError, match="'Middleware' object has no attribute 'more'"):
        _check_forwards(SupportsMore)


def _check_forwards(part: type) -> None:
    methods, attributes = _contract(part)
    assert methods | attributes

    calls: list[tuple[str, list[Any]]] = []

    def recorded(name: str) -> Any:
        return lambda _self, *args, **kwargs: calls.append((name, [*args, *kwargs.values()]))

    members = {name: recorded(name) for name in methods - {"configure", "close", "supports"}}
    inner = type("Recorded", (MemoryStore,), members)()
    vars(inner).update({name: object() for name in attributes})
    wrapped = Middleware(inner)
    for name in attributes:
        assert getattr(wrapped, name) is getattr(inner, name)
    for name in members:
        parameters = [*inspect.signature(getattr(part, name)).parameters.values()][1:]
        named = {each.name: object() for each in parameters}
        by_name = {each.name: named[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY}
        by_place = [named[each.name] for each in parameters if each.name not in by_name]
        getattr(wrapped, name)(*by_place, **by_name)
        assert calls.pop() == (name, [*by_place, *by_name.values()])
    configured: list[Any] = []
    inner.configure = configured.append
    wrapped.configure({"a": 1})
    inner.close = lambda: configured.append("closed")
    wrapped.close()
    assert configured == [{"a": 1}, "closed"]


def test_a_payload_is_verified_as_its_reader_gets_it() -> None:
    """A subclass that changes payloads does so before they are compared with their digests."""

    class Reversed(Middleware):
        def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
            return super().publish(topic, bytes(data)[::-1], context)

        def download(self, reference: str) -> bytes:
            return super().download(reference)[::-1]

    store = Middleware(Reversed(MemoryStore()))
    reference = store.publish("topic", b"data")
    assert store.download_verified(reference, size=4, digest=sha256_digest(b"data")) == b"data"


SETTINGS: dict[str, dict[str, Any]] = {
    "deadline": {"large.message.store.timeout.ms": 10_000},
    "retry": {"large.message.store.retry.attempts": 3},
    "cache": {"large.message.store.cache.bytes": 1000},
    "all": {
        "large.message.store.timeout.ms": 10_000,
        "large.message.store.retry.attempts": 3,
        "large.message.store.cache.bytes": 1000,
    },
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_store_verifies_in_its_own_way_behind_what_the_configuration_puts_around_it(setting: str) -> None:
    class Verifying(MemoryStore):
        verified = 0

        def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
            self.verified += 1
            return super().download_verified(reference, size=size, digest=digest)

    store = Verifying()
    config = {
        "value.serializers": "large-message",
        "value.deserializers": "large-message",
        "large.message.payload.store.class": store,
        "large.message.threshold.bytes": 0,
        **SETTINGS[setting],
    }
    ctx = RecordContext("topic", "value", [])
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        assert read(write(b"data", ctx), ctx) == b"data"
    assert store.verified == 1


def test_operations_of_one_request_go_through_call() -> None:
    called: list[str] = []

    class Noted(Middleware):
        def call(self, operation: Callable[..., Any], *args: Any) -> Any:
            called.append(operation.__name__)

    class Recorder(MemoryStore):
        def __getattr__(self, name: str) -> Any:
            return update_wrapper(lambda *_args, **_kwargs: None, getattr(Middleware, name))

    requests = {
        *("publish", "download", "download_verified", "delete", "delete_many", "open", "read_range", "info"),
        *("publish_record", "download_record", "expiration", "set_expiration", "lifetimes", "unprepared"),
    }
    methods = {name for part in (PayloadStore, *CAPABILITIES) for name in _contract(part)[0]} - {"supports"}
    for name in sorted(methods):
        parameters = [*inspect.signature(getattr(Middleware, name)).parameters.values()][1:]
        arguments = ["topic" for each in parameters if each.default is each.empty]
        with suppress(Exception):  # of a store that gets a topic for each argument
            getattr(Noted(Recorder()), name)(*arguments)
    assert sorted(called) == sorted(requests)


def test_an_overridden_method_adds_no_capability() -> None:
    class Deleting(Middleware):
        def delete(self, reference: str) -> None:
            """Delete nothing."""

    class Always(Deleting):
        def supports(self, capability: type) -> bool:
            return capability is SupportsDelete or super().supports(capability)

    @runtime_checkable
    class SupportsMore(Protocol, metaclass=Capability):
        def do_more(self) -> None: ...

    class More(MemoryStore):
        def do_more(self) -> None: ...

    assert not isinstance(Middleware(Deleting(PlainStore())), SupportsDelete)
    assert isinstance(Middleware(Always(PlainStore())), SupportsDelete)
    assert not isinstance(Middleware(Always(PlainStore())), SupportsStreaming)
    assert isinstance(More(), SupportsMore)
    assert not isinstance(Middleware(More()), SupportsMore)  # which no middleware forwards


def test_capabilities_are_those_that_the_inner_store_has_now() -> None:
    class Changing(MemoryStore):
        keeps = False

        def configure(self, config: Mapping[str, object]) -> None:
            self.keeps = "keep" in config

        def supports(self, capability: type) -> bool:
            return super().supports(capability) and not (self.keeps and capability is SupportsDelete)

    store = Deadline(Middleware(Changing()), 1000)
    deletes: list[bool] = []
    for config in ({}, {"keep": True}, {}):
        store.configure(config)
        deletes.append(isinstance(store, SupportsDelete))
    assert deletes == [True, False, True]


def test_within_a_transaction_it_is_the_same_middleware() -> None:
    class Joining(MemoryStore):
        joins_transactions = True

        def within(self, writer: RecordWriter) -> PayloadStore:
            return Written()

    class Written(PlainStore):
        def delete(self, reference: str) -> None: ...

    outer = Deadline(Cache(Joining(), 1000), 1000)
    assert isinstance(outer, SupportsTransactions)
    store = outer.within(cast("RecordWriter", None))
    assert isinstance(store, Deadline)
    assert isinstance(store.store, Cache)
    assert store.store.payloads is outer.store.payloads  # type: ignore[attr-defined]
    assert store.publish("topic", b"data").startswith("plain:///topic/")
    assert (isinstance(store, SupportsDelete), isinstance(store, SupportsStreaming)) == (True, False)
    assert (isinstance(outer, SupportsStreaming), isinstance(outer.store, SupportsTransactions)) == (True, True)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda store: pickle.loads(pickle.dumps(store))])  # noqa: S301
@pytest.mark.parametrize(
    "wrap", [Middleware, Retry, lambda store: Deadline(store, 10_000), lambda store: Cache(store, 1000)]
)
def test_copies_work(wrap: Callable[[PayloadStore], Middleware], copied: Callable[[Middleware], Middleware]) -> None:
    store = wrap(Middleware(open_store("memory", {"large.message.max.payload.bytes": 5})))
    reference = store.publish("topic", b"data")
    store.download(reference)
    other = copied(store)
    assert type(other) is type(store)
    assert (other.download(reference), other.max_payload_bytes) == (b"data", 5)
    for protocol in CAPABILITIES:
        assert isinstance(other, protocol) is isinstance(store, protocol)


def test_a_copied_deadline_forgets_its_calls_in_a_forked_process(faulty: FaultyStore) -> None:
    store = Deadline(faulty, 1)
    other = copy.copy(store)
    with faulty.hanging():
        for each in (store, store, other):
            with pytest.raises(PayloadStoreUnavailableError):
                each.download("memory:///topic/1")
        assert (len(store._left_behind), len(other._left_behind)) == (2, 1)
        child = os.fork()
        if not child:
            os._exit(len(store._left_behind) + len(other._left_behind))
        assert os.waitpid(child, 0)[1] == 0


def test_what_a_middleware_does_by_itself_is_not_handed_on() -> None:
    class Keeping(Middleware):
        def delete(self, reference: str) -> None:
            """Delete nothing."""

    store = Keeping(MemoryStore())
    reference = store.publish("topic", b"data")
    store.delete(reference)
    assert store.download(reference) == b"data"
    assert isinstance(store, SupportsDelete)


def test_arguments_by_name_reach_the_inner_store(tmp_path: Path) -> None:
    store = Middleware(open_store("local", {"local.path": str(tmp_path)}))
    store.publish("topic", b"data")
    assert isinstance(store, SupportsLeftovers)
    assert store.remove_leftovers(older_than_ms=0) == 0


@pytest.mark.parametrize("wrap", [Retry, lambda store: Deadline(store, 10_000)])
def test_so_do_those_of_operations_that_are_wrapped(tmp_path: Path, wrap: type[Middleware]) -> None:
    store = wrap(open_store("local", {"local.path": str(tmp_path)}))
    assert isinstance(store, SupportsStreaming)
    assert isinstance(store, SupportsDelete)
    reference = store.publish_stream("topic", reader=io.BytesIO(b"data"), context=PublishContext(payload_id="one"))
    assert reference.endswith("/topic/one")
    with store.open(reference=reference) as payload:
        assert payload.read() == b"data"
    store.delete(reference=reference)
    with pytest.raises(PayloadNotFoundError):
        store.download(reference=reference)


def test_an_operation_gets_all_arguments_of_the_contract_by_position() -> None:
    called: list[tuple[Any, ...]] = []

    class Noted(Middleware):
        def call(self, operation: Callable[..., Any], *args: Any) -> Any:
            called.append((operation.__name__, *args))

    class Able(MemoryStore):
        def publish_record(self) -> None: ...

        def set_expiration(self) -> None: ...

        def topic_of(self, url: str) -> str:  # another name
            return url

    store = Noted(Able())
    record = payload_stores.StoredRecord(b"data")
    context = PublishContext()
    store.publish_record("topic", record)
    store.publish_record(record=record, topic="topic", context=context)
    store.set_expiration("topic", age=None)
    store.read_range(length=2, reference="memory:///topic/1", start=1)
    assert called == [
        ("publish_record", "topic", record, None),
        ("publish_record", "topic", record, context),
        ("set_expiration", "topic", None),
        ("read_range", "memory:///topic/1", 1, 2),
    ]
    assert isinstance(store, payload_stores.SupportsTopics)
    assert store.topic_of(reference="memory:///topic/1") == "memory:///topic/1"
    with pytest.raises(TypeError, match="missing a required argument: 'topic'"):
        cast("Any", store.publish_record)()


def test_a_wrapped_store_has_the_scheme_and_the_worst_case_of_the_inner_one() -> None:
    class Slow(PlainStore):
        def worst_case_ms(self) -> int:
            return 7000

    store = Deadline(Slow(), 1000)
    assert store.scheme == "plain"
    assert store.worst_case_ms() == 7000
    assert Retry(Slow(), timeout_ms=1000).worst_case_ms() == 8000
    assert Retry(PlainStore()).worst_case_ms() is None


def test_it_has_what_the_inner_store_has() -> None:
    inner = SwitchedStore()
    store = Deadline(Retry(inner), 1000)
    assert isinstance(store, SupportsOptOut)
    inner.configure({"large.message.max.payload.bytes": 2 << 30, "large.message.trusted.references": "plain://x/"})
    inner.sender, inner.offloads, inner.fetches = "alice", False, False
    assert (store.owns("plain:///t/1"), store.owns("other:///t/1")) == (True, False)
    assert (store.max_payload_bytes, store.trusted_references) == (2 << 30, ("plain://x/",))
    assert (store.sender, store.offloads, store.fetches, store.options) == ("alice", False, False, PlainStore.options)
    store.check_size(2 << 30, "plain://x/1")
    with pytest.raises(PayloadTooLargeError, match="more than the 2147483648"):
        store.check_size((2 << 30) + 1, "plain://x/1")
    store.max_payload_bytes = 5
    assert inner.max_payload_bytes == 5


def test_what_the_inner_store_refuses_is_refused() -> None:
    class Strict(PlainStore):
        def check_topic(self, topic: str) -> str:
            raise PayloadStoreError(f"{topic} is not for this store")

        def untrusted(self, reference: str, why: str) -> UntrustedReferenceError:
            return UntrustedReferenceError(f"{reference} is not for this store: {why}")

    store = Deadline(Strict(), 1000)
    with pytest.raises(PayloadStoreError, match="topic is not for this store"):
        store.check_topic("topic")
    assert "is not for this store: odd" in str(store.untrusted("plain:///1", "odd"))


def test_the_offload_server_decides_by_the_limit_of_the_inner_store(tmp_path: Path) -> None:
    add_user(tmp_path / "users.json", "alice", "alice-secret")

    class Nobody:
        def allows(self, user: str, operation: str, topic: str, address: str) -> bool:
            return False

    def server(most: int, allowed: int) -> OffloadApp:
        store = Deadline(PlainStore(), 1000)
        store.configure({"large.message.max.payload.bytes": most})
        credentials, limits = FileCredentials(tmp_path / "users.json"), Limits(max_bytes=allowed)
        return OffloadApp(store, tmp_path / "data", credentials, Nobody(), limits=limits)

    server(2_000_000_000, 1_500_000_000).close()
    with pytest.raises(ConfigError, match=r"max\.payload\.bytes is 1000"):
        server(1000, 1001)


def test_configure_and_close_reach_the_inner_store() -> None:
    class Closing(PlainStore):
        closed = False

        def close(self) -> None:
            self.closed = True

    inner = Closing()
    store = Deadline(inner, 1000)
    store.configure({"large.message.max.payload.bytes": "5"})
    assert inner.max_payload_bytes == 5
    store.close()
    assert inner.closed


# Deadline


def test_a_store_that_hangs_is_left_behind(faulty: FaultyStore) -> None:
    store: Any = Deadline(faulty, 50, setting="the.setting")
    reference = store.publish("topic", b"data")
    operations = {
        "publish": ("topic", b"data"),
        "download": (reference,),
        "delete": (reference,),
        "open": (reference,),
        "publish_stream": ("topic", io.BytesIO(b"data")),
    }
    for name, arguments in operations.items():
        started = time.monotonic()
        with faulty.hanging(), pytest.raises(PayloadStoreUnavailableError) as caught:
            getattr(store, name)(*arguments)
        assert time.monotonic() - started < 5
        assert "50 ms" in str(caught.value)
        assert "or raise the.setting" in str(caught.value)
        assert (caught.value.topic, caught.value.reference) in {("topic", None), (None, reference)}
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301  made right here
    assert faulty.calls == ["publish", *operations]


def test_calls_after_one_that_hangs_do_not_wait_for_it(faulty: FaultyStore) -> None:
    reference = faulty.publish("topic", b"data")
    with faulty.hanging(), pytest.raises(PayloadStoreUnavailableError):
        Deadline(faulty, 20).download(reference)
    store = Deadline(open_store("memory", {}), 10_000)
    assert [store.download(reference) for _ in range(20)] == [b"data"] * 20


def test_calls_left_behind_are_bounded(faulty: FaultyStore) -> None:
    reference = faulty.publish("topic", b"data")
    store = Deadline(faulty, 1)
    with faulty.hanging():
        for _ in range(64):
            with pytest.raises(PayloadStoreUnavailableError, match="did not finish within 1 ms"):
                store.download(reference)
        called = len(faulty.calls)
        for operation in (lambda: store.download(reference), lambda: store.publish("topic", b"data")):
            with pytest.raises(PayloadStoreUnavailableError, match="64 calls have not returned") as caught:
                operation()
            assert caught.value.transient
        assert len(faulty.calls) == called  # no thread was started for them
        child = os.fork()
        if not child:  # which has none of the threads
            store.timeout_ms = 10_000
            faulty._open.set()
            os._exit(int(store.download(reference) != b"data"))
        assert os.waitpid(child, 0)[1] == 0
    store.timeout_ms = 10_000
    until = time.monotonic() + 30
    while store._left_behind:
        assert time.monotonic() < until
    assert store.download(reference) == b"data"


def test_an_interrupted_call_is_left_behind_too(faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Deadline(faulty, 10_000)

    def interrupted(_call: object, _seconds: float | None) -> NoReturn:
        raise KeyboardInterrupt

    with faulty.hanging():
        with monkeypatch.context() as patched:
            patched.setattr("payload_stores.threads.Call.wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.download("memory:///topic/1")
        assert len(store._left_behind) == 1
    until = time.monotonic() + 30
    while store._left_behind:
        assert time.monotonic() < until


def test_errors_cross_intact(faulty: FaultyStore) -> None:
    error = PayloadAccessDeniedError("no", topic="topic")
    faulty.fail(error)
    with pytest.raises(PayloadAccessDeniedError) as caught:
        Deadline(faulty, 10_000).publish("topic", b"data")
    assert caught.value is error
    assert [frame.name for frame in caught.traceback][-2:] == ["call", "_begin"]


def test_a_timeout_of_the_store_itself_is_not_the_deadline(faulty: FaultyStore) -> None:
    faulty.fail(TimeoutError("of the store"))
    with pytest.raises(TimeoutError, match="of the store"):
        Deadline(faulty, 10_000).publish("topic", b"data")


def test_context_variables_are_seen_inside() -> None:
    trace = contextvars.ContextVar[str]("trace")
    seen: list[str] = []

    class Traced(PlainStore):
        def id(self, data: Buffer, context: PublishContext | None = None) -> str:
            seen.append(trace.get())
            return "id"

    trace.set("outer")
    Deadline(Traced(), 10_000).publish("topic", b"data")
    assert seen == ["outer"]


def test_many_threads_share_a_deadline(faulty: FaultyStore) -> None:
    store = Deadline(faulty, 10_000)
    references = [store.publish("topic", bytes([number])) for number in range(8)]
    results: dict[int, bytes] = {}

    def download(number: int) -> None:
        for _ in range(50):
            results[number] = store.download(references[number])

    threads = [threading.Thread(target=download, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == {number: bytes([number]) for number in range(8)}


def test_a_payload_is_let_go_when_the_call_ends() -> None:
    class Payload(bytearray):
        pass

    store = Deadline(MemoryStore(), 10_000)
    gc.disable()
    try:
        for topic in ("topic", "no topic"):
            data = Payload(b"data")
            alive = weakref.ref(data)
            with suppress(PayloadStoreError):
                store.publish(topic, data)
            del data
            deadline = time.monotonic() + 5
            while alive() is not None and time.monotonic() < deadline:
                time.sleep(0.001)  # the other thread is about to let go
            assert alive() is None
    finally:
        gc.enable()


def _download_in_child(reference: str, results: "multiprocessing.Queue[bytes]") -> None:
    MemoryStore().publish("topic", b"data")
    results.put(Deadline(MemoryStore(), 10_000).download(reference))


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # that is what it is about
def test_a_forked_process_has_threads_of_its_own() -> None:
    store = Deadline(MemoryStore(), 10_000)
    reference = store.publish("topic", b"data")  # its thread now waits for more
    fork = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[bytes] = fork.Queue()
    child = fork.Process(target=_download_in_child, args=(reference, results))
    child.start()
    assert results.get(timeout=30) == b"data"
    child.join(30)


def test_threads_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()

    class Idle(list[Any]):
        def append(self, inbox: Any) -> None:
            super().append(inbox)
            waits.set()

    monkeypatch.setattr("payload_stores.threads._idle", Idle())
    threads = set()
    for _ in range(3):
        waits.clear()
        run_in_daemon_thread(lambda: threads.add(threading.get_ident()))
        assert waits.wait(30)
    assert len(threads) == 1


def test_a_job_for_a_thread_that_is_about_to_end_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    about_to_end, ran = threading.Event(), threading.Event()

    class Idle(list[Any]):
        def remove(self, inbox: Any) -> None:
            if not taken:
                taken.append(inbox)
                about_to_end.set()
                raise ValueError("another thread took it just now")
            super().remove(inbox)

    monkeypatch.setattr("payload_stores.threads._idle", Idle())
    monkeypatch.setattr("payload_stores.threads._IDLE_SECONDS", 0.01)
    run_in_daemon_thread(lambda: None)
    assert about_to_end.wait(30)
    taken[0].put(ran.set)
    assert ran.wait(30)


# Retry


def retry(store: PayloadStore, attempts: int = 3, timeout_ms: int = 30_000) -> Retry:
    return Retry(store, attempts, timeout_ms=timeout_ms, wait_ms=1)


def test_transient_errors_are_tried_again(faulty: FaultyStore) -> None:
    faulty.fail(AWAY, times=2)
    store = retry(retry(faulty))
    assert store.publish("topic", b"data").startswith("memory:///topic/")
    assert faulty.calls == ["publish"] * 3
    assert store.retries == 2


def test_attempts_end(faulty: FaultyStore) -> None:
    faulty.fail(AWAY, times=5)
    with pytest.raises(PayloadStoreUnavailableError) as caught:
        retry(faulty).download("memory:///topic/id")
    assert caught.value is AWAY
    assert len(faulty.calls) == 3


@pytest.mark.parametrize("error", [PayloadNotFoundError("gone"), ConfigError("wrong"), ValueError("other")])
def test_other_errors_are_not_tried_again(faulty: FaultyStore, error: Exception) -> None:
    faulty.fail(error)
    with pytest.raises(type(error)):
        retry(faulty).download("memory:///topic/id")
    assert len(faulty.calls) == 1


def test_no_attempt_begins_after_the_time_limit(faulty: FaultyStore) -> None:
    faulty.fail(AWAY, times=1000)
    store = Retry(faulty, 1000, timeout_ms=100, wait_ms=20, max_wait_ms=20)
    started = time.monotonic()
    with pytest.raises(PayloadStoreUnavailableError):
        store.download("memory:///topic/id")
    assert time.monotonic() - started < 5
    assert 1 < len(faulty.calls) < 1000


class Pipe(io.BytesIO):
    """A stream that can be read once."""

    def seekable(self) -> bool:
        return False


def test_a_stream_that_can_be_read_once_is_tried_once(faulty: FaultyStore) -> None:
    faulty.fail(AWAY)
    store = retry(faulty)
    assert isinstance(store, SupportsStreaming)
    with pytest.raises(PayloadStoreUnavailableError):
        store.publish_stream("topic", Pipe(b"data"))
    assert faulty.calls == ["publish_stream"]


def test_a_stream_that_can_be_sought_is_read_again_from_where_it_was(faulty: FaultyStore) -> None:
    faulty.fail(AWAY)
    store = retry(faulty)
    assert isinstance(store, SupportsStreaming)
    reader = io.BytesIO(b"head|data")
    reader.seek(5)
    assert store.download(store.publish_stream("topic", reader)) == b"data"
    assert faulty.calls == ["publish_stream", "publish_stream", "download"]


def test_a_deadline_covers_all_attempts(faulty: FaultyStore) -> None:
    faulty.fail(AWAY, times=1000)
    store = Deadline(Retry(faulty, 1000, timeout_ms=60_000, wait_ms=10_000), 50)
    started = time.monotonic()
    with pytest.raises(PayloadStoreUnavailableError, match="50 ms"):
        store.download("memory:///topic/id")
    assert time.monotonic() - started < 5


# The store that fails on demand


def test_a_faulty_store_damages_payloads(faulty: FaultyStore) -> None:
    reference = faulty.publish("topic", b"data")
    faulty.damage()
    faulty.flip_bit(1)
    assert [faulty.download(reference) for _ in range(3)] == [b"dat", b"d`ta", b"data"]


class Registered:
    """A store that is one by ``PayloadStore.register`` alone."""

    scheme = "duck"

    def delete(self, reference: str) -> None:
        pass


@pytest.mark.parametrize("around", [Middleware, Retry, lambda store: Deadline(store, 1000)])
def test_a_registered_class_has_its_capabilities_in_a_middleware(around: Callable[[Any], PayloadStore]) -> None:
    PayloadStore.register(Registered)
    store = around(Registered())
    assert isinstance(store, payload_stores.SupportsDelete)
    assert not isinstance(store, payload_stores.SupportsList)


@pytest.mark.parametrize("name", ["retries", "sender", "offloads", "fetches", "joins_transactions"])
def test_an_attribute_with_the_name_of_a_capability_is_refused(name: str) -> None:
    message = rf"Named\.{name} is taken: .* Rename the attribute"
    with pytest.raises(TypeError, match=message):
        type("Named", (Middleware,), {name: 3})

    class Named(Middleware):
        def __init__(self, store: PayloadStore) -> None:
            super().__init__(store)
            setattr(self, name, 3)

    with pytest.raises(TypeError, match=message):
        Named(MemoryStore())
    overridden = type("Overriding", (Middleware,), {name: property(lambda _self: 3)})
    assert getattr(overridden(MemoryStore()), name) == 3


@pytest.mark.parametrize("own", [lambda _self, feature: feature == "zip", lambda _self: True, True])
def test_a_store_with_another_method_supports_is_refused(own: Any) -> None:
    with pytest.raises(TypeError, match=r"Zipped\.supports is taken: .* Rename the method"):
        type("Zipped", (MemoryStore,), {"supports": own})
