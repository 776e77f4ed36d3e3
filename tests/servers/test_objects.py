"""The store of objects by URL, on servers that are as strict as the clouds they stand for."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pytest

from payload_stores import (
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadTooLargeError,
    PublishContext,
    UntrustedReferenceError,
    open_store,
)
from payload_stores.objects import ObjectsStore
from payload_stores.testing import PayloadStoreTests
from tests.hypothesis_profiles import examples
from tests.servers.azurite import Azurite
from tests.servers.fake_gcs import FakeGcs
from tests.servers.minio import MinioServer
from tests.servers.versitygw import VersityGateway

CONTENT = PublishContext("content")
LARGE = 17 << 20
# More than 32 bits have; each gigabyte takes seconds.
STREAMED = [256 << 20, pytest.param(2 << 30, marks=pytest.mark.nightly)]


# The client is that of the next class, and the server that of test_s3_versitygw.py.
@pytest.mark.nightly
class TestObjectsOnVersityGateway(PayloadStoreTests):
    store_class = "objects"
    large_bytes = LARGE

    @pytest.fixture
    def config(self, versity: VersityGateway, versity_bucket: str) -> Mapping[str, object]:
        self.client = versity.client()
        return versity.objects_config(versity_bucket, "some/pre%20fix/")

    def raw_read(self, reference: str) -> bytes:
        _, _, bucket, key = unquote(reference).split("/", 3)
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()


class TestObjectsOnMinio(PayloadStoreTests):
    store_class = "objects"
    large_bytes = LARGE
    machine_examples = examples(15)  # each opens new clients, and uploads megabytes

    @pytest.fixture
    def config(self, minio: MinioServer, minio_bucket: str) -> Mapping[str, object]:
        self.client = minio.client()
        return minio.objects_config(minio_bucket)

    def raw_read(self, reference: str) -> bytes:
        _, _, bucket, key = unquote(reference).split("/", 3)
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()


class TestObjectsOnAzurite(PayloadStoreTests):
    store_class = "objects"
    large_bytes = LARGE
    machine_examples = examples(15)  # each opens new clients, and uploads megabytes

    @pytest.fixture
    def config(self, azurite: Azurite, container: str) -> Mapping[str, object]:
        self.azurite = azurite
        return azurite.objects_config(container, "some/folder/")

    def raw_read(self, reference: str) -> bytes:
        return self.azurite.request("GET", "/" + reference.split("/", 2)[2])


# The server is that of a class above, and the client that of test_s3_versitygw.py.
@pytest.mark.nightly
class TestS3OnMinio(PayloadStoreTests):
    store_class = "s3"
    large_bytes = LARGE

    @pytest.fixture
    def config(self, minio: MinioServer, minio_bucket: str) -> Mapping[str, object]:
        return {**minio.store_config(minio_bucket), "s3.multipart.threshold.bytes": 16 << 20}


def opened(config: Mapping[str, object], **more: object) -> ObjectsStore:
    store = open_store("objects", {**config, **more})
    assert isinstance(store, ObjectsStore)
    return store


@pytest.fixture
def config(versity: VersityGateway, versity_bucket: str) -> dict[str, str]:
    return versity.objects_config(versity_bucket)


@pytest.fixture
def store(config: dict[str, str]) -> Iterator[ObjectsStore]:
    store = opened(config)
    yield store
    store.close()


# Beside the store s3


@pytest.mark.parametrize("size", [0, 1000, LARGE])
def test_the_stores_s3_and_objects_read_each_other(
    versity: VersityGateway, versity_bucket: str, store: ObjectsStore, size: int
) -> None:
    data = bytes([7]) * size
    other: Any = open_store("s3", versity.store_config(versity_bucket))
    for writer, reader in ((store, other), (other, store)):
        for context in (None, CONTENT):
            reference = writer.publish("topic", data, context)
            assert reader.owns(reference)
            assert reader.download(reference) == data
    assert {info.reference for info in store.list("topic")} == {info.reference for info in other.list("topic")}
    other.close()


# Settings


def test_a_bucket_that_is_not_there(config: dict[str, str]) -> None:
    store = opened({**config, "objects.url": "s3://no-such-bucket/"})
    for call in (
        lambda: store.publish("topic", b"data"),
        lambda: store.download("s3://no-such-bucket/topic/1"),
        lambda: store.open("s3://no-such-bucket/topic/1"),
        lambda: store.read_range("s3://no-such-bucket/topic/1", 1, 2),
        lambda: store.delete("s3://no-such-bucket/topic/1"),
        lambda: list(store.list("topic")),
    ):
        with pytest.raises(PayloadStoreError, match="NoSuchBucket") as caught:
            call()
        assert not caught.value.about_record
    store.close()


def test_a_server_without_tls_needs_an_option(config: dict[str, str]) -> None:
    store = opened({name: value for name, value in config.items() if name != "objects.allow_http"})
    with pytest.raises(PayloadStoreError) as caught:
        store.publish("topic", b"data")
    assert caught.value.hint == "For a server without TLS, set objects.allow_http = true"
    store.close()


# Names


def test_a_name_that_is_taken_by_a_folder(store: ObjectsStore) -> None:
    """The server keeps objects in files, so that a name cannot be an object and a folder."""
    reference = store.publish("topic", b"data", PublishContext(payload_id="a"))
    for data in (b"other", bytes(LARGE)):
        with pytest.raises(PayloadStoreError) as caught:
            store.publish("topic", data, PublishContext(payload_id="a/b"))
        assert not caught.value.transient
    assert store.download(reference) == b"data"


def test_dots_at_the_end_of_names(azurite: Azurite, container: str) -> None:
    """Azure advises against them, for the sake of tools that cut them off."""
    store = opened(azurite.objects_config(container))
    reference = store.publish("topic.", b"data", PublishContext(payload_id="a./b."))
    assert store.download(reference) == b"data"
    assert [info.reference for info in store.list("topic.")] == [reference]
    store.close()


# Links


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  a server of the tests'
        content: bytes = answer.read()
    return content


@pytest.mark.parametrize("kind", ["s3", "objects", "objects on azure"])
def test_a_link_needs_no_credentials_until_it_expires(request: pytest.FixtureRequest, kind: str) -> None:
    if kind == "objects on azure":
        azurite, container = request.getfixturevalue("azurite"), request.getfixturevalue("container")
        settings = azurite.objects_config(container)
    else:
        versity, bucket = request.getfixturevalue("versity"), request.getfixturevalue("versity_bucket")
        settings = versity.store_config(bucket) if kind == "s3" else versity.objects_config(bucket)
    store: Any = open_store(kind.partition(" ")[0], settings)
    reference = store.publish("topic", b"data")
    assert fetched(store.link(reference, 60)) == b"data"
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetched(store.link(reference, 60).replace("topic/", "topic/x"))
    refused.value.close()
    ending = store.link(reference, 1)
    until, status = time.monotonic() + 30, 200
    while status == 200:
        assert time.monotonic() < until
        try:
            fetched(ending)
        except urllib.error.HTTPError as error:
            status = error.code
            error.close()
    assert status in {400, 403}
    for seconds in (0, 8 * 86_400):
        with pytest.raises(PayloadStoreError, match=r"a link is valid|links are valid"):
            store.link(reference, seconds)
    with pytest.raises(UntrustedReferenceError):
        store.link("s3://other/topic/id", 60)
    store.close()


# Google's cloud, for reading: the emulator takes no uploads as obstore makes them


@pytest.mark.parametrize("size", [0, 1000, LARGE])
def test_reading_from_googles_cloud(fake_gcs: FakeGcs, gcs_bucket: str, size: int) -> None:
    data = bytes(range(251)) * (size // 251) + bytes(size % 251)
    fake_gcs.put(gcs_bucket, "some/topic/id", data)
    store = opened(fake_gcs.objects_config(gcs_bucket, "some/"))
    reference = f"gs://{gcs_bucket}/some/topic/id"
    assert store.download(reference) == data
    assert store.read_range(reference, 10, 5) == data[10:15]
    assert store.read_range(reference, len(data), 5) == b""
    with store.open(reference) as file:
        file.seek(size // 2)
        assert file.read(100) == data[size // 2 :][:100]
    assert [(info.reference, info.size) for info in store.list("topic", prefix="i")] == [(reference, size)]
    small = opened(
        fake_gcs.objects_config(gcs_bucket, "some/"), **{"large.message.max.payload.bytes": max(1, size - 1)}
    )
    if size > 1:
        with pytest.raises(PayloadTooLargeError):
            small.download(reference)
    small.close()
    store.delete(reference)
    store.delete(reference)
    with pytest.raises(PayloadNotFoundError):
        store.download(reference)
    store.close()


# Processes


@pytest.mark.parametrize("is_used", [True, False])
def test_a_forked_process_gets_an_error_instead_of_waiting_for_ever(config: dict[str, str], is_used: bool) -> None:
    """In a process of its own, in which obstore was not used before."""
    program = f"""
