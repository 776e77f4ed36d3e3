"""Topics and stores with payloads in use and orphans."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from payload_stores import open_store
from payload_stores.base import PayloadStore, SupportsList
from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker

Config = dict[str, Any]
Send = Callable[..., None]


@pytest.fixture
def config(broker: KafkaBroker, tmp_path: Path) -> Config:
    return {
        **broker.client_config(),
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.threshold.bytes": 100,
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
        "auto.offset.reset": "earliest",
        "group.id": "test",
    }


@pytest.fixture
def send(config: Config) -> Send:
    """Produce values, by a producer of the configuration with some settings more."""

    def produce(topic: str, *values: bytes | None, key: bytes | None = None, **settings: Any) -> None:
        with Producer({**config, **{name.replace("_", "."): value for name, value in settings.items()}}) as producer:
            for value in values:
                producer.produce(topic, value, key)

    return produce


@pytest.fixture
def store(config: Config) -> PayloadStore:
    return open_store(config["large.message.payload.store.class"], config)


def stored(store: PayloadStore, topic: str) -> set[str]:
    assert isinstance(store, SupportsList)
    return {info.reference for info in store.list(topic)}


def payload(number: int) -> bytes:
    return b"%06d" % number * 100
