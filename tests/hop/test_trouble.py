"""What goes wrong between producer, broker, offload server and consumer, and what users are told."""

import gc
import json
import logging
import time
import uuid
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from payload_stores import (
    PayloadAccessDeniedError,
    PayloadNotFoundError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    UntrustedReferenceError,
    open_store,
)
from payload_stores.hop.endpoint import METADATA_KEY
from serde_chain import MessageTooLargeError, Producer
from serde_chain.testing.services import KafkaBroker, OffloadServer
from tests.hop.conftest import Announce, Clients, NewHop, NewTopic
from tests.refusing_broker import silent

pytestmark = [pytest.mark.filterwarnings("ignore:Large message offload service is bare HTTP"), pytest.mark.full]

LARGE = bytes(3_000_000)
SLOW: Any = {"linger.ms": 100}


def publish(producer: Producer, topic: str, *values: bytes, **options: Any) -> list[Any]:
    outcomes: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error), **options)
    assert producer.flush(30) == 0
    return outcomes


def offload(producer: Producer, topic: str, value: bytes = LARGE) -> None:
    """Send a record; raise why it was not sent."""
    (error,) = publish(producer, topic, value)
    if error is not None:
        raise error.__cause__


def set_limit(broker: KafkaBroker, topic: str, limit: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    admin = broker.admin()
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def test_wrong_password(topic: str, client: Clients, read: Any) -> None:
    producer = client(Producer, **{"hop.password": "wrong", "hop.username": "alice"})
    with pytest.raises(PayloadAccessDeniedError, match="refused the user name or password") as caught:
        offload(producer, topic, LARGE)
    assert "wrong" not in str(caught.value)
    publish(client(Producer), topic, LARGE)
    with pytest.raises(PayloadAccessDeniedError, match="refused the user name or password"):
        read(topic, **{"hop.password": "wrong", "hop.username": "alice"})
    with pytest.raises(PayloadAccessDeniedError):
        offload(client(Producer, **{"hop.username": "nobody", "hop.password": "x"}), topic, LARGE)


def test_no_permission(new_topic: NewTopic, client: Clients, read: Any) -> None:
    topic = new_topic(bob="DESCRIBE DESCRIBE_CONFIGS")
    with pytest.raises(PayloadAccessDeniedError, match="403: bob has no WRITE"):
        offload(client(Producer, user="bob"), topic, LARGE)
    publish(client(Producer), topic, LARGE)
    (message,) = read(topic, fetch_external=False)
    url = json.loads(message.value())["url"]
    store = open_store("hop", {"hop.offload.url": url.rpartition("/msg/")[0], **credentials("bob")})
    # 404 once the server knows that bob may read at least sys.metadata, as all users do.
    with pytest.raises((PayloadAccessDeniedError, PayloadNotFoundError), match=r"HTTP 40[34]: "):
        store.download(url)
    store.close()


def credentials(user: str) -> dict[str, str]:
    return {"hop.username": user, "hop.password": f"{user}-secret"}


def test_limit_of_the_topic_must_not_be_seen(
    new_topic: NewTopic, client: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(bob="WRITE DESCRIBE")
    producer = client(Producer, user="bob")
    with caplog.at_level(logging.WARNING):
        assert publish(producer, topic, bytes(900_000)) == [None]
        for _ in range(2):
            with pytest.raises(MessageTooLargeError, match=r"3000000 bytes.*DESCRIBE_CONFIGS"):
                offload(producer, topic, LARGE)
    assert len([record for record in caplog.records if "DESCRIBE_CONFIGS" in record.message]) == 1


def test_vanished_message(topic: str, client: Clients, read: Any, offload_server: OffloadServer) -> None:
    url = f"{offload_server.url}/msg/{uuid.uuid4()}"
    placeholder(client, topic, url)
    with pytest.raises(PayloadNotFoundError) as caught:
        read(topic)
    assert caught.value.reference == url


def placeholder(client: Clients, topic: str, url: str) -> None:
    """Write what anybody may write."""
    producer = client(Producer, automatic_offload=False, **{"value.serializers": "json"})
    assert publish(producer, topic, {"url": url}, headers=[("_format", b"external")]) == [None]  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/msg/{id}", "{own}/../msg/{id}", "https://{host}/msg/{id}"])
def test_foreign_host(topic: str, client: Clients, read: Any, offload_server: OffloadServer, url: str) -> None:
    own = offload_server.url
    placeholder(client, topic, url.format(id=uuid.uuid4(), own=own, host=own.removeprefix("http://")))
    with pytest.raises(UntrustedReferenceError):
        read(topic)


def test_more_than_the_server_takes(topic: str, client: Clients) -> None:
    with pytest.raises(PayloadTooLargeError, match="413"):
        offload(client(Producer), topic, bytes(40_000_001))


def test_server_restarts_between_upload_and_download(
    broker: KafkaBroker, topic: str, client: Clients, read: Any
) -> None:
    with OffloadServer(broker=broker.client_config()) as server:
        where = {"hop.offload.url": server.url}
        producer = client(Producer, **where)
        assert publish(producer, topic, LARGE) == [None]
        server.kill()
        with pytest.raises(PayloadStoreUnavailableError):
            offload(producer, topic, LARGE)
        server.restart()
        assert publish(producer, topic, LARGE) == [None]
        assert [message.value() for message in read(topic, 2, **where)] == [LARGE, LARGE]


@pytest.mark.full
@pytest.mark.parametrize("size", [100_000, 200], ids=["one batch each", "many in a batch"])
def test_limit_is_lowered_while_producing(
    broker: KafkaBroker, new_topic: NewTopic, client: Clients, new_hop: NewHop, size: int
) -> None:
    topic = new_topic(1_048_588)
    producer = client(Producer, **SLOW)
    values = [number.to_bytes(2, "big") * (size // 2) for number in range(30)]
    assert publish(producer, topic, *values) == [None] * 30
    set_limit(broker, topic, 5_000)
    assert publish(producer, topic, *values) == [None] * 30
    assert publish(producer, topic, *values) == [None] * 30
    assert [message.content for message, _ in new_hop().read(topic)] == values * 3


def test_small_records_do_not_fill_a_batch_above_the_limit(topic: str, client: Clients, new_topic: NewTopic) -> None:
    topic = new_topic(5_000)
    producer = client(Producer, **SLOW)
    assert publish(producer, topic, *[bytes(200)] * 200) == [None] * 200


# Where the broker does not support large messages, or does not answer.


@pytest.mark.full
@pytest.mark.parametrize(
    "value",
    [
        None,
        b"\xff",
        b"[]",
        b'{"largemessageuploadendpoint": "https://host"}',
        b'{"LargeMessageUploadEndpoint": 1}',
        b'{"LargeMessageUploadEndpoint": "ftp://host"}',
    ],
)
def test_nothing_of_use_is_announced(  # noqa: PLR0917, pytest passes them by name
    topic: str, client: Clients, read: Any, announce: Announce, value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    publish(client(Producer), topic, LARGE)
    announce(value=value)
    producer = client(Producer)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with pytest.raises(MessageTooLargeError, match=r"sys\.metadata"):
                offload(producer, topic, LARGE)
    warnings = [record for record in caplog.records if "large messages are off" in record.message]
    assert len(warnings) == 1
    assert publish(producer, topic, bytes(1000)) == [None]
    with pytest.raises(UntrustedReferenceError, match=r"sys\.metadata"):
        read(topic)


def test_last_announcement_counts(
    topic: str, client: Clients, announce: Announce, offload_server: OffloadServer
) -> None:
    announce()
    announce(value=json.dumps({METADATA_KEY: f"{offload_server.url}/", "more": 1}).encode())
    assert publish(client(Producer), topic, LARGE) == [None]


def test_topic_of_announcements_must_not_be_read(
    broker: KafkaBroker, offload_server: OffloadServer, caplog: pytest.LogCaptureFixture
) -> None:
    del offload_server  # it has made the topic
    change = UserScramCredentialUpsertion(
        "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"carol-secret"
    )
    admin = broker.admin()  # held until the answers are there
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(30)
    config = {**broker.client_config("alice"), "sasl.username": "carol", "sasl.password": "carol-secret"}
    store: Any = open_store("hop", config)
    with caplog.at_level(logging.WARNING):
        assert "no topic sys.metadata for this user" in str(store.why_not())
        assert store.why_not()
    assert len(caplog.records) == 1
    store.close()
    store = open_store("hop", {**config, "sasl.password": "wrong", "hop.discovery.timeout.ms": 1500})
    with pytest.raises(PayloadStoreUnavailableError, match="did not report"):
        store.why_not()
    store.close()


def test_nobody_announces_plain_http_if_it_is_not_allowed(topic: str, client: Clients) -> None:
    with pytest.raises(MessageTooLargeError, match=r"plain http, and hop\.allow\.http = false"):
        offload(client(Producer, **{"hop.allow.http": "false"}), topic, LARGE)


def test_a_broker_without_offloading_takes_what_its_topics_take(
    new_topic: NewTopic, client: Clients, announce: Announce
) -> None:
    announce(value=None)
    topic = new_topic(5_000_000)
    above_the_clients_default: Any = {"large.message.threshold.bytes": 4_000_000}
    producer = client(Producer, **above_the_clients_default)
    assert publish(producer, topic, LARGE) == [None]
    with pytest.raises(MessageTooLargeError, match=r"at most 49\d{5} can be sent.*sys\.metadata"):
        offload(producer, topic, bytes(5_000_000))


def test_a_broker_that_never_answers(
    broker: KafkaBroker, topic: str, client: Clients, read: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with silent(broker.sasl_bootstrap_servers) as servers, caplog.at_level(logging.WARNING):
        times: Any = {"max.block.ms": 3000, "hop.connection.timeout.ms": 500, "hop.request.timeout.ms": 1000}
        producer = client(Producer, **{"bootstrap.servers": servers, "hop.retry.attempts": 1, **times})
        began = time.monotonic()
        assert publish(producer, topic, b"1") == [None]
        assert time.monotonic() - began < 2.5, "the question takes 3 s"
        assert publish(producer, topic, bytes(900_000), LARGE, b"2") == [None] * 3
        producer.close()
    assert [message.value() for message in read(topic, 4)] == [b"1", bytes(900_000), LARGE, b"2"]
    (warning,) = [record for record in caplog.records if "did not report" in record.message]
    assert "automatic_offload = false" in warning.message


def test_a_broker_that_is_not_there() -> None:
    store: Any = open_store("hop", {"bootstrap.servers": "127.0.0.1:1", "hop.discovery.timeout.ms": 300})
    with pytest.raises(PayloadStoreUnavailableError, match="automatic_offload = false"):
        store.why_not()
    store.close()


def test_offloading_switched_off(topic: str, client: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOP_AUTOMATIC_OFFLOAD", "false")
    producer = client(Producer)
    with pytest.raises(MessageTooLargeError, match="automatic_offload is off"):
        offload(producer, topic, LARGE)
    assert publish(client(Producer, automatic_offload=True), topic, LARGE) == [None]


@pytest.mark.parametrize(("options", "count"), [({}, 1), ({"automatic_offload": False}, 0)], ids=["on", "off"])
def test_nothing_is_asked_where_offloading_is_off(
    topic: str, client: Clients, options: dict[str, Any], count: int
) -> None:
    def asking() -> list[object]:
        return [each for each in gc.get_objects() if isinstance(each, AdminClient)]

    before = asking()
    producer = client(Producer, **options)
    assert publish(producer, topic, bytes(900_000)) == [None]
    assert len([each for each in asking() if each not in before]) == count