import multiprocessing, sys
from payload_stores import PayloadStoreError, open_store

def use(told):
    try:
        told.send(store.download(store.publish("topic", b"data")))
    except PayloadStoreError as error:
        told.send(error.message)

store = open_store("objects", {config!r})
if {is_used}:
    store.publish("topic", b"data")
receives, sends = multiprocessing.Pipe(duplex=False)
child = multiprocessing.get_context("fork").Process(target=use, args=(sends,))
child.start()
assert receives.poll(30)
print(receives.recv())
child.join(30)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        "the store objects cannot be used in a process that was forked from one that has used it"
        if is_used
        else "b'data'"
    )


# Memory


@pytest.mark.parametrize("size", STREAMED)
def test_any_size_is_streamed_in_less_than_32_mib(config: dict[str, str], size: int) -> None:
    """In a process of its own, by what the kernel says."""
    program = f"""
import os
from payload_stores import open_store
from tests.memory import peak_bytes, reset_peak

store = open_store("objects", {config!r})
noise = os.urandom(1 << 20)

class Noise:
    def __init__(self, size):
        self.left = size

    def read(self, size):
        block = noise[: min(size, self.left)]
        self.left -= len(block)
        return bytes(bytearray(block))  # of its own

store.publish_stream("topic", Noise(20 << 20))
before = reset_peak()
reference = store.publish_stream("topic", Noise({size}))
print(peak_bytes() - before, next(info.size for info in store.list("topic") if info.reference == reference))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    extra, stored = map(int, done.stdout.split())
    assert stored == size
    assert extra <= 32 << 20


def test_memory_of_one_payload(config: dict[str, str]) -> None:
    program = f"""
from payload_stores import open_store
from tests.memory import peak_bytes, reset_peak

store = open_store("objects", {config!r})
data = bytes(range(256)) * (64 << 12)
reference = store.publish("topic", data)
store.download(reference)
for operation in (lambda: store.publish("topic", data), lambda: store.download(reference)):
    before = reset_peak()
    operation()
    print((peak_bytes() - before) / len(data))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    published, downloaded = map(float, done.stdout.split())
    assert published <= 0.2
    assert downloaded <= 1.2
