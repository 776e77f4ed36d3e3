"""The store of objects by URL, on servers that are as strict as the clouds they stand for."""

from collections.abc import Mapping
from urllib.parse import unquote

import pytest

from payload_stores import (
    PublishContext,
)
from payload_stores.testing import PayloadStoreTests
from tests.servers.azurite import Azurite
from tests.servers.minio import MinioServer
from tests.servers.versitygw import VersityGateway

CONTENT = PublishContext("content")
LARGE = 17 << 20


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

    @pytest.fixture
    def config(self, azurite: Azurite, container: str) -> Mapping[str, object]:
        self.azurite = azurite
        return azurite.objects_config(container, "some/folder/")

    def raw_read(self, reference: str) -> bytes:
        return self.azurite.request("GET", "/" + reference.split("/", 2)[2])


class TestS3OnMinio(PayloadStoreTests):
    store_class = "s3"
    large_bytes = LARGE

    @pytest.fixture
    def config(self, minio: MinioServer, minio_bucket: str) -> Mapping[str, object]:
        return {**minio.store_config(minio_bucket), "s3.multipart.threshold.bytes": 16 << 20}
