"""A writer that is killed at each point of a publish, one after the other: what is readable is whole."""

from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from payload_stores import PublishContext, open_store
from payload_stores.local import LocalStore
from tests.chaos.cluster import Child
from tests.chaos.points import kill_at

pytestmark = pytest.mark.full

DATA = bytes(range(256)) * 40
_MOST_POINTS = 1_000


def _publish(connection: Connection, root: str, ids: str, point: int) -> None:
    store = LocalStore()
    store.configure({"local.path": root, "local.fsync": "true"})
    kill_at(point)
    connection.send(store.publish("topic", DATA, PublishContext("content") if ids == "content" else None))


@pytest.mark.parametrize("ids", ["random", "content"])
def test_a_writer_that_is_killed_at_any_point(tmp_path: Path, ids: str) -> None:
    """A process for each point at which it is killed."""
    store = open_store("local", {"local.path": str(tmp_path / "root")})
    assert isinstance(store, LocalStore)
    store.publish("topic", b"before")  # so that the store is there
    killed = 0
    told: list[str] = []
    payloads: list[bytes] = []
    for point in range(1, _MOST_POINTS):
        child = Child(_publish, str(tmp_path / "root"), ids, point)
        told = child.end()
        payloads = [store.download(info.reference) for info in store.list("topic")]
        assert {*payloads} <= {b"before", DATA}
        if not child.was_killed:
            assert child.process.exitcode == 0
            break
        assert told == []
        killed += 1
    assert killed > 20
    if ids == "content":
        assert payloads.count(DATA) == 1, "written again, it is the same object"
    assert store.download(told[0]) == DATA
    store.remove_leftovers(0)
    files = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert len(files) == len(payloads), "nothing else is left"
