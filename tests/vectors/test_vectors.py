"""The vectors that the package ships, written and read by our own chains."""

import io
import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import confluent_kafka
import pytest

from payload_stores import open_store
from payload_stores.errors import PayloadStoreError
from payload_stores.kafka import KafkaStore
from payload_stores.kafka.place import Place
from serde_chain import RecordContext, SerializationError
from serde_chain.catalogue import find_format
from serde_chain.clients.dead_letters import read_dead_letter
from serde_chain.testing.services import KafkaBroker, S3Server
from tests.payload_stores.kafka.test_bad_input import write
from tests.vectors import cases
from tests.vectors.__main__ import FOLDER
from tests.vectors.build import FILES, bucket, build, read, text_of, value_of
from tests.vectors.independent import READERS

OF_CHAINS = set(FILES) - {"hop", "kafka-references", "kafka-chunks", "dead-letters"}


@pytest.fixture(scope="module")
def place(s3_server: S3Server) -> Iterator[tuple[Any, dict[str, str]]]:
    """The client of the vectors' bucket, and its settings."""
    with bucket(s3_server) as found:
        yield found


def vectors(*names: str) -> pytest.MarkDecorator:
    found = [
        (name, vector)
        for name in sorted(names)
        for vector in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["vectors"]
    ]
    ids = [f"{name}: {vector['name']}" for name, vector in found]
    return pytest.mark.parametrize("vector", [vector for _, vector in found], ids=ids)


def headers_of(vector: Any, member: str = "headers") -> Any:
    return [(name, bytes.fromhex(value)) for name, value in vector.get(member, ())]


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_what_the_writers_write(name: str, place: Any) -> None:
    client, store = place
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == text_of(build(name, client, store))


def test_every_file_has_records_that_are_read_and_ones_that_are_refused() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == FILES.keys()
    for path in FOLDER.glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))["vectors"]
        assert len({vector["name"] for vector in found}) == len(found)
        assert {"error" in vector for vector in found} == {True, False}, path.name


@vectors(*OF_CHAINS)
def test_readers_of_chains(vector: Any, place: Any) -> None:
    client, store = place
    if "error" in vector:
        with pytest.raises((SerializationError, PayloadStoreError)) as caught:
            read(vector, client, store)
        assert type(caught.value).__name__ == vector["error"]
        return
    result, headers = read(vector, client, store)
    expected = bytes.fromhex(vector["result"]) if "result" in vector else value_of(vector)
    assert result == expected
    assert headers == headers_of(vector, "result_headers") + headers_of(vector, "user_headers")


def _independent(name: str) -> Any:
    return [
        pytest.param(name, vector, id=f"{name}: {vector['name']}")
        for vector in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["vectors"]
        # The metadata's own numbers are not what that reader looks at.
        if not (name == "entry-metadata" and vector["name"] in {"a group", "a number beyond 64 bits"})
        and "goes on" not in vector["name"]
    ]


@pytest.mark.parametrize(("name", "vector"), [each for name in READERS for each in _independent(name)])
def test_readers_that_were_written_from_the_pages(name: str, vector: Any) -> None:
    if "error" in vector:
        with pytest.raises((ValueError, KeyError)):
            READERS[name](vector)
        return
    expected = bytes.fromhex(vector["result"]) if "result" in vector else value_of(vector)
    assert READERS[name](vector) == expected


@vectors("hop")
def test_placeholders_of_hop(vector: Any) -> None:
    ctx = RecordContext("alerts", "value", headers_of(vector))
    if "error" in vector:
        with pytest.raises(ValueError, match="placeholder"):
            find_format("hop").read(bytes.fromhex(vector["record"]), ctx, is_key=False)
        return
    found: Any = find_format("hop").read(bytes.fromhex(vector["record"]), ctx, is_key=False)
    assert (None if found is None else found.url) == vector["reference"]


@vectors("kafka-references")
def test_references_of_payloads_in_kafka(vector: Any) -> None:
    with closing(open_store("kafka", {"bootstrap.servers": "127.0.0.1:1", "log_level": 0})) as store:
        if "error" in vector:
            with pytest.raises(PayloadStoreError) as caught:
                Place.of(store, vector["reference"])
            assert type(caught.value).__name__ == vector["error"]
            return
        place = Place.of(store, vector["reference"])
        assert place.url("kafka") == vector["reference"]
    members = ("cluster", "payload_topic", "partition", "first", "last")
    assert place[:5] == tuple(vector[member] for member in members)
    assert place.key == vector["key"]


@pytest.fixture(scope="module")
def payloads(broker: KafkaBroker) -> Iterator[tuple[KafkaStore, str]]:
    """A store in Kafka, and the payload topic of all of its payloads."""
    name = f"payloads-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    settings = {**broker.client_config(), "kafka.payload.topic": name, "kafka.payload.timeout.ms": 10_000}
    with closing(cast("KafkaStore", open_store("kafka", settings))) as store:
        yield store, name


@vectors("kafka-chunks")
def test_chunks_in_kafka(vector: Any, payloads: tuple[KafkaStore, str], broker: KafkaBroker) -> None:
    store, name = payloads
    records = [
        (
            *(None if record[part] is None else bytes.fromhex(record[part]) for part in ("key", "value")),
            headers_of(record),
        )
        for record in vector["records"]
    ]
    place = Place.of(store, vector["reference"])
    # The broker decides on the offsets.
    shift = write(broker, name, records)[0] - vector["records"][0]["offset"]
    cluster = Place.of(store, store.publish("alerts", b"another")).cluster
    moved = place._replace(cluster=cluster, topic=name, partition=0, first=place.first + shift, last=place.last + shift)
    if "error" in vector:
        with pytest.raises(PayloadStoreError) as caught:
            store.download(moved.url("kafka"))
        assert type(caught.value).__name__ == vector["error"]
        return
    assert store.download(moved.url("kafka")).hex() == vector.get("result", vector.get("payload"))


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_the_store_writes_is_read_from_the_page(
    is_stream: bool, payloads: tuple[KafkaStore, str], broker: KafkaBroker
) -> None:
    store, name = payloads
    data = bytes(range(251)) * 12_000
    reference = store.publish_stream("alerts", io.BytesIO(data)) if is_stream else store.publish("alerts", data)
    place = Place.of(store, reference)
    consumer = confluent_kafka.Consumer({**broker.client_config(), "group.id": name, "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(name, place.partition, place.first)])
    messages = consumer.consume(place.last - place.first + 1, 30)
    consumer.close()
    records = [
        {
            "offset": message.offset(),
            "key": (message.key() or b"").hex(),
            "value": (message.value() or b"").hex(),
            "headers": cases.hexed(message.headers() or ()),
        }
        for message in messages
    ]
    assert len(records) > 1
    assert READERS["kafka-chunks"]({"reference": reference, "records": records}) == data


@vectors("dead-letters")
def test_headers_of_dead_letters(vector: Any) -> None:
    if "error" in vector:
        with pytest.raises(ValueError, match="header serde-chain-error-"):
            read_dead_letter(headers_of(vector))
        return
    letter = read_dead_letter(headers_of(vector))
    assert letter.origin._asdict() == vector["origin"]
    assert letter.headers == headers_of(vector, "own_headers")
    assert list(letter.dropped) == vector["dropped"]


def test_the_version_is_that_of_the_page() -> None:
    page = (cases.GOLDEN.parents[3] / "docs/wire-formats.md").read_text(encoding="utf-8")
    for path in FOLDER.glob("*.json"):
        version = json.loads(path.read_text(encoding="utf-8"))["specification"]
        assert f"version {version} of the specification" in page
        assert f"`{path.name}`" in page
