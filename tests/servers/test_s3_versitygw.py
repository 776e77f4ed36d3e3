"""The store in S3 on a server that is strict about credentials, checksums and conditions, and over a bad network."""

import base64
import io
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from payload_stores import (
    PayloadAccessDeniedError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PublishContext,
    open_store,
)
from payload_stores.s3 import S3Store
from payload_stores.testing import PayloadStoreTests
from tests.hypothesis_profiles import examples
from tests.servers.toxiproxy import Proxy
from tests.servers.versitygw import VersityGateway

CONTENT = PublishContext("content")
LARGE = 17 << 20
# More than 32 bits have; each gigabyte takes seconds.
STREAMED = [256 << 20, pytest.param(2 << 30, marks=pytest.mark.nightly)]


# In one request, as test_s3.py has it on another server.
@pytest.mark.nightly
class TestS3Store(PayloadStoreTests):
    store_class = "s3"
    large_bytes = LARGE

    @pytest.fixture
    def config(self, versity: VersityGateway, versity_bucket: str) -> Mapping[str, object]:
        return {**versity.store_config(versity_bucket), "s3.prefix": "some/pre fix/"}


class TestS3StoreInParts(PayloadStoreTests):
    store_class = "s3"
    large_bytes = LARGE
    machine_examples = examples(15)  # each opens new clients, and uploads megabytes

    @pytest.fixture
    def config(self, versity: VersityGateway, versity_bucket: str) -> Mapping[str, object]:
        return {**versity.store_config(versity_bucket), "s3.multipart.threshold.bytes": 8 << 20}


# botocore's other way to send what the class above sends.
@pytest.mark.nightly
class TestS3StoreWithoutChecksums(PayloadStoreTests):
    store_class = "s3"
    large_bytes = LARGE

    @pytest.fixture
    def config(self, versity: VersityGateway, versity_bucket: str) -> Mapping[str, object]:
        return {**versity.store_config(versity_bucket), "s3.checksum.calculation": "when_required"}


def opened(config: Mapping[str, object], **more: object) -> S3Store:
    store = open_store("s3", {"s3.multipart.threshold.bytes": 16 << 20, **config, **more})
    assert isinstance(store, S3Store)
    return store


@pytest.fixture
def config(versity: VersityGateway, versity_bucket: str) -> dict[str, str]:
    return versity.store_config(versity_bucket)


@pytest.fixture
def store(config: dict[str, str]) -> Iterator[S3Store]:
    store = opened(config)
    yield store
    store.close()


@pytest.fixture
def proxied(config: dict[str, str], versity_proxy: Proxy) -> Iterator[S3Store]:
    """The store by way of the proxy, with short timeouts and two attempts."""
    store = opened(
        config,
        **{
            "s3.endpoint.url": f"http://{versity_proxy.address}",
            "s3.retry.attempts": 2,
            "s3.connection.timeout.ms": 1000,
            "s3.request.timeout.ms": 500,
        },
    )
    yield store
    store.close()


# Credentials


def test_a_bucket_that_is_another_accounts_is_refused(config: dict[str, str]) -> None:
    ours = opened(config, **{"s3.expected.bucket.owner": VersityGateway.access_key})
    reference = ours.publish("topic", b"data")
    theirs: Any = opened(config, **{"s3.expected.bucket.owner": "123456789012"})
    for operation, arguments in (
        (theirs.publish, ("topic", b"data")),
        (theirs.publish, ("topic", bytes(LARGE))),
        (theirs.download, (reference,)),
        (theirs.open, (reference,)),
        (theirs.delete, (reference,)),
        (lambda topic: list(theirs.list(topic)), ("topic",)),
    ):
        with pytest.raises(PayloadAccessDeniedError) as caught:
            operation(*arguments)
        assert not caught.value.about_record
    assert [info.reference for info in ours.list("topic")] == [reference]
    assert ours.download(reference) == b"data"
    ours.close()
    theirs.close()


# Checksums and conditions


