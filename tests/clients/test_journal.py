"""The crash journal: whatever happens at whatever moment, no payload of a record that was sent is ever deleted."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, JournalError, SerializerChain
from serde_chain.clients import journal as journals
from serde_chain.clients.journal import Journal
from serde_chain.stages.large_message.options import JOURNAL_FSYNC, JOURNAL_PATH
from tests.interrupts import interrupted_at

SECONDS = 30
NAMES = [f"s3://payloads/images/{number}" for number in range(8)]
# All through which a journal touches the file system; opening a file of another's, as to read, is harmless.
CALLS = [(os, name) for name in ("open", "write", "ftruncate", "fsync", "fstat", "stat", "replace", "unlink")]
CALLS.append((fcntl, "flock"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def unsettled(path: Path) -> tuple[str, ...]:
    with Journal(path) as journal:
        return journal.left


class KilledError(BaseException):
    """The process is dead: this is raised by every call that follows as well."""


@contextmanager
def failing(at: int, fault: BaseException) -> Iterator[list[str]]:
    """Let the system call of this number fail, from 0; halfway through, if it writes.

    Yields:
        The calls that were made.
    """
    made: list[str] = []
    genuine = {name: getattr(module, name) for module, name in CALLS}

    def replacement(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made.append(name)
            if len(made) - 1 == at or (len(made) > at and isinstance(fault, KilledError)):
                if name == "write" and len(made) - 1 == at:
                    genuine["write"](args[0], args[1][: len(args[1]) // 2])
                raise fault
            return genuine[name](*args, **kwargs)

        return call

    for module, name in CALLS:
        setattr(module, name, replacement(name))
    try:
        yield made
    finally:
        for module, name in CALLS:
            setattr(module, name, genuine[name])


class Process:
    """A producer, and what it did: some uploads, of which most are settled before the record is sent."""

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self.path = path
        self.fsync = fsync
        self.uploaded: set[str] = set()
        self.deleted_or_sent: set[str] = set()
        self.in_doubt: set[str] = set()
        self.journal: Journal | None = None

    def run(self, attempt: Callable[[Callable[[], None]], bool]) -> None:
        """Make the calls, each by way of ``attempt``, which says whether it succeeded."""

        def start() -> None:
            self.journal = Journal(self.path, fsync=self.fsync)

        while not attempt(start):
            pass
        journal = self.journal
        assert journal is not None
        for number, name in enumerate(NAMES):
            if not attempt(partial(journal.intend, name)):
                continue
            self.uploaded.add(name)
            if number % 3 != 1:
                self.settle(journal, attempt, name)
        self.settle(journal, attempt, NAMES[1])
        while not attempt(journal.close):
            pass

    def settle(self, journal: Journal, attempt: Callable[[Callable[[], None]], bool], name: str) -> None:
        self.in_doubt.add(name)
        if attempt(lambda: journal.settle(name)):
            self.deleted_or_sent.add(name)
            self.in_doubt.discard(name)
            self.uploaded.discard(name)

    def check(self) -> None:
        left = set(unsettled(self.path))
        assert not left & self.deleted_or_sent, "payloads of records that were sent would be deleted"
        assert self.uploaded - self.in_doubt <= left, "payloads without a record are not known"


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "_ROOM", 400)  # so that files are written anew in between


def test_what_is_not_settled_is_left_to_the_next_start(path: Path) -> None:
    with Journal(path) as journal:
        assert list(journal.left) == []
        for name in NAMES[:4]:
            journal.intend(name)
        journal.settle(NAMES[1])
        journal.settle(NAMES[1])
        journal.settle("s3://payloads/images/unheard-of")
        assert journal.unsettled == (NAMES[0], NAMES[2], NAMES[3])
        assert list(journal.left) == []
    with Journal(path) as journal:
        assert journal.left == journal.unsettled == (NAMES[0], NAMES[2], NAMES[3])
        journal.intend(NAMES[5])
        journal.settle(NAMES[0])
        assert list(journal.left) == [NAMES[2], NAMES[3]]
    assert unsettled(path) == (NAMES[2], NAMES[3], NAMES[5])


def test_any_text_may_be_a_reference(path: Path) -> None:
    odd = "s3://b/ü\n\0 \ud800'\"/1"
    with Journal(path) as journal:
        journal.intend(odd)
    assert unsettled(path) == (odd,)


@pytest.mark.parametrize("fsync", [False, True])
def test_a_process_may_be_killed_at_any_system_call(tmp_path: Path, *, fsync: bool) -> None:
    def attempt(call: Callable[[], None]) -> bool:
        call()
        return True

    at = 0
    while True:
        process = Process(tmp_path / str(at), fsync=fsync)
        with failing(at, KilledError()) as made, suppress(KilledError):
            process.run(attempt)
        if process.journal is not None:  # the system closes what a dead process has open
            process.journal.close()
        process.check()
        if len(made) <= at:
            break
        at += 1
    assert at > 60
    assert {"write", "replace", "open", "flock"} <= set(made)
    assert ("fsync" in made) is fsync


def test_with_fsync_every_step_is_on_disk_before_the_next(path: Path) -> None:
    with failing(1 << 30, OSError()) as made:
        journal = Journal(path, fsync=True)
        assert [call for call in made if call in {"write", "fsync", "replace"}] == [
            "write",
            "fsync",
            "replace",
            "fsync",
        ]
        made.clear()
        journal.intend(NAMES[0])
        assert made[-2:] == ["write", "fsync"]
        journal.settle(NAMES[0])
        assert made[-2:] == ["write", "fsync"]
        journal.close()


def test_nothing_is_kept_of_an_upload_that_could_not_be_noted(path: Path) -> None:
    with Journal(path) as journal:
        with failing(0, OSError(errno.ENOSPC, "No space left on device")), pytest.raises(JournalError) as caught:
            journal.intend(NAMES[0])
        assert caught.value.transient
        assert "No space left on device" in str(caught.value)
        assert journal.unsettled == ()


@pytest.mark.parametrize("fsync", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_any_system_call_may_fail_and_the_process_goes_on(tmp_path: Path, number: int, *, fsync: bool) -> None:
    at = failures = 0

    def attempt(call: Callable[[], None]) -> bool:
        nonlocal failures
        try:
            call()
        except (JournalError, ConfigError):
            failures += 1
            return False
        return True

    while True:
        process = Process(tmp_path / str(at), fsync=fsync)
        with failing(at, OSError(number, os.strerror(number))) as made:
            process.run(attempt)
        process.check()
        if len(made) <= at:
            break
        at += 1
    assert at > failures > 30


@pytest.mark.full
# Between being opened and being kept, a file that an interrupt takes away is closed by the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("fsync", [False, True])
def test_an_interrupt_may_come_at_any_point_and_the_process_goes_on(tmp_path: Path, *, fsync: bool) -> None:
    point = 0
    while True:
        interrupts = 0

        def attempt(call: Callable[[], None]) -> bool:
            nonlocal interrupts
            try:
                call()
            except KeyboardInterrupt:
                interrupts += 1
                return False
            return True

        process = Process(tmp_path / str(point), fsync=fsync)
        with interrupted_at(point, ("serde_chain/clients/journal.py",)):
            process.run(attempt)
        process.check()
        if not interrupts:
            break
        point += 1
    assert point > 200


def test_a_line_that_was_cut_is_dropped(path: Path) -> None:
    with Journal(path) as journal:
        journal.intend(NAMES[0])
        journal.intend(NAMES[1])
        journal.settle(NAMES[1])
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for size in range(len(lines[-1])):
        path.write_bytes(whole[: len(whole) - len(lines[-1]) + size])
        assert unsettled(path) == (NAMES[0], NAMES[1])
        assert unsettled(path) == (NAMES[0], NAMES[1])  # it was not left there for another line to be appended
    path.write_bytes(whole + bytes(100))
    assert unsettled(path) == (NAMES[0],)


@pytest.mark.parametrize("content", [b"{}\n", b"a sentence", b"\x00\x01\xff\n" * 3, b"%08x 7\n" % zlib.crc32(b"7")])
def test_what_is_not_a_journal_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not a journal") as caught:
        Journal(path)
    assert caught.value.key == JOURNAL_PATH.name
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_damaged_journal_is_left_alone(path: Path) -> None:
    with Journal(path) as journal:
        for name in NAMES[:3]:
            journal.intend(name)
    content = path.read_bytes()
    for at in range(content.index(b"\n") + 1, content.rindex(NAMES[2].encode()) - 30):
        damaged = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match="cannot be used"):
            Journal(path)
        assert path.read_bytes() == damaged
    path.write_bytes(content)
    assert unsettled(path) == tuple(NAMES[:3])


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_journal_that_others_may_write_is_left_alone(path: Path, mode: int) -> None:
    """They would say which payloads the next start deletes."""
    with Journal(path) as journal:
        journal.intend(NAMES[0])
    content = path.read_bytes()
    path.chmod(mode)
    with pytest.raises(ConfigError, match="other users may write to it"):
        Journal(path)
    assert path.read_bytes() == content
    path.chmod(0o640)
    assert unsettled(path) == (NAMES[0],)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_journal_of_another_user_is_left_alone(path: Path) -> None:
    Journal(path).close()
    os.chown(path, 65534, 65534)
    with pytest.raises(ConfigError, match="other users may write to it"):
        Journal(path)


def test_a_journal_of_another_version_is_left_alone(path: Path) -> None:
    body = json.dumps({"serde-chain journal": 2}).encode()
    path.write_bytes(b"%08x %b\n" % (zlib.crc32(body), body))
    with pytest.raises(ConfigError, match="version 2"):
        Journal(path)


def test_what_was_not_forced_to_disk_does_not_count_after_a_new_start_of_the_machine(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forced = tmp_path / "forced"
    for each, fsync in ((path, False), (forced, True)):
        with Journal(each, fsync=fsync) as journal:
            journal.intend(NAMES[0])
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(journals, "_BOOT", boot)
    for text in (None, "another"):
        if text is not None:
            boot.write_text(text)
        kept = path.read_bytes()
        assert unsettled(path) == ()
        assert f"1 payloads of the journal {path} are left to a sweep" in caplog.text
        path.write_bytes(kept)
    with Journal(forced, fsync=True) as journal:
        assert journal.left == (NAMES[0],)


def test_a_journal_belongs_to_one_producer(path: Path) -> None:
    with Journal(path) as journal:
        with pytest.raises(ConfigError, match=rf"another producer \(process {os.getpid()}\)") as caught:
            Journal(path)
        assert caught.value.key == JOURNAL_PATH.name
        assert "each producer its own" in str(caught.value)
        for name in NAMES * 10:  # the file is replaced by another meanwhile
            journal.intend(name)
            journal.settle(name)
        with pytest.raises(ConfigError, match="another producer"):
            Journal(path)
        link = path.with_name("link")
        link.symlink_to(path)
        with pytest.raises(ConfigError, match="another producer"):
            Journal(link)
    Journal(path).close()


PROGRAM = """
import sys
from pathlib import Path
from serde_chain.clients.journal import Journal

