"""The store in S3, on a lenient server; what a strict one is needed for is in tests/servers."""

import base64
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from botocore.exceptions import ClientError

from payload_stores import (
    ConfigError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
    PublishContext,
    UntrustedReferenceError,
    open_store,
)
from payload_stores.s3 import S3Store
from payload_stores.testing import PayloadStoreTests
from serde_chain.testing.services import S3Server
from tests.hypothesis_profiles import examples

CONTENT = PublishContext("content")
LARGE = 17 << 20


class TestS3Store(PayloadStoreTests):
    store_class = "s3"
    large_bytes = LARGE
    extra_memory = None  # the server may share this process; measured in another one below
    machine_examples = examples(15)  # each opens clients anew
    page_size = 3  # instead of 1,000: see `store`

    @pytest.fixture
    def config(self, s3_server: S3Server, bucket: str) -> Mapping[str, object]:
        self.client = s3_server.client()
        parts = {"s3.multipart.threshold.bytes": 16 << 20}  # so that the large payload is uploaded in parts
        return {**s3_server.store_config(bucket), "s3.prefix": "some/pre fix/", **parts}

    @pytest.fixture
    def other_config(self, config: Mapping[str, object]) -> Mapping[str, object]:
        return {**config, "s3.prefix": "another"}

    @pytest.fixture
    def store(self, config: Mapping[str, object]) -> Iterator[S3Store]:
        """The store, whose server answers a listing by small pages."""
        store = opened(config)
        smaller = lambda params, **_: params.update(MaxKeys=self.page_size)  # noqa: E731
        store._client.meta.events.register("before-parameter-build.s3.ListObjectsV2", smaller)
        yield store
        store.close()

    def raw_read(self, reference: str) -> bytes:
        _, _, bucket, key = unquote(reference).split("/", 3)
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def raw_write(self, reference: str, name: str, data: bytes) -> None:
        _, _, bucket, key = unquote(reference).split("/", 3)
        try:
            self.client.put_object(Bucket=bucket, Key=f"{key.rpartition('/')[0]}/{name}", Body=data)
        except ClientError as error:
            raise ValueError("moto has no such names") from error


@pytest.fixture
def config(s3_server: S3Server, bucket: str) -> dict[str, object]:
    return {**s3_server.store_config(bucket), "s3.retry.attempts": 1}


@pytest.fixture
def store(config: dict[str, object]) -> Iterator[S3Store]:
    with_requests = opened(config)
    yield with_requests
    with_requests.close()


def opened(config: Mapping[str, object], **more: object) -> S3Store:
    store = open_store("s3", {**config, **more})
    assert isinstance(store, S3Store)
    return store


def requests_of(store: S3Store) -> list[str]:
    """The names of the requests that a store makes from now on."""
    made: list[str] = []
    store._client.meta.events.register("before-call.s3", lambda model, **_: made.append(model.name))
    return made


def key_of(reference: str) -> str:
    return reference.split("/", 3)[3]


