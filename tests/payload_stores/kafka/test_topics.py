"""Payload topics: how they are created, what is said of their settings, and who may do what."""

import logging
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from payload_stores import ConfigError, PayloadAccessDeniedError, PayloadStoreError, PublishContext, open_store
from payload_stores.kafka.place import Place
from serde_chain import DeserializerChain, RecordContext, SerializationError
from serde_chain.testing.services import KafkaBroker

if TYPE_CHECKING:
    from tests.conftest import NewTopic
    from tests.payload_stores.kafka.conftest import NewStore

DAY = 86_400_000


def settings(broker: KafkaBroker, topic: str) -> dict[str, str]:
    admin = broker.admin()
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: str(entry.value) for name, entry in future.result(30).items()}


def change(broker: KafkaBroker, topic: str, **values: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    admin = broker.admin()
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def partitions(broker: KafkaBroker, topic: str) -> int:
    return len(broker.admin().list_topics(topic, timeout=30).topics[topic].partitions)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"retention.ms": str(10 * DAY)}, ("delete", 12 * DAY)),
        ({"retention.ms": "-1"}, ("delete", -1)),
        ({"cleanup.policy": "compact"}, ("compact", -1)),
        ({"cleanup.policy": "compact,delete", "retention.ms": str(10 * DAY)}, ("compact,delete", 12 * DAY)),
    ],
)
def test_a_payload_topic_outlives_its_records(  # noqa: PLR0917, fixtures
    broker: KafkaBroker,
    new_topic: "NewTopic",
    new_store: "NewStore",
    data: Mapping[str, str],
    expected: tuple[str, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic(3, data)
    store = new_store(**{"kafka.payload.topic": "{topic}.payloads"})
    reference = store.publish(topic, b"data")
    assert store.download(reference) == b"data"
    found = settings(broker, f"{topic}.payloads")
    assert (found["cleanup.policy"], int(found["retention.ms"])) == expected
    assert found["retention.bytes"] == "-1"
    assert partitions(broker, f"{topic}.payloads") == 3
    assert "are deleted after" not in caplog.text
    days = expected[1] / DAY
    assert store.expiration(topic) == (None if days < 0 else timedelta(days=days))


def test_a_payload_is_as_durable_as_its_record(
    broker: KafkaBroker, new_topic: "NewTopic", new_store: "NewStore"
) -> None:
    own = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    strict, plain = new_topic(1, own), new_topic(1)
    store = new_store()
    for topic in (strict, plain):
        store.set_expiration(topic, timedelta(days=9))  # creates it; no payload is written, for want of replicas
    found = {topic: settings(broker, store._payload_topic(topic)) for topic in (strict, plain)}
    assert own.items() <= found[strict].items()
    assert not own.items() & found[plain].items()


def test_a_topic_that_is_not_there_yet_gets_the_brokers_defaults(
    broker: KafkaBroker, topic: str, new_store: "NewStore"
) -> None:
    default = int(settings(broker, topic)["retention.ms"])
    later = f"later-{uuid.uuid4().hex}"
    store = new_store(**{"kafka.payload.topic": "{topic}.payloads"})
    store.publish(later, b"data")
    assert int(settings(broker, f"{later}.payloads")["retention.ms"]) == default * 12 // 10


def test_a_retention_that_is_set(broker: KafkaBroker, new_topic: "NewTopic", new_store: "NewStore") -> None:
    kept, compacted = new_topic(), new_topic(1, {"cleanup.policy": "compact"})
    store = new_store(**{"kafka.payload.topic": "{topic}.payloads", "kafka.payload.retention.ms": 30 * DAY})
    for topic, policy in ((kept, "delete"), (compacted, "compact,delete")):
        store.publish(topic, b"data")
        found = settings(broker, f"{topic}.payloads")
        assert (found["cleanup.policy"], found["retention.ms"]) == (policy, str(30 * DAY))


def test_a_retention_that_is_too_short_is_reported_with_both_figures_once(
    new_topic: "NewTopic", new_store: "NewStore", caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(1, {"retention.ms": str(7 * DAY)})
    compacted = new_topic(1, {"cleanup.policy": "compact"})
    payloads = new_topic(1, {"retention.ms": str(DAY), "retention.bytes": "1000000"})
    store = new_store(**{"kafka.payload.topic": payloads})
    with caplog.at_level(logging.WARNING, "payload_stores.kafka"):
        for _ in range(2):
            store.publish(topic, b"data")
    (told,) = [record.getMessage() for record in caplog.records if "retention.ms" in record.getMessage()]
    assert f"payloads of {topic} are deleted after {DAY} ms (1 days) (retention.ms of {payloads})" in told
    assert f"its records after {7 * DAY} ms (7 days)" in told
    assert "more than 1000000 bytes (retention.bytes)" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "payload_stores.kafka"):
        store.publish(compacted, b"data")
    assert "its records never" in caplog.text


def test_expiration_is_the_topics_retention(broker: KafkaBroker, new_topic: "NewTopic", new_store: "NewStore") -> None:
    topic, compacted = new_topic(), new_topic(1, {"cleanup.policy": "compact"})
    store = new_store(**{"kafka.payload.topic": "{topic}.payloads"})
    with pytest.raises(PayloadStoreError, match="does not exist"):
        store.expiration(topic)
    assert store.unprepared(topic) == f"the payload topic {topic}.payloads"
    for name, policies in ((topic, ("delete", "delete")), (compacted, ("compact,delete", "compact"))):
        for age, policy in zip((timedelta(days=9), None), policies, strict=True):
            store.set_expiration(name, age)
            assert settings(broker, f"{name}.payloads")["cleanup.policy"] == policy
            assert store.expiration(name) == age
    assert store.unprepared(topic) is None


@pytest.mark.full
def test_chunks_are_as_large_as_the_topic_allows(
    broker: KafkaBroker, new_topic: "NewTopic", new_store: "NewStore"
) -> None:
    topic = new_topic()
    payloads = new_topic(1, {"max.message.bytes": "40000"})
    store = new_store(**{"kafka.payload.topic": payloads})
    data = bytes(range(256)) * 1000
    reference = store.publish(topic, data)
    assert reference.split("/")[5] == "0-7", "eight chunks of up to 35904 bytes"
    assert store.download(reference) == data
    # The longest key there can be.
    longest = "/".join(["x" * 200] * 4)
    store = new_store(**{"kafka.payload.topic": payloads})
    assert store.download(store.publish(topic, data, PublishContext(payload_id=longest))) == data
    change(broker, payloads, max_message_bytes="35000")
    with pytest.raises(PayloadStoreError, match=r"max\.message\.bytes"):
        store.publish(topic, data)
    assert store.download(store.publish(topic, data)) == data, "the limit was asked for again"
    change(broker, payloads, max_message_bytes="20000")
    with pytest.raises(PayloadStoreError, match="less than the 32768 that chunks need"):
        new_store(**{"kafka.payload.topic": payloads}).publish(topic, data)


def test_one_topic_for_several(new_topic: "NewTopic", new_store: "NewStore") -> None:
    first, second = new_topic(), new_topic()
    store = new_store(**{"kafka.payload.topic": f"shared-{uuid.uuid4().hex}"})
    references = {topic: store.publish(topic, topic.encode()) for topic in (first, second)}
    for topic, reference in references.items():
        assert [info.reference for info in store.list(topic)] == [reference]
        assert store.topic_of(reference) == topic
        assert store.download(reference) == topic.encode()


def test_long_names_are_cut(new_store: "NewStore") -> None:
    store = new_store()
    topics = ["t" * 248 + end for end in "ab"]
    references = [store.publish(topic, topic[-1:].encode()) for topic in topics]
    assert [store.download(reference) for reference in references] == [b"a", b"b"]
    names = {reference.split("/")[3] for reference in references}
    assert [len(name) for name in names] == [249, 249]


@pytest.mark.parametrize("pattern", ["{topic}", "{topic", "a b", "a/{topic}", "{topic}{topic}", "", ".", "a" * 250])
def test_a_pattern_that_is_none(config: Mapping[str, object], pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.payload\.topic"):
        open_store("kafka", {**config, "kafka.payload.topic": pattern})


def test_a_topic_does_not_hold_its_own_payloads(topic: str, new_store: "NewStore") -> None:
    with pytest.raises(PayloadStoreError, match="would hold its own payloads"):
        new_store(**{"kafka.payload.topic": topic}).publish(topic, b"data")


@pytest.mark.full
def test_the_error_without_permission_has_the_command(broker: KafkaBroker, topic: str, new_store: "NewStore") -> None:
    store = new_store(**broker.client_config("alice"), **{"kafka.payload.topic": "{topic}.payloads"})
    with pytest.raises(PayloadAccessDeniedError) as caught:
        store.publish(topic, b"data")
    assert not caught.value.about_record
    assert "alice-secret" not in str(caught.value)
    broker.create_topic(f"{topic}.payloads")
    broker.allow("alice", ["READ"], topic=f"{topic}.payloads")
    for _ in range(2):  # the second time librdkafka itself would deny, and go on doing so
        with pytest.raises(PayloadAccessDeniedError) as caught:
            store.publish(topic, b"data")
        assert "--operation Write" in str(caught.value)
    broker.allow("alice", ["WRITE"], topic=f"{topic}.payloads")
    reference = store.publish(topic, b"data")
    assert store.download(reference) == b"data"


def test_who_may_write_alone_writes_with_a_warning(
    broker: KafkaBroker, topic: str, new_store: "NewStore", caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(f"{topic}.payloads")
    broker.allow("bob", ["WRITE"], topic=f"{topic}.payloads")
    store = new_store(**broker.client_config("bob"), **{"kafka.payload.topic": "{topic}.payloads"})
    reference = store.publish(topic, b"data")
    assert "DescribeConfigs" in caplog.text
    with pytest.raises(PayloadAccessDeniedError) as caught:
        store.download(reference)
    assert caught.value.about_topic
    assert not caught.value.about_record
    assert new_store(**{"kafka.payload.topic": "{topic}.payloads"}).download(reference) == b"data"


def test_credentials_of_the_clients_cluster_are_not_sent_to_another(broker: KafkaBroker) -> None:
    config: dict[str, Any] = {**broker.client_config("alice"), "kafka.bootstrap.servers": "other:9092"}
    store = open_store("kafka", config)
    settings = vars(store)["_broker"].settings({})
    assert settings["bootstrap.servers"] == "other:9092"
    assert not any(key.startswith(("sasl.", "security.")) for key in settings)
    store.close()
    with pytest.raises(ConfigError, match=r"needs bootstrap\.servers"):
        open_store("kafka", {})


@pytest.mark.full
def test_a_topic_that_was_deleted_is_a_fault_of_the_world(
    broker: KafkaBroker, topic: str, new_store: "NewStore"
) -> None:
    store = new_store(**{"kafka.payload.topic": "{topic}.payloads", "kafka.payload.timeout.ms": 5000})
    reference = store.publish(topic, b"data")
    assert store.download(reference) == b"data"
    admin = broker.admin()  # held until the answer is there
    admin.delete_topics([f"{topic}.payloads"])[f"{topic}.payloads"].result(30)
    for reader in (store, new_store(**{"kafka.payload.topic": "{topic}.payloads"})):
        with pytest.raises(PayloadStoreError, match=f"{topic}.payloads does not exist") as caught:
            reader.download(reference)
        assert not caught.value.about_record
        assert not caught.value.transient
        assert caught.value.hint
    assert list(new_store().list("nothing")) == []
    new_store(**{"kafka.payload.topic": "{topic}.payloads"}).delete(reference)


@pytest.mark.full
def test_a_topic_that_is_deleted_while_a_producer_lives_is_made_again(
    broker: KafkaBroker, topic: str, new_store: "NewStore"
) -> None:
    store = new_store(**{"kafka.payload.topic": "{topic}.payloads", "kafka.payload.timeout.ms": 3000})
    first = store.publish(topic, b"first")
    admin = broker.admin()  # held until the answer is there
    for _ in range(2):
        admin.delete_topics([f"{topic}.payloads"])[f"{topic}.payloads"].result(30)
        with pytest.raises(PayloadStoreError, match=rf"{topic}\.payloads was deleted; the next payload") as caught:
            store.publish(topic, b"lost")
        assert caught.value.transient
        second = store.publish(topic, b"second")
        assert store.download(second) == b"second"
    with pytest.raises(PayloadStoreError) as caught:
        store.download(first)
    assert caught.value.about_record


def test_a_topic_that_another_topics_record_names_is_the_fault_of_that_record(
    topic: str, new_store: "NewStore"
) -> None:
    """Its writer can name any; a store's own, shared payload topic is named by the configuration."""
    cluster = Place.of(new_store(), new_store().publish(topic, b"data")).cluster
    shared = new_store(**{"kafka.payload.topic": f"{topic}-payloads"})
    per_topic = new_store(**{"kafka.payload.topic": "{topic}.payloads"})
    for store, payloads in ((shared, f"{topic}-payloads"), (per_topic, f"{topic}.payloads")):
        chain = DeserializerChain.from_config(
            {"value.deserializers": "large-message", "large.message.payload.store.class": store}
        )
        for reader, is_other in ((topic, False), ("another", store is per_topic)):
            headers: list[tuple[str, str | bytes | None]] = [("large-message", b"true")]
            reference = f"kafka://{cluster}/{payloads}/0/0-0/{topic}/1".encode()
            with pytest.raises(SerializationError, match="does not exist") as caught:
                chain(reference, RecordContext(reader, "value", headers))
            assert caught.value.about_record is is_other


def test_librdkafka_logs_to_logging(capfd: pytest.CaptureFixture[str]) -> None:
    store = open_store("kafka", {"bootstrap.servers": "127.0.0.1:1", "kafka.payload.timeout.ms": 300})
    with pytest.raises(PayloadStoreError) as caught:
        store.publish("topic", b"data")
    assert caught.value.transient
    assert not caught.value.about_record
    store.close()
    assert "%3|" not in capfd.readouterr().err


@pytest.mark.full
def test_a_wrong_password_is_not_a_broker_that_is_away(broker: KafkaBroker, topic: str, new_store: "NewStore") -> None:
    wrong = {**broker.client_config("alice"), "sasl.password": "not-hers", "kafka.payload.timeout.ms": 2000}
    store = new_store(**wrong)
    with pytest.raises(
        PayloadAccessDeniedError, match=r"Authentication failed.*Check the user, the password"
    ) as caught:
        store.publish(topic, b"data")
    assert not caught.value.about_record
    assert "not-hers" not in str(caught.value)
