"""A writer that is killed before or after each request of an upload in parts: no half of a payload can be read."""

import itertools
import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import pytest

from payload_stores import open_store
from payload_stores.s3 import S3Store
from serde_chain.testing.services import S3Server
from tests.chaos.cluster import Child

pytestmark = pytest.mark.full

PART = 5 << 20
DATA = bytes(range(256)) * (17 * (1 << 20) // 256)  # three parts
PARTS = {"s3.multipart.threshold.bytes": PART}


def _publish(connection: Connection, config: dict[str, Any], point: int, when: str) -> None:
    """Publish a payload, and be killed before or after a request that is counted."""
    from botocore.httpsession import URLLib3Session

    numbers = itertools.count(1)
    send: Any = URLLib3Session.send

    def counted(session: Any, request: Any) -> Any:
        number = next(numbers)
        if number == point and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = send(session, request)
        if number == point and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    URLLib3Session.send = counted  # type: ignore[assignment, method-assign]
    connection.send(open_store("s3", config).publish("topic", DATA))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_that_is_killed_at_any_request(s3_server: S3Server, bucket: str, when: str) -> None:
    """A process for each request of an upload."""
    config: Mapping[str, Any] = {**s3_server.store_config(bucket), **PARTS}
    store = open_store("s3", config)
    assert isinstance(store, S3Store)
    killed = 0
    told: list[str] = []
    for point in range(1, 50):
        child = Child(_publish, {**config}, point, when)
        told = child.end()
        for info in store.list("topic"):
            assert info.size == len(DATA)
        if not child.was_killed:
            assert child.process.exitcode == 0
            break
        assert told == []
        killed += 1
    assert killed >= 5, "the upload is begun, has three parts, and is completed"
    assert store.download(told[0]) == DATA
    # After its last request, an upload is complete, whatever has become of the writer.
    assert len(list(store.list("topic"))) == (1 if when == "before" else 2)
    assert store.remove_leftovers(0) > 0
    assert store.remove_leftovers(0) == 0
    store.close()