# Configuration


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, r"s3\.bucket is required"),
        ({"s3.bucket": "b", "s3.access.key": "a"}, r"s3\.secret\.key is missing"),
        ({"s3.bucket": "b", "s3.secret.key": "hush"}, r"s3\.access\.key is missing"),
        ({"s3.bucket": "s3://b"}, "Write the name alone"),
        ({"s3.bucket": "b/production"}, r"the folder into s3\.prefix"),
        ({"s3.bucket": "b", "s3.endpoint.url": "no url"}, "no url"),
        ({"s3.bucket": "b", "s3.endpoint.url": "127.0.0.1:9000"}, "Write the server with its scheme"),
        ({"s3.bucket": "b", "s3.endpoint.url": "http://a:hush@localhost:9000"}, "has a user or a password in it"),
        ({"s3.bucket": "b", "s3.prefix": "/a/"}, r"s3\.prefix"),
        ({"s3.bucket": "b", "s3.prefix": "a//b/"}, r"s3\.prefix"),
        ({"s3.bucket": "b", "s3.prefix": "a/../b/"}, r"s3\.prefix"),
        ({"s3.bucket": "b", "s3.retry.attempts": "0"}, r"s3\.retry\.attempts"),
        ({"s3.bucket": "b", "s3.connection.timeout.ms": "soon"}, r"s3\.connection\.timeout\.ms"),
        ({"s3.bucket": "b", "s3.checksum.calculation": "when_suported"}, "did you mean when_supported"),
        ({"s3.bucket": "b", "s3.server.side.encryption": "rot13"}, r"s3\.server\.side\.encryption"),
        ({"s3.bucket": "b", "s3.server.side.encryption": "AES256", "s3.kms.key.id": "k"}, r"s3\.kms\.key\.id"),
    ],
)
def test_a_wrong_configuration(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        open_store("s3", config)
    assert "hush" not in str(caught.value)


def test_the_example_of_the_kip() -> None:
    store = open_store("s3", {"s3.bucket": "b", "s3.retry.attempts": "3", "s3.connection.timeout.ms": "5000"})
    assert isinstance(store, S3Store)
    client: Any = store._client.meta.config
    assert client.connect_timeout == 5
    assert client.retries == {"total_max_attempts": 3, "mode": "standard"}
    store.close()


def test_the_worst_case_by_default_is_below_max_block_ms() -> None:
    store = opened({"s3.bucket": "b"})
    # 3 times 5 s to connect, 1 s to agree and 9 s to answer; waits of 1 s and 2 s, 5 s longer if the server says so.
    assert store.worst_case_ms() == 3 * 15_000 + 6_000 + 7_000 < 60_000
    assert opened({"s3.bucket": "b"}, **{"s3.retry.attempts": 1}).worst_case_ms() == 15_000


@pytest.mark.parametrize(
    ("config", "style"),
    [
        ({}, "auto"),
        ({"s3.endpoint.url": "http://127.0.0.1:1"}, "path"),
        ({"s3.endpoint.url": "http://127.0.0.1:1", "s3.path.style.access": "false"}, "auto"),
        ({"s3.path.style.access": "true"}, "path"),
    ],
)
def test_path_style_is_the_default_for_other_servers(config: dict[str, object], style: str) -> None:
    store = opened({"s3.bucket": "b", **config})
    client: Any = store._client.meta.config
    assert client.s3["addressing_style"] == style


KMS_KEY = "arn:aws:kms:us-east-1:123456789012:key/1"


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, (None, None)),
        ({"s3.server.side.encryption": "AES256"}, ("AES256", None)),
        ({"s3.kms.key.id": KMS_KEY}, ("aws:kms", KMS_KEY)),
    ],
)
def test_encryption(config: dict[str, object], size: int, more: dict[str, object], expected: object) -> None:
    store = opened(config, **more)
    key = key_of(store.publish("topic", bytes(size)))
    asked: Any = store._client.head_object(Bucket=store._bucket, Key=key)
    assert (asked.get("ServerSideEncryption"), asked.get("SSEKMSKeyId")) == expected
    store.close()


def test_when_required_sends_no_checksums(config: dict[str, object]) -> None:
    signed = hashlib.sha256(b"data").hexdigest().encode()
    # The header with the digest is signed, so that the body need not be hashed once more for the signature.
    for choice, expected in (("when_supported", (True, b"UNSIGNED-PAYLOAD")), ("when_required", (False, signed))):
        store = opened(config, **{"s3.checksum.calculation": choice})
        sent: list[tuple[bool, bytes]] = []
        store._client.meta.events.register(
            "before-send.s3",
            lambda request, sent=sent, **_: sent.append(
                ("x-amz-checksum-sha256" in request.headers, request.headers["X-Amz-Content-SHA256"])
            ),
        )
        reference = store.publish("topic", b"data")
        assert sent == [expected]
        data = bytes(LARGE)
        assert store.download(store.publish("topic", data)) == data
        assert store.download(reference) == b"data"
        store.close()


# Names


@pytest.mark.parametrize(
    ("prefix", "expected"), [("", ""), ("pre/fix/", "pre/fix/"), ("pre", "pre/"), ("a b/", "a%20b/")]
)
def test_where_objects_lie(config: dict[str, object], bucket: str, prefix: str, expected: str) -> None:
    store = opened(config, **({"s3.prefix": prefix} if prefix else {}))
    reference = store.publish("topic", b"data", CONTENT)
    digest = "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"
    assert reference == f"s3://{bucket}/{expected}topic/{digest}"
    assert store.download(reference) == b"data"
    store.close()


