"""hop's offload endpoint: its discovery, and the addresses it owns.

A broker announces it in the topic ``sys.metadata``; the last record is a JSON object with the key
``LargeMessageUploadEndpoint``, a URL ("the most recent message" in hop's "Large Message Support"). The last record is
the one with the highest offset, whatever its timestamp: producers set timestamps, by clocks that may be wrong.
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

METADATA_TOPIC: Final = "sys.metadata"
METADATA_KEY: Final = "LargeMessageUploadEndpoint"

# Not urllib's urlsplit, which drops tabs, line ends and leading blanks: readers would disagree about the address. This
# protocol's addresses have no user names, queries, fragments or percent-encoding.
_URL: Final = re.compile(
    r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?((?:/[^/?#%\\\s\x00-\x1f\x7f]*)*)", re.IGNORECASE
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# The payload of a message under a file's name, for browsers: archive-api from 1.3 on.
_RAW_FILE: Final = re.compile(r"(.*)/raw_file/[^/?#%\\\s\x00-\x1f\x7f]+", re.DOTALL)
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of an offload server, or a prefix of addresses.

    Attributes:
        scheme: ``http`` or ``https``.
        host: Host, in lower case.
        port: Port; the scheme's default if the address has none.
        path: Segments of the path before ``/msg`` and ``/topic``.
        url: The address without trailing slashes.
        slashes: The address's trailing slashes: hop-client copies them into references.
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
            ValueError: Not an http or https URL of only host, port and path.
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
        """Whether the endpoint is on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def location(self) -> Location:
        """The address as a prefix of references, normalized."""
        return Location(self.scheme, f"{self.host}:{self.port}", self.path)

    def upload_url(self, topic: str) -> str:
        """The address for posting records of a topic."""
        return f"{self.url}/topic/{topic}+oversized"

    def message_url(self, message_id: uuid.UUID) -> str:
        """The address of a record, also its reference."""
        return f"{self.url}/msg/{message_id}"

    def own(self, reference: str) -> str | None:
        """The address of a record of this endpoint; None for other references.

        The address of its raw file is another name of the record: the record's document has a length, so that a cut-off
        answer is noticed, and the raw file's answer has none.

        Args:
            reference: The reference in a placeholder, not to be trusted.
        """
        message = _message(reference)
        if message is None:
            return None
        endpoint, message_id = message
        same = endpoint.location == self.location
        # hop-client appends "/msg/…" to the announced address, including its trailing slashes.
        return f"{self.url}/msg/{message_id}" if same and endpoint.slashes in {0, self.slashes} else None

    def covers(self, reference: str) -> bool:
        """Whether a reference is below this prefix, by whole segments."""
        try:
            other = Endpoint.parse(reference)
        except ValueError:
            return False
        return not other.slashes and self.location.covers(other.location)


def is_message(reference: str) -> bool:
    """Whether a reference has the form of a record's address, at any endpoint."""
    return _message(reference) is not None


def _message(reference: str) -> tuple[Endpoint, str] | None:
    """The endpoint and the id in a record's address; None for references of another form."""
    raw_file = _RAW_FILE.fullmatch(reference)
    before, _, message_id = (raw_file[1] if raw_file else reference).rpartition("/")
    prefix, separator, word = before.rpartition("/")
    if not (separator and word == "msg" and _UUID.fullmatch(message_id)):
        return None
    try:
        return Endpoint.parse(prefix), message_id
    except ValueError:
        return None


class Unsupported(str):  # noqa: SLOT000  one object per client
    """The reason why a broker has no endpoint for this client."""


def discover(config: Mapping[str, object], timeout_ms: int) -> Endpoint | Unsupported:
    """Ask the broker for its endpoint.

    Assigns partitions manually, so no permission for a consumer group is required.

    Args:
        config: The client's configuration, with its connection settings.
        timeout_ms: Total time, in ms.

    Returns:
        The endpoint, or why there is none: the topic is missing, unreadable, or names no endpoint.

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
        consumer.poll(0)  # fetches a token if there is a token callback
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
    """Read the last record of ``sys.metadata``, by offset.

    The topic is meant to have one partition. With several, records of different partitions have no order in the log:
    of the partitions' last records, the one with the latest timestamp counts; on a tie, that of the highest partition.
    hop-client uses the record that arrives last, which varies from one run to the next.

    Args:
        consumer: A confluent_kafka consumer with ``enable.partition.eof``.
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
    last: dict[int, tuple[int, int, bytes | None]] = {}  # of each partition: timestamp, partition, value
    while waiting:
        message = consumer.poll(_left(kafka, until))
        if message is None:
            continue
        error = message.error()
        if error is None:
            number = message.partition()
            last[number] = (message.timestamp()[1], number, message.value())  # partitions are read in log order
        elif error.code() == errors._PARTITION_EOF:  # noqa: SLF001, its documented name
            waiting.discard(message.partition())
        elif error.code() == errors.TOPIC_AUTHORIZATION_FAILED:
            return Unsupported(f"this user may not read the topic {METADATA_TOPIC}")
        elif error.fatal() or not error.retriable():
            raise kafka.KafkaException(error)
    return max(last.values(), key=lambda record: record[:2])[2] if last else None


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
