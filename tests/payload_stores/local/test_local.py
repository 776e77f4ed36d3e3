"""The store in a folder."""

import errno
import io
import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from payload_stores import (
    ConfigError,
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    PublishContext,
    UntrustedReferenceError,
    open_store,
)
from payload_stores.local import LocalStore, folders
from payload_stores.testing import PayloadStoreTests

CONTENT = PublishContext("content")


class TestLocalStore(PayloadStoreTests):
    store_class = "local"

    @pytest.fixture
    def config(self, tmp_path: Path) -> Mapping[str, object]:
        return {"local.path": str(tmp_path / "päy loads%41")}

    @pytest.fixture
    def other_config(self, tmp_path: Path) -> Mapping[str, object]:
        return {"local.path": str(tmp_path / "other")}

    def raw_read(self, reference: str) -> bytes:
        return Path(unquote(reference.removeprefix("file://"))).read_bytes()

    def raw_write(self, reference: str, name: str, data: bytes) -> None:
        path = Path(unquote(reference.removeprefix("file://"))).parent / name
        if ".." in name.split("/") or path.is_dir() or path.parent.is_file():
            raise ValueError("names what is there already")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class TestWithoutFsync(PayloadStoreTests):
    store_class = LocalStore

    @pytest.fixture
    def config(self, tmp_path: Path) -> Mapping[str, object]:
        return {"local.path": str(tmp_path), "local.fsync": "false"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return opened(root)


def opened(root: Path, **more: object) -> LocalStore:
    store = open_store("local", {"local.path": str(root), **more})
    assert isinstance(store, LocalStore)
    return store


def url(path: Path) -> str:
    return "file://" + quote(str(path))


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


# Configuration


def test_the_path_is_required() -> None:
    with pytest.raises(ConfigError, match=r"local\.path is required"):
        open_store("local", {})


@pytest.mark.parametrize("path", ["a\0b", "a\udcffb"])
def test_a_path_that_no_url_can_name(path: str) -> None:
    with pytest.raises(ConfigError, match=r"local\.path"):
        open_store("local", {"local.path": path})


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reference = opened(Path("some/folder")).publish("topic", b"data")
    assert reference.startswith(url(tmp_path / "some/folder/topic/"))


# Links, and other things that are no payloads


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    store = opened(tmp_path / "link")
    reference = store.publish("topic", b"data")
    assert reference.startswith(url(tmp_path / "link/topic/"))
    assert store.download(reference) == b"data"


def test_a_linked_payload_is_not_followed(store: LocalStore, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    reference = store.publish("topic", b"data")
    (root / "topic" / "link").symlink_to(secret)
    for operation in (store.download, store.open, store.delete):
        with pytest.raises(UntrustedReferenceError, match="symbolic link"):
            operation(url(root / "topic/link"))
    assert secret.read_bytes() == b"secret"
    assert [info.reference for info in store.list("topic")] == [reference]


def test_a_linked_folder_is_not_followed(store: LocalStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root.mkdir()
    (root / "topic").symlink_to(outside)
    for operation in (store.download, store.open, store.delete):
        with pytest.raises(UntrustedReferenceError, match="symbolic link"):
            operation(url(root / "topic/secret"))
    with pytest.raises(UntrustedReferenceError, match="symbolic link"):
        store.publish("topic", b"data")
    with pytest.raises(UntrustedReferenceError, match="symbolic link"):
        store.publish_stream("topic", io.BytesIO(b"data"))
    with pytest.raises(UntrustedReferenceError, match="symbolic link"):
        list(store.list("topic"))
    assert [path.name for path in files_below(outside)] == ["secret"]


def test_a_link_where_a_payload_belongs_is_replaced_not_followed(store: LocalStore, root: Path, tmp_path: Path) -> None:
    reference = store.publish("topic", b"data", CONTENT)
    path = root / "topic" / reference.rpartition("/")[2]
    path.unlink()
    outside = tmp_path / "outside"
    outside.write_bytes(b"kept")
    path.symlink_to(outside)
    assert store.publish("topic", b"data", CONTENT) == reference
    assert outside.read_bytes() == b"kept"
    assert store.download(reference) == b"data"


def test_a_named_pipe_is_refused_without_waiting(store: LocalStore, root: Path) -> None:
    store.publish("topic", b"data")
    os.mkfifo(root / "topic" / "pipe")
    for operation in (store.download, store.open, store.delete):
        with pytest.raises(UntrustedReferenceError, match="not a regular file"):
            operation(url(root / "topic/pipe"))
    assert len(list(store.list("topic"))) == 1


def test_a_folder_is_no_payload(store: LocalStore, root: Path) -> None:
    store.publish("topic", b"data")
    for operation in (store.download, store.delete):
        with pytest.raises(UntrustedReferenceError):
            operation(url(root / "topic"))


@pytest.mark.parametrize(
    "reference", ["file:///etc/hostname", "file://localhost{root}/topic/id", "file:{root}/topic/id"]
)
def test_what_lies_elsewhere_is_not_read(store: LocalStore, root: Path, reference: str) -> None:
    with pytest.raises(UntrustedReferenceError):
        store.download(reference.format(root=root))


def test_a_folder_that_begins_with_the_same_name_is_another(store: LocalStore, root: Path) -> None:
    neighbour = opened(root.with_name("root2")).publish("topic", b"data")
    with pytest.raises(UntrustedReferenceError, match="outside"):
        store.download(neighbour)


def test_trusted_references_are_read_but_not_deleted(root: Path, tmp_path: Path) -> None:
    foreign = opened(tmp_path / "other folder").publish("topic", b"foreign")
    store = opened(root, **{"large.message.trusted.references": url(tmp_path / "other folder") + "/, s3://bucket/"})
    assert store.download(foreign) == b"foreign"
    with pytest.raises(UntrustedReferenceError):
        store.delete(foreign)
    assert store.download(foreign) == b"foreign"
    with pytest.raises(UntrustedReferenceError):
        store.download(url(tmp_path / "other folder2/topic/id"))


def test_a_trusted_prefix_must_be_a_url(root: Path) -> None:
    with pytest.raises(ConfigError, match="trusted"):
        opened(root, **{"large.message.trusted.references": "file:///a/../b"})


def test_deleting_below_a_payload_is_deleting_nothing(store: LocalStore) -> None:
    reference = store.publish("topic", b"data")
    store.delete(reference + "/below")
    assert store.download(reference) == b"data"


# Writing


def test_no_temporary_file_is_left_or_shown(store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def failing_write(file: int, view: memoryview) -> None:
        os.write(file, view[: len(view) // 2])
        (temporary,) = files_below(root)
        seen.append(temporary.name)
        assert list(store.list("topic")) == []
        with pytest.raises(UntrustedReferenceError, match="temporary"):
            store.download(url(temporary))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folders, "write_all", failing_write)
    with pytest.raises(PayloadStoreUnavailableError, match="space"):
        store.publish("topic", b"data")
    with pytest.raises(PayloadStoreUnavailableError, match="space"):
        store.publish_stream("topic", io.BytesIO(b"data"))
    assert len(seen) == 2
    assert files_below(root) == []


def test_a_write_may_take_several_calls(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:1000]))
    data = bytes(range(256)) * 20
    assert store.download(store.publish("topic", data)) == data


@pytest.mark.parametrize(("fsync", "expected"), [("true", True), ("false", False)])
def test_file_and_folders_are_forced_to_disk(
    root: Path, monkeypatch: pytest.MonkeyPatch, fsync: str, expected: bool
) -> None:
    steps: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def recorded_fsync(file: int) -> None:
        status = os.fstat(file)
        steps.append("folder" if stat.S_ISDIR(status.st_mode) else "file")
        real_fsync(file)

    def recorded_replace(name: str, final: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        steps.append("rename")
        real_replace(name, final, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    store = opened(root, **{"local.fsync": fsync})
    store.publish("topic", b"data", CONTENT)
    # The entries of the root, of its marker and of the topic's folder, the content, then its name.
    assert steps == (["folder", "folder", "folder", "file", "rename", "folder"] if expected else ["rename"])
    steps.clear()
    store.publish("topic", b"data", CONTENT)
    assert "rename" not in steps
    assert ("folder" in steps) is expected


def test_a_file_system_that_cannot_force_folders_to_disk(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    assert store.download(store.publish("topic", b"data")) == b"data"


def test_a_content_that_was_cut_off_is_written_again(store: LocalStore, root: Path) -> None:
    reference = store.publish("topic", b"data", CONTENT)
    (root / "topic" / reference.rpartition("/")[2]).write_bytes(b"da")
    assert store.publish("topic", b"data", CONTENT) == reference
    assert store.download(reference) == b"data"


# Errors of the system


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EACCES, PayloadAccessDeniedError),
        (errno.EPERM, PayloadAccessDeniedError),
        (errno.EROFS, PayloadAccessDeniedError),
        (errno.ENOSPC, PayloadStoreUnavailableError),
        (errno.EDQUOT, PayloadStoreUnavailableError),
        (errno.EIO, PayloadStoreUnavailableError),
        (errno.ESTALE, PayloadStoreUnavailableError),
        (errno.EMFILE, PayloadStoreUnavailableError),
        (errno.EFBIG, PayloadTooLargeError),
        (errno.EINVAL, PayloadStoreError),
    ],
)
def test_errors_of_the_system_are_typed(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[PayloadStoreError]
) -> None:
    reference = store.publish("topic", b"data")

    def failing_open(*_args: object, **_options: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", failing_open)
    for operation in (lambda: store.publish("topic", b"data"), lambda: store.download(reference)):
        with pytest.raises(expected) as caught:
            operation()
        assert type(caught.value) is expected
        assert caught.value.store == "file"
        assert isinstance(caught.value.__cause__, OSError)


def test_a_payload_that_shrinks_while_it_is_read(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = store.publish("topic", b"data")
    path = root / "topic" / reference.rpartition("/")[2]
    real_open = LocalStore.open

    class Shrinking(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            os.truncate(path, 2)
            return super().read(size)

    def open_shrinking(store: LocalStore, reference: str) -> io.FileIO:
        real_open(store, reference).close()
        return Shrinking(path)

    monkeypatch.setattr(LocalStore, "open", open_shrinking)
    with pytest.raises(PayloadIntegrityError, match="4 bytes"):
        store.download(reference)


# Renewed content


def test_content_that_a_sweep_deletes_before_it_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("local", {"local.path": str(tmp_path), "large.message.grace.ms": 0})
    reference = store.publish("topic", b"data", CONTENT)
    touch = folders.touch

    def swept(name: str, folder: int) -> bool:
        os.unlink(name, dir_fd=folder)
        return touch(name, folder)

    monkeypatch.setattr(folders, "touch", swept)
    assert store.publish("topic", b"data", CONTENT) == reference
    assert store.download(reference) == b"data"


def test_content_of_another_user_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("local", {"local.path": str(tmp_path), "large.message.grace.ms": 0})
    reference = store.publish("topic", b"data", CONTENT)
    file = tmp_path / "topic" / reference.rpartition("/")[2]
    before = file.stat()

    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(errno.EPERM, "not yours")

    monkeypatch.setattr(os, "utime", refuse)
    assert store.publish("topic", b"data", CONTENT) == reference
    assert file.stat().st_ino != before.st_ino


def test_folders_in_folders_end_no_listing(store: LocalStore, root: Path) -> None:
    reference = store.publish("topic", b"data")
    here = os.open(root / "topic", os.O_RDONLY)
    for _ in range(1_500):  # as deep as no path is long
        os.mkdir("n", dir_fd=here)
        below = os.open("n", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert [info.reference for info in store.list("topic")] == [reference]
    assert store.remove_leftovers(0) == store.count_leftovers(0) == 0
    subprocess.run(["rm", "-r", root / "topic"], check=True)