@pytest.mark.parametrize("prefix", ["pre", "pre/"])
def test_what_lies_elsewhere_is_not_read(config: dict[str, object], bucket: str, prefix: str) -> None:
    store = opened(config, **{"s3.prefix": prefix})
    made = requests_of(store)
    for reference in (
        f"s3://{bucket}/pre2/topic/id",
        f"s3://{bucket}/pretopic/id",
        f"s3://{bucket}/topic/id",
        f"s3://{bucket}/pre/topic/{'%C3%A4' * 510}",  # keys have 1024 bytes at most: S3 would answer KeyTooLongError
        f"s3://{bucket}/pre",
        f"s3://{bucket}2/pre/topic/id",
        f"s3://user@{bucket}/pre/topic/id",
        f"s3://{bucket}:80/pre/topic/id",
        f"s3:///{bucket}/pre/topic/id",
        f"s3a://{bucket}/pre/topic/id",
        f"S3://{bucket}/pre/topic/id",
    ):
        for operation in (store.download, store.open, store.info, store.delete):
            with pytest.raises(UntrustedReferenceError):
                operation(reference)
    assert made == []
    store.close()


def test_trusted_references_are_read_but_not_deleted(s3_server: S3Server, config: dict[str, object]) -> None:
    others = [opened({**config, "s3.bucket": s3_server.create_bucket(), "s3.prefix": "theirs/"}) for _ in range(2)]
    prefixed, whole = (other.publish("topic", b"theirs") for other in others)
    trusted = f"{prefixed.rpartition('/topic/')[0]}/, {'/'.join(whole.split('/', 3)[:3])}, file:///folder/"
    store = opened(config, **{"large.message.trusted.references": trusted})
    for reference in (prefixed, whole):
        assert store.download(reference) == b"theirs"
        with pytest.raises(UntrustedReferenceError):
            store.delete(reference)
        assert store.download(reference) == b"theirs"
    with pytest.raises(UntrustedReferenceError):
        store.download(prefixed.replace("/theirs/", "/theirs2/"))
    for opened_store in (store, *others):
        opened_store.close()


def test_a_bucket_that_is_not_there(config: dict[str, object]) -> None:
    store = opened({**config, "s3.bucket": "nobodys-bucket"})
    for operation in (
        lambda: store.publish("topic", b"data"),
        lambda: store.publish("topic", bytes(LARGE)),
        lambda: store.download("s3://nobodys-bucket/topic/id"),
        lambda: store.open("s3://nobodys-bucket/topic/id"),
        lambda: store.read_range("s3://nobodys-bucket/topic/id", 1, 2),
        lambda: list(store.list("topic")),
    ):
        with pytest.raises(PayloadStoreError, match=r"Check s3\.bucket") as caught:
            operation()
        assert type(caught.value) is PayloadStoreError
    store.close()


def test_lists_are_read_page_by_page(store: S3Store) -> None:
    expected = {store.publish("topic", bytes([number])) for number in range(5)}
    store._client.put_object(Bucket=store._bucket, Key="topic/folder/", Body=b"")  # as some tools show a folder
    events: Any = store._client.meta.events  # the stubs know no handlers with results
    events.register("provide-client-params.s3.ListObjectsV2", lambda params, **_: {**params, "MaxKeys": 2})
    made = requests_of(store)
    assert {info.reference for info in store.list("topic")} == expected
    assert made == ["ListObjectsV2"] * 3


# Which requests are made


def test_small_payloads_take_one_request(store: S3Store) -> None:
    made = requests_of(store)
    reference = store.publish("topic", bytes(1 << 20))
    assert made == ["PutObject"]
    store.download(reference)
    assert made == ["PutObject", "GetObject"]


def test_large_payloads_take_several(config: dict[str, object]) -> None:
    store = opened(config, **{"s3.multipart.threshold.bytes": str(LARGE)})
    made = requests_of(store)
    reference = store.publish("topic", bytes(LARGE))
    assert made == ["PutObject"]
    made.clear()
    reference = store.publish("topic", bytes(LARGE + 1))
    assert sorted(made) == ["CompleteMultipartUpload", "CreateMultipartUpload", *["UploadPart"] * 3]
    made.clear()
    store.download(reference)
    assert made == ["GetObject"] * 3
    store.close()


def test_downloads_among_others_take_one_request_each(store: S3Store) -> None:
    first, second = (store.publish("topic", bytes(LARGE)) for _ in range(2))
    made = requests_of(store)
    within: list[str] = []

    def download_another(**_: object) -> None:
        store._client.meta.events.unregister("after-call.s3.GetObject", download_another)
        made.clear()
        assert store.download(second) == bytes(LARGE)
        within.extend(made)

    store._client.meta.events.register("after-call.s3.GetObject", download_another)
    assert store.download(first) == bytes(LARGE)
    assert within == ["GetObject"]


