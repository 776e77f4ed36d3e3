"""Records of other systems through chains, clients and jobs, some of them written by these systems' own clients."""

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import confluent_kafka
import pytest
from cloudevents.core.bindings import kafka as cloudevents
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    PayloadHandle,
    PayloadIntegrityError,
    RecordContext,
    SerializerChain,
    UntrustedReferenceError,
    jobs,
)
from serde_chain.cli.doctor.examine import examine
from serde_chain.cli.findings import Level
from serde_chain.record import header_pairs
from serde_chain.testing.services import KafkaBroker, S3Server
from tests.cli.browse.conftest import OpenPages, open_pages  # noqa: F401  a fixture
from tests.cli.conftest import run
from tests.consuming import consumed
from tests.wire.test_foreign import LEGACY, OPEN_KEY, POINTER

NAMES = ["aws-extended", "kafscale", "cloudevents", "cloudevents", "ticdc", "ticdc", "eventbridge"]
"""Of :func:`records`."""
FORMATS = "aws-extended, cloudevents, eventbridge, kafscale, ticdc"
WRITER = Path(__file__).with_name("sqs_extended_writer.py")
PAYLOAD = b"payload" * 100
CHANGE = b'{"id":0,"data":[{"k":"1","document":"' + b"x" * 500 + b'"}]}'


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.create_bucket()


@pytest.fixture
def config(s3_server: S3Server, bucket: str) -> dict[str, Any]:
    return {
        **s3_server.store_config(bucket),
        "value.deserializers": "large-message, bytes",
        "large.message.accept": f"kip1159, {FORMATS}",
        "large.message.payload.store.class": "s3",
    }


@pytest.fixture
def put(s3_server: S3Server, bucket: str) -> Any:
    """Puts an object into the bucket; returns its key."""

    def write(data: bytes, key: str = "2026/a b/1") -> str:
        s3_server.client().put_object(Bucket=bucket, Key=key, Body=data)
        return key

    return write


def context(headers: Any = (), key: bytes | None = None) -> RecordContext:
    return RecordContext("alerts", "value", list(headers), key=key)


def read(config: dict[str, Any], data: bytes, ctx: RecordContext) -> Any:
    with DeserializerChain.from_config(config) as chain:
        return chain(data, ctx)


def envelope(bucket: str, key: str, data: bytes) -> bytes:
    digest = hashlib.sha256(data).hexdigest()
    return json.dumps({"kfs_lfs": 1, "bucket": bucket, "key": key, "size": len(data), "sha256": digest}).encode()


def pointer(bucket: str, key: str) -> bytes:
    return json.dumps([POINTER, {"s3BucketName": bucket, "s3Key": key}]).encode()


@pytest.mark.parametrize("kind", ["new", "legacy"])
def test_messages_of_the_extended_client_for_sqs(
    s3_server: S3Server, bucket: str, config: dict[str, Any], kind: str
) -> None:
    command = [sys.executable, str(WRITER), s3_server.url, bucket, kind]
    queue = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    access: Any = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    plain: Any = boto3.client("sqs", endpoint_url=s3_server.url, **access)
    (message,) = plain.receive_message(QueueUrl=queue, MessageAttributeNames=["All"])["Messages"]
    body = message["Body"].encode()
    assert body.startswith(b'["%s"' % (POINTER if kind == "new" else LEGACY).encode())
    # A bridge makes headers of a message's attributes.
    headers = [(name, given["StringValue"].encode()) for name, given in message["MessageAttributes"].items()]
    assert headers == [("ExtendedPayloadSize" if kind == "new" else "SQSLargePayloadSize", b"600000")]
    ctx = context(headers)
    assert read(config, body, ctx) == "ü".encode() * 300_000
    assert ctx.headers == []
    with pytest.raises(PayloadIntegrityError):
        read(config, body, context([(headers[0][0], b"600001")]))


@pytest.mark.parametrize("to_message", [cloudevents.to_binary, cloudevents.to_structured])
@pytest.mark.parametrize("is_moved", [True, False])
def test_events_of_the_cloudevents_sdk(
    bucket: str, config: dict[str, Any], put: Any, to_message: Any, *, is_moved: bool
) -> None:
    data = {"flux": [1.5, 2], "name": "ü"}
    attributes: dict[str, Any] = {
        "type": "alert",
        "source": "/survey",
        "id": "1",
        "datacontenttype": "application/json",
    }
    inline = to_message(CloudEvent(attributes, data), JSONFormat())
    message = inline
    if is_moved:
        key = put(cloudevents.to_binary(CloudEvent(attributes, data), JSONFormat()).value)
        attributes["dataref"] = f"s3://{bucket}/{key.replace(' ', '%20')}"
        message = to_message(CloudEvent(attributes), JSONFormat())
    ctx = context(message.headers.items())
    value = read(config, message.value or b"", ctx)
    assert json.loads(value) == data
    headers = {name: value for name, value in header_pairs(ctx) if value is not None}
    assert headers.keys() == {"ce_id", "ce_source", "ce_specversion", "ce_time", "ce_type", "content-type"}
    # Its own reader takes the result for an event with its data.
    event = cloudevents.from_binary(cloudevents.KafkaMessage(headers, None, value), JSONFormat())
    assert event.get_data() == data
    assert event.get_id() == "1"


