"""Stores written to KIP-1159's interface alone, in chains: the class's own id decides."""

import hashlib
import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException

from payload_stores import ConfigError, PublishContext
from payload_stores.memory import MemoryStore
from serde_chain import DeserializerChain, PayloadStoreError, Producer, RecordContext, SerializerChain
from serde_chain.config import resolve
from serde_chain.stages.large_message import write
from serde_chain.testing.services import KafkaBroker

PAYLOAD = b"payload" * 100


class Shelf:
    """Exactly the interface; its full paths are no URLs."""

    payloads: ClassVar[dict[str, bytes]] = {}
    room = "hall"

    def configure(self, configs: Mapping[str, Any]) -> None:
        self.room = configs.get("shelf.room", "hall")

    def publish(self, topic: str, data: bytes) -> str:
        full_path = f"{self.room}/{topic}/{self.id(data)}"
        self.payloads[full_path] = data
        return full_path

    def download(self, full_path: str) -> bytes:
        return self.payloads[full_path]

    def id(self, data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    def close(self) -> None:
        """It holds nothing."""


class RandomShelf(Shelf):
    def id(self, data: bytes) -> str:
        return f"{uuid4()}-{len(data)}"


class Lost(Shelf):
    """Its full paths could be topics."""

    def publish(self, topic: str, data: bytes) -> str:
        return f"{topic}-{len(data)}"


class OwnIds(MemoryStore):
    """A whole store with the KIP's ``id`` and ``publish``."""

    def publish(self, topic: str, data: Any) -> str:  # type: ignore[override]
        return super().publish(topic, data)

    def id(self, data: Any) -> str:  # type: ignore[override]
        return f"own-{len(data)}"


class OwnPublish(MemoryStore):
    """Its publish may do anything, such as take the content's digest for an id."""

    def publish(self, topic: str, data: Any) -> str:  # type: ignore[override]
        return super().publish(topic, data, PublishContext("content"))


@pytest.fixture(autouse=True)
def _empty() -> None:
    Shelf.payloads.clear()
    MemoryStore.clear()
    write._warn_of_ids.cache_clear()


def config(store: Any, **more: Any) -> dict[str, Any]:
    return {"large.message.payload.store.class": store, "large.message.threshold.bytes": 10, **more}


def written(store: Any, payload: Any = PAYLOAD, **more: Any) -> tuple[bytes, RecordContext]:
    ctx = RecordContext("alerts", "value", [], b"key")
    with SerializerChain.from_config({**config(store, **more), "value.serializers": "large-message"}) as chain:
        data: bytes = chain(payload, ctx)
    return data, ctx


def read(store: Any, data: bytes, ctx: RecordContext, **more: Any) -> Any:
    with DeserializerChain.from_config({**config(store, **more), "value.deserializers": "large-message"}) as chain:
        return pickle.loads(pickle.dumps(chain))(data, ctx)  # noqa: S301  our own


@pytest.mark.parametrize("store", [Shelf, Shelf(), f"{__name__}.Shelf", {"class": Shelf, "shelf.room": "attic"}])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"large.message.store.retry.attempts": 3, "large.message.store.cache.bytes": 10_000},
        {"large.message.id": "content"},
        {"large.message.id": "keyed"},
        {"large.message.fetch": "lazy"},
    ],
)
def test_a_store_of_the_interface_alone_works(store: Any, more: dict[str, Any]) -> None:
    data, ctx = written(store, **more)
    room = "attic" if isinstance(store, dict) else "hall"
    assert data.decode() == f"{room}/alerts/{hashlib.sha256(PAYLOAD).hexdigest()}"
    payload = read(store, data, ctx, **more)
    assert (payload.read() if more.get("large.message.fetch") else payload) == PAYLOAD
    assert Shelf.payloads == {data.decode(): PAYLOAD}


