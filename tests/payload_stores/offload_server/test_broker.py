"""The broker's own ACLs, and the announcement on its topic, with a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import confluent_kafka
import httpx2
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from payload_stores.errors import PayloadStoreUnavailableError
from payload_stores.hop.endpoint import METADATA_KEY, METADATA_TOPIC
from payload_stores.offload_server import BrokerAcls, announcement
from payload_stores.offload_server.acls import READ, WRITE
from payload_stores.offload_server.announcement import announce
from payload_stores.scram import ScramAuth
from serde_chain.testing.services import KafkaBroker, OffloadServer

if TYPE_CHECKING:
    from tests.payload_stores.offload_server.conftest import NewMessage

DOWN: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "socket.timeout.ms": 1000}


def bind(broker: KafkaBroker, user: str, operation: str, topic: str, **more: Any) -> None:
    """Add an ACL for a topic."""
    kind = more.get("kind", ResourcePatternType.LITERAL)
    permission = more.get("permission", AclPermissionType.ALLOW)
    host = more.get("host", "*")
    acl = AclBinding(ResourceType.TOPIC, topic, kind, f"User:{user}", host, AclOperation[operation], permission)
    admin = broker.admin()
    for future in admin.create_acls([acl], request_timeout=30).values():
        future.result()


def test_acls(broker: KafkaBroker) -> None:
    name = f"acl-{uuid.uuid4().hex[:8]}"
    broker.allow("alice", ["WRITE"], topic=name)
    bind(broker, "alice", "ALL", f"{name}.pre", kind=ResourcePatternType.PREFIXED)
    bind(broker, "alice", "WRITE", f"{name}.pre.no", permission=AclPermissionType.DENY)
    bind(broker, "*", "READ", f"{name}.public")
    bind(broker, "bob", "READ", f"{name}.here", host="10.9.9.9")
    bind(broker, "bob", "DESCRIBE", name)
    acls = BrokerAcls(broker.client_config(), super_users=["root"])
    expected = {
        ("alice", WRITE, name): True,
        ("alice", READ, name): False,
        ("alice", WRITE, f"{name}2"): False,
        ("alice", READ, f"{name}.prefix"): True,
        ("alice", WRITE, f"{name}.pre.yes"): True,
        ("alice", WRITE, f"{name}.pre.no"): False,
        ("alice", READ, f"{name}.pre.no"): True,
        ("bob", WRITE, name): False,
        ("bob", READ, f"{name}.public"): True,
        ("bob", READ, f"{name}.here"): False,
        ("root", WRITE, "anything"): True,
        ("nobody", WRITE, name): False,
    }
    assert {question: acls.allows(*question, "127.0.0.1") for question in expected} == expected
    assert acls.allows("bob", READ, f"{name}.here", "10.9.9.9")


def test_any_topic(broker: KafkaBroker) -> None:
    user = f"user-{uuid.uuid4().hex[:8]}"
    broker.allow(user, ["READ"], topic="*")
    acls = BrokerAcls(broker.client_config())
    assert acls.allows(user, READ, "anything", "127.0.0.1")
    assert not acls.allows(user, WRITE, "anything", "127.0.0.1")


def test_answers_are_kept_for_a_while(broker: KafkaBroker) -> None:
    now = 0.0
    name = f"acl-{uuid.uuid4().hex[:8]}"
    acls = BrokerAcls(broker.client_config(), seconds=10, clock=lambda: now)
    assert not acls.allows("alice", WRITE, name, "")
    broker.allow("alice", ["WRITE"], topic=name)
    now = 9.9
    assert not acls.allows("alice", WRITE, name, "")
    now = 10.0
    assert acls.allows("alice", WRITE, name, "")
    anybody: Any = None
    literal, anything, either = ResourcePatternType.LITERAL, AclOperation.ANY, AclPermissionType.ANY
    every = AclBindingFilter(ResourceType.TOPIC, name, literal, anybody, anybody, anything, either)
    admin = broker.admin()
    for future in admin.delete_acls([every], request_timeout=30).values():
        future.result()
    assert acls.allows("alice", WRITE, name, "")
    now = 20.0
    assert not acls.allows("alice", WRITE, name, "")


def test_client_that_may_not_ask(broker: KafkaBroker) -> None:
    acls = BrokerAcls(broker.client_config("bob"))
    with pytest.raises(PayloadStoreUnavailableError, match="needs DESCRIBE on the cluster"):
        acls.allows("alice", WRITE, "t", "")


@pytest.mark.full
def test_broker_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payload_stores.offload_server.acls._ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(announcement, "_SECONDS", 1.0)
    now = 0.0
    acls = BrokerAcls(DOWN, super_users=["root"], clock=lambda: now)
    for _ in range(2):  # the second time without asking
        with pytest.raises(PayloadStoreUnavailableError):
            acls.allows("alice", WRITE, "t", "")
    assert acls.allows("root", WRITE, "t", "")
    with pytest.raises(PayloadStoreUnavailableError, match="announced"):
        announce(DOWN, "http://x")


def records(broker: KafkaBroker) -> list[Any]:
    """All that stands in sys.metadata."""
    consumer = confluent_kafka.Consumer({**broker.client_config(), "group.id": "test-announcement"})
    try:
        start = confluent_kafka.TopicPartition(METADATA_TOPIC, 0, 0)
        _, end = consumer.get_watermark_offsets(start, timeout=30)
        consumer.assign([start])
        found = [consumer.poll(30) for _ in range(end)]
        return [message.value() for message in found if message is not None]
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker whose sys.metadata is nobody else's."""
    with KafkaBroker() as running:
        yield running