journal = Journal(Path(sys.argv[1]))
journal.intend("s3://payloads/images/1")
journal.intend("s3://payloads/images/2")
journal.settle("s3://payloads/images/2")
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_journal_of_a_living_process_is_refused_and_that_of_a_killed_one_taken_over(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            with pytest.raises(ConfigError, match=rf"another producer \(process {process.pid}\)"):
                Journal(path)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(SECONDS)
    assert unsettled(path) == ("s3://payloads/images/1",)


FORKING = """
import os, sys
from pathlib import Path
from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, JournalError, SerializerChain
from serde_chain.clients.journal import Journal

path = Path(sys.argv[1])
journal = Journal(path)
journal.intend("s3://payloads/images/1")
asked, answer = os.pipe()
held, hold = os.pipe()
child = os.fork()
if not child:
    try:
        journal.intend("s3://payloads/images/2")
    except JournalError as error:
        assert not error.transient
    assert journal.unsettled == ()
    journal.close()
    try:
        Journal(path)
    except ConfigError:
        os.write(answer, b"refused")
    os.close(hold)
    os.read(held, 1)
    os._exit(0)
assert os.read(asked, 7) == b"refused"
journal.settle("s3://payloads/images/1")
journal.intend("s3://payloads/images/3")
journal.close()
# The child lives, and does not keep the file.
with Journal(path) as journal:
    assert journal.left == ("s3://payloads/images/3",)
os.close(hold)
assert os.waitpid(child, 0)[1] == 0
"""


def test_the_child_of_a_fork_neither_keeps_nor_breaks_the_lock(path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKING, str(path)], check=True, timeout=SECONDS)


