"""The store in S3 when S3 refuses, breaks off, lies, hangs or is not there."""

import gc
import io
import itertools
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import NoCredentialsError

from payload_stores import (
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    PublishContext,
    UntrustedReferenceError,
    open_store,
)
from payload_stores.s3 import S3Store
from serde_chain.testing.services import S3Server
from tests.payload_stores.lying import lying

# Faults and attacks; the ordinary way has tests of its own.
pytestmark = pytest.mark.full

CONTENT = PublishContext("content")
LARGE = 17 << 20


def opened(config: Mapping[str, object], **more: object) -> S3Store:
    store = open_store("s3", {"s3.retry.attempts": 1, "s3.multipart.threshold.bytes": 16 << 20, **config, **more})
    assert isinstance(store, S3Store)
    return store


@pytest.fixture
def config(s3_server: S3Server, bucket: str) -> dict[str, str]:
    return s3_server.store_config(bucket)


@pytest.fixture
def store(config: dict[str, str]) -> Iterator[S3Store]:
    store = opened(config)
    yield store
    store.close()


def foreign_config(url: str) -> dict[str, object]:
    """Configuration for a server that is no S3 server; its timeouts are short."""
    keys = {"s3.access.key": "access", "s3.secret.key": "hush"}
    times = {"s3.connection.timeout.ms": 1000, "s3.request.timeout.ms": 300}
    return {"s3.bucket": "bucket", "s3.endpoint.url": url, **keys, **times}


class _Raw(io.BytesIO):
    """A body, as botocore expects it of urllib3."""

    def stream(self, *_args: object, **_options: object) -> Iterator[bytes]:
        yield self.read()


def answers(
    store: S3Store,
    request: str,
    status: int,
    code: str,
    when: Callable[[Any], bool] = lambda _: True,
    *,
    body: str | None = None,
) -> None:
    """Let requests of a kind be answered with an error, instead of being sent.

    Args:
        store: The store.
        request: Which requests, as ``PutObject``.
        status: HTTP status of the answers.
        code: S3's code of the error.
        when: Which of these requests; it is given each.
        body: Another body than that of an error.
    """
    if body is None:
        body = f"<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>" if code else ""

    def answer(request: Any, **_: object) -> AWSResponse | None:
        return AWSResponse(request.url, status, HTTPHeaders(), _Raw(body.encode())) if when(request) else None

    events: Any = store._client.meta.events
    events.register(f"before-send.s3.{request}", answer)


def uploads_left(store: S3Store) -> int:
    return len(store._client.list_multipart_uploads(Bucket=store._bucket).get("Uploads", []))


# Deleting many


def published(store: S3Store, count: int) -> list[str]:
    return [store.publish("t", b"data") for _ in range(count)]


def requests_of(store: S3Store) -> list[str]:
    names: list[str] = []
    events: Any = store._client.meta.events
    events.register("before-call.s3", lambda model, **_: names.append(model.name))
    return names


def test_a_thousand_are_deleted_by_a_request(store: S3Store) -> None:
    references = published(store, 2)
    names = requests_of(store)
    absent = [f"s3://{store._bucket}/t/{number}" for number in range(1999)]
    assert store.delete_many([*references, *absent]) == {}
    assert names == ["DeleteObjects"] * 3
    assert list(store.list("t")) == []


def test_a_name_too_long_is_refused_before_any_request(store: S3Store) -> None:
    references = published(store, 2)
    names = requests_of(store)
    absent = [f"s3://{store._bucket}/t/{number}" for number in range(1000)]
    with pytest.raises(UntrustedReferenceError, match="1024 bytes"):
        store.delete_many([*references, *absent, f"s3://{store._bucket}/t/{'x' * 1025}"])
    assert names == []
    assert store.info(references[0]).size == 4


