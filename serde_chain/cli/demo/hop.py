"""``serde-chain demo --hop``: a small and an oversized message through a broker with users and an offload server."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.table import Table

from payload_stores.plugins import require
from serde_chain.cli.demo.steps import DemoError, config_table, consume, produce, raw_records
from serde_chain.testing.alerts import alert

TOPIC = "hop-alerts"
USER = "alice"
_SIZES = {b"small": 20_000, b"oversized": 8_000_000}


def run_hop_demo(console: Console) -> dict[str, Any]:
    """Run the demo; leaves nothing running and nothing on disk.

    Args:
        console: The console for output.

    Returns:
        The figures: by key, the bytes of the message and of its record in Kafka.

    Raises:
        DemoError: A message was lost or changed.
        MissingDependencyError: An extra is missing; the message names all required ones.
        ServiceError: Broker or server could not be fetched or started.
    """
    for module in ("moto", "orjson"):
        require(module, "services,json")
    from serde_chain.testing.services import KafkaBroker, OffloadServer

    console.print("Starting a Kafka broker with users and permissions (fetched once, about a minute the first time) …")
    with ExitStack() as stack:
        with console.status("The broker starts …"):
            broker = stack.enter_context(KafkaBroker())
        console.print("Starting an offload server, which announces itself on the broker's topic sys.metadata …")
        with console.status("The server starts …"):
            server = stack.enter_context(OffloadServer(broker=broker.client_config(), announce=True))
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
        console.print(config_table("The configuration of producer and consumer", config))
        messages = {key: _message(size) for key, size in _SIZES.items()}
        headers = [("made-by", b"serde-chain demo")]
        records = [{"value": value, "key": key, "headers": headers} for key, value in messages.items()]
        produce(config, TOPIC, records)
        came = list(consume(config, TOPIC, len(messages), group=f"{USER}-demo"))
        _compare(came, {key: _digest(value) for key, value in messages.items()})
        figures = _report(console, config, came, server.url)
    console.print(
        f"[bold green]Both messages came back unchanged[/] (digests compared), with key and headers. The user {USER} "
        "logged in to broker and server with the same password; hop-client reads the same messages. Broker and server "
        "are stopped."
    )
    return {"messages": figures}


def _message(size: int) -> dict[str, Any]:
    """An alert with its image as hexadecimal text: hop's messages usually are JSON."""
    record = alert(size, size // 2)
    pixels: bytes = (record["science"] or {}).get("pixels", b"")
    return {"object": record["object_id"], "image": pixels.hex()}


def _compare(messages: list[Any], digests: dict[bytes, str]) -> None:
    """Compare the received messages with the produced ones."""
    for message in messages:
        headers = dict(message.headers())
        if digests.pop(message.key(), None) != _digest(message.value()) or headers["made-by"] != b"serde-chain demo":
            raise DemoError(f"the message {message.key()!r} came back changed, or twice")


def _report(console: Console, config: dict[str, Any], messages: list[Any], endpoint: str) -> dict[str, Any]:
    """Compare the consumer's messages with the stored records; returns the figures."""
    figures = {}
    table = Table("key", "bytes of JSON", "bytes in Kafka", "_format in Kafka", title="What went where")
    table.title_justify = "left"
    raw = list(raw_records(config, TOPIC, group=f"{USER}-look"))
    for message, lies in zip(messages, raw, strict=True):
        size, mark = len(json.dumps(message.value(), separators=(",", ":"))), dict(lies.headers())["_format"].decode()
        figures[message.key().decode()] = {"bytes": size, "record_bytes": len(lies.value())}
        table.add_row(message.key().decode(), f"{size:,}", f"{len(lies.value()):,}", mark)
    console.print(table)
    console.print(f"The offload server is {endpoint}; the placeholder in Kafka is")
    console.print(raw[-1].value().decode(), soft_wrap=True)
    return figures


def _digest(message: Any) -> str:
    return hashlib.sha256(json.dumps(message, sort_keys=True).encode()).hexdigest()
