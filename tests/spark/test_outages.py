"""Stores that go away while a streaming query runs: no row is lost or made up."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import confluent_kafka
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from serde_chain.spark import decode
from serde_chain.testing.services import KafkaBroker, OffloadServer, S3Server
from tests.spark.records import encoded
from tests.spark.test_bad_input import SCHEMA, Config, ends_and_goes_on, record, run, source

pytestmark = pytest.mark.full

# Seconds.
SOON = 60
PATIENT = {"large.message.store.timeout.ms": SOON * 1000, "large.message.store.retry.attempts": 100}


class Server(NamedTuple):
    """A store's server."""

    config: Config
    stop: Callable[[], None]
    start: Callable[[], object]


@contextmanager
def s3() -> Iterator[Server]:
    with S3Server() as server:
        store = server.store_config(server.create_bucket())
        yield Server({"large.message.payload.store.class": "s3", **store}, server.stop, server.start)


@contextmanager
def hop() -> Iterator[Server]:
    with OffloadServer() as server:
        user, password = next(iter(server.users.items()))
        own = {"hop.offload.url": server.url, "hop.allow.http": True, "hop.username": user, "hop.password": password}
        yield Server({"large.message.payload.store.class": "hop", **own}, server.kill, server.restart)


@contextmanager
def hanging_up(url: str) -> Iterator[threading.Event]:
    """Hang up on all who call at an address; the event says that somebody has."""
    address, called = urlsplit(url), threading.Event()
    with socket.create_server((str(address.hostname), int(address.port or 0))) as listening:

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                connection.close()
                called.set()

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield called
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("kind", [s3, hop])
def test_stores_that_go_away_while_a_query_runs(
    spark: SparkSession,
    broker: KafkaBroker,
    topic: str,
    tmp_path: Path,
    kind: Callable[[], AbstractContextManager[Server]],
) -> None:
    """A short while passes unnoticed but for retries; after a long one, the query goes on where it was."""
    with kind() as server:
        config = {
            "value.serializers": "avro, large-message",
            "value.deserializers": "large-message, avro",
            "avro.schema": json.dumps(SCHEMA),
            "large.message.threshold.bytes": 100,
            **server.config,
        }
        rows = []
        for at in range(9):
            headers: list[Any] = []
            rows.append((encoded(config, record(at), headers, topic), headers))

        def send(first: int) -> None:
            with confluent_kafka.Producer(broker.client_config()) as producer:
                for value, headers in rows[first : first + 3]:
                    producer.produce(topic, value, headers=headers)

        def table() -> DataFrame:
            return spark.read.parquet(str(tmp_path / "table")).orderBy("offset")

        def decoded(**more: object) -> DataFrame:
            return source(spark, broker, topic).transform(decode({**config, **more}, retries=True))

        send(0)
        writer = decoded(**PATIENT).writeStream.format("parquet").option("path", str(tmp_path / "table"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.processAllAvailable()
            server.stop()
            with hanging_up(config.get("s3.endpoint.url") or config["hop.offload.url"]) as called:
                send(3)
                assert called.wait(SOON)
            server.start()
            query.processAllAvailable()
        finally:
            query.stop()
        assert [one["value"].asDict() for one in table().collect()] == [record(at) for at in range(6)]
        assert table().agg(functions.sum("serde_retries")).collect()[0][0] > 0
        server.stop()
        send(6)
        impatient = decoded(**{"large.message.store.timeout.ms": 1000})
        ends_and_goes_on(lambda: run(impatient, tmp_path), "PayloadStoreUnavailableError", server.start)
        assert [one["value"].asDict() for one in table().collect()] == [record(at) for at in range(9)]