def test_an_object_that_is_refused_among_others(store: S3Store) -> None:
    refused, gone, missing = published(store, 3)
    keys = [reference.removeprefix(f"s3://{store._bucket}/") for reference in (refused, missing)]
    errors = "".join(
        f"<Error><Key>{key}</Key><Code>{code}</Code><Message>no</Message></Error>"
        for key, code in zip([*keys, "other"], ["AccessDenied", "NoSuchKey", "AccessDenied"], strict=True)
    )
    answers(store, "DeleteObjects", 200, "", body=f"<DeleteResult>{errors}</DeleteResult>")
    (found,) = (failed := store.delete_many([refused, gone, missing])).items()
    assert found[0] == refused
    assert isinstance(failed[refused], PayloadAccessDeniedError)
    assert failed[refused].context["reference"] == refused
    assert "AccessDenied: no" in failed[refused].message


@pytest.mark.parametrize(
    ("status", "code"), [(501, "NotImplemented"), (405, "MethodNotAllowed"), (400, "MalformedXML")]
)
def test_servers_without_bulk_deletes(store: S3Store, status: int, code: str) -> None:
    references = published(store, 3)
    answers(store, "DeleteObjects", status, code)
    denied = references[1].rpartition("/")[2]
    answers(store, "DeleteObject", 403, "AccessDenied", lambda request: request.url.endswith(denied))
    failed = store.delete_many(references)
    assert [*failed] == [references[1]]
    assert [info.reference for info in store.list("t")] == [references[1]]


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(503, "SlowDown", PayloadStoreUnavailableError), (403, "AccessDenied", PayloadAccessDeniedError)],
)
def test_a_bulk_delete_that_fails_as_a_whole(
    store: S3Store, status: int, code: str, expected: type[PayloadStoreError]
) -> None:
    references = published(store, 3)
    names = requests_of(store)
    answers(store, "DeleteObjects", status, code)
    with pytest.raises(expected):
        store.delete_many(references)
    assert names == ["DeleteObjects"]
    assert len(list(store.list("t"))) == 3


# Errors of S3


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "AccessDenied", PayloadAccessDeniedError),
        (403, "InvalidAccessKeyId", PayloadAccessDeniedError),
        (403, "SignatureDoesNotMatch", PayloadAccessDeniedError),
        (400, "ExpiredToken", PayloadAccessDeniedError),
        (403, "CodeOfSomeOtherServer", PayloadAccessDeniedError),
        (404, "NoSuchKey", PayloadNotFoundError),
        (404, "NoSuchBucket", PayloadStoreError),
        (400, "EntityTooLarge", PayloadTooLargeError),
        (400, "KeyTooLongError", UntrustedReferenceError),
        (503, "SlowDown", PayloadStoreUnavailableError),
        (500, "InternalError", PayloadStoreUnavailableError),
        (429, "TooManyRequests", PayloadStoreUnavailableError),
        (502, "", PayloadStoreUnavailableError),
        (400, "RequestTimeout", PayloadStoreUnavailableError),
        (400, "BadDigest", PayloadStoreUnavailableError),
        (501, "NotImplemented", PayloadStoreError),
        (400, "InvalidArgument", PayloadStoreError),
    ],
)
def test_errors_of_s3_are_typed(store: S3Store, status: int, code: str, expected: type[PayloadStoreError]) -> None:
    reference = store.publish("topic", b"data")
    for request in ("PutObject", "GetObject"):
        answers(store, request, status, code)
    for operation in (lambda: store.publish("topic", b"data"), lambda: store.download(reference)):
        with pytest.raises(expected) as caught:
            operation()
        assert type(caught.value) is expected
        assert caught.value.store == "s3"
        assert caught.value.reference is not None
        copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  made right here
        assert str(copy) == str(caught.value)
        assert copy.__cause__ is not None


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (400, "InvalidArgument", "Unsupported header 'x-amz-checksum-sha256' received for this API call."),
        (400, "InvalidRequest", "The algorithm type you specified in x-amz-checksum- header is invalid."),
        (400, "InvalidArgument", "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, or a valid sha256 value."),
        (501, "NotImplemented", "STREAMING-UNSIGNED-PAYLOAD-TRAILER not implemented"),
        (400, "CodeOfSomeOtherServer", "header X-Amz-Sdk-Checksum-Algorithm is unknown"),
        (403, "AccessDenied", "There were headers present in the request which were not signed: x-amz-checksum-crc32"),
        (400, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match"),
    ],
)
def test_a_server_that_refuses_checksums(store: S3Store, status: int, code: str, said: str) -> None:
    """Each words it in another way, with another code."""
    body = f"<Error><Code>{code}</Code><Message>{said}</Message></Error>"
    answers(store, "PutObject", status, code, body=body)
    with pytest.raises(PayloadStoreError, match=r"s3\.checksum\.calculation = when_required"):
        store.publish("topic", b"data")


