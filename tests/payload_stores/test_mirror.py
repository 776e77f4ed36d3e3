"""Every payload in two stores."""

import io
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from payload_stores import (
    ConfigError,
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStore,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    PublishContext,
    SupportsDelete,
    SupportsLeftovers,
    SupportsList,
    SupportsPreparation,
    SupportsRanges,
    SupportsStreaming,
    SupportsTopics,
    UntrustedReferenceError,
    open_store,
)
from payload_stores.hop import HopStore
from payload_stores.ids import sha256_digest
from payload_stores.memory import MemoryStore
from payload_stores.middleware import Deadline, Middleware, Mirror
from payload_stores.mirror import MirrorStore
from payload_stores.testing import FaultyStore, PayloadStoreTests, Toxic
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.config import load
from serde_chain.testing.services import S3Server
from tests.cli.conftest import run
from tests.interrupts import interrupted_at
from tests.payload_stores.local import test_local

AWAY = PayloadStoreUnavailableError("away")
DATA = b"payload"


def folder(path: Path) -> dict[str, Any]:
    return {"class": "local", "local.path": str(path), "local.fsync": False}


class TestMirrorStore(PayloadStoreTests):
    """Between two folders."""

    store_class = "mirror"

    @pytest.fixture
    def config(self, tmp_path: Path) -> Mapping[str, object]:
        return {"mirror.primary": folder(tmp_path / "new"), "mirror.secondary": folder(tmp_path / "old")}

    def raw_read(self, reference: str) -> bytes:
        path = Path(reference.removeprefix("file://"))
        copy = Path(str(path).replace("/new/", "/old/"))
        data = path.read_bytes()
        assert copy.read_bytes() == data
        return data

    def raw_write(self, reference: str, name: str, data: bytes) -> None:
        test_local.TestLocalStore.raw_write(cast("Any", self), reference, name, data)

    def open_with_id(self, config: Mapping[str, object], payload_id: str) -> PayloadStore:
        class WithId(Mirror):
            def id(self, data: Any, context: Any = None) -> str:
                return payload_id

        return WithId(*(open_store(config[f"mirror.{which}"], {}) for which in ("primary", "secondary")))  # type: ignore[arg-type]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[FaultyStore, FaultyStore]]:
    """Two stores that fail on request, of two schemes."""
    MemoryStore.clear()
    (tmp_path / "store").mkdir()
    yield FaultyStore(open_store("memory", {})), FaultyStore(open_store(folder(tmp_path / "store"), {}))
    MemoryStore.clear()


@pytest.fixture
def mirror(stores: tuple[FaultyStore, FaultyStore]) -> Mirror:
    return Mirror(*stores)


def kept(store: PayloadStore) -> list[bytes]:
    """What a store has of the topic."""
    inner = store.store if isinstance(store, FaultyStore) else store
    assert isinstance(inner, SupportsList)
    try:
        return sorted(inner.download(info.reference) for info in inner.list("topic"))
    except PayloadStoreUnavailableError:  # a folder in which nothing was stored yet
        return []


def test_what_either_would_make_is_reported(mirror: Mirror, tmp_path: Path) -> None:
    assert isinstance(mirror, SupportsPreparation)
    assert mirror.unprepared("topic") == f"the folder {tmp_path / 'store' / '.payload-store'}"
    mirror.publish("topic", DATA)
    assert mirror.unprepared("topic") is None


def test_both_have_a_payload_under_one_id(mirror: Mirror, stores: Any, tmp_path: Path) -> None:
    reference = mirror.publish("topic", DATA)
    assert reference.startswith("memory:///topic/")
    payload_id = reference.rpartition("/")[2]
    assert (tmp_path / "store" / "topic" / payload_id).read_bytes() == DATA
    copy = (tmp_path / "store" / "topic" / payload_id).as_uri()
    for each in (reference, copy):
        assert mirror.owns(each)
        assert mirror.claim(each) == max(store.claim(each) for store in stores)
        assert isinstance(mirror, SupportsTopics)
        assert mirror.topic_of(each) == "topic"
        assert mirror.download(each) == DATA
    assert isinstance(mirror, SupportsDelete)
    mirror.delete(copy)
    assert kept(stores[0]) == kept(stores[1]) == []


