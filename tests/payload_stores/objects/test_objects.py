"""The store of objects by URL, on a lenient S3 server; strict ones and other clouds are in tests/servers."""

import io
import itertools
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from obstore.exceptions import GenericError

from payload_stores import (
    ConfigError,
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadStore,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    PublishContext,
    SupportsDelete,
    SupportsList,
    UntrustedReferenceError,
    open_store,
)
from payload_stores.objects import ObjectsStore
from payload_stores.objects.driver import ObjectAnswer
from payload_stores.objects.errors import ObjectErrors
from payload_stores.objects.settings import Clients
from payload_stores.testing import PayloadStoreTests
from serde_chain.config import is_secret
from serde_chain.testing.services import S3Server
from tests.hypothesis_profiles import examples
from tests.interrupts import interrupted_at
from tests.payload_stores.lying import lying

LARGE = 17 << 20


class TestObjectsStore(PayloadStoreTests):
    store_class = "objects"
    large_bytes = LARGE
    extra_memory = None  # the server may share this process; measured in tests/servers
    machine_examples = examples(15)  # each opens clients anew

    @pytest.fixture
    def config(self, s3_server: S3Server, bucket: str) -> Mapping[str, object]:
        self.client = s3_server.client()
        return s3_server.objects_config(bucket, "some/pre%20fix/")

    def raw_read(self, reference: str) -> bytes:
        _, _, bucket, key = unquote(reference).split("/", 3)
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def raw_write(self, reference: str, name: str, data: bytes) -> None:
        _, _, bucket, key = unquote(reference).split("/", 3)
        self.client.put_object(Bucket=bucket, Key=f"{key.rpartition('/')[0]}/{name}", Body=data)

    def test_what_is_listed_can_be_deleted(self, store: PayloadStore) -> None:
        """obstore lists nothing of a page that has one name which it refuses; behind that, the list goes on."""
        assert isinstance(store, SupportsList)
        assert isinstance(store, SupportsDelete)
        first, last = (store.publish(self.topic, b"data", PublishContext(payload_id=one)) for one in ("00", "zz"))
        for name in ("0\x7f", "..", ".", "../x", "x/../y", "x//y", "\x01", "y\\y", "y\x7f"):
            self.raw_write(first, name, b"of another program")
        listed = [info.reference for info in store.list(self.topic)]
        assert last in listed
        for reference in listed:
            store.delete(reference)
        assert last not in {info.reference for info in store.list(self.topic)}


# Configuration