def records(bucket: str, put: Any) -> list[tuple[bytes | None, bytes, list[Any], bytes]]:
    """Key, value and headers of a record for each format, and the value that its reader gets."""
    stored = json.dumps({"key": base64.b64encode(b"k").decode(), "value": base64.b64encode(CHANGE).decode()})
    location = f"s3:/{bucket}/{put(stored.encode(), 'claim/u.json')}"
    claim = {"id": 0, "data": [{"k": "1"}], "_tidb": {"commitTs": 400, "claimCheckLocation": location}}
    length = len(OPEN_KEY) - 16 - len("bucket") + len(bucket)
    key = OPEN_KEY[:8] + length.to_bytes(8, "big") + OPEN_KEY[16:].replace(b"/bucket/", f"/{bucket}/".encode())
    part = {
        "topic": "alerts",
        "dataref": f"arn:aws:s3:::{bucket}/{put(b'[1,2]', 'part')}",
        "datarefJsonPath": "$.detail.value",
    }
    event = {"id": "1", "specversion": "1.0", "dataref": f"s3://{bucket}/{put(PAYLOAD, 'event')}"}
    structured = [("content-type", b"application/cloudevents+json")]
    return [
        (None, pointer(bucket, put(PAYLOAD)), [("ExtendedPayloadSize", b"%d" % len(PAYLOAD))], PAYLOAD),
        (None, envelope(bucket, put(PAYLOAD, "ns/alerts/lfs/1"), PAYLOAD), [], PAYLOAD),
        (None, b"", [("ce_id", b"1"), ("ce_dataref", event["dataref"].encode())], PAYLOAD),
        (None, json.dumps(event).encode(), structured, PAYLOAD),
        (b"k", json.dumps(claim).encode(), [], CHANGE),
        (key, b"handle key columns", [], CHANGE),
        (None, json.dumps(part).encode(), [], b'{"topic":"alerts","value":[1,2]}'),
        (b"k", b"small", [("user", b"1")], b"small"),
    ]


@pytest.fixture
def topic_of_records(broker: KafkaBroker, topic: str, bucket: str, put: Any) -> str:
    producer = confluent_kafka.Producer(broker.client_config())
    for key, value, headers, _ in records(bucket, put):
        producer.produce(topic, value, key, 0, headers=headers)
    assert producer.flush(30) == 0
    return topic


@pytest.fixture
def values(bucket: str, put: Any) -> list[bytes]:
    return [value for *_, value in records(bucket, put)]


def test_one_topic_with_all_of_them(
    broker: KafkaBroker, topic_of_records: str, config: dict[str, Any], values: list[bytes], tmp_path: Path
) -> None:
    """A consumer reads them, an audit checks them, and a migration makes them KIP-1159's."""
    topic, reading = topic_of_records, {**broker.client_config(), **config}
    found = consumed(reading, topic, len(values))
    assert [message.value() for message in found] == values
    assert [message.key() for message in found] == [*[None] * 4, b"k", b"k", None, b"k"]
    assert found[3].headers() == [("ce_id", b"1"), ("ce_specversion", b"1.0")]

    report = jobs.audit(reading, topic)
    assert (report.references, list(report.problems)) == (7, [])

    broker.create_topic(f"{topic}-kip")
    store = {"large.message.payload.store.class": "local", "local.path": str(tmp_path / "payloads")}
    writing = {
        **broker.client_config(),
        **store,
        "value.serializers": "bytes, large-message",
        "large.message.threshold.bytes": 100,
    }
    moved = jobs.migrate(reading, writing, topic, f"{topic}-kip", checkpoint=tmp_path / "checkpoint")
    assert (moved.records, moved.skipped) == (len(values), 0)
    plain = {**broker.client_config(), **store, "value.deserializers": "large-message, bytes"}
    assert [(each.key(), each.value(), each.headers()) for each in consumed(plain, f"{topic}-kip", len(values))] == [
        (each.key(), each.value(), each.headers()) for each in found
    ]


