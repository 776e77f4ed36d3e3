"""Credentials that change while executors hold their stores open, against a server that refuses old ones."""

import json
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.errors import PythonException
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import lit

from serde_chain.spark import offload
from serde_chain.testing.services import S3Server

pytestmark = pytest.mark.full

ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
# What `credential_process` runs: it hands out the keys of a file, as valid for a minute, and notes who asked.
PROGRAM = """
import os, sys
with open({asked!r}, "a") as asked:
    asked.write(f"{{os.getppid()}}\\n")
sys.stdout.write(open({keys!r}).read())
"""


class Guard:
    """A user of an S3 server who has one pair of keys at a time; those before are refused."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.bucket = server.create_bucket()
        options: dict[str, Any] = {"endpoint_url": server.url, "region_name": "us-east-1"}
        self._iam: Any = boto3.client("iam", aws_access_key_id="a", aws_secret_access_key="b", **options)
        self._user = f"spark-{uuid.uuid4().hex[:8]}"
        self._iam.create_user(UserName=self._user)
        self._iam.put_user_policy(UserName=self._user, PolicyName="all", PolicyDocument=json.dumps(ALL))
        self.keys = self._iam.create_access_key(UserName=self._user)["AccessKey"]
        self._options = options

    def rotate(self) -> None:
        """Give the user other keys, and delete those that there are."""
        before = self.keys
        own: dict[str, Any] = {
            "aws_access_key_id": before["AccessKeyId"],
            "aws_secret_access_key": before["SecretAccessKey"],
        }
        iam: Any = boto3.client("iam", **own, **self._options)
        self.keys = iam.create_access_key(UserName=self._user)["AccessKey"]
        iam.delete_access_key(UserName=self._user, AccessKeyId=before["AccessKeyId"])

    def require_keys(self, after: str) -> None:
        """Have the server check keys from now on, or ("inf") never."""
        request = urllib.request.Request(  # noqa: S310, our own server
            f"{self.server.url}/moto-api/reset-auth",
            data=after.encode(),
            headers={"Content-Type": "text/plain"},
        )
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310, as above


@pytest.fixture
def guard() -> Iterator[Guard]:
    """A server of its own: others' tests have no keys."""
    with S3Server() as server:
        made = Guard(server)
        made.require_keys("0")
        yield made
        made.require_keys("inf")  # of all servers in this process


@pytest.fixture
def config(guard: Guard) -> dict[str, Any]:
    return {
        "value.serializers": "bytes, large-message",
        "large.message.threshold.bytes": 100,
        "large.message.payload.store.class": "s3",
        "s3.bucket": guard.bucket,
        "s3.endpoint.url": guard.server.url,
        "s3.region": "us-east-1",
    }


def write(spark: SparkSession, config: dict[str, Any], payload: bytes) -> list[Row]:
    """Offload a payload, by the one worker that there is for the environment of a test."""
    records = spark.range(1, numPartitions=1).select(lit(payload).alias("value"))
    return records.select(offload("value", None, config, topic=lit("alerts")).alias("r")).collect()


def test_credentials_that_expire_are_renewed_on_executors(
    spark: SparkSession, config: dict[str, Any], guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each query starts a program for credentials in the workers."""
    keys, asked, program, profile = (tmp_path / name for name in ("keys", "asked", "program.py", "config"))
    program.write_text(PROGRAM.format(asked=str(asked), keys=str(keys)))
    profile.write_text(f"[default]\ncredential_process = {sys.executable} {program}\n")
    # As spark.executorEnv.AWS_CONFIG_FILE does.
    monkeypatch.setitem(spark.sparkContext.environment, "AWS_CONFIG_FILE", str(profile))

    def hand_out() -> None:
        end = datetime.now(UTC) + timedelta(minutes=1)
        pair = {name: guard.keys[name] for name in ("AccessKeyId", "SecretAccessKey")}
        keys.write_text(json.dumps({"Version": 1, **pair, "Expiration": end.isoformat()}))

    hand_out()
    assert write(spark, config, b"1" * 1000)[0]["r"]["headers"]
    before = asked.read_text().split()
    guard.rotate()
    hand_out()
    assert write(spark, config, b"2" * 1000)[0]["r"]["headers"]
    after = asked.read_text().split()
    assert len(after) > len(before)
    assert set(after) == set(before)  # the same process, whose store was open all the time


def test_a_configuration_with_other_keys_is_another_chain(
    spark: SparkSession, config: dict[str, Any], guard: Guard
) -> None:
    def with_keys() -> dict[str, Any]:
        return {
            **config,
            "s3.access.key": guard.keys["AccessKeyId"],
            "s3.secret.key": guard.keys["SecretAccessKey"],
        }

    old = with_keys()
    write(spark, old, b"1" * 1000)
    guard.rotate()
    with pytest.raises(PythonException, match=r"PayloadAccessDenied.*InvalidAccessKeyId"):
        write(spark, old, b"2" * 1000)
    write(spark, with_keys(), b"2" * 1000)