@pytest.mark.full
def test_announcement(own_broker: KafkaBroker) -> None:
    config = own_broker.client_config()
    assert announce(config, "https://a")  # makes the topic
    assert not announce(config, "https://a")
    producer = confluent_kafka.Producer(config)
    producer.produce(METADATA_TOPIC, json.dumps({"Other": 1, METADATA_KEY: "https://b"}).encode())
    producer.flush(30)
    assert announce(config, "https://a")
    for junk in (b"not json", b"[1]", None):
        producer.produce(METADATA_TOPIC, junk)
        producer.flush(30)
        assert announce(config, "https://c")
    values = records(own_broker)
    assert json.loads(values[0]) == {METADATA_KEY: "https://a"}
    assert json.loads(values[2]) == {"Other": 1, METADATA_KEY: "https://a"}
    assert [json.loads(value) for value in values[4::2]] == [{METADATA_KEY: "https://c"}] * 3


@pytest.mark.full
def test_server_by_the_brokers_acls(own_broker: KafkaBroker, new_message: NewMessage) -> None:
    topic = f"test-{uuid.uuid4().hex[:8]}"
    own_broker.create_topic(topic)
    own_broker.allow("alice", ["WRITE"], topic=topic)
    own_broker.allow("bob", ["READ"], topic=topic)
    message = new_message()
    with OffloadServer(broker=own_broker.client_config(), announce=True) as server:
        assert json.loads(records(own_broker)[-1])[METADATA_KEY] == server.url

        def client(user: str) -> httpx2.Client:
            return httpx2.Client(base_url=server.url, auth=ScramAuth(user, server.users[user]), timeout=30)

        with client("alice") as alice, client("bob") as bob:
            assert bob.post(f"/topic/{topic}+oversized", content=message.body).status_code == 403
            assert alice.post(f"/topic/{topic}+oversized", content=message.body).status_code == 201
            assert alice.get(message.path).status_code == 403
            assert bob.get(message.path).status_code == 200


@pytest.mark.full
def test_health_while_the_broker_is_away() -> None:
    with OffloadServer(broker=DOWN) as server:
        answer = httpx2.get(server.url + "/health", timeout=30)
        assert (answer.status_code, answer.text) == (503, "the broker does not answer\n")
        assert httpx2.get(server.url + "/live").status_code == 200


def test_health_while_the_broker_answers(broker: KafkaBroker) -> None:
    with OffloadServer(broker=broker.client_config()) as server:
        assert httpx2.get(server.url + "/health", timeout=30).status_code == 200


def test_a_refusal_is_asked_for_again(broker: KafkaBroker) -> None:
    now = 0.0
    name = f"acl-{uuid.uuid4().hex[:8]}"
    user = f"user-{uuid.uuid4().hex[:8]}"
    acls = BrokerAcls(broker.client_config(), seconds=10, clock=lambda: now)
    assert not acls.allows(user, READ, name, "")
    broker.allow(user, ["READ"], topic=name)
    now = 0.9
    acls.refresh()  # too soon: one who is refused again and again does not make the broker answer each time
    assert not acls.allows(user, READ, name, "")
    now = 1.0
    acls.refresh()
    assert acls.allows(user, READ, name, "")
    assert acls.allows_any(user, READ, "")
    assert not acls.allows_any(user, WRITE, "")
