"""The services are what they say: real clients talk to them."""

import http.client
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema
from pyspark.sql.functions import udf

from serde_chain.testing.services import KafkaBroker, S3Server, SchemaRegistry, ServiceError, ServiceStartError
from serde_chain.testing.services.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import NewTopic

QUIET = {"log_level": 0}  # these tests provoke what the client would print


def produce(broker: KafkaBroker, topic: str, value: bytes, user: str | None = None) -> KafkaError | None:
    """Send one record; the error with which its delivery failed, if it did."""
    outcome: list[KafkaError | None] = []
    producer = Producer({**broker.client_config(user), **QUIET, "message.timeout.ms": 10_000})
    producer.produce(
        topic, value, headers=[("kind", b"test")], on_delivery=lambda error, _message: outcome.append(error)
    )
    assert producer.flush(20) == 0
    return outcome[0]


def consume_one(broker: KafkaBroker, topic: str, user: str | None = None) -> Message:
    group = {"group.id": f"group-{uuid.uuid4()}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**broker.client_config(user), **QUIET, **group})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(20)
    finally:
        consumer.close()
    assert message is not None
    return message


def test_the_broker_takes_and_gives_records(broker: KafkaBroker, topic: str) -> None:
    assert produce(broker, topic, b"hello") is None
    message = consume_one(broker, topic)
    assert (message.value(), message.headers()) == (b"hello", [("kind", b"test")])


@pytest.mark.full
def test_a_kept_broker_takes_the_users_of_its_next_start(tmp_path: Path) -> None:
    for users in ({"carol": "first"}, {"carol": "second", "dave": "new"}):
        with KafkaBroker(users=users, folder=tmp_path) as broker:
            for user in users:
                client = AdminClient({**broker.client_config(user), **QUIET})
                assert list(client.list_topics(timeout=20).brokers) == [1]


def test_a_topic_has_the_partitions_and_settings_asked_for(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    topic = new_topic(partitions=3, config={"max.message.bytes": "1000"})
    assert len(broker.admin().list_topics(topic, timeout=10).topics[topic].partitions) == 3
    error = produce(broker, topic, bytes(2000))
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_topic_cannot_be_created_twice(broker: KafkaBroker, topic: str) -> None:
    with pytest.raises(ServiceError, match=f"did not create topic '{topic}'.*already exists"):
        broker.create_topic(topic)


@pytest.mark.full
def test_a_broker_that_cannot_start_says_why() -> None:
    config = {"authorizer.class.name": "no.such.Authorizer"}
    with pytest.raises(
        ServiceStartError, match=r"(?s)kafka server ended.*ClassNotFoundException: no\.such\.Authorizer"
    ):
        KafkaBroker(config=config).start()


def test_a_wrong_password_is_refused(broker: KafkaBroker) -> None:
    config = {**broker.client_config("admin"), **QUIET, "sasl.password": "wrong"}
    errors: list[KafkaError] = []
    producer = Producer({**config, "error_cb": errors.append})
    until = time.monotonic() + 30
    while not errors and time.monotonic() < until:
        producer.poll(0.1)  # hands over the errors
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.1)
    assert KafkaError._AUTHENTICATION in [error.code() for error in errors]


def test_who_authenticates_needs_an_acl(broker: KafkaBroker, topic: str) -> None:
    assert produce(broker, topic, b"from admin", user="admin") is None

    refused = produce(broker, topic, b"from alice", user="alice")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    broker.allow("alice", ["WRITE"], topic=topic)
    assert produce(broker, topic, b"from alice", user="alice") is None

    broker.allow("bob", ["READ"], topic=topic)
    broker.allow("bob", ["READ"], group="*")
    assert consume_one(broker, topic, user="bob").value() == b"from admin"
    with pytest.raises(ValueError, match="requires a topic or a group"):
        broker.allow("bob", ["READ"])


def test_the_registry_keeps_schemas(registry: SchemaRegistry) -> None:
    subject = f"subject-{uuid.uuid4()}"
    text = '{"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "long"}]}'
    with registry.client() as client:
        number = client.register_schema(subject, Schema(text, "AVRO"))
        assert client.get_latest_version(subject).schema_id == number
        found = client.get_schema(number).schema_str
    assert found is not None
    assert '"Alert"' in found


def test_the_s3_server_keeps_objects(s3_server: S3Server, bucket: str) -> None:
    client = s3_server.client()
    client.put_object(Bucket=bucket, Key="key", Body=b"content")
    assert client.get_object(Bucket=bucket, Key="key")["Body"].read() == b"content"
    assert s3_server.store_config(bucket)["s3.endpoint.url"] == s3_server.url


# Keys are no paths; an upload in parts; deleted ones, alone and together; a bucket of the folder above.
_KEEPS = """
import os, pathlib, sys
from serde_chain.testing.services import S3Server
server = S3Server(folder=pathlib.Path(sys.argv[1])).start()
client, bucket = server.client(), server.create_bucket("kept")
client.put_object(Bucket=bucket, Key="ü/../a b", Body=b"content", Metadata={"kind": "test"}, ChecksumAlgorithm="SHA256")
for key in ("again", "alone", "together"):
    client.put_object(Bucket=bucket, Key=key, Body=b"first")
client.put_object(Bucket=bucket, Key="again", Body=b"second")
client.delete_object(Bucket=bucket, Key="alone")
client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "together"}]})
upload = {"Bucket": bucket, "Key": "parts"}
upload["UploadId"] = client.create_multipart_upload(**upload)["UploadId"]
part = {"ETag": client.upload_part(**upload, PartNumber=1, Body=b"part")["ETag"], "PartNumber": 1}
client.complete_multipart_upload(**upload, MultipartUpload={"Parts": [part]})
client.delete_bucket(Bucket=server.create_bucket("gone"))
os._exit(9)  # as if it were killed
"""
_READS = """
import pathlib, sys
from serde_chain.testing.services import S3Server
with S3Server(folder=pathlib.Path(sys.argv[1])) as server:
    client = server.client()
    print([bucket["Name"] for bucket in client.list_buckets()["Buckets"]])
    for key in [found["Key"] for found in client.list_objects_v2(Bucket="kept")["Contents"]]:
        found = client.get_object(Bucket="kept", Key=key, ChecksumMode="ENABLED")
        print(key, found["Body"].read(), found["Metadata"], "ChecksumSHA256" in found)
"""


@pytest.mark.full
def test_an_s3_server_that_is_killed_keeps_its_folder(tmp_path: Path) -> None:
    arguments = str(tmp_path / "s3")
    killed = subprocess.run([sys.executable, "-c", _KEEPS, arguments], capture_output=True, text=True, check=False)
    assert killed.returncode == 9, killed.stderr
    found = subprocess.run([sys.executable, "-c", _READS, arguments], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [
        "['kept']",
        "again b'second' {} False",
        "parts b'part' {} False",
        "ü/../a b b'content' {'kind': 'test'} True",
    ]


@pytest.mark.full
def test_folders_outside_the_s3_servers_are_left_alone(tmp_path: Path) -> None:
    """A second server on a folder waits for the end of the first one before it is refused."""
    folder = tmp_path / "s3"
    with S3Server(folder=folder) as server:
        for method in ("PUT", "DELETE"):
            for path in ("/..", "/../", "/%2e%2e/", "/%2e%2e%2f", "/."):
                connection = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=30)
                connection.request(method, path)
                connection.getresponse()
                connection.close()
        with pytest.raises(ServiceStartError, match="another one uses"):
            S3Server(folder=folder).start()
    assert [path.name for path in tmp_path.iterdir()] == ["s3"]
    assert [path.name for path in folder.iterdir()] == ["s3.lock"]


def test_an_s3_server_that_is_not_started_says_so() -> None:
    with pytest.raises(ServiceStartError, match="not started"):
        _ = S3Server().url


def test_spark_reads_records_with_headers(broker: KafkaBroker, topic: str, spark: "SparkSession") -> None:
    assert produce(broker, topic, b"hello") is None
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    [row] = source.option("subscribe", topic).option("includeHeaders", "true").load().collect()
    assert bytes(row.value) == b"hello"
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("kind", b"test")]


def test_sparks_workers_run_this_interpreter(spark: "SparkSession") -> None:
    interpreter = udf(lambda _number: sys.executable)  # read in the worker
    [row] = spark.range(1).select(interpreter("id").alias("python")).collect()
    assert row.python == sys.executable


@pytest.mark.full
def test_an_error_of_spark_can_be_read_although_its_jvm_has_ended() -> None:
    """A process with a Spark session of its own."""
    program = (
        "from serde_chain.testing.services import spark_session\n"
        "with spark_session() as spark:\n"
        "    spark.sql(\"select raise_error('no such alert')\").collect()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "no such alert" in done.stderr.rstrip().splitlines()[-1]


def test_a_second_spark_session_is_refused(spark: "SparkSession") -> None:
    assert spark.version
    with pytest.raises(ServiceStartError, match="already has a Spark session"), spark_session():
        pass
