"""The store in a folder that several processes and threads use at once, some of which die."""

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from payload_stores import PayloadNotFoundError, PublishContext, UntrustedReferenceError
from payload_stores.local import LocalStore, folders

CONTENT = PublishContext("content")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return opened(root)


def opened(root: Path, fsync: bool = True) -> LocalStore:
    store = LocalStore()
    store.configure({"local.path": str(root), "local.fsync": fsync})
    return store


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def _publish_same(root: str, count: int) -> None:
    store = opened(Path(root), fsync=False)
    for number in range(count):
        data = bytes([number]) * 50_000
        assert store.download(store.publish("topic", data, CONTENT)) == data


def test_several_processes_publish_the_same(root: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_publish_same, args=(str(root), 60)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(list(opened(root).list("topic"))) == len(files_below(root)) == 60


def _stop_halfway(root: str) -> None:
    """Publish a payload, and be killed when half of it is written."""

    def half(file: int, view: memoryview) -> None:
        os.write(file, view[: len(view) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    folders.write_all = half
    opened(Path(root)).publish("topic", b"data" * 1000, CONTENT)


def test_a_process_killed_halfway_leaves_nothing_readable(store: LocalStore, root: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_stop_halfway, args=(str(root),))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    (left,) = files_below(root)
    assert left.stat().st_size == 2000
    assert list(store.list("topic")) == []
    with pytest.raises(UntrustedReferenceError):
        store.download("file://" + quote(str(left)))
    assert store.download(store.publish("topic", b"data" * 1000, CONTENT)) == b"data" * 1000
    opened(root)  # it may belong to a writer that is alive
    assert left.exists()
    os.utime(left, times=(0, 0))
    opened(root)
    assert not left.exists()
    assert len(list(store.list("topic"))) == 1


def test_a_reader_never_sees_half_of_a_payload(store: LocalStore) -> None:
    data = b"x" * 300_000
    reference = store.publish("topic", data, CONTENT)
    ends = threading.Event()

    def publish_and_delete() -> None:
        while not ends.is_set():
            store.delete(reference)
            store.publish("topic", data, CONTENT)

    writer = threading.Thread(target=publish_and_delete)
    writer.start()
    try:
        for _ in range(300):
            with suppress(PayloadNotFoundError):
                assert store.download(reference) == data
    finally:
        ends.set()
        writer.join()
