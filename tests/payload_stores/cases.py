"""What the tests of all stores need of each: a new store is one row here, and no other list names them."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
import confluent_kafka
import pytest

from payload_stores.kafka.chunks import Publication, cut
from serde_chain.testing.services import KafkaBroker, S3Server

ID = "123e4567-e89b-12d3-a456-426614174000"


@dataclass(frozen=True)
class StoreCase:
    """A store.

    Attributes:
        suite: Its subclass of the conformance suite, below ``tests.payload_stores``.
        config: A configuration of which no server is needed.
        own: References that a store of this configuration owns.
        foreign: Others, which it does not.
        through_a_broker: Makes the configuration of one that clients write to and read from, by the test and a folder;
            None where that is tested elsewhere (hop's needs a broker with users: ``tests/hop``).
        odd_objects: Puts objects beside a payload that no payload store would, as other writers may; returns their
            references.
    """

    suite: str
    config: dict[str, Any]
    own: list[str]
    foreign: list[str]
    through_a_broker: Callable[[pytest.FixtureRequest, Path], dict[str, Any]] | None
    odd_objects: Callable[[pytest.FixtureRequest, str], list[str]]


@contextmanager
def s3_client(server: S3Server, bucket: str) -> Iterator[Any]:
    """boto3's own client, for objects that no store of ours writes."""
    settings = server.store_config(bucket)
    client = boto3.client(
        "s3",
        endpoint_url=settings["s3.endpoint.url"],
        aws_access_key_id=settings["s3.access.key"],
        aws_secret_access_key=settings["s3.secret.key"],
        region_name="us-east-1",
    )
    with closing(client):
        yield client


def _s3(request: pytest.FixtureRequest) -> S3Server:
    server: S3Server = request.getfixturevalue("s3_server")
    return server


def _no_objects(_request: pytest.FixtureRequest, _reference: str) -> list[str]:
    return []


def _odd_files(_request: pytest.FixtureRequest, reference: str) -> list[str]:
    folder = Path(reference.removeprefix("file://")).parent
    at = {kind: folder / kind for kind in ("socket", "pipe", "folder", "link", "loop", "empty", "sparse", "locked")}
    with socket.socket(socket.AF_UNIX) as listener, TemporaryDirectory() as short:
        listener.bind(f"{short}/socket")  # the path of a socket has at most 107 bytes
        shutil.move(f"{short}/socket", at["socket"])
    os.mkfifo(at["pipe"])
    at["folder"].mkdir()
    at["link"].symlink_to("/etc/passwd")
    at["loop"].symlink_to("loop")
    at["empty"].touch()
    at["locked"].touch(mode=0)
    with at["sparse"].open("wb") as file:
        file.truncate(1 << 40)
    return [path.as_uri() for path in at.values()] + [f"{folder.as_uri()}/pipe/below"]


def _odd_s3_objects(request: pytest.FixtureRequest, reference: str) -> list[str]:
    bucket, _, key = reference.removeprefix("s3://").partition("/")
    folder = key.rpartition("/")[0]
    with s3_client(_s3(request), bucket) as client:
        client.put_object(Bucket=bucket, Key=f"{folder}/archived", Body=b"archived", StorageClass="GLACIER")
        client.put_object(Bucket=bucket, Key=f"{folder}/packed", Body=b"x", ContentEncoding="gzip")
        client.put_object(Bucket=bucket, Key=f"{folder}/folder/", Body=b"")
    return [f"s3://{bucket}/{folder}/{name}" for name in ("archived", "packed", "folder", "folder/")]


def _odd_chunks(request: pytest.FixtureRequest, reference: str) -> list[str]:
    broker: KafkaBroker = request.getfixturevalue("broker")
    _, _, cluster, payloads, _, _, topic, _ = reference.split("/")
    offsets: list[int] = []
    producer = confluent_kafka.Producer(broker.client_config())

    def written(data: bytes, block_bytes: int, change: Callable[[list[Any]], list[Any]]) -> str:
        records = Publication(f"{topic}/odd", block_bytes).records(cut(memoryview(data), block_bytes), len(data))
        offsets.clear()
        for key, value, headers in change([*records]):
            producer.produce(
                payloads, None if value is None else bytes(value), key, partition=0, headers=list(headers),
                on_delivery=lambda _, message: offsets.append(message.offset() or 0),
            )  # fmt: skip
        assert producer.flush(30) == 0
        return f"kafka://{cluster}/{payloads}/0/{offsets[0]}-{offsets[-1]}/{topic}/odd"

    return [
        written(bytes(5_000), 1_000, lambda records: records[:-1]),
        written(bytes(5_000), 1_000, lambda records: records[1:]),
        written(bytes(5_000), 1_000, lambda records: records[::-1]),
        written(bytes(5_000), 1_000, lambda records: [(key, b"cut", headers) for key, _, headers in records]),
        written(bytes(5_000), 1_000, lambda records: [(key, value, ()) for key, value, _ in records]),
        written(bytes(5_000), 1_000, lambda records: [records[0], *((key, None, ()) for key, _, _ in records[1:])]),
        written(bytes(5_000), 1, lambda records: records),
        written(bytes(5_000), 1_000, lambda _: [(b"", b"", ())]),
    ]


CASES = {
    "memory": StoreCase(
        suite="test_memory:TestMemoryStore",
        config={},
        own=["memory:///t/1", "memory:///t/a/b"],
        foreign=["memory://host/t/1", "memory:///t/../1", "memory:///"],
        through_a_broker=lambda _request, _folder: {},
        odd_objects=_no_objects,
    ),
    "local": StoreCase(
        suite="local.test_local:TestLocalStore",
        config={"local.path": "/srv/payloads", "large.message.trusted.references": "file:///srv/old/"},
        own=["file:///srv/payloads/t/1", "file:///srv/old/t/1"],
        foreign=[
            "file:///srv/payloads", "file:///srv/payloads2/t/1", "file:///srv/older/t/1",
            "file://host/srv/old/t/1", "file:///etc/passwd", "file:///srv/payloads/%2e%2e/x",
        ],
        through_a_broker=lambda _request, folder: {"local.path": str(folder)},
        odd_objects=_odd_files,
    ),
    "s3": StoreCase(
        suite="s3.test_s3:TestS3Store",
        config={
            "s3.bucket": "b", "s3.prefix": "pre/", "s3.region": "eu-west-1",
            "large.message.trusted.references": "s3://old/x/,https://h/",
        },
        own=["s3://b/pre/t/1", "s3://old/x/t/1"],
        foreign=["s3://b/prefix/t/1", "s3://b/t/1", "s3://old/t/1", "s3://old/x", "s3://c/pre/t/1", "S3://b/pre/t/1"],
        through_a_broker=lambda request, _folder: _s3(request).store_config(request.getfixturevalue("bucket")),
        odd_objects=_odd_s3_objects,
    ),
    "objects": StoreCase(
        suite="objects.test_objects:TestObjectsStore",
        config={"objects.url": "gs://b/pre", "large.message.trusted.references": "gs://old/x/,s3://b/pre/"},
        own=["gs://b/pre/t/1", "gs://old/x/t/1"],
        foreign=["gs://b/prefix/t/1", "gs://b/t/1", "gs://old/t/1", "s3://b/pre/t/1", "gs://c/pre/t/1", "gs://b/pre"],
        through_a_broker=lambda request, _folder: _s3(request).objects_config(request.getfixturevalue("bucket")),
        odd_objects=_odd_s3_objects,
    ),
    "hop": StoreCase(
        suite="hop.test_hop:TestHopStore",
        config={"hop.offload.url": "http://h:8080/v1/", "large.message.trusted.references": "https://old/x"},
        own=[f"http://h:8080/v1/msg/{ID}", f"HTTP://H:8080/v1//msg/{ID}", "https://old/x/anything"],
        foreign=[
            f"https://h:8080/v1/msg/{ID}", f"http://h/v1/msg/{ID}", f"http://h:8080/msg/{ID}", "http://h:8080/v1/msg/1",
            f"http://h:8080/v1/topic/{ID}", "https://old/xy/z", "https://old/x",
        ],
        through_a_broker=None,
        odd_objects=_no_objects,
    ),
    "kafka": StoreCase(
        suite="kafka.test_kafka:TestKafkaStore",
        config={
            "bootstrap.servers": "127.0.0.1:1", "kafka.cluster.id": "C",
            "large.message.trusted.references": "kafka://C/old.x/",
        },
        own=["kafka://C/t.payloads/0/1-1/t/1", "kafka://C/t.payloads/11/0-9/t/a/b", "kafka://C/old.x/0/1-2/t/1"],
        foreign=[
            "kafka://D/t.payloads/0/1-1/t/1", "kafka://C/u.payloads/0/1-1/t/1", "kafka://C/t/0/1-1/t/1",
            "kafka://C/t.payloads/0/1-1/t", "kafka://C/t.payloads/0/1-1", "kafka://C/t.payloads/t/1", "kafka://C/t",
            "kafka://C/t.payloads/0/2-1/t/1", "kafka://C/t.payloads/-1/1-1/t/1", "kafka://C/t.payloads/0/-1-1/t/1",
            "kafka://C/t.payloads/0/01-1/t/1", "kafka://C/t.payloads/00/1-1/t/1", "kafka://C/t.payloads/0/1/t/1",
            "kafka://C/t.payloads/0/0-99999999999/t/1", "kafka://C/t.payloads/4294967296/0-0/t/1",
            "kafka://C/t.payloads/0/9223372036854775808-9223372036854775808/t/1", "kafka://C/old.xx/0/1-2/t/1",
            "kafka://C/t.payloads/0/1-1/../1", "kafka://C/t.payloads/0/1-1/t/%2e%2e", "kafka://C/t.payloads/0/1%EF%BC%91-99/t/1",
            "kafka://C/a b.payloads/0/1-1/a b/1", f"kafka://C/t.payloads/0/1-1/t/{'1' * 1023}",
        ],
        through_a_broker=lambda _request, _folder: {},
        odd_objects=_odd_chunks,
    ),
    "mirror": StoreCase(
        suite="test_mirror:TestMirrorStore",
        config={
            "mirror.primary": {"class": "local", "local.path": "/srv/new"},
            "mirror.secondary": {"class": "s3", "s3.bucket": "b", "s3.region": "eu-west-1"},
        },
        own=["file:///srv/new/t/1", "s3://b/t/1"],
        foreign=["file:///srv/new", "file:///srv/t/1", "s3://c/t/1", "memory:///t/1"],
        through_a_broker=lambda _request, folder: {
            "mirror.primary": {"class": "local", "local.path": str(folder / "mirrored")}, "mirror.secondary": "memory",
        },
        odd_objects=_odd_files,
    ),
}  # fmt: skip