def test_inspect_names_them(
    broker: KafkaBroker, topic_of_records: str, config: dict[str, Any], values: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    whole = {**broker.client_config(), **config}
    path.write_text("".join(f"{name} = {value}\n" for name, value in whole.items()))
    shown = run("inspect", path, topic_of_records, "--count", len(values), "--json").stdout
    fields = [json.loads(line)["value"]["is"] for line in shown.splitlines()]
    names = [field for field in fields if field.startswith("a reference")]
    assert names == [f"a reference ({name})" for name in NAMES]


@pytest.mark.full
@pytest.mark.parametrize("at", range(7), ids=lambda at: f"{at}-{NAMES[at]}")
def test_each_command_knows_each(  # noqa: PLR0917, fixtures
    broker: KafkaBroker,
    topic: str,
    config: dict[str, Any],
    bucket: str,
    put: Any,
    s3_server: S3Server,
    open_pages: OpenPages,  # noqa: F811
    at: int,
) -> None:
    """While its object is there, and afterwards. Migrations and inspect are above."""
    whole = {**broker.client_config(), **config}
    key, value, headers, read_value = records(bucket, put)[at]
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, value, key, headers=headers)
    assert producer.flush(30) == 0

    ask = open_pages(whole, topic)
    assert f"a reference ({NAMES[at]})" in ask("/").text
    assert '<span class="good">resolves' in ask("/?check=1").text
    assert ask("/records/0/0/value").body == read_value
    [found] = [check for check in examine(whole, [topic], timeout_s=20) if check.name == "records"]
    assert (found.level, found.message) == (Level.OK, "the newest record of 1 partition is readable")
    report = jobs.audit(whole, topic)
    assert (report.references, list(report.problems)) == (1, [])

    client = s3_server.client()
    for item in client.list_objects_v2(Bucket=bucket)["Contents"]:
        client.delete_object(Bucket=bucket, Key=item["Key"])
    assert '<span class="bad">' in ask("/?check=1").text
    assert [problem.kind for problem in jobs.audit(whole, topic).problems] == ["PayloadNotFoundError"]


def test_batches_are_read_alike(bucket: str, put: Any, config: dict[str, Any]) -> None:
    given = records(bucket, put)
    with DeserializerChain.from_config(config) as chain:
        column = chain.to_arrow(
            [value for _, value, *_ in given],
            [headers for *_, headers, _ in given],
            topic="alerts",
            keys=[key for key, *_ in given],
        )
    assert column.to_pylist() == [value for *_, value in given]


@pytest.mark.parametrize("name", FORMATS.split(", "))
def test_they_are_trusted_only_in_the_configured_bucket(s3_server: S3Server, config: dict[str, Any], name: str) -> None:
    """Nor are they accepted unless they are named."""
    other = s3_server.create_bucket()
    s3_server.client().put_object(Bucket=other, Key="1", Body=PAYLOAD)
    arn, url = f"arn:aws:s3:::{other}/1", f"s3://{other}/1"
    data, headers = {
        "aws-extended": (pointer(other, "1"), []),
        "cloudevents": (b"", [("ce_dataref", url.encode())]),
        "eventbridge": (json.dumps({"dataref": arn, "datarefPath": "$.detail.value"}).encode(), []),
        "kafscale": (envelope(other, "1", PAYLOAD), []),
        "ticdc": (json.dumps({"claimCheckLocation": url}).encode(), []),
    }[name]
    with pytest.raises(UntrustedReferenceError) as caught:
        read(config, data, context(headers))
    assert caught.value.about_record
    assert read({**config, "large.message.accept": "kip1159"}, data, context(headers)) == data
    with pytest.raises(UntrustedReferenceError):
        read({**config, "s3.prefix": "claims/"}, data, context(headers))


def test_another_digest(bucket: str, put: Any, config: dict[str, Any]) -> None:
    key = put(PAYLOAD)
    with pytest.raises(PayloadIntegrityError):
        read(config, envelope(bucket, key, PAYLOAD[::-1]), context())


def test_handles(bucket: str, put: Any, config: dict[str, Any]) -> None:
    """A payload that is the value waits; a part of a value, or a whole record, is fetched at once."""
    given = records(bucket, put)
    with DeserializerChain.from_config(
        {**config, "value.deserializers": "large-message", "large.message.fetch": "lazy"}
    ) as chain:
        for key, data, headers, value in given:
            ctx = context(headers, key)
            handle = chain(data, ctx)
            assert isinstance(handle, PayloadHandle)
            assert "ce_dataref" not in dict(ctx.headers or ())
            assert handle.read() == value


def test_a_payload_that_does_not_fit(bucket: str, put: Any, config: dict[str, Any]) -> None:
    key = put(b'{"key":null,"value":"a"}')
    location = f"s3:/{bucket}/{key}"
    with pytest.raises(DecodeError, match="the large message is malformed: the stored record is not base64"):
        read(config, json.dumps({"claimCheckLocation": location}).encode(), context())


@pytest.mark.parametrize("name", FORMATS.split(", "))
def test_they_are_not_written(config: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=f"the format {name} is only read") as caught:
        SerializerChain.from_config(
            {**config, "value.serializers": "bytes, large-message", "large.message.format": name}
        )
    assert caught.value.key == "large.message.format"
