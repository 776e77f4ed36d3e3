"""The store in S3, on a lenient server; what a strict one is needed for is in tests/servers."""

from collections.abc import Mapping

import pytest

from payload_stores.testing import PayloadStoreTests
from serde_chain.testing.services import S3Server


class TestS3Store(PayloadStoreTests):
    store_class = "s3"
    large_bytes = 17 << 20
    extra_memory = None  # the server shares this process; measured on its own below

    @pytest.fixture
    def config(self, s3_server: S3Server, bucket: str) -> Mapping[str, object]:
        return {**s3_server.store_config(bucket), "s3.prefix": "some/pre fix/"}
