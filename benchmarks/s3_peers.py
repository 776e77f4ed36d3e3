"""Peers of the benchmarks of object stores.

kaf-s3-connector is in no requirements file of this project (``pip install kaf-s3-connector``): a table without it is
complete, but less informative.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

__all__ = ["Peer", "kaf_s3_connector", "obstore", "obstore_client"]

_DEADLINE_SECONDS: Final = 120


class Peer(NamedTuple):
    """A library to compare with.

    Attributes:
        name: Its row.
        up: Uploads payloads; returns the input of `down`.
        down: Downloads them.
    """

    name: str
    up: Callable[[list[bytes]], Any]
    down: Callable[[Any], list[Any]]


def obstore_client(config: Mapping[str, str]) -> Any:
    """Obstore's own client for a bucket, from the configuration of the store ``s3``."""
    from obstore.store import S3Store

    return S3Store(
        config["s3.bucket"],
        endpoint=config["s3.endpoint.url"],
        access_key_id=config["s3.access.key"],
        secret_access_key=config["s3.secret.key"],
        region=config["s3.region"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


def obstore(config: Mapping[str, str], threads: Executor, count: int) -> Peer:
    """Obstore's blocking calls, in threads."""
    store = obstore_client(config)

    def put(number: int, data: bytes) -> str:
        store.put(f"obstore/{number}", data)
        return f"obstore/{number}"

    def get(key: str) -> bytes:
        return bytes(store.get(key).bytes())

    return Peer(
        f"obstore, {count} threads",
        lambda payloads: list(threads.map(put, range(len(payloads)), payloads)),
        lambda keys: list(threads.map(get, keys)),
    )


def kaf_s3_connector(config: Mapping[str, str], client: Mapping[str, Any], topic: str) -> Peer | None:
    """kaf-s3-connector's producer and consumer, as in their README; None if it is not installed."""
    library = _found("s3_connector")
    if library is None:
        return None
    s3 = {
        "bucket": config["s3.bucket"],
        "region_name": config["s3.region"],
        "endpoint_url": config["s3.endpoint.url"],
        "prefix": "peer",
    }
    reading = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": True}
    with _credentials(config):
        producer = library.S3Producer({"kafka": {**client, "log_level": 0}, "s3": s3})
        consumer = library.S3Consumer({"kafka": {**client, "log_level": 0, **reading}, "s3": s3})
    consumer.subscribe([topic])

    def produce(payloads: list[bytes]) -> int:
        for data in payloads:
            producer.produce(topic, data)
        producer.flush(_DEADLINE_SECONDS)
        return len(payloads)

    def consume(count: int) -> list[Any]:
        until = time.monotonic() + _DEADLINE_SECONDS
        values: list[Any] = []
        while len(values) < count and time.monotonic() < until:
            if (payload := consumer.poll(1)) is not None:
                values.append(payload)
        return values

    return Peer("kaf-s3-connector", produce, consume)


def _found(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@contextmanager
def _credentials(config: Mapping[str, str]) -> Iterator[None]:
    """Puts the credentials where boto3 finds them, for a library without a setting for them."""
    mine = {"AWS_ACCESS_KEY_ID": config["s3.access.key"], "AWS_SECRET_ACCESS_KEY": config["s3.secret.key"]}
    before = {name: os.environ.get(name) for name in mine}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
