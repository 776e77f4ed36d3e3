"""``large-message``: values that are files, read while they are uploaded."""

import hashlib
import io
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from payload_stores import PayloadStore, PayloadStoreUnavailableError, PublishContext, open_store
from payload_stores.base import Buffer
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import (
    DeserializerChain,
    EncodeError,
    RecordContext,
    SerializationError,
    SerializerChain,
    Transfer,
)

STORE = "large.message.payload.store.class"
THRESHOLD = "large.message.threshold.bytes"
SMALL = b"small"
LARGE = bytes(range(256)) * 5000
STREAMS: dict[str, Callable[[Path], Any]] = {
    "path": lambda path: path,
    "file": lambda path: path.open("rb"),
    "raw file": lambda path: path.open("rb", buffering=0),
    "memory": lambda path: io.BytesIO(path.read_bytes()),
    "what reads like a file": lambda path: Reader(path.read_bytes()),
}


class Reader:
    """Reads like a pipe, and is not a file to Python."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int = -1, /) -> bytes:
        return self._file.read(min(size, 1000))


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    yield FaultyStore(MemoryStore())
    MemoryStore.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "image.fits"
    path.write_bytes(LARGE)
    return path


def chains(store: Any, stages: str = "large-message", **config: Any) -> tuple[SerializerChain, DeserializerChain]:
    whole = {
        "value.serializers": stages,
        "value.deserializers": "large-message",
        STORE: store,
        THRESHOLD: 100,
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    return SerializerChain.from_config(whole), DeserializerChain.from_config(whole)


def context() -> RecordContext:
    return RecordContext("images", "value", [])


def closed(stream: Any) -> None:
    if isinstance(stream, io.IOBase):
        stream.close()


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("stages", ["large-message", "bytes, large-message"])
def test_a_large_file_is_streamed(store: FaultyStore, path: Path, kind: str, stages: str) -> None:
    write, read = chains(store, stages)
    ctx = context()
    stream = STREAMS[kind](path)
    reference = write(stream, ctx)
    assert store.calls == ["publish_stream"]
    assert ctx.headers == [
        ("large-message", b"true"),
        ("large-message-size", str(len(LARGE)).encode()),
        ("large-message-digest", b"sha256:" + hashlib.sha256(LARGE).hexdigest().encode()),
    ]
    assert read(reference, ctx) == LARGE
    closed(stream)


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("size", [0, 1, 99, 100, 101])
def test_a_small_file_stays_in_the_record(store: FaultyStore, path: Path, kind: str, size: int) -> None:
    path.write_bytes(LARGE[:size])
    write, read = chains(store, "bytes, large-message")
    ctx = context()
    stream = STREAMS[kind](path)
    data = write(stream, ctx)
    assert (data == LARGE[:size], bool(ctx.headers), store.calls) == (
        (True, False, []) if size <= 100 else (False, True, ["publish_stream"])
    )
    assert read(data, ctx) == LARGE[:size]
    closed(stream)


@pytest.mark.parametrize("size", [len(SMALL), len(LARGE)])
def test_a_file_is_read_from_its_position(store: FaultyStore, path: Path, size: int) -> None:
    path.write_bytes(LARGE[:size])
    write, read = chains(store)
    with path.open("rb") as file:
        file.seek(2)
        ctx = context()
        # As a record for which the client has no room: it is produced again.
        write.begin(file, context())
        assert file.tell() == 2
        assert read(write(file, ctx), ctx) == LARGE[2:size]


@pytest.mark.parametrize("strategy", ["content", "keyed"])
@pytest.mark.parametrize("name", ["memory", "local"])
def test_ids_of_the_content(path: Path, tmp_path: Path, name: str, strategy: str) -> None:
    write, read = chains(name, large_message_id=strategy, local_path=str(tmp_path / "store"))
    digest = hashlib.sha256(LARGE).hexdigest()
    with path.open("rb") as file:
        for stream in (path, file, io.BytesIO(LARGE)):
            ctx = RecordContext("images", "value", [], key=b"M 51")
            reference = write(stream, ctx)
            assert reference.endswith(digest.encode())
            assert read(reference, ctx) == LARGE
    with pytest.raises(EncodeError, match="only once"):
        write(Reader(LARGE), RecordContext("images", "value", [], key=b"M 51"))


def test_the_transfer_holds_little_and_nothing_is_open_before(store: FaultyStore, path: Path) -> None:
    write, read = chains(store)
    descriptors = set(Path("/proc/self/fd").iterdir())
    ctx = context()
    transfers = [write.begin(path, ctx) for _ in range(20)]
    assert set(Path("/proc/self/fd").iterdir()) <= descriptors
    assert store.calls == []
    transfer = transfers[0]
    assert isinstance(transfer, Transfer)
    assert transfer.size == 32 << 20
    place = transfer.places()
    reference = transfer.resume(result := transfer.run())
    assert transfer.made(result) == place == (reference.decode(),)
    assert read(reference, ctx) == LARGE


# What cannot be streamed


def test_a_stage_before_it_says_what_to_do(store: FaultyStore, path: Path) -> None:
    for stages in ("zstd, large-message", "json, large-message", "string, large-message", "bytes, zstd, large-message"):
        write, _ = chains(store, stages)
        with pytest.raises(EncodeError) as caught:
            write(path, context())
        assert "1 of" in str(caught.value) or stages.startswith("bytes")
        assert caught.value.hint is not None
    with pytest.raises(EncodeError, match=r"bytes takes bytes.*Files are streamed by large-message"):
        SerializerChain.from_config({"value.serializers": "bytes"})(path, context())


@pytest.mark.parametrize(
    "config",
    [
        {"large_message_format": "bakdata-headers", "large_message_compression": "zstd"},
        {"large_message_format": "bakdata-headers", "large_message_id": "murmur3"},
    ],
)
def test_settings_that_need_the_whole_payload(store: FaultyStore, path: Path, config: dict[str, Any]) -> None:
    write, _ = chains(store, **config)
    with pytest.raises(EncodeError, match=r"requires the whole payload.*as bytes") as caught:
        write(path, context())
    assert not caught.value.about_record


class Whole(PayloadStore):
    scheme = "whole"

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return f"whole:///{topic}/1"

    def download(self, reference: str) -> bytes:
        return b""


def test_a_store_that_cannot_stream(path: Path) -> None:
    write, _ = chains(Whole())
    with pytest.raises(EncodeError, match="whole accepts whole payloads only") as caught:
        write(path, context())
    assert not caught.value.about_record
    assert write(LARGE, context()) == b"whole:///images/1"


# Files that cannot be read


def test_files_that_cannot_be_read(store: FaultyStore, path: Path, tmp_path: Path) -> None:
    write, _ = chains(store)
    os.mkfifo(tmp_path / "pipe")
    shut = path.open("rb")
    shut.close()
    (tmp_path / "link").symlink_to("nowhere")

    class NotYet(Reader):
        def read(self, size: int = -1, /) -> Any:
            return None

    with path.open(encoding="latin-1") as text:
        for value, message in (
            (tmp_path, "is a folder.*Pass the path of a file"),
            (tmp_path / "pipe", "not a regular file"),
            (Path(os.devnull), "not a regular file"),
            (tmp_path / "missing", "No such file.*Check the path$"),
            (Path("missing.fits"), "No such file.*Check the path.*relative to /"),
            (tmp_path / "link", "No such file"),
            (Path("nul\0l"), "null"),
            (shut, "closed file"),
            (text, "text mode"),
            (io.StringIO("text"), "text mode"),
            (NotYet(b""), "returned NoneType"),
        ):
            with pytest.raises(EncodeError, match=message) as caught:
                write(value, context())
            assert caught.value.hint is not None
            assert caught.value.about_record
    assert store.calls == []


@pytest.mark.parametrize("kind", ["path", "file"])
@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(LARGE + b"more"),
        lambda path: os.truncate(path, 10),
        lambda path: os.utime(path, (1, 1)),
    ],
    ids=["grown", "cut", "touched"],
)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_file_that_changes(
    tmp_path: Path, path: Path, kind: str, change: Callable[[Path], object], when: str
) -> None:
    """Nothing of it can be read from the store afterwards."""
    store: Any = open_store("local", {"local.path": str(tmp_path / "store")})
    other = store.publish("images", b"other")
    publish = store.publish_stream
    reads: list[int] = []

    def changing(topic: str, reader: Any, context: Any) -> str:
        class Changing:
            def read(self, size: int) -> bytes:
                block: bytes = reader.read(min(size, 1000))
                if not reads:
                    change(path)
                reads.append(len(block))
                return block

        return str(publish(topic, Changing(), context))

    if when == "meanwhile":
        store.publish_stream = changing
    write, _ = chains(store)
    stream = STREAMS[kind](path)
    transfer: Any = write.begin(stream, context())
    if when == "before":
        change(path)
    with pytest.raises(EncodeError, match="was modified"):
        transfer.run()
    closed(stream)
    assert [info.reference for info in store.list("images")] == [other]


def test_content_that_changes_between_digest_and_upload(store: FaultyStore) -> None:
    class Fickle(io.BytesIO):
        rewound = 0

        def seek(self, offset: int, whence: int = 0, /) -> int:
            self.rewound += 1
            if self.rewound == 3:  # after it was looked at, and read for its digest
                self.getbuffer()[0] = 255
            return super().seek(offset, whence)

    write, _ = chains(store, large_message_id="content")
    with pytest.raises(EncodeError, match="was modified"):
        write(Fickle(LARGE), context())
    assert list(MemoryStore().list("images")) == []


def test_a_path_that_is_another_file_by_now(store: FaultyStore, path: Path, tmp_path: Path) -> None:
    write, _ = chains(store)
    transfer: Any = write.begin(path, context())
    other = tmp_path / "other"
    other.write_bytes(LARGE)
    other.replace(path)
    with pytest.raises(EncodeError, match="was modified"):
        transfer.run()
    transfer = write.begin(path, context())
    path.unlink()
    with pytest.raises(EncodeError, match="No such file"):
        transfer.run()


# Time


@pytest.mark.parametrize("kind", ["file", "raw file", "memory"])
def test_two_records_do_not_share_an_open_file(store: FaultyStore, path: Path, kind: str) -> None:
    writer, reader = chains(store)
    ctx = context()
    with STREAMS[kind](path) as file:
        first, second = writer.begin(file, context()), writer.begin(file, ctx)
        with pytest.raises(EncodeError, match="given to two records"):
            first.run()
        assert reader(second.resume(second.run()), ctx) == LARGE


def test_a_file_that_is_being_read_is_not_given_to_another_record(store: FaultyStore, path: Path) -> None:
    writer, reader = chains(store)
    file, ctx = Slow(path.read_bytes()), context()
    first = writer.begin(file, ctx)
    outcomes: list[Any] = []
    upload = threading.Thread(target=lambda: outcomes.append(first.run()), daemon=True)
    upload.start()
    assert file.is_read.wait(20)
    with pytest.raises(EncodeError, match="given to two records"):
        writer.begin(file, context())
    file.may_go_on.set()
    upload.join(20)
    assert reader(first.resume(outcomes[0]), ctx) == LARGE
    file.seek(0)
    ctx = context()
    assert reader(writer(file, ctx), ctx) == LARGE, "the next record may have it"


class Slow(io.BytesIO):
    """A file of which the second look waits."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.is_read, self.may_go_on = threading.Event(), threading.Event()
        self._looks = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self._looks += 1
        if self._looks == 2:
            self.is_read.set()
            assert self.may_go_on.wait(20)
        return super().read(size)