def test_two_of_one_class_with_other_settings_are_two_stores() -> None:
    attic, cellar = ({"class": Shelf, "shelf.room": room} for room in ("attic", "cellar"))
    route = {
        "large.message.route.old.topics": "old-*",
        "large.message.route.old.payload.store.class": cellar,
        "value.serializers": "large-message",
    }
    with SerializerChain.from_config({**config(attic), **route}) as chain:
        found = [bytes(chain(PAYLOAD, RecordContext(topic, "value", []))) for topic in ("alerts", "old-alerts")]
    assert [data.partition(b"/")[0] for data in found] == [b"attic", b"cellar"]


def test_fields_and_batches() -> None:
    import pyarrow as pa

    fields = {"large.fields.paths": "image", "large.fields.min.bytes": 10, "value.serializers": "large-fields, msgpack"}
    ctx = RecordContext("alerts", "value", [])
    with SerializerChain.from_config({**config(Shelf), **fields}) as chain:
        data = chain({"id": 1, "image": PAYLOAD}, ctx)
    back = {"value.deserializers": "msgpack, large-fields"}
    with DeserializerChain.from_config({**config(Shelf), **back}) as reader:
        assert reader(data, ctx) == {"id": 1, "image": PAYLOAD}
    with SerializerChain.from_config({**config(Shelf), "value.serializers": "json, large-message"}) as chain:
        records = chain.from_arrow(pa.table({"text": ["x" * 100]}), topic="alerts")
    with DeserializerChain.from_config({**config(Shelf), "value.deserializers": "large-message"}) as reader:
        column = reader.to_arrow(records.values, records.headers, topic="alerts")
    assert column.to_pylist() == [b'{"text":"' + b"x" * 100 + b'"}']


def test_a_signature_that_cannot_work_is_refused_when_the_chain_is_made() -> None:
    class Wrong(Shelf):
        def publish(self, topic: str) -> str:  # type: ignore[override]
            return topic

    settings = {**config(Wrong), "value.serializers": "large-message"}
    with pytest.raises(ConfigError, match=r"cannot be called .* does not take data") as caught:
        SerializerChain.from_config(settings)
    assert "publish(self, topic, data)" in str(caught.value.hint)