def test_the_file_stays_small_however_many_uploads_there_are(path: Path) -> None:
    with Journal(path) as journal:
        for name in NAMES[:3]:
            journal.intend(name)
        for number in range(500):
            journal.intend(f"s3://payloads/images/x{number}")
            journal.settle(f"s3://payloads/images/x{number}")
            assert path.stat().st_size < 2000
    assert unsettled(path) == tuple(NAMES[:3])


def test_a_file_that_was_removed_is_there_again_before_the_next_upload(path: Path) -> None:
    with Journal(path) as journal:
        journal.intend(NAMES[0])
        path.unlink()
        journal.intend(NAMES[1])
    assert unsettled(path) == tuple(NAMES[:2])


def test_a_file_that_was_replaced_is_not_written_to(path: Path) -> None:
    with Journal(path) as journal:
        journal.intend(NAMES[0])
        path.rename(path.with_name("moved"))
        path.write_bytes(b"another's")
        with pytest.raises(JournalError, match="another file replaced it") as caught:
            journal.intend(NAMES[1])
        assert caught.value.transient
        assert not caught.value.about_record
        assert path.read_bytes() == b"another's"


def test_several_threads(path: Path) -> None:
    def work(first: int) -> None:
        for number in range(100):
            journal.intend(f"s3://payloads/images/{first}-{number}")
            if number:
                journal.settle(f"s3://payloads/images/{first}-{number}")

    with Journal(path) as journal:
        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
    assert sorted(unsettled(path)) == [f"s3://payloads/images/{first}-0" for first in range(4)]