def test_no_credentials(config: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(config)

    def no_credentials(*_args: object, **_options: object) -> None:
        raise NoCredentialsError

    monkeypatch.setattr(store._client, "put_object", no_credentials)
    with pytest.raises(PayloadAccessDeniedError, match=r"s3\.access\.key"):
        store.publish("topic", b"data")
    store.close()


# Uploads


def test_a_failed_upload_leaves_no_parts(store: S3Store) -> None:
    answers(store, "UploadPart", 403, "AccessDenied", lambda request: "partNumber=2" in request.url)
    with pytest.raises(PayloadAccessDeniedError):
        store.publish("topic", bytes(LARGE))
    assert uploads_left(store) == 0
    assert list(store.list("topic")) == []


def test_a_failed_completion_leaves_no_parts(store: S3Store) -> None:
    answers(store, "CompleteMultipartUpload", 500, "InternalError")
    with pytest.raises(PayloadStoreUnavailableError):
        store.publish("topic", bytes(LARGE))
    assert uploads_left(store) == 0


def test_a_stream_that_breaks_leaves_no_parts(store: S3Store) -> None:
    class Breaking(io.RawIOBase):
        blocks = itertools.count()

        def read(self, size: int = -1, /) -> bytes:
            if next(self.blocks) > 20 << 2:
                raise ZeroDivisionError
            return bytes(min(size, 256 << 10))

    with pytest.raises(ZeroDivisionError):
        store.publish_stream("topic", Breaking())  # type: ignore[arg-type]  # a raw file is a BinaryIO but in name
    assert uploads_left(store) == 0


@pytest.mark.parametrize("blocks", [0, 50])
def test_a_stream_that_cannot_be_read_is_not_the_stores_fault(store: S3Store, blocks: int) -> None:
    class Failing(io.BytesIO):
        left = blocks

        def read(self, size: int | None = -1, /) -> bytes:
            self.left -= 1
            if self.left < 0:
                raise OSError("disk on fire")
            return bytes(size or 0)

    with pytest.raises(PayloadStoreError, match="disk on fire") as caught:
        store.publish_stream("topic", Failing())
    assert not caught.value.transient
    assert uploads_left(store) == 0


def test_a_failed_abort_does_not_hide_the_error(store: S3Store, caplog: pytest.LogCaptureFixture) -> None:
    answers(store, "UploadPart", 403, "AccessDenied")
    answers(store, "AbortMultipartUpload", 500, "InternalError")
    with pytest.raises(PayloadAccessDeniedError):
        store.publish("topic", bytes(LARGE))
    assert "lifecycle" in caplog.text


def test_a_completion_whose_answer_was_lost(store: S3Store) -> None:
    sent: list[str] = []

    def first_is_lost(request: Any, **_: object) -> AWSResponse | None:
        if sent:
            return None
        sent.append(request.url)
        lost = store._client.complete_multipart_upload
        events.unregister("before-send.s3.CompleteMultipartUpload", first_is_lost)
        upload_id = request.url.partition("uploadId=")[2]
        key = request.url.partition("?")[0].split("/", 4)[4]
        parts = store._client.list_parts(Bucket=store._bucket, Key=key, UploadId=upload_id)["Parts"]
        known: Any = [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in parts]
        lost(Bucket=store._bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": known})
        return None  # and now it is sent a second time

    events: Any = store._client.meta.events
    events.register("before-send.s3.CompleteMultipartUpload", first_is_lost)
    data = bytes(LARGE)
    assert store.download(store.publish("topic", data)) == data


@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (409, "ConditionalRequestConflict")])
@pytest.mark.parametrize("size", [100, LARGE])
def test_content_ids_without_conditional_writes(store: S3Store, status: int, code: str, size: int) -> None:
    for request in ("PutObject", "CompleteMultipartUpload"):
        answers(store, request, status, code, lambda sent: "If-None-Match" in sent.headers)
    data = bytes(size)
    first = store.publish("topic", data, CONTENT)
    assert store.download(first) == data
    assert store.publish("topic", data, CONTENT) == first
    assert uploads_left(store) == 0


