"""Records from hop-client and to it, in both directions, small ones and those that go to the offload server."""

import json
import time
import uuid
from typing import Any

import pytest
from hop.models import AvroBlob, Blob, JSONBlob, VOEvent

from serde_chain import Producer
from serde_chain.testing.services import OffloadServer
from tests.hop.conftest import Announce, Clients, NewHop, NewTopic

# hop-client warns of plain http, as it should.
pytestmark = pytest.mark.filterwarnings("ignore:Large message offload service is bare HTTP")

LARGE = 3_000_000
JSON = {"value.serializers": "json, large-message", "value.deserializers": "large-message, json"}
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Alert",
        "fields": [{"name": "id", "type": "long"}, {"name": "pixels", "type": "bytes"}],
    }
)
AVRO = {
    "value.serializers": "avro, large-message",
    "value.deserializers": "large-message, avro",
    "avro.schema": SCHEMA,
    "avro.framing": "container",
}


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("size", [1000, LARGE])
def test_to_hop_client(topic: str, client: Clients, new_hop: NewHop, mechanism: str, size: int) -> None:
    began = now_ms()
    producer = client(Producer, mechanism=mechanism)
    headers = [("text", "ä"), ("bytes", b"\0\xff"), ("empty", b"")]
    outcomes: list[Any] = []
    for key in ("key", None):
        producer.produce(topic, bytes(size), key, headers=headers, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(30) == 0
    assert outcomes == [None, None]
    found = new_hop(mechanism).read(topic)
    assert [message for message, _ in found] == [Blob(bytes(size))] * 2
    assert [metadata.key for _, metadata in found] == [b"key", None]
    for _, metadata in found:
        assert metadata.headers[:3] == [("text", "ä".encode()), ("bytes", b"\0\xff"), ("empty", b"")]
        own = dict(metadata.headers[3:])
        assert list(own) == ["_id", "_sender", "_format"]
        assert len(own["_id"]) == 16
        assert (own["_sender"], own["_format"]) == (b"alice", b"blob")
        assert began - 1000 <= metadata.timestamp <= now_ms() + 1000


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("size", [1000, LARGE])
def test_from_hop_client(topic: str, read: Any, new_hop: NewHop, mechanism: str, size: int) -> None:
    hop = new_hop(mechanism)
    assert hop.write(topic, Blob(bytes(size)), headers=[("a", b"1"), ("a", b"\0")], key=b"key") is None
    assert hop.write(topic, Blob(bytes(size)), test=True) is None
    first, second = read(topic, 2, mechanism=mechanism)
    assert [len(message.value()) for message in (first, second)] == [size, size]
    assert [message.key() for message in (first, second)] == [b"key", None]
    assert first.headers()[:2] == [("a", b"1"), ("a", b"\0")]
    assert [name for name, _ in first.headers()[2:]] == ["_id", "_sender", "_format"]
    assert ("_test", b"true") in second.headers()
    # What hop-client itself sees.
    for ours, (_, theirs) in zip((first, second), hop.read(topic), strict=True):
        assert ours.headers() == theirs.headers
        assert ours.timestamp()[1] == theirs.timestamp
        assert (ours.topic(), ours.partition(), ours.offset()) == (theirs.topic, theirs.partition, theirs.offset)


@pytest.mark.full
@pytest.mark.parametrize("filler", ["", "x" * LARGE], ids=["small", "large"])
def test_formats(new_topic: NewTopic, client: Clients, read: Any, new_hop: NewHop, filler: str) -> None:
    hop = new_hop()
    document, alert = {"a": [1, filler]}, {"id": 1, "pixels": filler.encode()}
    for config, value, model in ((JSON, document, JSONBlob(document)), (AVRO, alert, AvroBlob(alert))):
        topic = new_topic()
        producer = client(Producer, **config)
        producer.produce(topic, value)
        assert producer.flush(30) == 0
        ((found, _),) = hop.read(topic)
        assert (type(found), found.content) == (type(model), value)
        assert hop.write(topic, model) is None
        assert [message.value() for message in read(topic, 2, **config)] == [value, value]


@pytest.mark.full
@pytest.mark.parametrize("size", [10, LARGE])
def test_records_that_hop_client_forwards(topic: str, new_hop: NewHop, read: Any, size: int) -> None:
    """With the id of the first record among the headers, before its own: its placeholder names the last one."""
    hop = new_hop()
    assert hop.write(topic, Blob(bytes(size))) is None
    ((message, metadata),) = hop.read(topic)
    assert hop.write(topic, message, headers=metadata.headers, key=metadata.key) is None
    assert [len(message.value()) for message in read(topic, 2)] == [size, size]
    assert [message for message, _ in hop.read(topic)] == [Blob(bytes(size))] * 2


@pytest.mark.full
def test_other_formats_come_as_bytes(topic: str, new_hop: NewHop, read: Any) -> None:
    hop = new_hop()
    xml = b'<voe:VOEvent xmlns:voe="x" ivorn="ivo://a" role="test" version="2.0"><Who/></voe:VOEvent>'
    event = VOEvent.load(xml)
    for message in (event, Blob(b"\xff"), Blob(bytes(LARGE)), JSONBlob({"a": 1})):
        assert hop.write(topic, message) is None
    values = [message.value() for message in read(topic, 4, **JSON)]
    assert values == [xml, b"\xff", bytes(LARGE), {"a": 1}]


@pytest.mark.full
@pytest.mark.parametrize("size", [10, LARGE])
def test_test_messages(topic: str, client: Clients, new_hop: NewHop, size: int) -> None:
    producer = client(Producer)
    producer.produce(topic, bytes(size), headers=[("_test", b"true")])
    assert producer.flush(30) == 0
    hop = new_hop()
    assert hop.read(topic, ignoretest=True) == []
    ((_, metadata),) = hop.read(topic)
    assert ("_test", b"true") in metadata.headers


@pytest.mark.full
def test_placeholder_is_what_hop_client_writes(
    topic: str, client: Clients, new_hop: NewHop, read: Any, offload_server: OffloadServer
) -> None:
    producer = client(Producer)
    producer.produce(topic, bytes(LARGE), b"key", headers=[("a", b"1")])
    assert producer.flush(30) == 0
    assert new_hop().write(topic, Blob(bytes(LARGE)), headers=[("a", b"1")], key=b"key") is None
    ours, theirs = read(topic, 2, fetch_external=False)
    for message in (ours, theirs):
        url = json.loads(message.value())["url"]
        assert message.value() == json.dumps({"url": url}).encode()
        prefix, _, name = url.rpartition("/")
        assert prefix == f"{offload_server.url}/msg"
        assert str(uuid.UUID(name)) == name
        assert message.key() == b"key"
        assert [name for name, _ in message.headers()] == ["_id", "_sender", "_format"]
        assert dict(message.headers())["_format"] == b"external"


@pytest.mark.full
def test_endpoint_announced_with_a_slash(  # noqa: PLR0917, pytest passes them by name
    topic: str, client: Clients, new_hop: NewHop, read: Any, offload_server: OffloadServer, announce: Announce
) -> None:
    announce(f"{offload_server.url}/")
    hop = new_hop()
    assert hop.write(topic, Blob(b"theirs" * 500_000)) is None
    producer = client(Producer)
    producer.produce(topic, b"ours" * 500_000)
    assert producer.flush(30) == 0
    values = [b"theirs" * 500_000, b"ours" * 500_000]
    assert [message.content for message, _ in hop.read(topic)] == values
    assert [message.value() for message in read(topic, 2)] == values
    first, second = read(topic, 2, fetch_external=False)
    assert b"//msg/" in first.value()
    assert b"//msg/" not in second.value()


@pytest.mark.full
@pytest.mark.parametrize("limit", [5_000, 1_048_588, 2_000_000, 5_000_000])
def test_sizes_at_the_limit_of_the_topic(
    new_topic: NewTopic, client: Clients, new_hop: NewHop, read: Any, limit: int
) -> None:
    topic = new_topic(limit)
    producer = client(Producer)
    # What hop's own headers take: names, values, and lengths of one byte.
    headers = sum(len(name) + size + 2 for name, size in (("_id", 16), ("_sender", 5), ("_format", 4)))
    lengths = {5_000: 2 + 2, 1_048_588: 3 + 3, 2_000_000: 4 + 4, 5_000_000: 4 + 4}[
        limit
    ]  # of the value, and of the record
    largest = limit - 61 - 3 - 2 - 1 - headers - lengths  # batch, record, key, number of headers
    sizes = [largest + difference for difference in range(-2, 3)]
    outcomes: list[Any] = []
    for size in sizes:
        producer.produce(topic, bytes(size), b"k", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(30) == 0
    assert outcomes == [None] * 5
    found = new_hop().read(topic)
    assert [len(message.content) for message, _ in found] == sizes
    raw = read(topic, 5, fetch_external=False)
    assert [dict(message.headers())["_format"] for message in raw] == [b"blob"] * 3 + [b"external"] * 2
    assert [len(message.value()) for message in read(topic, 5)] == sizes


@pytest.mark.full
def test_three_megabytes_stay_in_the_record_where_the_topic_takes_them(
    new_topic: NewTopic, client: Clients, new_hop: NewHop, read: Any
) -> None:
    topic = new_topic(5_000_000)
    assert new_hop().write(topic, Blob(bytes(LARGE))) is None
    producer = client(Producer)
    outcomes: list[Any] = []
    producer.produce(topic, bytes(LARGE), on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(30) == 0
    assert outcomes == [None]
    theirs, ours = read(topic, 2, fetch_external=False)
    for message in (theirs, ours):
        assert dict(message.headers())["_format"] == b"blob"
        assert message.value() == bytes(LARGE)
    assert [message.content for message, _ in new_hop().read(topic)] == [bytes(LARGE)] * 2


@pytest.mark.full
def test_content_ids(topic: str, client: Clients, read: Any) -> None:
    producer = client(Producer, **{"large.message.id": "content"})
    for key in (b"a", b"a", b"b"):
        producer.produce(topic, bytes(LARGE), key)
    assert producer.flush(30) == 0
    urls = [message.value() for message in read(topic, 3, fetch_external=False)]
    assert urls[0] == urls[1] != urls[2]
    assert [message.key() for message in read(topic, 3)] == [b"a", b"a", b"b"]