def test_only_its_owner_may_read_the_file(path: Path) -> None:
    with Journal(path):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", ["missing/journal", ".", "ring", "pipe"])
def test_a_place_that_cannot_have_a_journal(tmp_path: Path, place: str) -> None:
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError) as caught:
        Journal(tmp_path / place)
    assert caught.value.key == JOURNAL_PATH.name


def test_a_closed_journal_says_so(path: Path) -> None:
    journal = Journal(path)
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.intend(NAMES[0])


def test_options() -> None:
    assert JOURNAL_PATH.read({}) is None
    assert JOURNAL_PATH.read({JOURNAL_PATH.name: "/var/lib/journal"}) == Path("/var/lib/journal")
    assert JOURNAL_PATH.read({JOURNAL_PATH.name: Path("journal")}) == Path("journal")
    assert JOURNAL_FSYNC.read({}) is False


def test_a_store_whose_references_are_not_known_before_has_no_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Silent(MemoryStore):
        scheme = "silent"  # a store is named once per process

        def reference(self, topic: str, payload_id: str) -> str | None:
            return None

    config: dict[str, Any] = {"value.serializers": "large-message", "large.message.journal.path": tmp_path / "journal"}
    for store in (MemoryStore, Silent, Silent):
        SerializerChain.from_config({**config, "large.message.payload.store.class": store}).close()
    [said] = [record.getMessage() for record in caplog.records]
    assert "large.message.journal.path does not cover the store silent" in said