def test_a_digest_that_is_known_is_the_checksum(store: S3Store) -> None:
    sent: list[bytes] = []
    store._client.meta.events.register(
        "before-send.s3.PutObject", lambda request, **_: sent.append(request.headers["x-amz-checksum-sha256"])
    )
    known = bytes(range(32))  # not the payload's, so that it is seen not to be computed
    store.publish("topic", b"data", PublishContext(digest=f"sha256:{known.hex()}"))
    assert sent == [base64.b64encode(known)]


def test_payloads_are_not_hashed_again_for_signatures(config: dict[str, object]) -> None:
    store = opened(config, **{"s3.multipart.threshold.bytes": 16 << 20})
    signed: dict[str, tuple[Any, bool]] = {}

    def note(request: Any, event_name: str, **_: object) -> None:
        checksums = [name for name in request.headers if name.startswith("x-amz-checksum-")]
        signed[event_name.rpartition(".")[2]] = request.headers["x-amz-content-sha256"], bool(checksums)

    for name in ("PutObject", "UploadPart", "CreateMultipartUpload"):
        store._client.meta.events.register(f"before-send.s3.{name}", note)
    for size in (1000, LARGE):
        store.publish("topic", bytes(size))
    assert signed["PutObject"] == signed["UploadPart"] == (b"UNSIGNED-PAYLOAD", True)
    assert signed["CreateMultipartUpload"][0] != b"UNSIGNED-PAYLOAD"
    store.close()


def test_content_that_is_there_is_not_uploaded_again(store: S3Store) -> None:
    data = bytes(LARGE)
    first = store.publish("topic", data, CONTENT)
    made = requests_of(store)
    assert store.publish("topic", data, CONTENT) == first
    assert made == ["HeadObject"]


@pytest.mark.full
@pytest.mark.parametrize("size", [0, 1000, LARGE])
def test_content_that_is_old_is_copied_onto_itself(config: dict[str, object], size: int) -> None:
    store = opened(config, **{"large.message.grace.ms": 3000})
    reference = store.publish("topic", bytes(size), CONTENT)
    [first] = store.list("topic")
    made = requests_of(store)
    until = time.monotonic() + 30
    while "CopyObject" not in made:
        assert time.monotonic() < until
        assert store.publish("topic", bytes(size), CONTENT) == reference
    assert made[-1] == "CopyObject"  # it was not uploaded instead
    [renewed] = store.list("topic")
    assert renewed.modified > first.modified
    assert store.download(reference) == bytes(size)
    store.close()


@pytest.mark.parametrize("size", [1000, LARGE])
def test_content_that_a_sweep_deletes_before_it_is_renewed(config: dict[str, object], size: int) -> None:
    store = opened(config, **{"large.message.grace.ms": 0})
    reference = store.publish("topic", bytes(size), CONTENT)
    store._client.meta.events.register("before-call.s3.CopyObject", lambda **_: store.delete(reference))
    made = requests_of(store)
    assert store.publish("topic", bytes(size), CONTENT) == reference
    assert made[-3:] == ["DeleteObject", "CopyObject", "PutObject"]
    assert store.download(reference) == bytes(size)
    store.close()


@pytest.mark.parametrize("size", [1000, LARGE])
def test_a_server_without_etags(config: dict[str, object], size: int) -> None:
    """It has no versions of which one could be copied: the payload is uploaded again."""
    store = opened(config, **{"large.message.grace.ms": 0})
    reference = store.publish("topic", bytes(size), CONTENT)
    store._client.meta.events.register("after-call.s3.HeadObject", lambda parsed, **_: parsed.pop("ETag"))
    assert store.info(reference).size == size
    made = requests_of(store)
    assert store.publish("topic", bytes(size), CONTENT) == reference
    assert "CopyObject" not in made
    assert store.download(reference) == bytes(size)
    store.close()


def test_content_that_was_cut_off_is_written_again(store: S3Store, bucket: str) -> None:
    for data in (b"data", bytes(LARGE)):
        reference = store.publish("topic", data, CONTENT)
        store._client.put_object(Bucket=bucket, Key=key_of(reference), Body=b"da")
        assert store.publish("topic", data, CONTENT) == reference
        assert store.download(reference) == data