@pytest.mark.full
def test_the_deadline_is_about_progress(store: FaultyStore) -> None:
    """A file that gives a block now and then takes longer than the time limit in all."""
    timeout_ms = 2000
    never = threading.Event()

    class Slow(Reader):
        left = 6

        def read(self, size: int = -1, /) -> bytes:
            if self.left and size > 1000:  # not when it is looked at
                self.left -= 1
                never.wait(0.5)
            return super().read(size)

    write, read = chains(store, large_message_store_timeout_ms=timeout_ms)
    ctx = context()
    assert read(write(Slow(LARGE[:5000]), ctx), ctx) == LARGE[:5000]


def test_a_store_without_progress(store: FaultyStore) -> None:
    write, _ = chains(store, large_message_store_timeout_ms=50)
    with store.hanging(), pytest.raises(PayloadStoreUnavailableError, match="did not finish within 50 ms"):
        write(io.BytesIO(LARGE), context())


def test_a_store_that_was_given_up_gets_nothing_more() -> None:
    given_up, gone_on = threading.Event(), threading.Event()
    failures: list[BaseException] = []
    reading: list[int] = []

    class Late(MemoryStore):
        def publish_stream(self, topic: str, reader: Any, context: Any = None) -> str:
            given_up.wait(30)
            try:
                reader.read(10)
            except BaseException as error:
                failures.append(error)
                raise
            finally:
                gone_on.set()
            return "memory:///images/1"

    class Noting(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if given_up.is_set():
                reading.append(1)
            return super().read(size)

    write, _ = chains(Late(), large_message_store_timeout_ms=50)
    with pytest.raises(SerializationError):
        write(Noting(LARGE), context())
    given_up.set()
    assert gone_on.wait(30)
    assert [type(error) for error in failures] == [PayloadStoreUnavailableError]
    assert reading == []


# Memory


@pytest.mark.full
def test_two_gigabytes_take_less_than_32_mib(tmp_path: Path) -> None:
    """In a process of its own, by what the kernel says."""
    program = f"""
import os
from pathlib import Path
from serde_chain import RecordContext, SerializerChain
from tests.memory import peak_bytes, reset_peak

config = {{
    "value.serializers": "bytes, large-message",
    "{STORE}": "local",
    "local.path": {str(tmp_path / "store")!r},
    "local.fsync": "false",
}}
small, large = Path({str(tmp_path / "small")!r}), Path({str(tmp_path / "large")!r})
small.write_bytes(bytes(2 << 20))
with large.open("wb") as file:
    file.truncate(2 << 30)
with SerializerChain.from_config(config) as write:
    write(small, RecordContext("t", "value", []))
    before = reset_peak()
    ctx = RecordContext("t", "value", [])
    write(large, ctx)
    print(peak_bytes() - before, dict(ctx.headers)["large-message-size"].decode())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=110)
    extra, size = map(int, done.stdout.split())
    assert size == 2 << 30
    assert extra <= 32 << 20


def test_a_spooled_file_of_tempfile(store: FaultyStore) -> None:
    write, read = chains(store)
    with tempfile.SpooledTemporaryFile(max_size=10) as file:
        file.write(LARGE)
        file.seek(0)
        ctx = context()
        assert read(write(file, ctx), ctx) == LARGE
