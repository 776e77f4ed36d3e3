"""The hop store against the real offload server: the conformance suite, memory, and one round trip fewer."""

import io
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from payload_stores import (
    PayloadAccessDeniedError,
    PayloadStore,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    PublishContext,
    StoredRecord,
    open_store,
)
from payload_stores.hop import HopStore, record_document
from payload_stores.hop.client import HopClient
from payload_stores.offload_server.tokens import add_token
from payload_stores.testing import PayloadStoreTests
from payload_stores.testing.suite.base import payload
from serde_chain.testing.services import OffloadServer


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "tokens.json"


@pytest.fixture(scope="module")
def token(token_file: Path) -> str:
    return add_token(token_file, "carol")


@pytest.fixture(scope="module")
def server(token_file: Path, token: str) -> Iterator[OffloadServer]:
    assert token
    with OffloadServer(arguments=("--tokens", str(token_file))) as running:
        yield running


@pytest.fixture
def hop_config(server: OffloadServer) -> Mapping[str, object]:
    return {
        "hop.offload.url": server.url,
        "hop.username": "alice",
        "hop.password": "alice-secret",
        "hop.scram.mechanism": "SCRAM-SHA-256",
    }


class TestHopStore(PayloadStoreTests):
    """Where an id is a UUID by protocol, references end in one, and ids of the user's own must be UUIDs too.

    The protocol knows no delete and no list.
    """

    store_class = HopStore

    @pytest.fixture
    def config(self, hop_config: Mapping[str, object]) -> Mapping[str, object]:
        return hop_config

    def test_reference_is_a_url_with_topic_and_id(self, store: PayloadStore) -> None:
        reference = store.publish(self.topic, b"data", PublishContext("content"))
        prefix, _, payload_id = reference.rpartition("/msg/")
        assert prefix.startswith(f"{store.scheme}://")
        assert uuid.UUID(payload_id).version == 8

    def test_content_ids_take_a_known_digest(self, store: PayloadStore) -> None:
        context = PublishContext("content", digest="sha256:" + "0" * 64)
        reference = store.publish(self.topic, b"one", context)
        assert store.publish(self.topic, b"one", context) == reference
        assert store.publish(self.topic, b"one", PublishContext("content")) != reference
        with pytest.raises(PayloadStoreError, match="id is taken"):
            store.publish(self.topic, b"other", context)

    def test_keyed_ids_lie_under_one_prefix(self, store: PayloadStore) -> None:
        # An offload server has no prefixes, and nobody lists it; ids still differ by key and by content.
        made = [(b"one", b"key"), (b"two", b"key"), (b"one", b"other")]
        references = [store.publish(self.topic, data, PublishContext("keyed", key=key)) for data, key in made]
        assert len(set(references)) == 3
        assert [store.download(reference) for reference in references] == [b"one", b"two", b"one"]

    def test_ids_can_be_overridden(self, config: Mapping[str, object]) -> None:
        own = str(uuid.uuid4())
        store = self.open_with_id(config, own)
        reference = store.publish(self.topic, b"data")
        assert reference.endswith(f"/msg/{own}")
        assert store.download(reference) == b"data"
        store.close()


def test_records_come_back_whole(hop_config: Mapping[str, object]) -> None:
    store: Any = open_store("hop", hop_config)
    record = StoredRecord(payload(100_000), (("a", b"1"), ("_id", uuid.uuid4().bytes), ("a", b"")), b"\0key")
    found = store.download_record(store.publish_record("t", record))
    assert (found.value, found.headers, found.key) == (record.value, record.headers, record.key)
    assert found.timestamp is not None
    store.close()


def test_a_random_id_that_is_taken_is_refused(hop_config: Mapping[str, object]) -> None:
    store: Any = open_store("hop", hop_config)
    record = StoredRecord(b"one", (("_id", uuid.uuid4().bytes),))
    reference = store.publish_record("t", record)
    with pytest.raises(PayloadStoreError, match="422"):
        store.publish_record("t", StoredRecord(b"other", record.headers))
    assert store.download(reference) == b"one"
    store.close()


