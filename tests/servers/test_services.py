"""The strict S3 server and the proxy are what they say."""

import time
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, ReadTimeoutError

from serde_chain.testing.services import ServiceError
from tests.servers.toxiproxy import Proxy, Toxiproxy
from tests.servers.versitygw import VersityGateway

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


def client_through(proxy: Proxy, versity: VersityGateway) -> "S3Client":
    config = Config(
        s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=1
    )
    return boto3.client(
        "s3",
        endpoint_url=f"http://{proxy.address}",
        aws_access_key_id=versity.access_key,
        aws_secret_access_key=versity.secret_key,
        region_name="us-east-1",
        config=config,
    )


def status_of(error: pytest.ExceptionInfo[ClientError]) -> int:
    return error.value.response["ResponseMetadata"]["HTTPStatusCode"]


def test_wrong_credentials_are_refused(versity: VersityGateway, versity_bucket: str) -> None:
    for access_key, secret_key in [(versity.access_key, "wrong"), ("unknown", "wrong")]:
        client = boto3.client(
            "s3",
            endpoint_url=versity.url,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            region_name="us-east-1",
        )
        with pytest.raises(ClientError) as error:
            client.put_object(Bucket=versity_bucket, Key="key", Body=b"content")
        assert status_of(error) == 403


def test_a_conditional_put_is_refused_the_second_time(versity: VersityGateway, versity_bucket: str) -> None:
    client = versity.client()
    client.put_object(Bucket=versity_bucket, Key="key", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError) as error:
        client.put_object(Bucket=versity_bucket, Key="key", Body=b"second", IfNoneMatch="*")
    assert status_of(error) == 412
    assert client.get_object(Bucket=versity_bucket, Key="key")["Body"].read() == b"first"


def test_objects_survive_a_crash(versity: VersityGateway, versity_bucket: str) -> None:
    versity.client().put_object(Bucket=versity_bucket, Key="key", Body=b"content")
    versity.restart()
    assert versity.client().get_object(Bucket=versity_bucket, Key="key")["Body"].read() == b"content"


def test_the_proxy_delays(versity: VersityGateway, versity_proxy: Proxy) -> None:
    client = client_through(versity_proxy, versity)
    client.list_buckets()
    with versity_proxy.toxic("latency", latency=300):
        started = time.monotonic()
        client.list_buckets()
        assert time.monotonic() - started >= 0.3


def test_the_proxy_swallows_answers(versity: VersityGateway, versity_proxy: Proxy) -> None:
    client = client_through(versity_proxy, versity)
    with versity_proxy.toxic("timeout", stream="upstream", timeout=0), pytest.raises(ReadTimeoutError):
        client.list_buckets()
    client.list_buckets()


def test_the_proxy_cuts_connections(versity: VersityGateway, versity_proxy: Proxy) -> None:
    client = client_through(versity_proxy, versity)
    with versity_proxy.toxic("reset_peer", timeout=0), pytest.raises(ConnectionClosedError):
        client.list_buckets()
    with versity_proxy.down(), pytest.raises(EndpointConnectionError):
        client.list_buckets()
    client.list_buckets()


def test_the_proxy_says_what_it_refuses(toxiproxy: Toxiproxy) -> None:
    with pytest.raises(ServiceError, match=r"toxiproxy refused POST /proxies: .*"):
        toxiproxy.proxy("", "127.0.0.1:1")
