"""Configurations of asyncio's clients for the real broker."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain.testing.services import KafkaBroker
from tests.clients.conftest import QUICK


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    store = FaultyStore(MemoryStore())
    store.configure({})
    yield store
    MemoryStore.clear()


@pytest.fixture
def config(broker: KafkaBroker, store: FaultyStore) -> dict[str, Any]:
    """For both directions: values are bytes, of which more than 1000 go to the store."""
    return {
        **broker.client_config(),
        "log_level": 0,
        "linger.ms": 0,
        "group.id": f"group-{uuid.uuid4()}",
        "auto.offset.reset": "earliest",
        **QUICK,
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message",
        "large.message.threshold.bytes": 1000,
        "large.message.payload.store.class": store,
    }