@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("context", [None, PublishContext("content"), PublishContext(payload_id="a/b")])
def test_streams(mirror: Mirror, stores: Any, seekable: bool, context: PublishContext | None) -> None:
    class Reader(io.BytesIO):
        def seekable(self) -> bool:
            return seekable

    assert isinstance(mirror, SupportsStreaming)
    reader = Reader(b"head|" + DATA)
    reader.read(5)
    reference = mirror.publish_stream("topic", reader, context)
    assert kept(stores[0]) == kept(stores[1]) == [DATA]
    with mirror.open(reference) as file:
        assert file.read() == DATA
    if context is not None and context.deterministic:
        assert reference == mirror.publish("topic", DATA, context)


@pytest.mark.parametrize("error", [AWAY, PayloadAccessDeniedError("no"), PayloadNotFoundError("gone")])
def test_what_the_primary_does_not_have_comes_from_the_secondary(
    mirror: Mirror, stores: Any, error: PayloadStoreError
) -> None:
    reference = mirror.publish("topic", DATA)
    assert isinstance(mirror, SupportsRanges)
    assert isinstance(mirror, SupportsStreaming)
    stores[0].add(Toxic("transient"))
    assert mirror.download(reference) == mirror.download_verified(reference, size=7) == DATA
    assert mirror.read_range(reference, 1, 3) == DATA[1:4]
    with mirror.open(reference) as file:
        assert file.read() == DATA
    stores[0].heal()
    stores[0].fail(error)
    assert mirror.download(reference) == DATA


def test_what_the_primary_has_damaged_comes_from_the_secondary(mirror: Mirror, stores: Any) -> None:
    reference = mirror.publish("topic", DATA)
    stores[0].flip_bit()
    assert mirror.download_verified(reference, size=7, digest=sha256_digest(DATA)) == DATA
    with pytest.raises(PayloadIntegrityError):
        mirror.download_verified(reference, digest=sha256_digest(b"other"))


def test_a_payload_is_gone_where_both_say_so(mirror: Mirror, stores: Any) -> None:
    reference = mirror.publish("topic", DATA)
    for away in (0, 1):
        stores[1 - away].fail(PayloadNotFoundError("gone"))
        stores[away].fail(AWAY)
        with pytest.raises(PayloadStoreUnavailableError):
            mirror.download(reference)
    for store in stores:
        store.fail(PayloadNotFoundError("gone"))
    with pytest.raises(PayloadNotFoundError):
        mirror.download(reference)


@pytest.mark.parametrize("path", ["a%20b/1", f"{'a' * 250}/1", "topic/.1", "topic/%61", "topic"])
def test_what_no_payload_can_be_called_is_gone(mirror: Mirror, path: str) -> None:
    """And no reason to stop a reader: any writer can make such a reference."""
    assert isinstance(mirror, SupportsDelete)
    with pytest.raises(PayloadNotFoundError) as caught:
        mirror.download(f"memory:///{path}")
    assert caught.value.about_record
    mirror.delete(f"memory:///{path}")