@pytest.mark.parametrize(
    ("config", "message", "hint"),
    [
        ({}, r"objects\.url is required", None),
        ({"objects.url": "bucket/folder"}, r"does not begin with any of s3://, gs://, az://", "the store local"),
        ({"objects.url": "gcs://b/"}, r"does not begin with any of", "Did you mean gs://"),
        ({"objects.url": "abfss://c@a.dfs.core.windows.net/"}, r"does not begin with any of", "Did you mean az://"),
        ({"objects.url": "az://container@account/"}, r"names no bucket or container", r"objects\.account_name"),
        ({"objects.url": "az://container/"}, r"Account must be specified", r"Set objects\.account_name"),
        ({"objects.url": "s3:///folder"}, r"names no bucket", None),
        ({"objects.url": "s3://b/a/../c"}, r"objects\.url has", None),
        ({"objects.url": "s3://b/?versionId=1"}, r"objects\.url has", None),
        (
            {"objects.url": "s3://b", "objects.regoin": "x"},
            r"objects\.regoin is not an option",
            r"Did you mean objects\.region",
        ),
        (
            {"objects.url": "s3://b", "objects.alow_http": "x"},
            r"objects\.alow_http is no",
            r"Did you mean objects\.allow_h",
        ),
        ({"objects.url": "s3://b", "objects.part.byte": "9"}, r"objects\.part\.byte is no", r"objects\.part\.bytes"),
        (
            {"objects.url": "gs://b", "objects.regoin": "x"},
            r"objects\.regoin is not an option of obstore's GCSStore",
            None,
        ),
        ({"objects.url": "s3://b", "objects.bucket": "c"}, r"is a part of objects\.url", None),
        ({"objects.url": "s3://b", "objects.timeout": "30s"}, r"is set by objects\.request\.timeout\.ms", None),
        ({"objects.url": "s3://b", "objects.allow_http": "perhaps"}, r"objects\.allow_http: .*boolean", None),
        ({"objects.url": "s3://b", "objects.endpoint": "http://a:hush@localhost:1"}, "has a user or a password", None),
        *(
            (
                {"objects.url": url, f"objects.{name}": address},
                rf"objects\.{name} is not an address",
                "http://localhost",
            )
            for url, name in (("s3://b", "endpoint"), ("az://b", "endpoint"), ("gs://b", "base_url"))
            for address in ("localhost:9000", "127.0.0.1:9000", "http://", "server")
        ),
        ({"objects.url": "s3://b", "objects.default_headers": {"a": "hush"}}, "expected text", None),
        ({"objects.url": "s3://b", "objects.part.bytes": "1000"}, r"objects\.part\.bytes", None),
        ({"objects.url": "s3://b", "objects.retry.attempts": 0}, r"objects\.retry\.attempts", None),
        (
            {"objects.url": "gs://b", "objects.service_account_key": '{"private_key": "hush-hush"}'},
            "refuses these settings",
            None,
        ),
        ({"objects.url": "s3://b", "objects.credential.provider.class": "no.such.Class"}, "cannot be imported", None),
        ({"objects.url": "s3://b", "objects.credential.provider.class": 5}, "dotted path", None),
    ],
)
def test_a_wrong_configuration(config: dict[str, object], message: str, hint: str | None) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        open_store("objects", config)
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    if hint is not None:
        assert re.search(hint, caught.value.hint or "")


def test_options_of_other_clouds_are_ignored() -> None:
    """As those of other stores: routes to several clouds share one configuration."""
    config = {"objects.region": "eu-west-1", "objects.account_name": "a", "objects.service_account": "no.such.file"}
    for url in ("s3://b", "az://c"):
        assert opened({**config, "objects.url": url}).reference("t", "1") == f"{url}/t/1"


def test_what_may_be_shown() -> None:
    hidden = ["secret_access_key", "session_token", "account_key", "sas_key", "service_account_key", "proxy_url", "new"]
    shown = ["url", "endpoint", "region", "access_key_id", "account_name", "part.bytes"]
    assert all(is_secret(f"objects.{name}", ObjectsStore.options) for name in hidden)
    assert not any(is_secret(f"objects.{name}", ObjectsStore.options) for name in shown)


def test_the_worst_case_by_default_is_below_max_block_ms() -> None:
    store = opened({"objects.url": "s3://b"})
    assert store.worst_case_ms() == 3 * 18_000 + 2 * 1_000 < 60_000
    assert opened({"objects.url": "s3://b", "objects.retry.attempts": 1}).worst_case_ms() == 18_000


@pytest.mark.parametrize(
    ("url", "reference"),
    [
        ("s3://b", "s3://b/t/1"),
        ("gs://b/", "gs://b/t/1"),
        ("az://c/one/t%20wo", "az://c/one/t%20wo/t/1"),
        ("s3://b/one/two/", "s3://b/one/two/t/1"),
    ],
)
def test_references_have_the_scheme_of_the_url(url: str, reference: str) -> None:
    store = opened({"objects.url": url, "objects.account_name": "a"} if url[0] == "a" else {"objects.url": url})
    assert store.reference("t", "1") == reference
    assert store.owns(reference)
    assert store.scheme == url[:2]
    with pytest.raises(PayloadStoreError) as caught:
        store.publish("no topic", b"")
    assert caught.value.store == url[:2]


