"""The store of objects by URL, on a lenient S3 server; strict ones and other clouds are in tests/servers."""

from collections.abc import Mapping
from urllib.parse import unquote

import pytest

from payload_stores.testing import PayloadStoreTests
from serde_chain.testing.services import S3Server

LARGE = 17 << 20


class TestObjectsStore(PayloadStoreTests):
    store_class = "objects"
    large_bytes = LARGE
    extra_memory = None  # the server shares this process; measured in tests/servers

    @pytest.fixture
    def config(self, s3_server: S3Server, bucket: str) -> Mapping[str, object]:
        self.client = s3_server.client()
        return s3_server.objects_config(bucket, "some/pre%20fix/")

    def raw_read(self, reference: str) -> bytes:
        _, _, bucket, key = unquote(reference).split("/", 3)
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()
