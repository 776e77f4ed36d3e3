"""Records on a server that answers in the order of the public service, to and from hop-client."""

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hop.models import Blob

from payload_stores import PayloadAccessDeniedError, PayloadNotFoundError, PayloadRetractedError
from payload_stores.hop import HopStore
from serde_chain import Producer, SerializationError
from serde_chain.testing.services import KafkaBroker
from tests.hop.conftest import Announce, Clients, NewHop, NewTopic
from tests.hop.public_service import PublicService, running

pytestmark = [pytest.mark.filterwarnings("ignore:Large message offload service is bare HTTP"), pytest.mark.full]

LARGE = 3_000_000


@pytest.fixture
def service(broker: KafkaBroker, announce: Announce) -> Iterator[PublicService]:
    """Announced on the broker for the time of a test."""
    users = {user: broker.users[user] for user in ("alice", "bob")}
    service = PublicService(users)
    with running(service) as url:
        announce(url)
        yield service


@pytest.mark.full
@pytest.mark.parametrize("prefix", ["hop-public-", "hop-"])
def test_both_clients_read_what_either_wrote(  # noqa: PLR0917, pytest passes them by name
    service: PublicService, new_topic: NewTopic, client: Clients, new_hop: NewHop, read: Any, prefix: str
) -> None:
    topic = new_topic(prefix=prefix)
    producer, hop = client(Producer), new_hop()
    producer.produce(topic, b"a" * LARGE, b"key", headers=[("a", b"1")])
    assert producer.flush(30) == 0
    assert hop.write(topic, Blob(b"b" * LARGE), headers=[("a", b"1")], key=b"key") is None
    values = [b"a" * LARGE, b"b" * LARGE]
    assert [message.content for message, _ in hop.read(topic)] == values
    service.requests.clear()
    found = read(topic, 2)
    assert [message.value() for message in found] == values
    assert [(message.key(), message.headers()[0]) for message in found] == [(b"key", ("a", b"1"))] * 2
    # A public message is there before anybody says who wants it.
    once = [("GET", 200, None)] if prefix == "hop-public-" else [("GET", 401, None), ("GET", 200, "alice")]
    assert Counter(service.requests) == Counter(once * 2)  # of two downloads at once


def test_a_message_that_is_gone(service: PublicService, new_topic: NewTopic, client: Clients, read: Any) -> None:
    topic = new_topic(prefix="hop-public-")
    producer = client(Producer)
    producer.produce(topic, bytes(LARGE))
    assert producer.flush(30) == 0
    (placeholder,) = read(topic, fetch_external=False)
    service.messages.clear()
    with pytest.raises(PayloadNotFoundError, match="404: Message not found") as caught:
        read(topic)
    assert caught.value.about_record
    assert caught.value.reference == json.loads(placeholder.value())["url"]


def test_no_permission(service: PublicService, new_topic: NewTopic, client: Clients, read: Any) -> None:
    topic = new_topic()
    producer = client(Producer)
    producer.produce(topic, bytes(LARGE))
    assert producer.flush(30) == 0
    service.may_read.clear()
    with pytest.raises(PayloadAccessDeniedError, match="403") as caught:
        read(topic)
    assert not caught.value.about_record
    assert uuid.UUID(str(caught.value.reference).rpartition("/")[2]) in service.messages


def test_a_first_record_that_names_a_message_of_another_topic(
    service: PublicService, new_topic: NewTopic, client: Clients, read: Any
) -> None:
    """It is not known whether the user may read any, until a record behind it has been read ahead."""
    topic, secret = new_topic(), new_topic()
    service.secret.add(secret)
    with client(Producer) as producer:
        producer.produce(secret, b"1" * LARGE)
    (theirs,) = read(secret, fetch_external=False)
    with client(Producer, automatic_offload=False) as producer:
        producer.produce(topic, theirs.value(), headers=theirs.headers())
    with client(Producer) as producer:
        producer.produce(topic, b"2" * LARGE)
    (found,) = read(topic, **{"serde.error.policy": "skip"})
    assert found.value() == b"2" * LARGE


def _write(client: Clients, topic: str, *values: bytes) -> None:
    with client(Producer) as producer:
        for value in values:
            producer.produce(topic, value, b"key", headers=[("a", b"1"), ("_retracted", b"false")])


def _store(service: PublicService, endpoint: str, user: str) -> HopStore:
    store = HopStore()
    store.configure({"hop.offload.url": endpoint, "hop.username": user, "hop.password": service.users[user]})
    return store


def test_a_retracted_message(service: PublicService, new_topic: NewTopic, client: Clients, read: Any) -> None:
    topic = new_topic(prefix="hop-public-")
    _write(client, topic, b"1" * LARGE, b"2" * LARGE)
    first, _ = read(topic, 2, fetch_external=False)
    url = json.loads(first.value())["url"]
    endpoint, _, name = url.rpartition("/msg/")
    service.requests.clear()
    with closing(_store(service, endpoint, "bob")) as store:
        with pytest.raises(PayloadAccessDeniedError, match="may not retract"):
            store.retract(url)
        assert not service.retracted
    with closing(_store(service, endpoint, "alice")) as store:
        store.retract(url)
        assert service.retracted == {uuid.UUID(name)}
    assert service.requests == [
        ("PUT", status, user)
        for status, user in ((401, None), (403, "bob"), (401, None), (200, "alice"))
    ]  # fmt: skip

    # By default it is read like others, without a question.
    service.requests.clear()
    assert [message.value() for message in read(topic, 2)] == [b"1" * LARGE, b"2" * LARGE]
    assert service.requests == [("GET", 200, None)] * 2

    with pytest.raises(SerializationError, match="retracted in the archive") as caught:
        read(topic, **{"hop.retracted": "error"})
    assert isinstance(caught.value.__cause__ or caught.value, PayloadRetractedError)
    assert caught.value.about_record
    (found,) = read(topic, **{"hop.retracted": "error", "serde.error.policy": "skip"})
    assert found.value() == b"2" * LARGE
    marked, other = read(topic, 2, **{"hop.retracted": "flag"})
    assert marked.value() == b"1" * LARGE
    # Not what the writer says of itself.
    assert [value for name, value in marked.headers() if name == "_retracted"] == [b"true"]
    assert [value for name, value in other.headers() if name == "_retracted"] == []

    with closing(_store(service, endpoint, "alice")) as store:
        store.retract(url, retracted=False)
    assert len(read(topic, 2, **{"hop.retracted": "error"})) == 2


def test_retractions_of_messages_that_are_not_public_are_not_listed(
    service: PublicService, new_topic: NewTopic, client: Clients, read: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    _write(client, topic, b"1" * LARGE, b"2" * LARGE)
    service.retracted.update(service.messages)
    assert len(read(topic, 2, **{"hop.retracted": "error"})) == 2
    (warning,) = [record for record in caplog.records if "does not say" in record.getMessage()]
    assert "hop.retracted = error" in warning.getMessage()
