"""Announces the offload API to clients: the last record of topic ``sys.metadata`` (hop's discovery)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from payload_stores.errors import ConfigError, PayloadStoreUnavailableError
from payload_stores.hop.endpoint import METADATA_KEY, METADATA_TOPIC, Unsupported, last_record
from payload_stores.plugins import require

_SECONDS: Final = 30.0


def announce(config: Mapping[str, object], url: str) -> bool:
    """Write the endpoint's URL into the last record of ``sys.metadata``, keeping everything else in it.

    A missing topic is created, with one partition and unlimited retention: clients read it from its beginning.

    Args:
        config: confluent_kafka's configuration of a client with permission to read, write and, if necessary, create
            the topic.
        url: The endpoint's public URL.

    Returns:
        Whether a record was written; False if the last one already has the URL.

    Raises:
        ConfigError: The topic has several partitions, so its last record is undefined.
        PayloadStoreUnavailableError: The broker did not accept the record.
    """
    require("confluent_kafka", "hop")
    from confluent_kafka import KafkaException

    try:
        _make_topic(config)
        last = _last(config)
        if last.get(METADATA_KEY) == url:
            return False
        _write(config, json.dumps({**last, METADATA_KEY: url}).encode())
    except (KafkaException, TimeoutError) as error:
        raise _unannounced(error) from error
    return True


def _unannounced(why: object) -> PayloadStoreUnavailableError:
    return PayloadStoreUnavailableError(
        f"the endpoint could not be announced on {METADATA_TOPIC}: {why}",
        hint="The server's own user needs READ, WRITE and, if the topic is missing, CREATE on it",
    )


def _make_topic(config: Mapping[str, object]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    settings: dict[str, Any] = dict(config)
    admin = AdminClient(settings)
    metadata = admin.list_topics(METADATA_TOPIC, timeout=_SECONDS).topics[METADATA_TOPIC]
    if metadata.error is None:
        if len(metadata.partitions) != 1:
            raise ConfigError(
                f"{METADATA_TOPIC} has {len(metadata.partitions)} partitions; which record is its last is not defined"
            )
        return
    forever = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
    topic = NewTopic(METADATA_TOPIC, num_partitions=1, config=forever)
    admin.create_topics([topic], operation_timeout=_SECONDS)[METADATA_TOPIC].result(_SECONDS)


def _last(config: Mapping[str, object]) -> dict[str, Any]:
    """The content of the last record; empty if there is none, or it is malformed."""
    from confluent_kafka import Consumer

    own = {"group.id": "serde-chain-offload-server", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**config, **own})
    try:
        until = time.monotonic() + _SECONDS
        _wait_for_leader(consumer, until)
        value = last_record(consumer, until)
    finally:
        consumer.close()
    if isinstance(value, Unsupported):
        raise _unannounced(value)
    return _parse(value)


def _wait_for_leader(consumer: Any, until: float) -> None:
    """Wait for a leader: a new topic has none at first."""
    while time.monotonic() < until:
        partitions = consumer.list_topics(METADATA_TOPIC, timeout=_SECONDS).topics[METADATA_TOPIC].partitions
        if partitions and partitions[0].leader >= 0:
            return
        time.sleep(0.05)
    raise TimeoutError(f"{METADATA_TOPIC} has no leader")


def _parse(value: bytes | None) -> dict[str, Any]:
    try:
        content = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(config: Mapping[str, object], value: bytes) -> None:
    from confluent_kafka import KafkaException, Producer

    failures: list[Any] = []
    producer = Producer({**config, "acks": "all", "delivery.timeout.ms": int(_SECONDS * 1000)})
    producer.produce(METADATA_TOPIC, value, partition=0, on_delivery=lambda error, _: failures.append(error))
    producer.flush(_SECONDS)
    if failures != [None]:
        raise KafkaException(failures[0]) if failures else TimeoutError("the broker did not confirm the record")