def test_what_is_refused_is_not_asked_for_twice(mirror: Mirror, stores: Any) -> None:
    reference = mirror.publish("topic", DATA)
    stores[0].max_payload_bytes = 6
    stores[1].calls.clear()
    with pytest.raises(PayloadTooLargeError):
        mirror.download(reference)
    with pytest.raises(UntrustedReferenceError):
        mirror.download("file:///etc/passwd")
    assert stores[1].calls == []


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", ["transient", "error after success"])
@pytest.mark.parametrize("strategy", ["random", "content"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_payload_is_in_both_stores_or_in_none(  # noqa: PLR0917
    mirror: Mirror, stores: Any, which: int, kind: Any, strategy: Any, streamed: bool
) -> None:
    stores[which].add(Toxic(kind, operations=("publish", "publish_stream")))
    assert isinstance(mirror, SupportsStreaming)
    publish, data = (mirror.publish_stream, io.BytesIO(DATA)) if streamed else (mirror.publish, DATA)
    with pytest.raises(PayloadStoreUnavailableError):
        publish("topic", data, PublishContext(strategy))  # type: ignore[arg-type]
    there = [kept(store) for store in stores]
    if strategy == "content":  # other records may refer to it
        assert there in ([[], []], [[DATA], []], [[DATA], [DATA]])
    elif which == 1:
        assert there == [[], []]
    else:  # it is not known whether the primary has it: the journal knows its place
        assert there[1] == []


def test_ids_of_a_store_of_ones_own_may_be_of_payloads_that_are_there(stores: Any) -> None:
    class ByContent(MemoryStore):
        def id(self, data: Any, context: Any = None) -> str:
            return "of-the-content"

    mirror = Mirror(open_store(ByContent, {}), stores[1])
    reference = mirror.publish("topic", DATA)
    stores[1].add(Toxic("transient", operations=("publish",)))
    with pytest.raises(PayloadStoreUnavailableError):
        mirror.publish("topic", DATA)
    assert mirror.store.download(reference) == DATA
    assert kept(stores[1]) == [DATA]


def test_ctrl_c_leaves_it_in_both_or_in_none(mirror: Mirror, stores: Any) -> None:
    for number in itertools.count():
        with interrupted_at(number, ("payload_stores/middleware/mirror.py",)):
            try:
                mirror.publish("topic", DATA)
                break
            except KeyboardInterrupt:
                pass
    assert number > 5
    assert len(kept(stores[1])) <= len(kept(stores[0]))


def test_both_are_asked_to_delete(mirror: Mirror, stores: Any) -> None:
    for which in (0, 1):
        reference = mirror.publish("topic", DATA)
        stores[which].fail(AWAY)
        assert isinstance(mirror, SupportsDelete)
        with pytest.raises(PayloadStoreUnavailableError):
            mirror.delete(reference)
        assert [len(kept(store)) for store in stores] == [1 - which, which]
        mirror.delete(reference)
        assert kept(stores[0]) == kept(stores[1]) == []


def test_a_mirror_can_do_what_both_can(tmp_path: Path) -> None:
    class Small(MemoryStore):
        delete = None  # type: ignore[assignment]

    local = open_store(folder(tmp_path), {})
    assert isinstance(Mirror(local, local), SupportsDelete)
    assert not isinstance(Mirror(local, Small()), SupportsDelete)
    assert not isinstance(Mirror(Small(), local), SupportsDelete)
    assert not isinstance(Mirror(local, local), SupportsLeftovers)
    assert isinstance(Deadline(Middleware(Mirror(local, local)), 1000), SupportsDelete)


def test_a_configured_mirror_can_do_what_both_can(tmp_path: Path) -> None:
    store = MirrorStore()
    around: PayloadStore = Deadline(store, 1000)
    assert not isinstance(around, SupportsDelete)
    around.configure({"mirror.primary": folder(tmp_path), "mirror.secondary": "memory"})
    assert isinstance(around, SupportsDelete)
    assert not isinstance(around, SupportsLeftovers)
    assert around.scheme == "file"


@pytest.mark.parametrize("first", [True, False])
def test_a_store_whose_references_tell_nothing_cannot_be_mirrored(first: bool) -> None:
    hop = open_store(HopStore, {"hop.offload.url": "https://offload.example"})
    pair = (hop, MemoryStore()) if first else (MemoryStore(), hop)
    with pytest.raises(ConfigError, match=r"https cannot be mirrored.*a store with topic_of and reference"):
        Mirror(*pair)
    hop.close()


def test_it_takes_the_time_of_both() -> None:
    class Slow(MemoryStore):
        def worst_case_ms(self) -> int:
            return 7000

    assert Mirror(Slow(), Slow()).worst_case_ms() == 14_000
    assert Mirror(Slow(), MemoryStore()).worst_case_ms() is None


# By configuration

TOML = """
"value.serializers" = "large-message"
"value.deserializers" = "large-message"
[large.message]
threshold.bytes = 0
payload.store.class = "mirror"
[mirror]
primary = {class = "s3", s3.prefix = "new/"}
secondary = {class = "local", local.path = "%s"}
[s3]
"""


@pytest.mark.full
def test_a_move_from_a_folder_to_a_bucket(s3_server: S3Server, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    path = tmp_path / "client.toml"
    settings = s3_server.store_config(bucket)
    lines = [f'{key.removeprefix("s3.")} = "{value}"' for key, value in settings.items()]
    path.write_text(TOML % (tmp_path / "old") + "\n".join(lines))
    assert load(path)["mirror.primary"] == {"class": "s3", "s3.prefix": "new/"}
    write, read = SerializerChain.from_config(path), DeserializerChain.from_config(path)
    old = SerializerChain.from_config(
        {
            "value.serializers": "large-message",
            "large.message.threshold.bytes": 0,
            "large.message.payload.store.class": folder(tmp_path / "old"),
        }
    )
    for chain, begin in ((old, b"file://"), (write, b"s3://%s/new/topic/" % bucket.encode())):
        ctx = RecordContext("topic", "value", [])
        data = chain(DATA, ctx)
        assert data is not None
        assert bytes(data).startswith(begin)
        assert read(data, ctx) == DATA
    assert len(list((tmp_path / "old" / "topic").iterdir())) == 2
    shown = run("check-config", path).stdout
    assert str(settings["s3.secret.key"]) not in shown
    read.close()
    write.close()
    old.close()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "mirror.primary is required"),
        ({"mirror.primary": "memory"}, "mirror.secondary is required"),
        ({"mirror.primary": "memory", "mirror.secondary": "local"}, "local.path is required"),
        ({"mirror.primary": "memory", "mirror.secondary": {"class": "local", "local.pth": "x"}}, "no option"),
        ({"class": "mirror", "primary": "memory"}, "Did you mean mirror.primary?"),
    ],
)
def test_a_wrong_configuration_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(config if "class" in config else "mirror", config)
    assert message in str(caught.value)


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:3])


