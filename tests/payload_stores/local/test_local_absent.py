"""The store in a folder that is not there, not yet, or not now; and what killed writers leave behind in it."""

import errno
import io
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from payload_stores import (
    ConfigError,
    PayloadAccessDeniedError,
    PayloadNotFoundError,
    PayloadStore,
    PayloadStoreUnavailableError,
    SupportsLeftoverCount,
    SupportsLeftovers,
    SupportsPreparation,
    open_store,
)
from payload_stores.local import LocalStore, folders
from payload_stores.middleware import Deadline
from serde_chain import DeserializerChain, RecordContext, SerializationError, SerializerChain

DAY_MS = 86_400_000


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """A folder that stands for a file system that is mounted and unmounted."""
    return tmp_path / "share"


def opened(root: Path, **more: object) -> LocalStore:
    store = open_store("local", {"local.path": str(root), **more})
    assert isinstance(store, LocalStore)
    return store


def url(path: Path) -> str:
    return "file://" + quote(str(path))


def unmount(share: Path) -> Path:
    """Leave an empty folder in its place, as a mount point is; what was in it goes on elsewhere."""
    share.rename(share.with_name("unmounted"))
    share.mkdir()
    return share.with_name("unmounted")


def operations(store: LocalStore, reference: str) -> list[Callable[[], object]]:
    return [
        lambda: store.download(reference),
        lambda: store.open(reference),
        lambda: store.delete(reference),
        lambda: list(store.list("topic")),
    ]


# A file system that is not mounted


@pytest.mark.parametrize("below", ["", "payloads"])
def test_an_empty_mount_point_is_a_store_that_is_away(share: Path, below: str) -> None:
    reference = opened(share / below).publish("topic", b"data")
    mounted = unmount(share)
    reader = opened(share / below)
    for operation in operations(reader, reference):
        with pytest.raises(PayloadStoreUnavailableError, match=r"no payload store in .*share.*local\.path") as caught:
            operation()
        assert (caught.value.transient, caught.value.about_record) == (True, False)
    share.rmdir()
    mounted.rename(share)
    assert reader.download(reference) == b"data"


def test_a_payload_that_is_gone_is_still_told_from_that(share: Path) -> None:
    store = opened(share)
    kept = store.publish("topic", b"data")
    for gone in ("topic/id", "other/id", "topic/a/b"):
        with pytest.raises(PayloadNotFoundError) as caught:
            store.download(url(share / gone))
        assert caught.value.about_record
        store.delete(url(share / gone))
    assert list(store.list("other")) == []
    shutil.rmtree(share / "topic")
    with pytest.raises(PayloadNotFoundError):
        opened(share).download(kept)


def test_a_record_is_not_blamed_for_a_share_that_is_away(share: Path) -> None:
    config = {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.threshold.bytes": 0,
        "large.message.payload.store.class": "local",
        "local.path": str(share),
    }
    headers: list[tuple[str, bytes | str | None]] = []
    with SerializerChain.from_config(config) as write:
        value = write(b"data", RecordContext("topic", "value", headers))
    unmount(share)
    with (
        DeserializerChain.from_config(config) as read,
        pytest.raises(SerializationError, match="no payload store") as caught,
    ):
        read(value, RecordContext("topic", "value", headers))
    assert (caught.value.transient, caught.value.about_record) == (True, False)


def test_a_trusted_store_that_is_away(share: Path, tmp_path: Path) -> None:
    reference = opened(share / "theirs").publish("topic", b"data")
    reader = opened(tmp_path / "ours", **{"large.message.trusted.references": url(share)})
    with pytest.raises(PayloadNotFoundError):
        reader.download(reference + "0")
    unmount(share)
    with pytest.raises(PayloadStoreUnavailableError):
        reader.download(reference)


def test_a_folder_of_before_the_marker(share: Path) -> None:
    (share / "topic").mkdir(parents=True)
    (share / "topic" / "id").write_bytes(b"data")
    store = opened(share)
    assert store.download(url(share / "topic/id")) == b"data"
    with pytest.raises(PayloadNotFoundError):
        store.download(url(share / "topic/id2"))


@pytest.mark.parametrize("below", ["", "payloads"])
def test_nothing_is_written_in_the_place_of_a_share_that_was_unmounted(share: Path, below: str) -> None:
    store = opened(share / below)
    store.publish("topic", b"data")
    mounted = unmount(share)
    with pytest.raises(PayloadStoreUnavailableError):
        store.publish("topic", b"more")
    with pytest.raises(PayloadStoreUnavailableError):
        store.publish_stream("topic", io.BytesIO(b"more"))
    assert list(share.iterdir()) == []
    share.rmdir()
    mounted.rename(share)
    assert store.download(store.publish("topic", b"more")) == b"more"


# First use


def test_nothing_is_made_before_the_first_publish(share: Path) -> None:
    store = opened(share / "a/b")
    for operation in operations(store, url(share / "a/b/topic/id")):
        with pytest.raises(PayloadStoreUnavailableError, match=r"local\.path"):
            operation()
    assert not share.exists()
    assert store.download(store.publish("topic", b"data")) == b"data"


