"""A store's server that is away for longer than the store's own attempts last."""

import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

from payload_stores.errors import PayloadStoreUnavailableError
from payload_stores.middleware import Deadline, Retry
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.stages.large_message.stores import Stores
from serde_chain.testing.services import S3Server

pytestmark = pytest.mark.full

SECONDS = 60


class Refusing:
    """Hangs up on all who call at an address, up to a number of calls; the server is back afterwards."""

    def __init__(self, server: S3Server, calls: int) -> None:
        address = urlsplit(server.url)
        server.stop()
        self._server, self._calls = server, calls
        self._listening = socket.create_server((str(address.hostname), int(address.port or 0)))
        self._listening.settimeout(SECONDS)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self._listening:
            for _ in range(self._calls):
                self._listening.accept()[0].close()
        self._server.start()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


def test_an_outage_that_outlasts_the_attempts_of_s3() -> None:
    """As docs/spark.md says: one attempt of the store's own, and many around it."""
    with S3Server() as server:
        config: dict[str, Any] = {
            "large.message.payload.store.class": "s3",
            **server.store_config(server.create_bucket()),
            "large.message.threshold.bytes": 100,
            "value.serializers": "bytes, large-message",
            "value.deserializers": "large-message, bytes",
        }
        headers: list[Any] = []
        with SerializerChain.from_config(config) as chain:
            value = chain(b"x" * 1000, RecordContext("alerts", "value", headers))

        def read(**more: object) -> object:
            with DeserializerChain.from_config({**config, **more}) as chain:
                return chain(value, RecordContext("alerts", "value", list(headers)))

        with Refusing(server, 3), pytest.raises(PayloadStoreUnavailableError):
            read()
        patient = {"s3.retry.attempts": 1, "large.message.store.retry.attempts": 100}
        with Refusing(server, 6):
            assert read(**patient) == b"x" * 1000


@pytest.mark.parametrize(
    ("settings", "left_ms"),
    [
        ({"class": "s3", "s3.bucket": "b"}, 2_000),
        ({"class": "s3", "s3.bucket": "b", "s3.retry.attempts": 1}, 45_000),
        ({"class": "objects", "objects.url": "s3://b"}, 4_000),
        ({"class": "objects", "objects.url": "s3://b", "objects.retry.attempts": 1}, 42_000),
    ],
)
def test_the_time_that_a_store_leaves_for_further_attempts(settings: dict[str, Any], left_ms: int) -> None:
    """As docs/configuration.md says: none starts that may not end by large.message.store.timeout.ms, 60 s."""
    stores = Stores()
    around = stores.open(settings, {"large.message.store.retry.attempts": 100})
    try:
        assert isinstance(around, Deadline)
        assert isinstance(retry := around.store, Retry)
        assert (retry.worst_case_ms() or 0) - (retry.store.worst_case_ms() or 0) == left_ms
    finally:
        stores.close()
