"""A real Kafka broker: one process, with and without authentication, with ACLs."""

import base64
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from serde_chain.testing.services.errors import ServiceError, ServiceStartError
from serde_chain.testing.services.jars import jars
from serde_chain.testing.services.java import QUICK_START, any_java
from serde_chain.testing.services.ports import HOST, port_answers
from serde_chain.testing.services.process import Service

_ADMIN_SECONDS = 30.0
_NOTICE = 5  # syslog level
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_ITERATIONS = 4096  # the least that Kafka takes, and the default of its tools
_USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1} %m%n%rEx{4}
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class KafkaBroker(Service):
    """A broker in KRaft mode with a PLAINTEXT and a SASL_PLAINTEXT (SCRAM-SHA-256 and SCRAM-SHA-512) listener.

    Clients without authentication may do everything; of the users, only ``admin`` may, the others need an ACL, see
    `allow`. Topics are not created automatically. Sizes and limits are Kafka's defaults, so a record larger than about
    a megabyte is refused.

    Example:
        >>> with KafkaBroker() as broker:  # doctest: +SKIP
        ...     broker.create_topic("alerts", partitions=2)
        ...     producer = confluent_kafka.Producer(broker.client_config())
    """

    name = "kafka"
    port_count = 3
    fixed_count = 2

    def __init__(
        self,
        *,
        users: Mapping[str, str] | None = None,
        config: Mapping[str, str] | None = None,
        memory: str = "512m",
        version: str | None = None,
        port: int | None = None,
        folder: Path | None = None,
    ) -> None:
        """Describe the broker; `start` or a ``with`` statement starts it.

        Args:
            users: Passwords by user name; by default ``admin``, ``alice`` and ``bob``. A kept ``folder`` keeps its
                users: those named here are added, or get another password.
            config: Broker settings that extend or override those written here.
            memory: Maximum heap of its JVM.
            version: Version of Kafka, one of `jars.BROKER_VERSIONS`; by default the first of them, or that of the
                environment variable ``SERDE_CHAIN_KAFKA``. Share groups (KIP-932) take 4.2.
            port: The port without authentication; the one with SCRAM is the next. By default both are free ones.
            folder: Where topics and records are kept after the end, for the next start; by default a temporary folder.
        """
        super().__init__(port=port, folder=folder)
        self.users = dict(_USERS if users is None else users)
        self._config = dict(config or {})
        self._memory = memory
        self._version = version
        self._has_data = False

    @property
    def bootstrap_servers(self) -> str:
        """Address of the listener without authentication."""
        return f"{HOST}:{self._port(0)}"

    @property
    def sasl_bootstrap_servers(self) -> str:
        """Address of the listener with SCRAM."""
        return f"{HOST}:{self._port(1)}"

    def client_config(
        self, user: str | None = None, *, mechanism: str = _MECHANISMS[0]
    ) -> dict[str, str | int | float | bool]:
        """Configuration of a client that connects to this broker; add to it as needed.

        Args:
            user: One of `users`, to authenticate; None connects without authentication.
            mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        """
        if user is None:
            return {"bootstrap.servers": self.bootstrap_servers}
        return {
            "bootstrap.servers": self.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": self.users[user],
        }

    def admin(self) -> AdminClient:
        """A client that may do everything."""
        # librdkafka logs at the level INFO that it drops late answers: BGQUEUE.
        return AdminClient({**self.client_config(), "log_level": _NOTICE})

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and return once it can be written to.

        Args:
            name: The topic's name; it must not exist.
            partitions: How many partitions.
            config: Topic settings, such as ``cleanup.policy`` or ``max.message.bytes``.

        Raises:
            ServiceError: The broker refused, or the topic was not ready in time.
        """
        admin = self.admin()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        try:
            admin.create_topics([topic], operation_timeout=_ADMIN_SECONDS)[name].result()
        except KafkaException as error:
            message = f"the broker did not create topic {name!r}: {error.args[0].str()}"
            raise ServiceError(message) from error
        deadline = time.monotonic() + _ADMIN_SECONDS
        while time.monotonic() < deadline:
            metadata = admin.list_topics(name, timeout=_ADMIN_SECONDS).topics[name]
            if metadata.error is None and [p.leader for p in metadata.partitions.values()] == [1] * partitions:
                return
            time.sleep(0.02)
        message = f"topic {name!r} had no leader within {_ADMIN_SECONDS:g} s"
        raise ServiceError(message)

    def allow(
        self,
        user: str,
        operations: Iterable[str],
        *,
        topic: str | None = None,
        group: str | None = None,
    ) -> None:
        """Allow a user operations on a topic or on a consumer group.

        Args:
            user: One of `users`.
            operations: Kafka's names: ``READ``, ``WRITE``, ``DESCRIBE``, ``DESCRIBE_CONFIGS``, ``ALL``, ...
            topic: The topic's name; ``*`` is any.
            group: The consumer group's name; ``*`` is any. Either this or `topic`.
        """
        resource = ResourceType.TOPIC if topic is not None else ResourceType.GROUP
        name = topic if topic is not None else group
        if name is None:
            message = "allow() requires a topic or a group"
            raise ValueError(message)
        bindings = [
            AclBinding(
                resource,
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        admin = self.admin()  # held until the answers arrive
        for future in admin.create_acls(bindings, request_timeout=_ADMIN_SECONDS).values():
            future.result()
        # The controller has the ACLs; the broker, which checks them, learns of them a moment later.
        ours = AclBindingFilter(
            resource, name, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.ANY, AclPermissionType.ALLOW
        )
        wanted, deadline = {binding.operation for binding in bindings}, time.monotonic() + _ADMIN_SECONDS
        while not wanted <= {one.operation for one in admin.describe_acls(ours).result(_ADMIN_SECONDS)}:
            if time.monotonic() > deadline:
                message = f"the broker did not apply the permissions of {user} within {_ADMIN_SECONDS} s"
                raise ServiceError(message)

    def _launch(self) -> None:
        super()._launch()
        if self._has_data:
            try:
                self._set_passwords()
            except BaseException:
                self.stop()
                raise

    def _set_passwords(self) -> None:
        """Add the users to a broker that was formatted with others."""
        admin = self.admin()
        try:
            for mechanism in _MECHANISMS:  # one request takes a user once
                info = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], _ITERATIONS)
                changes: list[UserScramCredentialAlteration] = [
                    UserScramCredentialUpsertion(user, info, password.encode()) for user, password in self.users.items()
                ]
                for future in admin.alter_user_scram_credentials(changes, request_timeout=_ADMIN_SECONDS).values():
                    future.result()
        except KafkaException as error:
            message = f"the broker did not take the passwords of {', '.join(self.users)}: {error}"
            raise ServiceError(message) from error

    def _prepare(self, folder: Path) -> list[str]:
        classpath = f"{jars('kafka', broker=self._version)}/*"
        properties = folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties(folder).items()))
        logging = folder / "log4j2.properties"
        logging.write_text(_LOGGING)
        java = [any_java(), *QUICK_START, f"-Dlog4j2.configurationFile={logging}", "-cp", classpath]
        start = [*java[:1], f"-Xmx{self._memory}", *java[1:], "kafka.Kafka", str(properties)]
        self._has_data = (folder / "data" / "meta.properties").exists()  # of an earlier start
        if self._has_data:
            return start
        format_storage = [*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(properties)]
        for user, password in self.users.items():
            for mechanism in _MECHANISMS:
                format_storage += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
        done = subprocess.run(format_storage, capture_output=True, text=True, check=False, timeout=self.start_seconds)
        if done.returncode != 0:
            message = f"the kafka server's storage could not be formatted:\n{done.stdout}{done.stderr}"
            raise ServiceStartError(message)
        return start

    def _properties(self, folder: Path) -> dict[str, str]:
        plain, sasl, controller = self._ports
        advertised = f"PLAINTEXT://{HOST}:{plain},SASL_PLAINTEXT://{HOST}:{sasl}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": f"{advertised},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
            # Without these, the broker stops with a JAAS error.
            **{
                f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                )
                for mechanism in _MECHANISMS
            },
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
            "log.dirs": str(folder / "data"),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            # After a crash the broker waits for its old session to expire, 9 s by default.
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            # One broker can keep one copy; few partitions speed up the first group or transaction.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            # A member learns of its partitions by heartbeats, 5 s apart by default.
            "group.share.heartbeat.interval.ms": "200",
            "group.share.min.heartbeat.interval.ms": "200",
            **self._config,
        }

    def _ready(self) -> bool:
        # The client would print each refused connection, so it is tried only when the ports are open.
        if not all(port_answers(self._port(number)) for number in (0, 1)):
            return False
        try:
            self.admin().list_topics(timeout=2)
        except KafkaException:
            return False
        return True


def _cluster_id() -> str:
    """A cluster id as Kafka writes them: a random UUID in URL-safe base 64, 22 characters."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # would be parsed as an option of the command
            return text