def test_trusted_references_are_read_but_not_deleted(s3_server: S3Server, bucket: str) -> None:
    other = s3_server.create_bucket()
    theirs = opened(s3_server.objects_config(other, "x/"))
    reference = theirs.publish("topic", b"data")
    store = opened({**s3_server.objects_config(bucket), "large.message.trusted.references": f"s3://{other}/x/"})
    assert store.download(reference) == b"data"
    with pytest.raises(UntrustedReferenceError):
        store.delete(reference)
    with pytest.raises(UntrustedReferenceError):
        store.download(reference.replace("/x/", "/y/"))


class Credentials:
    """A provider of a user's own."""

    asked = 0

    def __call__(self) -> dict[str, Any]:
        type(self).asked += 1
        return {"access_key_id": "a", "secret_access_key": "b", "token": None, "expires_at": None}


@pytest.mark.parametrize("is_named", [True, False])
def test_credentials_of_a_class_of_the_users_own(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    config = s3_server.objects_config(bucket)
    for name in ("access_key_id", "secret_access_key"):
        del config[f"objects.{name}"]
    monkeypatch.setitem(sys.modules, "credentials_of_a_user", SimpleNamespace(Credentials=Credentials))
    monkeypatch.setattr(Credentials, "asked", 0)
    given = "credentials_of_a_user.Credentials" if is_named else Credentials()
    store = opened({**config, "objects.credential.provider.class": given})
    assert store.download(store.publish("topic", b"data")) == b"data"
    assert Credentials.asked


# Errors


@pytest.mark.parametrize(
    ("said", "expected", "transient", "hint"),
    [
        ("status code: 404 Not Found: <Error><Code>NoSuchBucket</Code></Error>", PayloadStoreError, False, "bucket"),
        ("status code: 404 Not Found: <Error><Code>ContainerNotFound</Code></Error>", PayloadStoreError, False, None),
        ("status code: 403 Forbidden: <Code>RequestTimeTooSkewed</Code>", PayloadAccessDeniedError, False, "clock"),
        ("status code: 401 Unauthorized: ", PayloadAccessDeniedError, False, None),
        ("status code: 400 Bad Request: <Code>KeyTooLongError</Code>", UntrustedReferenceError, False, None),
        ("status code: 413 Payload Too Large", PayloadTooLargeError, False, None),
        ("status code: 400 x: <Code>XMinioStorageFull</Code>", PayloadStoreUnavailableError, True, "space"),
        ("status code: 507 x", PayloadStoreUnavailableError, True, "space"),
        ("status code: 429 Too Many Requests", PayloadStoreUnavailableError, True, None),
        ("status code: 503 Slow Down", PayloadStoreUnavailableError, True, None),
        ("status code: 301 x: <Code>PermanentRedirect</Code><Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint>",
         PayloadStoreError, False, "b.s3.eu-west-1.amazonaws.com"),
        ("status code: 400 x: <Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region>",
         PayloadStoreError, False, "in eu-west-1: set objects.region"),
        ("Received redirect without LOCATION, this normally indicates", PayloadStoreError, False, "objects.region"),
        ("Error performing PUT http://169.254.169.254/latest", PayloadAccessDeniedError, False, "No cred"),
        ("HTTP error: error sending request", PayloadStoreUnavailableError, True, None),
        ("status code: 418 I'm a teapot", PayloadStoreError, False, None),
        ("Could not parse path", UntrustedReferenceError, False, None),
    ],
)  # fmt: skip
def test_errors_of_obstore_are_typed(
    said: str, expected: type[PayloadStoreError], transient: bool, hint: str | None
) -> None:
    with (
        pytest.raises(PayloadStoreError) as caught,
        ObjectErrors("s3", ["a-secret"]).translated(reference="s3://b/t/1"),
    ):
        raise GenericError(
            f"Generic S3 error: {said} a-secret http://h/x?sig=a-signature\n\nDebug source:\nsig=a-signature"
        )
    error = caught.value
    assert type(error) is expected
    assert error.transient == transient
    assert error.reference == "s3://b/t/1"
    assert hint is None or hint in (error.hint or "")
    shown = "".join(traceback.format_exception(pickle.loads(pickle.dumps(error))))  # noqa: S301  our own
    assert "a-signature" not in shown
    assert "a-secret" not in shown


def test_a_key_in_an_address_is_not_shown(serve: Any) -> None:
    def refuse(request: BaseHTTPRequestHandler) -> None:
        request.send_response(403)
        request.send_header("Content-Length", "0")
        request.end_headers()

    with serve(refuse) as url:
        config = {"objects.url": "az://c/", "objects.account_name": "acct", "objects.endpoint": url}
        sas = "sv=2024-01-01&sig=c2lnbmF0dXJl%3D"
        store = opened({**config, "objects.allow_http": "true", "objects.sas_key": sas, "objects.retry.attempts": 1})
        with pytest.raises(PayloadAccessDeniedError) as caught:
            store.download("az://c/topic/id")
        assert "c2lnbmF0dXJl" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lying(b"whole", 5, 5), None),
        (lying(b"broken off", 10, 10, cut=4), PayloadStoreUnavailableError),
        (lying(b"", 10, 10), PayloadStoreUnavailableError),
        (lying(b"longer than it says", 3, 3), None),  # what comes after belongs to no answer
        (lying(b"longer than the object", 22, 3), PayloadStoreError),
        (lying(b"x" * 50, 50, 500), PayloadStoreUnavailableError),  # it gives no more when asked for the rest
        (lying(b"x" * 50, 50, 60), PayloadStoreError),  # it gives more when asked for the rest
        (lying(b"x" * 5000, 5000, 5000), PayloadTooLargeError),
        (lying(b"x" * 5000, 5000, None), PayloadStoreError),  # it does not know ranges
        (lying(b"x", 1, 10**15), PayloadStoreUnavailableError),  # less than was asked for
        (lying(bytes(8 << 20), 8 << 20, 10**15), PayloadTooLargeError),
    ],
)
def test_what_a_server_says_about_sizes_is_checked(
    serve: Any, answer: Any, expected: type[PayloadStoreError] | None
) -> None:
    with serve(answer) as url:
        config = {"objects.url": "s3://bucket/", "objects.endpoint": url, "objects.allow_http": "true"}
        config |= {"objects.access_key_id": "a", "objects.secret_access_key": "b", "objects.retry.attempts": "1"}
        store = opened({**config, "large.message.max.payload.bytes": 1000})
        if expected is None:
            assert store.download("s3://bucket/topic/id")[:3] in {b"who", b"lon"}
        else:
            with pytest.raises(PayloadStoreError) as caught:
                store.download("s3://bucket/topic/id")
            assert isinstance(caught.value, expected)
            assert caught.value.reference == "s3://bucket/topic/id"
        store.close()