@pytest.mark.parametrize("size", [1000, LARGE])
def test_what_is_changed_on_the_way_is_refused(store: S3Store, size: int) -> None:
    digest = base64.b64encode(bytes(32)).decode()
    for request, header, other in (
        ("PutObject", "x-amz-checksum-sha256", digest),
        ("UploadPart", "x-amz-checksum-crc32", "AAAAAA=="),
    ):

        def change(request: Any, header: str = header, other: str = other, **_: object) -> None:
            assert header in request.headers
            request.headers[header] = other

        store._client.meta.events.register(f"before-sign.s3.{request}", change)
    with pytest.raises(PayloadStoreError):
        store.publish("topic", bytes([1]) * size)
    assert list(store.list("topic")) == []
    assert not store._client.list_multipart_uploads(Bucket=store._bucket).get("Uploads")


def test_a_body_that_is_changed_on_the_way_is_refused(store: S3Store) -> None:
    """The signature does not cover the body itself, but its digest."""

    def change(request: Any, **_: object) -> None:
        request.body = io.BytesIO(bytes([2]) * 1000)

    store._client.meta.events.register("before-send.s3.PutObject", change)
    with pytest.raises(PayloadStoreError):
        store.publish("topic", bytes([1]) * 1000)
    assert list(store.list("topic")) == []


@pytest.mark.parametrize("size", [0, 1000, LARGE])
def test_content_that_is_old_on_a_server_whose_copies_keep_their_time(config: dict[str, str], size: int) -> None:
    store = opened(config, **{"large.message.grace.ms": 3000, "s3.multipart.threshold.bytes": 1 << 30})
    made: list[str] = []
    reference = store.publish("topic", bytes(size), CONTENT)
    [first] = store.list("topic")
    store._client.meta.events.register("after-call.s3", lambda model, **_: made.append(model.name))
    until = time.monotonic() + 30
    while "CopyObject" not in made:
        assert time.monotonic() < until
        assert store.publish("topic", bytes(size), CONTENT) == reference
    assert made[-1] == "PutObject"
    [renewed] = store.list("topic")
    assert renewed.modified > first.modified
    assert store.download(reference) == bytes(size)
    store.close()


@pytest.mark.parametrize("size", [1000, LARGE])
def test_only_one_of_several_writes_the_same_content(config: dict[str, str], size: int) -> None:
    stores = [opened(config) for _ in range(4)]
    written: list[str] = []
    for store in stores:
        for request in ("PutObject", "CompleteMultipartUpload"):
            store._client.meta.events.register(
                f"after-call.s3.{request}",
                lambda http_response, model, **_: (
                    written.append(model.name) if http_response.status_code < 300 else None
                ),
            )
    data = bytes([2]) * size
    with ThreadPoolExecutor(len(stores)) as threads:
        references = set(threads.map(lambda store: store.publish("topic", data, CONTENT), stores))
    assert len(references) == 1
    assert len(written) == 1
    assert stores[0].download(references.pop()) == data
    assert not stores[0]._client.list_multipart_uploads(Bucket=stores[0]._bucket).get("Uploads")
    for store in stores:
        store.close()


# The network


def test_a_slow_network(proxied: S3Store, versity_proxy: Proxy) -> None:
    data = bytes(range(256)) * 4000
    with versity_proxy.toxic("latency", latency=100):
        assert proxied.download(proxied.publish("topic", data)) == data


@pytest.mark.parametrize("size", [1000, LARGE])
@pytest.mark.parametrize(
    ("fault", "attributes"),
    [
        ("timeout upstream", {"timeout": 0}),
        ("timeout downstream", {"timeout": 0}),
        ("timeout upstream", {"timeout": 100}),
        ("reset_peer downstream", {"timeout": 0}),
        ("limit_data downstream", {"bytes": 10}),
        ("limit_data upstream", {"bytes": 500}),
    ],
)
def test_faults_of_the_network(
    proxied: S3Store, versity_proxy: Proxy, size: int, fault: str, attributes: dict[str, int]
) -> None:
    kind, stream = cast("tuple[Any, Any]", fault.split())
    data = bytes([3]) * size
    reference = proxied.publish("topic", data)
    with versity_proxy.toxic(kind, stream=stream, **attributes):
        for operation in (lambda: proxied.publish("topic", data), lambda: proxied.download(reference)):
            started = time.monotonic()
            with pytest.raises(PayloadStoreUnavailableError):
                operation()
            # Creating the upload, or the abort after a part: two requests at most.
            assert time.monotonic() - started <= 2 * proxied.worst_case_ms() / 1000
    assert proxied.download(reference) == data
    assert proxied.download(proxied.publish("topic", data)) == data