@pytest.mark.parametrize("size", [100, LARGE])
def test_content_ids_of_a_producer_that_may_not_read(store: S3Store, size: int) -> None:
    answers(store, "HeadObject", 403, "")
    data = bytes(size)
    first = store.publish("topic", data, CONTENT)
    assert store.publish("topic", data, CONTENT) == first
    assert store.download(first) == data


# Downloads


@pytest.mark.parametrize("times", [1, 2])
def test_an_object_that_is_replaced_while_it_is_read(store: S3Store, bucket: str, times: int) -> None:
    """Once is a writer that has renewed it; ranges of the two are never mixed."""
    reference = store.publish("topic", bytes(LARGE))
    letters = [bytes([letter]) * LARGE for letter in b"xyz"]
    contents = iter(letters[:times])

    def replace(http_response: Any, **_: object) -> None:
        first_range = http_response.headers.get("Content-Range", "").startswith("bytes 0-")
        if first_range and (content := next(contents, None)) is not None:
            store._client.put_object(Bucket=bucket, Key=reference.split("/", 3)[3], Body=content)

    store._client.meta.events.register("after-call.s3.GetObject", replace)
    if times == 1:
        assert store.download(reference) == letters[0]
    else:
        with pytest.raises(PayloadIntegrityError, match="replaced"):
            store.download(reference)


@pytest.mark.full
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lying(b"whole", 5, None), None),
        (lying(b"whole", 5, 5), None),
        (lying(b"broken off", 10, 10, cut=4), PayloadStoreUnavailableError),
        (lying(b"", 10, 10), PayloadStoreUnavailableError),
        (lying(b"longer than it says", 3, 3), None),  # what comes after belongs to no answer
        (lying(b"longer than the object", 22, 3), PayloadIntegrityError),
        (lying(b"x" * 50, 50, 500), PayloadStoreUnavailableError),  # it gives no more when asked for the rest
        (lying(b"x" * 50, 50, 60), PayloadIntegrityError),  # it gives more when asked for the rest
        (lying(b"x" * 5000, 5000, 5000), PayloadTooLargeError),
        (lying(b"x" * 5000, 5000, None), PayloadTooLargeError),
        (lying(b"x", 1, 10**15), PayloadTooLargeError),
    ],
)
def test_what_a_server_says_about_sizes_is_checked(
    serve: Any, answer: Callable[[Any], None], expected: type[PayloadStoreError] | None
) -> None:
    with serve(answer) as url:
        store = opened(foreign_config(url), **{"large.message.max.payload.bytes": 1000})
        if expected is None:
            assert store.download("s3://bucket/topic/id")[:3] in {b"who", b"lon"}
        else:
            with pytest.raises(expected) as caught:
                store.download("s3://bucket/topic/id")
            assert caught.value.reference == "s3://bucket/topic/id"
        store.close()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_header_that_was_cut_off(serve: Any) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(206)
        request.send_header("Last-Modified", "F")
        request.send_header("Content-Length", "0")
        request.end_headers()

    with serve(answer) as url:
        store = opened(foreign_config(url))
        with pytest.raises(PayloadStoreUnavailableError):
            store.download("s3://bucket/topic/id")
        with pytest.raises(PayloadStoreUnavailableError):
            list(store.list("topic"))
        store.close()
    gc.collect()  # botocore leaves the connection of an answer that it cannot read to the garbage collector


def test_a_body_that_breaks_off_is_asked_for_again(serve: Any) -> None:
    counter = itertools.count()

    def answer(request: BaseHTTPRequestHandler) -> None:
        lying(b"0123456789", 10, 10, cut=10 if next(counter) else 4)(request)

    with serve(answer) as url:
        store = opened(foreign_config(url), **{"s3.retry.attempts": 2})
        assert store.download("s3://bucket/topic/id") == b"0123456789"
        assert next(counter) == 2
        assert store.retries == 1
        store.close()