@pytest.mark.parametrize("strategy", ["content", "keyed"])
@pytest.mark.parametrize("store", [Shelf, OwnIds])
def test_the_stores_own_id_decides_and_a_warning_says_so(
    store: Any, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        data, _ = written(store, **{"large.message.id": strategy})
        written(store, **{"large.message.id": strategy})
    own = hashlib.sha256(PAYLOAD).hexdigest() if store is Shelf else f"own-{len(PAYLOAD)}"
    assert data.decode().endswith(f"alerts/{own}")
    [record] = [record for record in caplog.records if "large.message.id has no effect" in record.getMessage()]
    assert "chooses its ids itself" in record.getMessage()


def test_keys_require_equal_ids_for_equal_keys() -> None:
    key = {"key.serializers": "large-message"}
    with SerializerChain.from_config({**config(Shelf), **key}, is_key=True) as chain:
        first, second = (chain(PAYLOAD, RecordContext("alerts", "key", [])) for _ in range(2))
    assert first == second
    for store in (RandomShelf, type("Ids", (MemoryStore,), {"id": lambda _self, data: f"{uuid4()}-{len(data)}"})):
        with pytest.raises(ConfigError, match="gives equal keys different references"):
            SerializerChain.from_config({**config(store), **key}, is_key=True)


def test_uploads_are_not_deleted_by_an_id_that_the_store_did_not_follow(broker: KafkaBroker, topic: str) -> None:
    """Two records may share a payload: which ids such a store makes is not known."""
    reports: list[Any] = []
    for store in (OwnIds, OwnPublish):
        settings = {**broker.client_config(), **config(store), "value.serializers": "large-message"}
        with Producer({**settings, "message.timeout.ms": 5_000}) as producer:
            producer.produce(topic, PAYLOAD, partition=99, on_delivery=lambda error, _: reports.append(error))
            producer.flush(30)
    assert all(reports)
    assert len(list(MemoryStore().list(topic))) == 2


def test_the_journal_does_not_list_what_the_store_did_not_follow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write._warn_of_journal.cache_clear()
    journal = {"large.message.journal.path": str(tmp_path / "journal")}
    with caplog.at_level(logging.WARNING):
        written(OwnIds, **journal)
    assert "does not cover the store memory" in caplog.text


def test_its_own_keys_do_not_reach_the_kafka_client() -> None:
    client = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    settings = {**client, **config(Shelf), "value.serializers": "large-message"}
    assert resolve({**settings, "shelf.room": "cellar"}).client == client
    Producer({**settings, "shelf.room": "cellar"}).close()
    # A client's misspelt key is the client's to refuse.
    with pytest.raises(KafkaException, match="boostrap"):
        Producer({**settings, "boostrap.servers": "127.0.0.1:1"})
    for key in ("auot.offset.reset", "sals.username", "sls.ca.location", "BOOTSTRAP.SERVERS"):
        assert key in resolve({**settings, key: "x"}).client
    # So is any other one, where each store declares its keys.
    with pytest.raises(KafkaException, match=r"shelf\.room"):
        Producer({**settings, **config(MemoryStore), "shelf.room": "cellar"})


def test_a_store_that_follows_the_context_is_asked_for_an_id() -> None:
    class Follows(Shelf):
        def publish(self, topic: str, data: bytes, context: PublishContext | None = None) -> str:
            assert context is not None
            self.payloads[f"hall/{topic}/{context.id_strategy}"] = data
            return f"hall/{topic}/{context.id_strategy}"

    data, _ = written(Follows, **{"large.message.id": "content"})
    assert data == b"hall/alerts/content"


@pytest.mark.parametrize("returned", [None, 7, "text"])
def test_what_a_download_returns_is_checked(returned: Any) -> None:
    data, ctx = written(Shelf)
    cls = type("Wrong", (Shelf,), {"download": lambda _self, full_path: returned and full_path and returned})
    chain = DeserializerChain.from_config({**config(cls), "value.deserializers": "large-message"})
    with pytest.raises(PayloadStoreError, match=r"the store failed: download returned .*, not bytes") as caught:
        chain(data, ctx)
    chain.close()
    assert not caught.value.about_record


@pytest.mark.parametrize("reference", ["", "x" * 8193, "é" * 4097, "half of a pair: \ud800"])
def test_a_reference_that_no_record_can_have_is_the_stores_fault(reference: str) -> None:
    """Otherwise an unreadable record would be sent."""
    cls = type("Wrong", (Shelf,), {"publish": lambda _self, topic, data: f"{topic}{data}"[:0] + reference})
    with pytest.raises(PayloadStoreError, match="the store returned a reference of") as caught:
        written(cls)
    assert not caught.value.about_record
    longest = type("Long", (Shelf,), {"publish": lambda _self, topic, data: f"{topic}{data}"[:0] + "x" * 8192})
    assert len(written(longest)[0]) == 8192


def test_a_full_path_in_an_error_is_no_topic() -> None:
    """It may look like one: a UUID, say."""
    data, ctx = written(Lost)
    with pytest.raises(PayloadStoreError, match="the store failed: KeyError") as caught:
        read(Lost, data, ctx)
    assert (caught.value.topic, caught.value.context["reference"]) == ("alerts", f"alerts-{len(PAYLOAD)}")


def test_readers_of_several_stores_use_the_scheme(tmp_path: Path) -> None:
    """Without one, a store gets what no other claims."""
    local = {"class": "local", "local.path": str(tmp_path)}
    of_local, ctx = written(local)
    both = {"large.message.payload.store.classes": [local]}
    assert read(Shelf, of_local, ctx, **both) == PAYLOAD
    of_shelf, ctx = written(Shelf)
    assert read(Shelf, of_shelf, ctx, **both) == PAYLOAD
