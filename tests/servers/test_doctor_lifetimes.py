"""``serde-chain doctor`` on the lifecycle rules that MinIO returns."""

from pathlib import Path

import pytest

from serde_chain.testing.services import KafkaBroker
from tests.cli.doctor.lifecycle_rules import check
from tests.conftest import NewTopic
from tests.servers.minio import MinioServer

# A rule that has no other action.
MINIO_REFUSES = {"uploads"}


@pytest.mark.parametrize("versions", [False, True])
def test_rules_that_a_server_keeps(
    minio: MinioServer, broker: KafkaBroker, new_topic: NewTopic, tmp_path: Path, versions: bool
) -> None:
    check(minio, broker, new_topic, tmp_path, versions, MINIO_REFUSES)
