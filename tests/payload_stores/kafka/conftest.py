"""Stores on the real broker, with payload topics that no other test has."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from payload_stores import open_store
from payload_stores.kafka import KafkaStore
from serde_chain.testing.services import KafkaBroker


class NewStore(Protocol):
    """Opens a store."""

    def __call__(self, **more: Any) -> KafkaStore: ...


@pytest.fixture
def config(broker: KafkaBroker) -> Mapping[str, object]:
    return {**broker.client_config(), "kafka.payload.topic": f"payloads-{uuid.uuid4().hex[:12]}.{{topic}}"}


@pytest.fixture
def new_store(config: Mapping[str, object]) -> Iterator[NewStore]:
    with ExitStack() as stack:

        def make(**more: Any) -> KafkaStore:
            store = open_store("kafka", {**config, **more})
            assert isinstance(store, KafkaStore)
            stack.callback(store.close)
            return store

        yield make