@pytest.mark.parametrize("operation", ["publish", "publish content", "publish_stream", "download", "read_range"])
def test_ctrl_c_at_any_point(s3_server: S3Server, bucket: str, operation: str) -> None:
    """No half of a payload can be read, and the store works on."""
    store = opened(s3_server.objects_config(bucket))
    data = bytes(1000)
    reference = store.publish("kept", data)
    calls: dict[str, Callable[[], object]] = {
        "publish": lambda: store.publish("topic", data),
        "publish content": lambda: store.publish("topic", data, PublishContext("content")),
        "publish_stream": lambda: store.publish_stream("topic", io.BytesIO(data)),
        "download": lambda: store.download(reference),
        "read_range": lambda: store.read_range(reference, 10, 10),
    }
    for number in itertools.count():
        try:
            with interrupted_at(number, ("payload_stores/objects/", "payload_stores/buckets/")):
                calls[operation]()
        except KeyboardInterrupt:
            continue
        break
    assert number > 5
    assert {info.size for info in store.list("topic")} <= {1000}
    assert store.download(reference) == data
    driver: Any = store._driver
    assert store._downloads._under_way._running == driver._under_way._running == set()
    store.close()


@pytest.mark.parametrize(
    ("blocks", "expected"), [(["ab"], PayloadStoreUnavailableError), (["abc", "d"], PayloadIntegrityError)]
)
def test_a_body_that_is_not_as_long_as_its_range(blocks: list[str], expected: type[PayloadStoreError]) -> None:
    """obstore compares them itself; nothing else is to be relied on for what readers get."""

    class Result:
        meta, range = {"size": 3, "e_tag": None}, (0, 3)

        def stream(self, *, min_chunk_size: int) -> list[bytes]:
            return [block.encode() for block in blocks]

    result: Any = Result()
    with pytest.raises(expected):
        ObjectAnswer(result).read(memoryview(bytearray(3)))


