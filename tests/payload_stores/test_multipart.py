"""Parts and ranges in parallel, without a store."""

import io
import threading
from collections.abc import Iterator
from hashlib import sha256

import pytest

from payload_stores import PayloadStoreError, PayloadStoreUnavailableError, PayloadTooLargeError, threads
from payload_stores.multipart import (
    PART_BYTES,
    Blocks,
    DaemonPool,
    download_ranges,
    open_ranges,
    put_parts,
    read_parts,
    released,
    slices,
    stream_digest,
)

DATA = bytes(range(251)) * (3 * PART_BYTES // 251 + 7)


class PartError(Exception):
    """A part that fails."""


@pytest.fixture
def pool() -> Iterator[DaemonPool]:
    pool = DaemonPool(4)
    yield pool
    pool.shutdown()


def parts(count: int) -> Iterator[memoryview]:
    return (memoryview(b"%d" % number) for number in range(1, count + 1))


# Uploads


def test_parts_come_back_in_their_order(pool: DaemonPool) -> None:
    later = threading.Event()

    def put(number: int, part: memoryview) -> bytes:
        if number == 1:
            assert later.wait(30)
        elif number == 2:
            later.set()
        return bytes(part)

    assert put_parts(pool, parts(9), put, ahead=3) == [b"%d" % number for number in range(1, 10)]
    assert put_parts(pool, [], put, ahead=3) == []


def test_no_more_parts_are_taken_than_may_be_under_way(pool: DaemonPool) -> None:
    taken: list[int] = []
    go = threading.Event()

    def counted() -> Iterator[memoryview]:
        for number, part in enumerate(parts(6), start=1):
            taken.append(number)
            if len(taken) == 3:
                go.set()  # the third is read while two are under way, and waits for the first
            yield part

    def put(number: int, _part: memoryview) -> int:
        assert go.wait(30)
        return len(taken) - number

    assert max(put_parts(pool, counted(), put, ahead=2)) <= 2


@pytest.mark.parametrize("culprit", ["part", "parts"])
def test_nothing_is_under_way_after_a_failure(pool: DaemonPool, culprit: str) -> None:
    running = threading.Semaphore(0)
    ended: list[int] = []

    def failing() -> Iterator[memoryview]:
        yield from parts(3)
        if culprit == "parts":
            raise PartError

    def put(number: int, _part: memoryview) -> None:
        if number == 1 and culprit == "part":
            raise PartError
        running.release()
        ended.append(number)

    with pytest.raises(PartError):
        put_parts(pool, failing(), put, ahead=3)
    count = len(ended)
    assert running._value == count  # what began has ended


def test_threads_that_cannot_be_started_are_not_lost(pool: DaemonPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_job: object) -> None:
        raise PayloadStoreUnavailableError("no thread can be started")

    done: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(threads, "run_in_daemon_thread", refuse)
        for _ in range(4):
            with pytest.raises(PayloadStoreUnavailableError):
                pool.submit(done.append, "refused")
    pool.submit(done.append, "run").result(60)
    assert done == ["run"]


def test_slices_are_views_of_the_payload() -> None:
    view = memoryview(DATA)
    cut = list(slices(view, 10_000))
    assert [len(part) for part in cut[:-1]] == [PART_BYTES] * 3
    assert b"".join(cut) == DATA
    assert all(part.obj is DATA for part in cut)
    assert [len(part) for part in slices(view, 2)] == [-(-len(DATA) // 2), len(DATA) // 2]


class Trickle(io.BytesIO):
    """Gives less than it is asked for."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 70_001))


def test_a_file_is_read_in_whole_parts() -> None:
    read = list(read_parts(Trickle(DATA), 10_000))
    assert [len(part) for part in read[:-1]] == [PART_BYTES] * 3
    assert b"".join(read) == DATA
    assert list(read_parts(io.BytesIO(), 1)) == []
    with pytest.raises(PayloadTooLargeError, match="more than 2 parts"):
        list(read_parts(io.BytesIO(DATA), 2))


class Closed(io.BytesIO):
    def read(self, _size: int | None = -1, /) -> bytes:
        raise OSError("the pipe is gone")


def test_a_file_that_cannot_be_read_is_not_the_stores_fault() -> None:
    for read in (lambda: list(read_parts(Closed(), 9)), lambda: stream_digest(Closed())):
        with pytest.raises(
            PayloadStoreError, match="the payload's own stream cannot be read: the pipe is gone"
        ) as caught:
            read()
        assert not caught.value.transient


def test_the_digest_of_a_stream_leaves_it_where_it_was() -> None:
    file = io.BytesIO(DATA)
    file.seek(5)
    assert stream_digest(file) == f"sha256:{sha256(DATA[5:]).hexdigest()}"
    assert file.tell() == 5


def test_parts_that_were_read_are_let_go_of() -> None:
    held = [memoryview(b"1"), memoryview(b"2")]
    chained = released(held, parts(1))
    assert bytes(next(chained)) == b"1"
    assert len(held) == 1
    assert [bytes(part) for part in chained] == [b"2", b"1"]


def test_blocks_are_small_and_can_be_rewound() -> None:
    with io.BytesIO() as whole:
        file = Blocks(memoryview(DATA))
        assert len(file) == len(DATA)
        while block := file.read(1 << 30):
            assert len(block) <= 256 << 10
            whole.write(block)
        assert whole.getvalue() == DATA
    assert file.tell() == len(DATA)
    assert file.seek(-3, io.SEEK_END) == len(DATA) - 3
    assert bytes(file.read()) == DATA[-3:]
    assert (file.seek(0), bytes(file.read(4))) == (0, DATA[:4])
    file.close()
    assert bytes(file.read()) == b""


# Downloads


def fill(part: memoryview, start: int) -> None:
    part[:] = DATA[start : start + len(part)]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, len(DATA)])
def test_ranges_come_into_one_object(pool: DaemonPool, size: int) -> None:
    whole = download_ranges(pool, size, fill)
    assert type(whole) is bytes
    assert whole == DATA[:size]


def test_what_was_read_already_is_not_asked_for_again(pool: DaemonPool) -> None:
    asked: list[int] = []

    def noted(part: memoryview, start: int) -> None:
        asked.append(start)
        fill(part, start)

    whole = download_ranges(pool, len(DATA), noted, first=lambda part: fill(part, 0), first_bytes=100)
    assert whole == DATA
    assert sorted(asked) == list(range(100, len(DATA), PART_BYTES))


@pytest.mark.parametrize("culprit", ["first", "rest"])
def test_a_range_that_fails_ends_the_download(pool: DaemonPool, culprit: str) -> None:
    views: list[memoryview] = []

    def keep(part: memoryview, start: int) -> None:
        if culprit == "rest" and start > PART_BYTES:
            raise PartError
        views.append(part)

    def first(_part: memoryview) -> None:
        if culprit == "first":
            raise PartError

    with pytest.raises(PartError):
        download_ranges(pool, len(DATA), keep, first=first, first_bytes=1)
    for view in views:
        with pytest.raises(ValueError, match="released"):
            view[0]


def test_a_payload_is_opened_for_seeking() -> None:
    asked: list[tuple[int, int]] = []

    def noted(part: memoryview, start: int) -> None:
        asked.append((start, len(part)))
        fill(part, start)

    with open_ranges(len(DATA), noted) as file:
        assert file.read(10) == DATA[:10]
        assert file.seek(-4, io.SEEK_END) == len(DATA) - 4
        assert file.read() == DATA[-4:]
        assert bytes(file.read()) == b""
        with pytest.raises(ValueError, match="negative"):
            file.seek(-1)
        file.seek(PART_BYTES + 5)
        assert file.read(3) == DATA[PART_BYTES + 5 : PART_BYTES + 8]
    assert all(size <= PART_BYTES for _, size in asked)


def test_the_rest_is_whole_after_a_failure() -> None:
    """The failed call returned no bytes, so the next one starts where it did."""
    failures = [OSError("the connection is cut")]

    def cut_once(part: memoryview, start: int) -> None:
        if start and failures:
            raise failures.pop()
        fill(part, start)

    with open_ranges(len(DATA), cut_once) as file:
        file.seek(7)
        with pytest.raises(OSError, match="is cut"):
            file.read()
        assert file.read() == DATA[7:]


def test_a_range_ends_with_a_block() -> None:
    """A block of which the end is missing would be transferred again for the next range."""
    asked: list[tuple[int, int]] = []

    def noted(part: memoryview, start: int) -> None:
        asked.append((start, start + len(part)))
        fill(part, start)

    block_bytes = PART_BYTES // 8 - 4096
    with open_ranges(len(DATA), noted, block_bytes=block_bytes) as file:
        assert b"".join(iter(lambda: file.read(1 << 20), b"")) == DATA
        assert all(end % block_bytes == 0 for _, end in asked[:-1])
        assert [start for start, _ in asked[1:]] == [end for _, end in asked[:-1]]
        file.seek(100)
        asked.clear()
        assert file.read(10) == DATA[100:110]
        assert [(start, end % block_bytes) for start, end in asked] == [(100, 0)]
    # Ranges within a block, as blocks larger than a range need them.
    with open_ranges(len(DATA), fill, block_bytes=2 * PART_BYTES) as file:
        assert b"".join(iter(lambda: file.read(1 << 20), b"")) == DATA


@pytest.mark.parametrize("start", [0, 5, len(DATA) - 1, len(DATA), len(DATA) + 1])
def test_the_rest_of_a_payload_is_requested_in_parts(start: int) -> None:
    asked: list[int] = []

    def noted(part: memoryview, at: int) -> None:
        asked.append(len(part))
        fill(part, at)

    with open_ranges(len(DATA), noted) as file:
        file.seek(start)
        assert file.read() == DATA[start:]
    rest = max(0, len(DATA) - start)
    assert asked == [PART_BYTES] * (rest // PART_BYTES) + [rest % PART_BYTES] * (rest % PART_BYTES > 0)