def test_what_the_first_publish_would_make_is_reported(share: Path) -> None:
    store = Deadline(opened(share), 30_000)
    assert isinstance(store, SupportsPreparation)
    assert store.unprepared("images") == f"the folder {share / folders.MARKER}"
    assert not share.exists()
    store.publish("images", b"payload")
    assert store.unprepared("plates") is None  # the folder of a topic is no mount point


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no such file system")
def test_a_folder_that_cannot_be_made_is_reported_before() -> None:
    store = opened(Path("/proc/payloads"))
    with pytest.raises(PayloadAccessDeniedError, match="no folder can be created at /proc/payloads"):
        store.unprepared("images")


def test_a_missing_folder_is_reported_to_readers_only(share: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A writer creates the folder, so its first run must not warn."""
    with caplog.at_level(logging.WARNING, logger="payload_stores"):
        store, reader = opened(share), opened(share)
        with pytest.raises(PayloadStoreUnavailableError, match=f"no payload store in {share}"):
            reader.download(f"{url(share)}/topic/id")
        store.publish("topic", b"data")
    assert not caplog.records


def test_a_folder_that_is_there_is_used_without_a_word(share: Path, caplog: pytest.LogCaptureFixture) -> None:
    share.mkdir()
    with caplog.at_level(logging.WARNING, logger="payload_stores"):
        store = opened(share)
    assert not caplog.records
    assert store.download(store.publish("topic", b"data")) == b"data"


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_path_that_cannot_be_a_folder_is_reported_when_the_client_is_made(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"local\.path") as caught:
        opened(tmp_path / path)
    assert caught.value.key == "local.path"


def test_a_path_that_may_not_be_made_is_reported_when_the_client_is_made(
    share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # tests may run as root, who may write everywhere
    with pytest.raises(ConfigError, match="cannot be created"):
        opened(share / "payloads")


def test_a_file_system_that_does_not_answer_when_the_client_is_made(
    share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = opened(share).publish("topic", b"data")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", _raise(OSError(errno.ESTALE, os.strerror(errno.ESTALE))))
        store = opened(share)
    assert store.download(reference) == b"data"


def _raise(error: OSError) -> Callable[..., object]:
    def operation(*_args: object, **_options: object) -> object:
        raise error

    return operation


def test_a_reader_that_may_not_write(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = opened(share).publish("topic", b"data")
    left = share / folders.MARKER / ".0.part"
    left.write_bytes(b"")
    os.utime(left, (0, 0))
    with monkeypatch.context() as patched:
        for name in ("unlink", "mkdir"):
            patched.setattr(os, name, _raise(OSError(errno.EROFS, os.strerror(errno.EROFS))))
        reader = opened(share)
        assert reader.download(reference) == b"data"
        with pytest.raises(PayloadNotFoundError):
            reader.download(reference + "0")
    assert left.exists()


def test_a_topic_on_a_file_system_of_its_own(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with mounts in the store's folder, and quotas per topic."""
    store, replace, refused = opened(share), os.replace, []

    def refusing(name: str, final: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if os.fstat(src_dir_fd).st_ino != os.fstat(dst_dir_fd).st_ino:
            refused.append(name)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        replace(name, final, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "replace", refusing)
    data = bytes(range(256)) * 10_000
    assert store.download(store.publish("topic", data)) == data
    assert store.download(store.publish_stream("topic", io.BytesIO(data))) == data
    assert len(refused) == 2
    assert not list(share.rglob("*.part"))
    assert len(list(store.list("topic"))) == 2


# Left behind


def test_leftovers_are_removed_on_request_wherever_they_lie(share: Path) -> None:
    store = opened(share)
    reference = store.publish("topic", b"data")
    (share / "topic" / "below").mkdir()
    old = [share / "topic/.1.part", share / "topic/below/.2.part", share / folders.MARKER / ".3.part"]
    recent = share / "topic/.4.part"
    others = share / "topic/.hidden"
    for path in (*old, recent, others):
        path.write_bytes(b"data")
    for path in (*old, others):
        os.utime(path, (0, 0))
    outside = share.with_name("outside")
    outside.mkdir()
    (outside / ".5.part").write_bytes(b"data")
    os.utime(outside / ".5.part", (0, 0))
    (share / "topic" / "link").symlink_to(outside)
    assert [info.reference for info in store.list("topic")] == [reference]
    around: PayloadStore = Deadline(store, 60_000)
    assert isinstance(around, SupportsLeftovers)
    assert isinstance(around, SupportsLeftoverCount)
    assert (around.count_leftovers(DAY_MS), around.count_leftovers(0)) == (3, 4)
    assert around.remove_leftovers(DAY_MS) == 3
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in (recent, others, outside / ".5.part"))
    assert store.download(reference) == b"data"
    assert around.remove_leftovers(0) == 1


def test_opening_does_not_look_among_the_payloads(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(share).publish("topic", b"data")
    looked: list[object] = []
    real = os.scandir

    def looking(folder: int) -> object:
        looked.append(folder)
        return real(folder)

    monkeypatch.setattr(os, "scandir", looking)
    opened(share)
    assert len(looked) == 1