def test_one_object_is_deleted_by_a_request_that_every_server_knows(serve: Any) -> None:
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.requestline)
        request.send_response(204)
        request.end_headers()

    with serve(answer) as url:
        config = {"objects.url": "s3://b/", "objects.endpoint": url, "objects.allow_http": "true"}
        opened({**config, "objects.access_key_id": "a", "objects.secret_access_key": "b"}).delete("s3://b/t/1")
    assert asked == ["DELETE /b/t/1 HTTP/1.1"]


# Lists


@pytest.mark.parametrize("prefix", ["", "a", "ab", "ab/", "ab/0", "-", "~", "A", "zz"])
def test_the_server_passes_over_what_comes_before(s3_server: S3Server, bucket: str, prefix: str) -> None:
    store = opened(s3_server.objects_config(bucket))
    ids = ["-1", "0", "A", "_", "a", "a-", "a.", "ab/-", "ab/0", "ab/1", "ab~", "aa~1", "ac", "z", "~", "~~"]
    for one in ids:
        store.publish("topic", b"", PublishContext(payload_id=one))
    listed = [info.reference.split("/topic/")[1] for info in store.list("topic", prefix=prefix)]
    assert sorted(listed) == sorted(one for one in ids if one.startswith(prefix))


def opened(config: Mapping[str, object]) -> ObjectsStore:
    store = open_store("objects", config)
    assert isinstance(store, ObjectsStore)
    return store