@pytest.mark.parametrize("harm", [damage, truncate, Path.unlink])
@pytest.mark.parametrize(
    "around", [{}, {"large.message.store.retry.attempts": 2, "large.message.store.cache.bytes": 99}]
)
def test_a_reader_gets_from_the_secondary_what_the_primary_has_lost(
    tmp_path: Path, harm: Any, around: dict[str, Any]
) -> None:
    config = {**chain_config(folder(tmp_path / "new"), folder(tmp_path / "old")), **around}
    ctx = RecordContext("topic", "value", [])
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        data = write(DATA, ctx)
        [stored] = (tmp_path / "new" / "topic").iterdir()
        harm(stored)
        assert read(data, ctx) == DATA


def test_a_primary_that_hangs_leaves_time_for_the_secondary(tmp_path: Path) -> None:
    primary = FaultyStore(open_store(folder(tmp_path / "new"), {}))
    config = {**chain_config(primary, folder(tmp_path / "old")), "large.message.store.timeout.ms": 2000}
    ctx = RecordContext("topic", "value", [])
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        data = write(DATA, ctx)
        with primary.hanging():
            assert read(data, ctx) == DATA


def test_a_payload_that_only_the_primary_can_have_gets_all_of_the_time(stores: Any) -> None:
    asked: list[bool] = []

    class Mirrored(Mirror):
        def _first(self, reference: str, read: Any) -> Any:
            def noted(store: PayloadStore, own: str) -> Any:
                asked.append(isinstance(store, Deadline))
                return own.encode()

            return super()._first(reference, noted)

    store = Mirrored(*stores, patience_ms=1)
    for reference in ("memory:///topic/.1", "memory:///topic/1"):
        assert store.download(reference) == reference.encode()
    assert asked == [False, True]


def chain_config(primary: object, secondary: object) -> dict[str, Any]:
    return {
        "value.serializers": "large-message",
        "value.deserializers": "large-message",
        "large.message.threshold.bytes": 0,
        "large.message.payload.store.class": "mirror",
        "mirror.primary": primary,
        "mirror.secondary": secondary,
    }
