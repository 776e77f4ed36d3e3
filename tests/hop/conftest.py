"""A broker with users and permissions, an offload server that asks it, and hop-client as the peer."""

import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
import pytest
from adc.auth import SASLMethod
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from hop.auth import Auth
from hop.io import StartPosition, Stream

from payload_stores.hop.endpoint import METADATA_KEY, METADATA_TOPIC
from serde_chain import Consumer, Producer
from serde_chain.testing.services import KafkaBroker, OffloadServer
from tests import shared_servers

METHODS = {"SCRAM-SHA-256": SASLMethod.SCRAM_SHA_256, "SCRAM-SHA-512": SASLMethod.SCRAM_SHA_512}
USER = "alice"


class NewTopic(Protocol):
    """Creates a topic on which alice may do everything, and bob what is said here."""

    def __call__(self, limit: int | None = None, *, bob: str = "", prefix: str = "hop-") -> str: ...


class Announce(Protocol):
    """Writes an endpoint, or anything else, into the topic where endpoints are announced."""

    def __call__(self, url: str | None = None, *, value: bytes | None = None) -> None: ...


class Hop:
    """hop-client, as one user."""

    def __init__(self, broker: KafkaBroker, mechanism: str = "SCRAM-SHA-256", *, user: str = USER) -> None:
        self._address = broker.sasl_bootstrap_servers
        self.auth = Auth(user, broker.users[user], host=self._address, ssl=False, method=METHODS[mechanism])
        self._user = user
        self._writers: dict[str, Any] = {}
        self._stream = Stream(auth=self.auth, start_at=StartPosition.EARLIEST, until_eos=True)

    def write(self, topic: str, message: Any, **options: Any) -> KafkaError | None:
        """Write a message; returns the error of its delivery."""
        outcomes: list[Any] = []
        if topic not in self._writers:
            self._writers[topic] = self._stream.open(f"kafka://{self._address}/{topic}", "w")
        self._writers[topic].write(message, delivery_callback=lambda error, _: outcomes.append(error), **options)
        self._writers[topic].flush(timedelta(seconds=30))
        (error,) = outcomes
        return error  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close what writes."""
        for writer in self._writers.values():
            writer.close()

    def read(self, topic: str, **options: Any) -> list[tuple[Any, Any]]:
        """All messages of a topic, with their metadata."""
        group = f"{self._user}-{uuid.uuid4()}"
        url = f"kafka://{self._address}/{topic}"
        with self._stream.open(url, "r", group_id=group, **{"ignoretest": False, **options}) as stream:
            return list(stream.read(metadata=True, autocommit=False))


class NewHop(Protocol):
    def __call__(self, mechanism: str = "SCRAM-SHA-256", *, user: str = USER) -> Hop: ...


class Clients(Protocol):
    """Makes a client of a user, with the hop store and format."""

    def __call__(self, kind: type[Any], /, *, user: str = USER, mechanism: str = ..., **more: Any) -> Any: ...


@pytest.fixture(autouse=True)
def no_settings_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("HOP_AUTOMATIC_OFFLOAD", raising=False)
    monkeypatch.delenv("HOP_FETCH_EXTERNAL", raising=False)


@pytest.fixture(scope="session")
def offload_server(broker: KafkaBroker, pytestconfig: pytest.Config) -> OffloadServer:
    """Announced on the broker, whose ACLs it asks for; larger uploads than 40 MB are refused."""
    server: OffloadServer = shared_servers.attach(pytestconfig.stash[shared_servers.BOARD], "offload_server_of_hop")
    for user in ("alice", "bob"):
        broker.allow(user, ["READ", "DESCRIBE"], topic="sys.metadata")
        broker.allow(user, ["READ"], group="*")
    # By the beginning of names, so that no test waits until the server asks for the ACLs again.
    own = (ResourceType.TOPIC, "hop-", ResourcePatternType.PREFIXED, f"User:{USER}", "*", AclOperation.ALL)
    admin = broker.admin()
    for future in admin.create_acls([AclBinding(*own, AclPermissionType.ALLOW)]).values():
        future.result(30)
    return server


@pytest.fixture
def announcements(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks the announcement on the broker: no other worker changes it or depends on it meanwhile."""
    with (tmp_path_factory.getbasetemp().parent / "announcements.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def announce(
    broker: KafkaBroker,
    offload_server: OffloadServer,
    announcements: None,  # noqa: ARG001  kept until the end of the test
) -> Iterator[Announce]:
    """What is announced is the session's own server again when a test ends."""
    producer = confluent_kafka.Producer(broker.client_config())

    def write(url: str | None = None, *, value: bytes | None = None) -> None:
        content = value if url is None else json.dumps({METADATA_KEY: url}).encode()
        producer.produce(METADATA_TOPIC, content, b"key")
        assert producer.flush(30) == 0

    yield write
    write(offload_server.url)
    producer.close()


@pytest.fixture
def new_topic(broker: KafkaBroker, offload_server: OffloadServer) -> NewTopic:  # noqa: ARG001  it permits sys.metadata
    def create(limit: int | None = None, *, bob: str = "", prefix: str = "hop-") -> str:
        name = f"{prefix}{uuid.uuid4().hex[:12]}"
        broker.create_topic(name, 1, None if limit is None else {"max.message.bytes": str(limit)})
        if bob:
            broker.allow("bob", bob.split(), topic=name)
        return name

    return create


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


@pytest.fixture
def new_hop(broker: KafkaBroker) -> Iterator[NewHop]:
    with ExitStack() as stack:

        def make(mechanism: str = "SCRAM-SHA-256", *, user: str = USER) -> Hop:
            return stack.enter_context(closing(Hop(broker, mechanism, user=user)))

        yield make


@pytest.fixture
def client(broker: KafkaBroker, offload_server: OffloadServer) -> Iterator[Clients]:  # noqa: ARG001  it announces itself
    with ExitStack() as stack:

        def make(kind: type[Any], /, *, user: str = USER, mechanism: str = "SCRAM-SHA-256", **more: Any) -> Any:
            arguments = {name: more.pop(name) for name in ("automatic_offload", "fetch_external") if name in more}
            config: dict[str, Any] = {
                **broker.client_config(user, mechanism=mechanism),
                "log_level": 0,
                "value.serializers": "bytes, large-message",
                "value.deserializers": "large-message, bytes",
                "large.message.payload.store.class": "hop",
            }
            if kind is Producer:
                config |= {"large.message.format": "hop", "linger.ms": 0}
            else:
                config |= {"group.id": f"{user}-{uuid.uuid4()}", "auto.offset.reset": "earliest"}
            return stack.enter_context(kind({**config, **more}, **arguments))

        yield make


@pytest.fixture
def read(client: Clients) -> Any:
    """Reads so many messages of a topic."""

    def take(topic: str, count: int = 1, **more: Any) -> list[Any]:
        consumer = client(Consumer, **more)
        consumer.assign([TopicPartition(topic, 0, 0)])  # quicker than joining a group
        found: list[Any] = []
        for _ in range(60):
            found += consumer.consume(count - len(found), 0.5)
            if len(found) >= count:
                break
        assert [message.error() for message in found] == [None] * count
        return found

    return take
