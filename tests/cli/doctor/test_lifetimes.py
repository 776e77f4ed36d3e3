"""``serde-chain doctor`` on lifecycle rules: when some, and when all payloads of a topic are deleted."""

from pathlib import Path

import pytest

from serde_chain.testing.services import KafkaBroker, S3Server
from tests.cli.doctor.lifecycle_rules import check
from tests.conftest import NewTopic

# moto drops bounds of sizes, and NewerNoncurrentVersions.
MOTO_FORGETS = {"large", "small", "large-and-small", "later-part", "but-the-newest"}


@pytest.mark.parametrize("versions", [False, True])
def test_rules_of_a_bucket(
    s3_server: S3Server, broker: KafkaBroker, new_topic: NewTopic, tmp_path: Path, versions: bool
) -> None:
    check(s3_server, broker, new_topic, tmp_path, versions, MOTO_FORGETS)