def test_a_stream_is_uploaded_in_parts(store: S3Store) -> None:
    class Zeros:
        left = 20 << 20

        def read(self, size: int) -> bytes:
            block = bytes(min(size, self.left, 100_000))
            self.left -= len(block)
            return block

        def seekable(self) -> bool:
            return False

    made = requests_of(store)
    reference = store.publish_stream("topic", Zeros())  # type: ignore[arg-type]  # all that is asked of a reader
    assert made.count("UploadPart") == 3
    assert store.download(reference) == bytes(20 << 20)
    with pytest.raises(PayloadStoreError, match="digest"):
        store.publish_stream("topic", Zeros(), CONTENT)  # type: ignore[arg-type]


def test_an_open_payload_can_be_sought(store: S3Store) -> None:
    data = bytes(range(256)) * 100
    with store.open(store.publish("topic", data)) as file:
        assert file.seek(-10, 2) == len(data) - 10
        assert file.read() == data[-10:]
        assert file.seek(5) == 5
        assert file.read(10) == data[5:15]
        assert file.tell() == 15
        assert file.seek(10**9) == 10**9
        assert file.read() == b""


@pytest.mark.full
def test_an_open_payload_that_is_renewed(store: S3Store) -> None:
    data = bytes(range(256)) * 100_000
    reference = store.publish("topic", data, CONTENT)
    with store.open(reference) as file:
        start = file.read(1000)
        # A copy of what was uploaded in parts has another ETag.
        store._client.put_object(Bucket=store._bucket, Key=key_of(reference), Body=data[::-1])
        assert start + file.read(1000) == data[:2000]
        assert file.seek(-10, 2)
        assert file.read() == data[:10][::-1]
        store._client.put_object(Bucket=store._bucket, Key=key_of(reference), Body=data[1:])
        file.seek(0)
        with pytest.raises(PayloadIntegrityError, match="replaced"):
            file.read()


def test_an_open_payload_that_is_deleted(store: S3Store) -> None:
    reference = store.publish("topic", b"data")
    with store.open(reference) as file:
        store.delete(reference)
        with pytest.raises(PayloadNotFoundError):
            file.read()


# Memory


@pytest.mark.full
@pytest.mark.parametrize("threshold", [1 << 30, 16 << 20], ids=["one request", "parts"])
def test_memory_in_a_process_of_its_own(s3_server: S3Server, bucket: str, threshold: int) -> None:
    config = {**s3_server.store_config(bucket), "s3.multipart.threshold.bytes": threshold}
    script = Path(__file__).with_name("measure_memory.py")
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(config)], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    extra = json.loads(done.stdout)
    payload, mib = extra["payload"], 1 << 20
    for kind in ("bytes", "view", "content"):
        assert extra[kind]["traced"] <= 0.2 * payload
        assert extra[kind]["resident"] <= 0.2 * payload
    assert extra["stream"]["traced"] <= 32 * mib
    assert extra["stream"]["resident"] <= 32 * mib
    assert extra["download"]["traced"] <= 1.1 * payload
    assert extra["download"]["resident"] <= 1.1 * payload


# The bucket's owner


def test_the_owner_is_expected_in_every_request(config: dict[str, object]) -> None:
    more = {"s3.multipart.threshold.bytes": LARGE, "large.message.trusted.references": "s3://another/"}
    store = opened(config, **{"s3.expected.bucket.owner": "123456789012", **more})
    asked: dict[str, Any] = {}
    store._client.meta.events.register(
        "before-call.s3",
        lambda model, params, **_: asked.update({model.name: params["headers"].get("x-amz-expected-bucket-owner")}),
    )
    reference = store.publish("topic", bytes(LARGE + 1))
    store.publish("topic", b"data", CONTENT)
    store.publish("topic", b"data", CONTENT)
    store.download(reference)
    store.open(reference).close()
    list(store.list("topic"))
    store.remove_leftovers()
    store.expiration("topic")
    store.delete(reference)
    assert len(asked) >= 9
    assert set(asked.values()) == {"123456789012"}
    # Browsers do not send the header, and foreign buckets may be another account's.
    assert "owner" not in store.link(reference)
    with pytest.raises(PayloadStoreError):
        store.download("s3://another/topic/id")
    assert asked["GetObject"] is None
    store.close()
