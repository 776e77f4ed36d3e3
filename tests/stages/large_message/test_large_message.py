"""``large-message``: what is offloaded, what is written, and whom a reader trusts."""

import hashlib
import pickle
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from payload_stores import PublishContext, open_store
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import (
    ConfigError,
    Data,
    DecodeError,
    DeserializerChain,
    EncodeError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    RecordContext,
    SerializationError,
    Serializer,
    SerializerChain,
    UntrustedReferenceError,
)
from serde_chain.arrow import Batch
from serde_chain.clients.client_limits import ClientLimits
from serde_chain.testing.services import S3Server

STORE = "large.message.payload.store.class"
THRESHOLD = "large.message.threshold.bytes"
TIMEOUT = "large.message.store.timeout.ms"
PAYLOAD = b"payload" * 10


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    yield FaultyStore(MemoryStore())
    MemoryStore.clear()


def chains(store: Any, **config: Any) -> tuple[SerializerChain, DeserializerChain]:
    whole = {
        "value.serializers": ["bytes", "large-message"],
        "value.deserializers": ["large-message", "bytes"],
        STORE: store,
        THRESHOLD: 10,
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    return SerializerChain.from_config(whole), DeserializerChain.from_config(whole)


def context(headers: Any = None, **more: Any) -> RecordContext:
    return RecordContext("alerts", "value", [] if headers is None else headers, **more)


def offloaded(write: SerializerChain, payload: bytes = PAYLOAD, **more: Any) -> tuple[str, list[Any]]:
    headers: list[Any] = []
    return write(payload, context(headers, **more)).decode(), headers


# What is offloaded


@pytest.mark.parametrize(("size", "goes"), [(0, False), (9, False), (10, False), (11, True), (10_000, True)])
def test_more_than_the_threshold_is_offloaded(store: FaultyStore, size: int, goes: bool) -> None:
    write, read = chains(store)
    ctx = context()
    data = write(bytes(size), ctx)
    assert (data != bytes(size)) is goes
    assert bool(ctx.headers) is goes
    assert store.calls == ["publish"] * goes
    assert read(data, ctx) == bytes(size)


def test_the_default_threshold_is_that_of_the_kip(store: FaultyStore) -> None:
    write, _ = chains(store, **{THRESHOLD: None})
    assert write(bytes(1_048_576), context()) == bytes(1_048_576)
    assert write(bytes(1_048_577), context()).startswith(b"memory:///alerts/")


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_auto_without_a_client_says_so_once(store: FaultyStore, caplog: pytest.LogCaptureFixture, size: int) -> None:
    chain, _ = chains(store, **{THRESHOLD: "auto"})
    for _ in range(2):
        chain(bytes(size), context())
    (told,) = caplog.records
    assert "a chain without a client cannot ask a broker for the limit of a topic" in told.getMessage()
    assert "payloads above 1048576 bytes are offloaded" in told.getMessage()
    caplog.clear()
    limited = chain.with_limits(ClientLimits(1_000_000, 0, None, is_key=False))
    limited(bytes(size), context())
    assert not caplog.records


def test_the_threshold_counts_what_the_stages_before_it_leave(store: FaultyStore) -> None:
    stages = {"value.serializers": "bytes, zstd, large-message", "value.deserializers": "large-message, zstd, bytes"}
    write, read = chains(store, **stages, **{THRESHOLD: 1000})
    for payload, goes in ((bytes(100_000), False), (random.Random(1159).randbytes(999), True)):
        ctx = context()
        data = write(payload, ctx)  # zstd makes the first one smaller, and the second one larger
        assert (data[:7] == b"memory:") is goes
        assert read(data, ctx) == payload


def test_a_reader_follows_references_whatever_its_threshold_is(store: FaultyStore) -> None:
    write, _ = chains(store)
    for threshold in (None, 0, 1_000_000):
        _, read = chains(store, **{THRESHOLD: threshold})
        reference, headers = offloaded(write)
        assert read(reference.encode(), context(headers)) == PAYLOAD
        assert read(b"small", context()) == b"small"


def test_headers_are_exactly_these(store: FaultyStore) -> None:
    reference, headers = offloaded(chains(store)[0])
    assert headers == [
        ("large-message", b"true"),
        ("large-message-size", b"70"),
        ("large-message-digest", b"sha256:" + hashlib.sha256(PAYLOAD).hexdigest().encode()),
    ]
    assert reference.startswith("memory:///alerts/")


def test_a_reader_sees_no_transport_headers(store: FaultyStore) -> None:
    write, read = chains(store)
    ctx = context([("user", b"1")])
    data = write(PAYLOAD, ctx)
    assert read(data, ctx) == PAYLOAD
    assert ctx.headers == [("user", b"1")]


def test_a_plain_kip_peer_is_understood(store: FaultyStore) -> None:
    write, read = chains(store)
    reference, _ = offloaded(write)
    assert read(reference.encode(), context([("large-message", b"true")])) == PAYLOAD
    assert read(reference.encode(), context({"large-message": b"true"})) == PAYLOAD


def test_without_the_marker_a_reference_is_a_value(store: FaultyStore) -> None:
    write, read = chains(store)
    reference, _ = offloaded(write)
    for ctx in (context(), context([("large-message-key", b"true")])):
        assert read(reference.encode(), ctx) == reference.encode()
    assert store.calls == ["publish"]


@pytest.mark.parametrize("size", [0, 10, 11])
def test_without_a_context_it_says_at_once_what_is_missing(store: FaultyStore, size: int) -> None:
    """As clients call serializers that know no context; not only when the first large record comes."""
    write, read = chains(store)
    for call, kind in ((write, EncodeError), (read, DecodeError)):
        with pytest.raises(
            kind,
            match=r"requires the record around the data.*clients\.aiokafka; with kafka-python.*clients\.kafka_python;",
        ) as caught:
            call(bytes(size))
        assert caught.value.stage is not None
        assert not caught.value.about_record
    assert store.calls == []
    assert write(None) is read(None) is None


def test_a_flag_in_the_data_needs_no_context_to_be_read(store: FaultyStore) -> None:
    write, read = chains(store, large_message_format="bakdata-flag", large_message_accept="bakdata-flag")
    assert read(write(b"small", context())) == b"small"
    assert read(write(PAYLOAD, context())) == PAYLOAD


def test_a_stage_after_it_frames_the_placeholder(store: FaultyStore) -> None:
    class Frame(Serializer[Any]):
        takes = Data.BYTES
        max_overhead = 2

        def __call__(self, data: Any, ctx: Any = None, /) -> Any:
            return b"<" + data + b">"

    write, _ = chains(store, **{"value.serializers": ["bytes", "large-message", Frame()]})
    assert write(b"small", context()) == b"<small>"
    assert write(PAYLOAD, context()).startswith(b"<memory:///alerts/")


# Ids


def test_random_ids_are_the_default(store: FaultyStore) -> None:
    write, _ = chains(store)
    assert offloaded(write)[0] != offloaded(write)[0]


def test_content_ids_share_one_object(store: FaultyStore) -> None:
    write, _ = chains(store, large_message_id="content")
    first, again, other = (offloaded(write, payload)[0] for payload in (PAYLOAD, PAYLOAD, PAYLOAD + b"!"))
    assert first == again == f"memory:///alerts/{hashlib.sha256(PAYLOAD).hexdigest()}"
    assert len(list(MemoryStore().list("alerts"))) == 2
    assert other != first


def test_keyed_ids_lie_below_a_prefix_of_the_key(store: FaultyStore) -> None:
    write, _ = chains(store, large_message_id="keyed")
    one, two = (offloaded(write, payload, key=b"k")[0] for payload in (PAYLOAD, PAYLOAD + b"!"))
    prefix = f"memory:///alerts/{hashlib.sha256(b'k').hexdigest()}/"
    assert one == prefix + hashlib.sha256(PAYLOAD).hexdigest()
    assert two.startswith(prefix)
    assert not offloaded(write, PAYLOAD, key=b"other")[0].startswith(prefix)
    with pytest.raises(PayloadStoreError, match=r"needs? the record's key.*large\.message\.id = content") as caught:
        offloaded(write)
    assert isinstance(caught.value, SerializationError)


def test_keys_always_have_content_ids_and_markers_of_their_own(store: FaultyStore) -> None:
    config = {
        "key.serializers": "string, large-message", "key.deserializers": "large-message, string",
        STORE: store, THRESHOLD: 5, "large.message.id": "random",
    }  # fmt: skip
    write, read = SerializerChain.from_config(config, is_key=True), DeserializerChain.from_config(config, is_key=True)
    contexts = [RecordContext("alerts", "key", []) for _ in range(2)]
    first, second = (write("a long key", ctx) for ctx in contexts)
    assert first == second  # equal keys must stay equal: compaction and partitioning compare them
    assert next(header[0] for header in contexts[0].headers or ()) == "large-message-key"
    assert read(first, contexts[0]) == "a long key"
    assert contexts[0].headers == []


# Whom a reader trusts


@pytest.mark.parametrize(
    "reference",
    [
        "s3://other-bucket/alerts/1", "file:///etc/passwd", "http://127.0.0.1/alerts/1", "alerts/1", "", "memory",
        "memory://host/alerts/1", "memory:///alerts/../secret", "memory:///../alerts/1", "://", "http://[bad", "\x00",
    ],
)  # fmt: skip
def test_references_elsewhere_are_not_followed(store: FaultyStore, reference: str) -> None:
    _, read = chains(store)
    with pytest.raises(UntrustedReferenceError, match="the reference is not followed") as caught:
        read(reference.encode(), context([("large-message", b"true")], offset=7))
    assert isinstance(caught.value, SerializationError)
    assert caught.value.offset == 7


def test_references_outside_the_bucket_and_prefix_are_not_followed(s3_server: S3Server, bucket: str) -> None:
    config = {**s3_server.store_config(bucket), "s3.prefix": "mine/"}
    s3_server.client().put_object(Bucket=bucket, Key="theirs/alerts/1", Body=b"secret")
    write, read = chains("s3", **config)
    with write, read:
        reference, headers = offloaded(write)
        assert reference.startswith(f"s3://{bucket}/mine/alerts/")
        assert read(reference.encode(), context(headers)) == PAYLOAD
        for wrong in (
            f"s3://{bucket}/theirs/alerts/1",
            f"s3://{bucket}/mine/../theirs/alerts/1",
            f"s3://{bucket}x/mine/alerts/1",
            reference.replace("s3:", "file:"),
        ):
            with pytest.raises(UntrustedReferenceError):
                read(wrong.encode(), context([("large-message", b"true")]))


def test_references_outside_the_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    write, read = chains("local", local_path=str(tmp_path / "payloads"))
    reference, headers = offloaded(write)
    assert read(reference.encode(), context(headers)) == PAYLOAD
    (tmp_path / "payloads" / "alerts" / "link").symlink_to(tmp_path / "secret")
    folder = (tmp_path / "payloads").as_uri()
    for wrong in (f"{folder}/../secret", f"{folder}/alerts/link", (tmp_path / "secret").as_uri(), "file:///etc/passwd"):
        with pytest.raises(UntrustedReferenceError):
            read(wrong.encode(), context([("large-message", b"true")]))


def test_several_stores_are_read_by_scheme(store: FaultyStore, tmp_path: Path) -> None:
    old, _ = chains("local", local_path=str(tmp_path))
    new, read = chains(store, **{"large.message.payload.store.classes": "local", "local.path": str(tmp_path)})
    for write in (old, new):
        reference, headers = offloaded(write)
        assert read(reference.encode(), context(headers)) == PAYLOAD


# Bad payloads and stores


@pytest.mark.parametrize(
    "headers",
    [
        {"large-message": b"maybe"},
        {"large-message": b"true", "large-message-size": b"many"},
        {"large-message": b"true", "large-message-digest": b"sha256:short"},
    ],
)
def test_malformed_headers_are_said(store: FaultyStore, headers: dict[str, bytes]) -> None:
    reference, _ = offloaded(chains(store)[0])
    with pytest.raises(DecodeError, match="the large-message reference is malformed: the header large-message"):
        chains(store)[1](reference.encode(), context(headers))
    assert store.calls == ["publish"]


def test_size_and_digest_are_verified(store: FaultyStore) -> None:
    write, read = chains(store)
    reference, headers = offloaded(write)
    store.damage()
    with pytest.raises(PayloadIntegrityError, match="has 69 bytes, but 70 were published"):
        read(reference.encode(), context(list(headers)))
    store.flip_bit(3)
    with pytest.raises(PayloadIntegrityError, match="digest is not the one that was published"):
        read(reference.encode(), context(list(headers)))
    ctx = context(list(headers))
    assert read(reference.encode(), ctx) == PAYLOAD


def test_headers_stay_when_reading_fails(store: FaultyStore) -> None:
    write, read = chains(store)
    reference, headers = offloaded(write)
    ctx = context(list(headers))
    store.fail(PayloadStoreUnavailableError("down"))
    with pytest.raises(PayloadStoreUnavailableError):
        read(reference.encode(), ctx)
    assert ctx.headers == headers
    assert read(reference.encode(), ctx) == PAYLOAD


def test_a_payload_that_is_gone_is_said(store: FaultyStore) -> None:
    write, read = chains(store)
    reference, headers = offloaded(write)
    MemoryStore().delete(reference)
    with pytest.raises(PayloadNotFoundError) as caught:
        read(reference.encode(), context(headers, partition=1, offset=2))
    error = caught.value
    assert isinstance(error, SerializationError)
    assert (error.topic, error.stage, error.offset) == ("alerts", "large-message (1 of 2)", 2)
    assert (error.store, error.reference) == ("memory", reference)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert isinstance(copy, PayloadNotFoundError)
    assert isinstance(copy, SerializationError)
    assert isinstance(copy.__cause__, PayloadNotFoundError)
    assert str(copy) == str(error)


def test_a_payload_above_the_limit_is_not_downloaded(store: FaultyStore) -> None:
    reference, headers = offloaded(chains(store)[0])
    _, read = chains(store, large_message_max_payload_bytes="69")
    with pytest.raises(
        PayloadTooLargeError, match=r"70 bytes, more than the allowed 69.*large\.message\.max\.payload\.bytes"
    ):
        read(reference.encode(), context(list(headers)))
    assert store.calls == ["publish"]
    # Without a size header the store finds out.
    _, read = chains("memory", large_message_max_payload_bytes=69)
    with pytest.raises(PayloadTooLargeError):
        read(reference.encode(), context([("large-message", b"true")]))


def test_a_store_that_fails_leaves_nothing_behind(store: FaultyStore) -> None:
    write, _ = chains(store)
    ctx = context()
    store.fail(PayloadStoreUnavailableError("down", hint="Start it"))
    with pytest.raises(
        PayloadStoreUnavailableError, match=r"down \[topic=alerts.*stage=large-message.*Start it"
    ) as caught:
        write(PAYLOAD, ctx)
    assert isinstance(caught.value, SerializationError)
    assert caught.value.transient
    assert ctx.headers == []
    assert write(PAYLOAD, ctx).startswith(b"memory:")


def test_an_unforeseen_error_of_a_store_is_typed_too(store: FaultyStore) -> None:
    write, _ = chains(store)
    store.fail(RuntimeError("a bug"))
    with pytest.raises(SerializationError, match=r"RuntimeError: a bug \[.*stage=large-message"):
        write(PAYLOAD, context())


def test_a_store_that_hangs_is_given_up(store: FaultyStore) -> None:
    write, read = chains(store, **{TIMEOUT: 200})
    reference, headers = offloaded(write)
    with store.hanging():
        for chain, data in ((write, PAYLOAD), (read, reference.encode())):
            started = time.monotonic()
            with pytest.raises(PayloadStoreUnavailableError, match="did not finish within 200 ms"):
                chain(data, context(list(headers)))
            assert time.monotonic() - started < 10
    assert read(reference.encode(), context(headers)) == PAYLOAD


def test_a_system_that_starts_no_more_threads_is_not_the_records_fault(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that hang keep their threads, as many as a container may have in the end."""
    write, read = chains(store)
    reference, headers = offloaded(write)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("payload_stores.threads._idle", [])
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(PayloadStoreUnavailableError, match="no thread") as caught:
            read(reference.encode(), context(list(headers)))
        assert not caught.value.about_record
        result = read.read_batch(Batch([reference.encode()], [headers], topic="topic", field="value"))
        assert [error.about_record for error in result.errors.values()] == [False]
    assert read(reference.encode(), context(headers)) == PAYLOAD


def test_many_threads_offload_at_once(store: FaultyStore) -> None:
    write, read = chains(store, large_message_id="content")
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(20):
            ctx = context()
            payload = bytes([number]) * 100
            if read(write(payload, ctx), ctx) != payload:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    # By size: a publish that another test gave up may still end.
    assert len([found for found in MemoryStore().list("alerts") if found.size == 100]) == 8


def test_the_store_is_closed_with_the_chain() -> None:
    closed: list[str] = []

    class Closing(MemoryStore):
        def close(self) -> None:
            closed.append("store")

    write, _ = chains(Closing)
    write.close()
    assert closed == ["store"]


def test_a_store_of_ones_own_makes_its_own_ids() -> None:
    class Dated(MemoryStore):
        def id(self, data: Any, context: PublishContext | None = None) -> str:
            return "2026/" + super().id(data, context)

    write, read = chains(Dated)
    reference, headers = offloaded(write)
    assert reference.startswith("memory:///alerts/2026/")
    assert read(reference.encode(), context(headers)) == PAYLOAD
    assert isinstance(open_store(Dated, {}), Dated)


def test_a_store_that_returns_no_reference_is_named() -> None:
    class Forgetful(MemoryStore):
        def publish(self, topic: str, data: Any, context: PublishContext | None = None) -> Any:
            super().publish(topic, data, context)

    write, _ = chains(Forgetful)
    with pytest.raises(PayloadStoreError, match=r"the store returned NoneType for a payload, not a reference"):
        write(PAYLOAD, RecordContext("alerts", "value", []))


def test_the_same_topic_rules_as_kafkas(store: FaultyStore) -> None:
    write, _ = chains(store)
    with pytest.raises(PayloadStoreError, match=r"'\.\.' is not a Kafka topic name"):
        write(PAYLOAD, RecordContext("..", "value", []))


def test_a_store_is_required() -> None:
    with pytest.raises(ConfigError, match=r"large\.message\.payload\.store\.class is required.*Set it: a store"):
        chains(None)