def test_bearer_tokens(server: OffloadServer, token: str) -> None:
    settings = {"hop.offload.url": server.url, "sasl.mechanism": "OAUTHBEARER"}
    for known in ({"hop.token": token}, {"oauth_cb": lambda _: (token, 4e9)}):
        store = open_store("hop", {**settings, **known})
        assert store.download(store.publish("t", b"data")) == b"data"
        store.close()
    store = open_store("hop", {**settings, "hop.token": "wrong"})
    with pytest.raises(PayloadAccessDeniedError, match="401") as caught:
        store.publish("t", b"data")
    assert "wrong" not in str(caught.value)
    store.close()


def test_a_file_asks_again_only_to_seek_back(hop_config: Mapping[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = open_store("hop", hop_config)
    data = payload(3_000_000)
    reference = store.publish_record("t", StoredRecord(data, (("large", bytes(100_000)),), b"key"))
    requests: list[str] = []
    request = HopClient._request

    def counted(client: HopClient, method: str, *args: Any) -> Any:
        requests.append(method)
        return request(client, method, *args)

    monkeypatch.setattr(HopClient, "_request", counted)
    with store.open(reference) as file:
        assert file.seek(-10, os.SEEK_END) == len(data) - 10
        assert file.seek(1_000_000) == 1_000_000
        assert file.read(10) == data[1_000_000:1_000_010]
        file.seek(500_000, os.SEEK_CUR)
        assert file.read(10) == data[1_500_010:1_500_020]
        assert requests == ["GET"]
        file.seek(0)
        assert file.read() == data
        assert requests == ["GET"] * 2
        assert file.read() == b""
    store.close()


def test_a_connection_that_breaks_while_a_file_is_read(hop_config: Mapping[str, object]) -> None:
    with OffloadServer() as server:
        store: Any = open_store("hop", {**hop_config, "hop.offload.url": server.url, "hop.retry.attempts": 1})
        file = store.open(store.publish("t", payload(20_000_000)))
        assert file.read(10) == payload(10)
    with pytest.raises(PayloadStoreError) as caught:
        file.read()
    assert caught.value.transient or caught.value.about_record
    with pytest.raises(PayloadStoreUnavailableError):
        file.read()
    file.close()
    store.close()


def test_a_stream_that_is_longer_than_a_document(
    hop_config: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_document, "MAX_BYTES", 1000)
    store: Any = open_store("hop", hop_config)
    with pytest.raises(PayloadTooLargeError, match="at most 1000 bytes"):
        store.publish_stream("t", io.BytesIO(bytes(1001)))
    store.close()


@pytest.mark.full
def test_memory_of_an_open_payload(hop_config: Mapping[str, object]) -> None:
    size = 100 << 20
    store = open_store("hop", hop_config)
    reference = store.publish("t", bytes(size))
    store.close()
    program = f"""
from payload_stores import open_store
from tests.memory import peak_bytes, reset_peak
store = open_store("hop", {dict(hop_config)!r})
store.download(store.publish("t", bytes(1 << 20)))
before = reset_peak()
with store.open({reference!r}) as file:
    assert sum(len(block) for block in iter(lambda: file.read(1 << 20), b"")) == {size}
assert store.read_range({reference!r}, {size - 20}, 10) == bytes(10)
print(peak_bytes() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    assert int(done.stdout) <= 32 << 20


@pytest.mark.full
@pytest.mark.parametrize("operation", ["publish", "download"])
def test_memory_of_a_large_record(hop_config: Mapping[str, object], operation: str) -> None:
    """In a process of its own, by what the system says: tracemalloc does not see all."""
    size = 100 << 20
    store = open_store("hop", hop_config)
    reference = store.publish("t", bytes(size)) if operation == "download" else ""
    store.close()
    program = f"""
from payload_stores import open_store
from tests.memory import peak_bytes, reset_peak
store = open_store("hop", {dict(hop_config)!r})
store.download(store.publish("t", bytes(1 << 20)))
data = b"x" * {size} if {operation!r} == "publish" else None
before = reset_peak()
if data is None:
    assert len(store.download({reference!r})) == {size}
else:
    store.publish("t", data)
print(peak_bytes() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    extra = int(done.stdout) - (size if operation == "download" else 0)
    assert extra <= 0.2 * size