# dateutil warns of a time zone "GM", where the answer ends.
@pytest.mark.filterwarnings("ignore:tzname")
# From 50 on: where "100 Continue" itself is cut off, botocore reads for ever, and only a deadline helps.
@pytest.mark.parametrize("kept", [50, 100, 150, 200, 250, 300, 400, 600])
@pytest.mark.parametrize("size", [1000, LARGE])
def test_answers_that_are_cut_off_anywhere(proxied: S3Store, versity_proxy: Proxy, size: int, kept: int) -> None:
    data = bytes([5]) * size
    reference = proxied.publish("topic", data)
    with versity_proxy.toxic("limit_data", bytes=kept):
        # A status alone says that a payload is stored; nothing but all of it is a payload that was read.
        with suppress(PayloadStoreUnavailableError):
            reference = proxied.publish("topic", data)
        with suppress(PayloadStoreUnavailableError):
            assert proxied.download(reference) == data
        with suppress(PayloadStoreUnavailableError):
            assert list(proxied.list("topic"))
    assert proxied.download(reference) == data


def test_a_server_that_is_away_for_a_while(proxied: S3Store, versity_proxy: Proxy) -> None:
    reference = proxied.publish("topic", b"data")
    with versity_proxy.down(), pytest.raises(PayloadStoreUnavailableError):
        proxied.download(reference)
    assert proxied.download(reference) == b"data"


def test_payloads_survive_a_crash_of_the_server(versity: VersityGateway, store: S3Store) -> None:
    data = bytes([4]) * LARGE
    references = [store.publish("topic", data), store.publish("topic", b"small")]
    versity.restart()
    assert [store.download(reference) for reference in references] == [data, b"small"]


def test_uploads_that_killed_writers_left_are_aborted_on_request(config: dict[str, str]) -> None:
    store = opened(config, **{"s3.prefix": "ours/"})
    begun = {
        key: store._client.create_multipart_upload(Bucket=store._bucket, Key=key) for key in ("ours/t/1", "other/2")
    }
    upload = begun["ours/t/1"]["UploadId"]
    store._client.upload_part(Bucket=store._bucket, Key="ours/t/1", UploadId=upload, PartNumber=1, Body=b"data")
    assert store.remove_leftovers() == 0  # of a writer that may be alive
    assert store.remove_leftovers(0) == 1
    assert store.remove_leftovers(0) == 0
    left = store._client.list_multipart_uploads(Bucket=store._bucket)["Uploads"]
    assert [found["Key"] for found in left] == ["other/2"]
    store.close()


# Memory


@pytest.mark.parametrize("size", STREAMED)
def test_any_size_is_streamed_in_less_than_32_mib(config: dict[str, str], tmp_path: Path, size: int) -> None:
    """In a process of its own, by what the kernel says."""
    program = f"""
from pathlib import Path
from serde_chain import RecordContext, SerializerChain
from tests.memory import peak_bytes, reset_peak

config = {{"value.serializers": "large-message", "large.message.payload.store.class": "s3", **{config!r}}}
warm, large = Path({str(tmp_path / "warm")!r}), Path({str(tmp_path / "large")!r})
for path, size in ((warm, 2 << 20), (large, {size})):
    with path.open("wb") as file:
        file.truncate(size)
with SerializerChain.from_config(config) as write:
    write(warm, RecordContext("t", "value", []))
    before = reset_peak()
    ctx = RecordContext("t", "value", [])
    write(large, ctx)
    print(peak_bytes() - before, dict(ctx.headers)["large-message-size"].decode())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    extra, sent = map(int, done.stdout.split())
    assert sent == size
    assert extra <= 32 << 20