@pytest.mark.parametrize(
    "name", ["a//b", "..", "../b", "a/../b", "./b", "/", "a//", "a/.", "a\x01b", "~//b", "a b//c", "a%2Fb//c", "\x7f"]
)
def test_a_listing_goes_on_behind_a_name_that_obstore_refuses(
    s3_server: S3Server, bucket: str, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    client = s3_server.client()
    store = open_store("objects", s3_server.objects_config(bucket, "pre/"))
    folder = store.publish("t", b"payload", PublishContext(payload_id="0")).partition(bucket)[2][1:-1]
    client.put_object(Bucket=bucket, Key=folder + name, Body=b"another's")
    for payload_id in ("~~", "~~/1"):
        store.publish("t", b"payload", PublishContext(payload_id=payload_id))
    store.publish("u", b"payload")
    is_last = name > "~~"
    assert isinstance(store, SupportsList)
    listed = [info.reference.partition("/t/")[2] for info in store.list("t")]
    assert [each for each in listed if each != "0"] == ([] if is_last else ["~~", "~~/1"])
    (warning,) = (record.getMessage() for record in caplog.records)
    assert repr(folder + name) in warning
    assert "(1 so far" in warning
    assert "/u/" in next(iter(store.list("u"))).reference
    store.close()


def test_the_marker_of_a_folder_is_no_payload(s3_server: S3Server, bucket: str) -> None:
    """obstore lists it without its slash; deleting that name would delete nothing, or another object."""
    client = s3_server.client()
    for name in ("t/", "t/a/", "t/b/c/"):
        client.put_object(Bucket=bucket, Key=name)
    store = open_store("objects", s3_server.objects_config(bucket))
    references = [store.publish("t", data, PublishContext(payload_id=each)) for each, data in (("b", b"x"), ("e", b""))]
    assert isinstance(store, SupportsList)
    assert [info.reference for info in store.list("t")] == references
    store.close()


def test_names_that_obstore_refuses_are_counted(
    s3_server: S3Server, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = s3_server.client()
    store = open_store("objects", s3_server.objects_config(bucket))
    for name in ("a//1", "a//2", "b//1", "c/../1"):
        client.put_object(Bucket=bucket, Key=f"t/{name}", Body=b"another's")
    store.publish("t", b"payload", PublishContext(payload_id="d"))
    assert isinstance(store, SupportsList)
    assert [info.reference for info in store.list("t")] == [f"s3://{bucket}/t/d"]
    assert [record.getMessage().partition(" so far")[0][-1] for record in caplog.records] == ["1", "2", "3"]
    store.close()


def test_where_a_listing_cannot_go_on_the_error_names_the_object(s3_server: S3Server, bucket: str) -> None:
    """In S3's directory buckets, whose listings are not sorted."""
    s3_server.client().put_object(Bucket=bucket, Key="t/a//b", Body=b"another's")
    store = open_store("objects", s3_server.objects_config(bucket))
    assert isinstance(store, ObjectsStore)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clients, "is_ordered", False)
        with pytest.raises(PayloadStoreError, match=r"'t/a//b'.*Delete or rename"):
            list(store.list("t"))
    store.close()


@pytest.mark.parametrize(
    ("variable", "other"), [("AWS_ALLOW_HTTP", {}), ("AWS_ALLOW_HTTP", {"objects.user_agent": "serde-chain"})]
)
def test_options_of_the_client_come_from_the_environment(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, variable: str, other: dict[str, str]
) -> None:
    config = {name: value for name, value in s3_server.objects_config(bucket).items() if name != "objects.allow_http"}
    monkeypatch.setenv(variable, "true")
    store = open_store("objects", {**config, **other})
    assert store.download(store.publish("t", b"payload")) == b"payload"
    store.close()
    store = open_store("objects", {**config, "objects.allow_http": "false", "objects.retry.attempts": 1})
    with pytest.raises(PayloadStoreError, match="allow_http = true"):
        store.publish("t", b"payload")
    store.close()


def test_a_default_gives_way_to_the_environment(s3_server: S3Server, bucket: str, serve: Any) -> None:
    seen: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        seen.append(f"{handler.headers['User-Agent']} {handler.headers['x-amz-content-sha256']}")
        handler.send_response(200)
        handler.send_header("ETag", '"1"')
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with serve(answer) as url, pytest.MonkeyPatch.context() as patch:
        config = {**s3_server.objects_config(bucket), "objects.endpoint": url}
        for name, value in (("AWS_UNSIGNED_PAYLOAD", "false"), ("AWS_USER_AGENT", "observatory")):
            patch.setenv(name, value)
        store = open_store("objects", config)
        store.publish("t", b"payload")
        store.close()
    assert seen[-1].startswith("observatory")
    assert "UNSIGNED" not in seen[-1]


def test_a_wrong_variable_is_named(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "perhaps")
    with pytest.raises(ConfigError, match=r"AWS_ALLOW_HTTP: .*boolean"):
        open_store("objects", {"objects.url": f"s3://{bucket}/"})


def test_a_server_that_refuses_checksums(s3_server: S3Server, bucket: str, serve: Any) -> None:
    said = (
        b"<Error><Code>InvalidArgument</Code><Message>Unsupported header 'x-amz-checksum-crc64nvme'</Message></Error>"
    )

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        handler.send_response(400)
        handler.send_header("Content-Length", str(len(said)))
        handler.end_headers()
        handler.wfile.write(said)

    with serve(answer) as url:
        store = open_store("objects", {**s3_server.objects_config(bucket), "objects.endpoint": url})
        with pytest.raises(PayloadStoreError, match=r"objects\.unsigned_payload = false"):
            store.publish("t", b"payload")
        store.close()


def test_a_server_without_etags(s3_server: S3Server, bucket: str, serve: Any) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with serve(answer) as url:
        store = open_store("objects", {**s3_server.objects_config(bucket), "objects.endpoint": url})
        with pytest.raises(PayloadStoreUnavailableError, match="obstore needs its ETags; the store s3 does not"):
            store.publish("t", b"payload")
        store.close()