def test_what_answers_is_no_s3(serve: Any) -> None:
    def page(request: BaseHTTPRequestHandler) -> None:
        request.send_response(404)
        request.send_header("Content-Length", "28")
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(b"<html>Nothing here.</html>\r\n")
        request.close_connection = True

    with serve(page) as url:
        store = opened(foreign_config(url))
        for operation in (
            lambda: store.publish("topic", b"data"),
            lambda: store.publish("topic", bytes(LARGE)),
            lambda: store.download("s3://bucket/topic/id"),
            lambda: list(store.list("topic")),
        ):
            with pytest.raises(PayloadStoreError):
                operation()
        store.close()


def page(request: BaseHTTPRequestHandler) -> None:
    """Answers as a login page, or the console of a server at another port."""
    request.rfile.read(int(request.headers["Content-Length"] or 0))
    request.send_response(200)
    request.send_header("Content-Type", "text/html; charset=utf-8")
    request.send_header("Content-Length", "13")
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(b"<html></html>")


def test_a_page_is_no_success(serve: Any) -> None:
    """Payloads would be lost, and readers would get the page."""
    with serve(page) as url:
        store = opened(foreign_config(url))
        for operation in (
            lambda: store.publish("topic", b"data"),
            lambda: store.publish("topic", b"data", CONTENT),
            lambda: store.publish("topic", bytes(LARGE)),
            lambda: store.download("s3://bucket/topic/id"),
            lambda: list(store.list("topic")),
            lambda: store.delete("s3://bucket/topic/id"),
        ):
            with pytest.raises(
                PayloadStoreUnavailableError, match=r"with an HTML page.*the address of the S3 API"
            ) as caught:
                operation()
            assert not caught.value.about_record
        store.close()


def test_objects_may_be_pages(store: S3Store, bucket: str) -> None:
    store._client.put_object(Bucket=bucket, Key="t/page", Body=b"<html></html>", ContentType="text/html")
    assert store.download(f"s3://{bucket}/t/page") == b"<html></html>"


def test_redirects_without_end(serve: Any) -> None:
    def redirect(request: BaseHTTPRequestHandler) -> None:
        request.rfile.read(int(request.headers["Content-Length"] or 0))
        body = b"<Error><Code>PermanentRedirect</Code><Message>elsewhere</Message></Error>"
        request.send_response(301)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    with serve(redirect) as url:
        store = opened(foreign_config(url))
        with pytest.raises(PayloadStoreError, match=r"redirects to another region without end.*Set s3\.region"):
            store.publish("topic", b"data")
        store.close()


# The network


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    store = opened(foreign_config(url), **{"s3.retry.attempts": 2})
    started = time.monotonic()
    with pytest.raises(PayloadStoreUnavailableError, match="EndpointConnectionError") as caught:
        store.publish("topic", b"data")
    assert time.monotonic() - started <= store.worst_case_ms() / 1000
    assert caught.value.transient
    assert store.retries == 1
    assert "hush" not in str(caught.value) + repr(caught.value.__cause__)
    store.close()


@pytest.mark.parametrize("size", [100, LARGE])
def test_a_server_that_accepts_and_says_nothing(size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        store = opened(foreign_config(f"http://127.0.0.1:{listener.getsockname()[1]}"), **{"s3.retry.attempts": 2})
        for operation in (lambda: store.publish("topic", bytes(size)), lambda: store.download("s3://bucket/topic/id")):
            started = time.monotonic()
            with pytest.raises(PayloadStoreUnavailableError):
                operation()
            assert time.monotonic() - started <= store.worst_case_ms() / 1000
        store.close()


def test_a_server_that_stops_in_the_middle_of_its_answer(serve: Any) -> None:
    ends = threading.Event()

    def stop(request: BaseHTTPRequestHandler) -> None:
        request.send_response(206)
        request.send_header("Content-Length", "10")
        request.send_header("Content-Range", "bytes 0-9/10")
        request.end_headers()
        request.wfile.write(b"0123")
        request.wfile.flush()
        ends.wait(30)

    with serve(stop) as url:
        store = opened(foreign_config(url))
        with pytest.raises(PayloadStoreUnavailableError):
            store.download("s3://bucket/topic/id")
        ends.set()
        store.close()
