"""The store in S3 when an upload never ends: what stays in the bucket, and whether the program can end."""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from botocore.exceptions import ClientError

from payload_stores import PayloadStore, PayloadStoreError, SupportsLeftoverCount, SupportsLeftovers, open_store
from payload_stores.middleware import Deadline
from payload_stores.multipart import DaemonPool
from payload_stores.s3 import S3Store
from serde_chain.testing.services import S3Server

LARGE = 17 << 20

PROGRAM = """
import json, sys
from payload_stores import PayloadStoreUnavailableError, open_store
from payload_stores.middleware import Deadline

store = Deadline(open_store("s3", json.loads(sys.argv[1])), 500)
try:
    store.publish("topic", bytes(17 << 20)) if sys.argv[2] == "up" else store.download("s3://bucket/topic/id")
except PayloadStoreUnavailableError as error:
    print("told:", error.message)
"""


# The program


@pytest.mark.full
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_program_ends_although_parts_hang(serve: Any, direction: str) -> None:
    """Its timeouts of the single request are far beyond the deadline, and beyond this test's."""
    over = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begins = handler.headers.get("Range", "").startswith("bytes=0-")
        if handler.command == "POST":
            body = b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
            handler.send_response(200)
        elif handler.command == "GET" and begins:
            body = bytes(8 << 20)
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes 0-{len(body) - 1}/{LARGE}")
        else:
            over.wait(100)
            return
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with serve(answer) as url:
        config = {
            "s3.bucket": "bucket",
            "s3.endpoint.url": url,
            "s3.access.key": "access",
            "s3.secret.key": "hush",
            "s3.request.timeout.ms": 600_000,
        }
        try:
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, json.dumps(config), direction],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            over.set()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("told: the payload store did not finish within 500 ms")


def test_a_pool_runs_no_more_than_it_may_at_once() -> None:
    pool = DaemonPool(2)
    begun, go_on = threading.Semaphore(0), threading.Event()

    def call(number: int) -> int:
        begun.release()
        assert go_on.wait(60)
        return number * 2

    calls = [pool.submit(call, number) for number in range(6)]
    assert all(begun.acquire(timeout=60) for _ in range(2))
    assert not begun.acquire(blocking=False)
    calls[2].cancel()
    pool.shutdown(wait=False, cancel_futures=True)
    for future in calls[3:]:
        assert isinstance(future.exception(60), PayloadStoreError), "not CancelledError, which is no store's"
    with pytest.raises(PayloadStoreError, match="the store is closed"):
        pool.submit(call, 7)
    go_on.set()
    assert [future.result(60) for future in calls[:2]] == [0, 2]
    assert calls[2] in wait(calls[2:], 60).done


def test_a_pool_hands_on_what_a_call_raises() -> None:
    pool = DaemonPool(1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(60)
    assert pool.submit(sum, [1, 2]).result(60) == 3


# The bucket


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> Iterator[S3Store]:
    store = open_store("s3", {**s3_server.store_config(bucket), "s3.prefix": "ours/", "s3.retry.attempts": 1})
    assert isinstance(store, S3Store)
    yield store
    store.close()


def keys_of_uploads(store: S3Store) -> set[str]:
    uploads = store._client.list_multipart_uploads(Bucket=store._bucket).get("Uploads", [])
    return {upload["Key"] for upload in uploads}


def test_uploads_that_killed_writers_left_are_aborted_on_request(store: S3Store, bucket: str) -> None:
    for key in ("ours/topic/1", "ours/topic/2", "ours2/topic/3"):
        store._client.create_multipart_upload(Bucket=bucket, Key=key)
    reference = store.publish("topic", bytes(LARGE))
    around: PayloadStore = Deadline(store, 60_000)
    assert isinstance(around, SupportsLeftovers)
    # moto dates all uploads to the same day of the year 2010.
    assert around.remove_leftovers(1000 * 365 * 24 * 3600 * 1000) == 0
    assert isinstance(around, SupportsLeftoverCount)
    assert around.count_leftovers(1000 * 365 * 24 * 3600 * 1000) == 0
    assert around.count_leftovers() == 2
    assert around.remove_leftovers() == 2
    assert around.count_leftovers() == 0
    assert keys_of_uploads(store) == {"ours2/topic/3"}
    assert store.download(reference) == bytes(LARGE)


def test_an_upload_that_ends_while_leftovers_are_listed(store: S3Store, bucket: str) -> None:
    for key in ("ours/topic/1", "ours/topic/2"):
        store._client.create_multipart_upload(Bucket=bucket, Key=key)

    def gone(params: dict[str, Any], **_: object) -> None:
        if params["Key"].endswith("1"):
            raise ClientError({"Error": {"Code": "NoSuchUpload"}}, "AbortMultipartUpload")

    events: Any = store._client.meta.events
    events.register("provide-client-params.s3.AbortMultipartUpload", gone)
    assert store.remove_leftovers() == 1
    assert keys_of_uploads(store) == {"ours/topic/1"}


def test_leftovers_that_may_not_be_removed_are_an_error(store: S3Store, bucket: str) -> None:
    store._client.create_multipart_upload(Bucket=bucket, Key="ours/topic/1")

    def denied(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "AbortMultipartUpload")

    events: Any = store._client.meta.events
    events.register("provide-client-params.s3.AbortMultipartUpload", denied)
    with pytest.raises(PayloadStoreError, match="AccessDenied"):
        store.remove_leftovers()


def test_a_stream_leaves_nothing_to_remove(store: S3Store) -> None:
    store.publish_stream("topic", io.BytesIO(bytes(LARGE)))
    assert store.remove_leftovers(0) == 0
