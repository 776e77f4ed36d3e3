"""hop's offload endpoint: where it is, and which addresses are its own.

A broker announces it in the topic ``sys.metadata``, whose last record is a JSON object with the key
``LargeMessageUploadEndpoint``, a URL.
"""

from __future__ import annotations

import ipaddress
import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from payload_stores.connection import connection_settings
from payload_stores.errors import ConfigError, PayloadStoreUnavailableError
from payload_stores.plugins import require
from payload_stores.references import Location

__all__ = [
    "METADATA_KEY",
    "METADATA_TOPIC",
    "Endpoint",
    "Unsupported",
    "discover",
    "is_message",
    "last_record",
]

METADATA_TOPIC: Final = "sys.metadata"
METADATA_KEY: Final = "LargeMessageUploadEndpoint"

# Not urllib's urlsplit: that drops tabs, line ends and leading blanks, so that two readers see two addresses. User
# names, queries, fragments and percent-encoding are in no address of this protocol.
_URL: Final = re.compile(
    r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?((?:/[^/?#%\\\s\x00-\x1f\x7f]*)*)", re.IGNORECASE
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of an offload server, or a prefix of addresses.

    Attributes:
        scheme: ``http`` or ``https``.
        host: Host, in lower case.
        port: Port, the scheme's own if the address has none.
        path: Segments of the path in front of ``/msg`` and ``/topic``.
        url: The address without a slash at the end.
        slashes: Slashes that the address had at its end: hop-client puts them into references.
    """

    scheme: str
    host: str
    port: int
    path: tuple[str, ...]
    url: str
    slashes: int

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse an address.

        Raises:
            ValueError: It is not an http or https URL of host, port and path alone.
        """
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError("expected http://host or https://host, perhaps with a port and a path")
        scheme, host, port, path = match.groups()
        bare = path.rstrip("/")
        segments = tuple(bare.split("/")[1:])
        if any(segment in {"", ".", ".."} for segment in segments):
            raise ValueError("its path has an empty segment, '.' or '..'")
        number = int(port) if port else _PORTS[scheme.lower()]
        if not 0 < number < 65536:
            raise ValueError(f"there is no port {number}")
        slashes = len(path) - len(bare)
        return cls(scheme.lower(), host.lower(), number, segments, url[: len(url) - slashes], slashes)

    @property
    def is_loopback(self) -> bool:
        """Whether what is sent there stays on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def location(self) -> Location:
        """The address as a prefix of references, however its host and port are written."""
        return Location(self.scheme, f"{self.host}:{self.port}", self.path)

    def upload_url(self, topic: str) -> str:
        """The address to which records of a topic are posted."""
        return f"{self.url}/topic/{topic}+oversized"

    def message_url(self, message_id: uuid.UUID) -> str:
        """The address of a record, which is its reference."""
        return f"{self.url}/msg/{message_id}"

    def own(self, reference: str) -> str | None:
        """The address of a record of this endpoint; None if the reference is another one.

        Args:
            reference: What a placeholder says, which is not to be trusted.
        """
        message = _message(reference)
        if message is None:
            return None
        endpoint, message_id = message
        same = endpoint.location == self.location
        # hop-client pastes "/msg/…" behind what the broker announces, slashes at its end included.
        return f"{self.url}/msg/{message_id}" if same and endpoint.slashes in {0, self.slashes} else None

    def covers(self, reference: str) -> bool:
        """Whether a reference lies below this prefix, by whole segments."""
        try:
            other = Endpoint.parse(reference)
        except ValueError:
            return False
        return not other.slashes and self.location.covers(other.location)


def is_message(reference: str) -> bool:
    """Whether a reference has the form of a record's address, of whatever endpoint."""
    return _message(reference) is not None


def _message(reference: str) -> tuple[Endpoint, str] | None:
    """The endpoint and the id in a record's address; None if a reference is of another form."""
    before, _, message_id = reference.rpartition("/")
    prefix, separator, word = before.rpartition("/")
    if not (separator and word == "msg" and _UUID.fullmatch(message_id)):
        return None
    try:
        return Endpoint.parse(prefix), message_id
    except ValueError:
        return None


class Unsupported(str):  # noqa: SLOT000  one object for the time of a client
    """The reason why a broker has no endpoint for this client."""


def discover(config: Mapping[str, object], timeout_ms: int) -> Endpoint | Unsupported:
    """Ask the broker for its endpoint.

    Partitions are assigned by hand, so that no permission for a consumer group is needed.

    Args:
        config: The client's configuration; what it needs to connect is taken from it.
        timeout_ms: Time for all of it, in ms.

    Returns:
        The endpoint, or why there is none: the topic is missing, may not be read, or does not name an endpoint.

    Raises:
        PayloadStoreUnavailableError: The broker did not answer in time.
        ConfigError: The client refuses the configuration.
    """
    kafka: Any = require("confluent_kafka", "kafka")
    until = time.monotonic() + timeout_ms / 1000
    group = f"{config.get('sasl.username') or 'serde-chain'}-{uuid.uuid4().hex[:10]}"
    own = {"group.id": group, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    try:
        consumer = kafka.Consumer({**connection_settings(config), **own})
    except (kafka.KafkaException, TypeError, ValueError) as error:
        raise ConfigError(f"the client cannot ask the broker for its offload endpoint: {error}") from error
    try:
        consumer.poll(0)  # a token is fetched here, where there is a callback for tokens
        last = last_record(consumer, until)
    except kafka.KafkaException as error:
        raise PayloadStoreUnavailableError(
            f"the broker did not report its offload endpoint: {error.args[0]}",
            hint="Check that the broker is running, set hop.offload.url, or switch this off with automatic_offload = "
            "false, and fetch_external = false for a consumer",
            store="hop",
        ) from error
    finally:
        consumer.close()
    return last if isinstance(last, Unsupported) else _endpoint(last)


def last_record(consumer: Any, until: float) -> bytes | Unsupported | None:
    """Read the last record of ``sys.metadata``, by time, in whichever partition it is.

    Args:
        consumer: A consumer of confluent_kafka's that is told of the ends of partitions (``enable.partition.eof``).
        until: When to give up, by :func:`time.monotonic`.

    Returns:
        Its value; None if there is no record, or a tombstone; or why the user cannot read it.

    Raises:
        KafkaException: The broker failed, or the time is up.
    """
    kafka: Any = require("confluent_kafka", "kafka")
    topic = consumer.list_topics(METADATA_TOPIC, timeout=_left(kafka, until)).topics[METADATA_TOPIC]
    errors = kafka.KafkaError
    if topic.error is not None and topic.error.code() in {
        errors.UNKNOWN_TOPIC_OR_PART,
        errors.TOPIC_AUTHORIZATION_FAILED,
    }:
        return Unsupported(f"the broker has no topic {METADATA_TOPIC} for this user ({topic.error.str()})")
    if topic.error is not None:
        raise kafka.KafkaException(topic.error)
    waiting = set(topic.partitions)
    consumer.assign([kafka.TopicPartition(METADATA_TOPIC, number, kafka.OFFSET_BEGINNING) for number in waiting])
    last: tuple[int, int, int] | None = None
    value: bytes | None = None
    while waiting:
        message = consumer.poll(_left(kafka, until))
        if message is None:
            continue
        error = message.error()
        if error is None:
            at = (message.timestamp()[1], message.partition(), message.offset())
            if last is None or at > last:
                last, value = at, message.value()
        elif error.code() == errors._PARTITION_EOF:  # noqa: SLF001, its documented name
            waiting.discard(message.partition())
        elif error.code() == errors.TOPIC_AUTHORIZATION_FAILED:
            return Unsupported(f"this user may not read the topic {METADATA_TOPIC}")
        elif error.fatal() or not error.retriable():
            raise kafka.KafkaException(error)
    return value


def _left(kafka: Any, until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))  # noqa: SLF001, its documented name
    return left


def _endpoint(value: bytes | None) -> Endpoint | Unsupported:
    if value is None:
        return Unsupported(f"the broker announces no offload endpoint in {METADATA_TOPIC}")
    try:
        metadata = json.loads(value.decode("utf-8"))
        url = metadata[METADATA_KEY] if isinstance(metadata, dict) else None
        if not isinstance(url, str):
            raise TypeError("it names no endpoint")
        return Endpoint.parse(url.strip())
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Unsupported(f"what the broker announces in {METADATA_TOPIC} cannot be used: {type(error).__name__}")
