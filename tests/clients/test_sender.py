"""The sender alone: order, bounds, what is never lost, and what it leaves behind in other processes."""

import os
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from serde_chain.clients.outgoing import Outgoing
from serde_chain.clients.sender import Sender
from serde_chain.transfer import Transfer
from tests.interrupts import ROOT, interrupted_at

SECONDS = 20.0
SENDER = tuple(f"serde_chain/clients/{name}.py" for name in ("sender", "buffer", "driver"))


class Upload(Transfer[str]):
    """A transfer that ends when it is told to."""

    def __init__(self, name: str, size: int = 10, made: str | None = None) -> None:
        self.name = name
        self.size = size
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.error: Exception | None = None
        self._made = made

    def ended(self) -> "Upload":
        self.may_end.set()
        return self

    def failing(self, error: Exception) -> "Upload":
        self.error = error
        return self.ended()

    def places(self) -> tuple[str, ...]:
        return () if self._made is None else (self._made,)

    def made(self, _result: str, /) -> tuple[str, ...]:
        return self.places()

    def run(self) -> str:
        self.begun.set()
        assert self.may_end.wait(SECONDS)
        if self.error is not None:
            raise self.error
        return self.name

    def resume(self, result: str, /) -> bytes:
        return f"[{result}]".encode()


class Client:
    """Notes what it gets."""

    def __init__(self) -> None:
        self.sent: defaultdict[str, list[Any]] = defaultdict(list)
        self.deleted: list[str] = []
        self.is_full = False
        self.refused: Exception | None = None

    def send(self, record: Outgoing) -> None:
        if self.is_full:
            raise BufferError("full")
        if self.refused is not None:
            raise self.refused
        self.sent[record.topic].append(record.step)

    def failed(self, record: Outgoing, error: BaseException) -> tuple[Any, ...] | None:
        return None if record.on_delivery is None else (record.on_delivery, error)

    def delete(self, reference: str) -> None:
        if reference == "cannot be deleted":
            raise OSError(reference)
        self.deleted.append(reference)


@pytest.fixture
def client() -> Client:
    return Client()


def wait_until(sender: Sender, condition: Callable[[], bool]) -> None:
    """Wait for the sender's notices until a condition holds: a missing notice fails."""
    while True:
        changed = threading.Event()
        sender.call_on_change(changed.set)
        if condition():
            return
        assert changed.wait(SECONDS), f"{len(sender)} records are left"


def drain(sender: Sender) -> None:
    wait_until(sender, lambda: sender.is_idle and not sender.is_cleaning)


def put(sender: Sender, step: Any, topic: str = "t", on_delivery: Callable[..., Any] | None = None) -> Outgoing:
    record = Outgoing(topic, None, step, on_delivery=on_delivery)
    sender.put(record)
    return record


def test_records_leave_in_call_order_per_topic(client: Client) -> None:
    sender = Sender(client)
    assert sender, "also without records"
    first, second, third = Upload("1"), Upload("3"), Upload("other").ended()
    put(sender, first)
    assert not sender.is_clear("t")
    assert sender.is_clear("u")
    put(sender, b"2")
    put(sender, second.ended())
    put(sender, b"4")
    put(sender, third, "u")
    assert second.begun.wait(SECONDS), "they run side by side"
    wait_until(sender, lambda: sender.is_clear("u"))
    assert client.sent == {"u": [b"[other]"]}
    assert len(sender) == 4
    first.ended()
    drain(sender)
    assert client.sent["t"] == [b"[1]", b"2", b"[3]", b"4"]
    assert sender.is_clear("t")


def test_no_more_transfers_run_than_are_wanted(client: Client) -> None:
    sender = Sender(client, in_flight=2)
    uploads = [Upload(str(number)) for number in range(4)]
    for upload in uploads:
        put(sender, upload)
    assert uploads[1].begun.wait(SECONDS)
    assert not uploads[2].begun.wait(0.05)
    uploads[1].ended()
    assert uploads[2].begun.wait(SECONDS), "the next one begins, whatever becomes of those before it"
    for upload in uploads:
        upload.ended()
    drain(sender)
    assert client.sent["t"] == [b"[0]", b"[1]", b"[2]", b"[3]"]


def test_a_wait_ends_once_a_record_has_left(client: Client) -> None:
    sender, upload = Sender(client), Upload("1")
    put(sender, upload)
    threading.Timer(0.1, upload.may_end.set).start()
    sender.wait(600)
    assert client.sent == {"t": [b"[1]"]}


def test_a_full_buffer_is_waited_for(client: Client) -> None:
    sender = Sender(client, buffer_bytes=100, block_ms=50)
    large = Upload("large", size=1000)
    put(sender, large)  # one may always wait
    with pytest.raises(BufferError, match=r"fill large\.message\.buffer\.bytes \(100\), .* within 0\.05 s$"):
        put(sender, Upload("refused"))
    assert len(sender) == 1
    large.ended()
    drain(sender)
    patient = Sender(client, buffer_bytes=100, block_ms=int(SECONDS * 1000))
    put(patient, Upload("a", size=60).ended())
    put(patient, Upload("b", size=60).ended())
    drain(patient)
    assert client.sent["t"] == [b"[large]", b"[a]", b"[b]"]


def test_a_payload_makes_room_once_it_is_uploaded(client: Client) -> None:
    sender = Sender(client, buffer_bytes=120, block_ms=600_000)
    slow = Upload("slow", size=40)
    put(sender, slow)
    for number in range(5):  # they hold as many bytes together as there is room for, and wait for the first
        put(sender, Upload(str(number), size=60).ended())
    assert client.sent == {}
    slow.ended()
    drain(sender)
    assert client.sent["t"] == [b"[slow]", b"[0]", b"[1]", b"[2]", b"[3]", b"[4]"]


def test_a_failure_is_reported_and_the_others_go_on(client: Client) -> None:
    told: list[Any] = []
    sender = Sender(client)
    put(sender, Upload("1").failing(OSError("the store is down")), on_delivery=told.append)
    put(sender, b"2")
    drain(sender)
    assert told == []
    assert sender.serve() == 1
    assert [str(error) for error in told] == ["the store is down"]
    assert client.sent["t"] == [b"2"]
    assert sender.serve() == 0


def test_callbacks_that_raise_leave_the_others_to_the_next_call(client: Client) -> None:
    told: list[int] = []
    sender = Sender(client)

    def tell(number: int) -> Callable[[object], None]:
        def callback(_error: object) -> None:
            told.append(number)
            if number == 1:
                raise ZeroDivisionError

        return callback

    for number in range(3):
        put(sender, Upload("").failing(OSError()), on_delivery=tell(number))
    drain(sender)
    with pytest.raises(ZeroDivisionError):
        sender.serve()
    assert sender.serve() == 1
    assert told == [0, 1, 2]


def test_what_was_uploaded_for_a_record_that_is_not_sent_is_deleted(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender(client)
    client.refused = ValueError("the client does not take it")
    put(sender, Upload("1", made="a").ended())
    drain(sender)
    assert client.deleted == ["a"]
    sender.discard(["b", "cannot be deleted"])
    drain(sender)
    assert client.deleted == ["a", "b"]
    assert "could not be deleted: cannot be deleted" in caplog.text


def test_a_client_without_room_is_asked_again(client: Client) -> None:
    sender = Sender(client, block_ms=20_000)
    client.is_full = True
    put(sender, Upload("1").ended())
    put(sender, b"2")
    assert not sender.is_idle
    client.is_full = False
    drain(sender)
    assert client.sent["t"] == [b"[1]", b"2"]


def test_a_client_that_has_no_room_for_long_is_reported(client: Client) -> None:
    told: list[Any] = []
    sender = Sender(client, block_ms=30)
    client.is_full = True
    put(sender, Upload("1", made="a").ended(), on_delivery=told.append)
    drain(sender)
    assert sender.serve() == 1
    assert isinstance(told[0], BufferError)
    assert client.deleted == ["a"]


def test_purge_drops_what_waits_and_nothing_that_comes_later(client: Client) -> None:
    told: list[Any] = []
    sender = Sender(client)
    running = Upload("running", made="r")
    put(sender, running, on_delivery=told.append)
    assert running.begun.wait(SECONDS)
    put(sender, b"2", on_delivery=told.append)
    sender.purge(RuntimeError("purged"))
    put(sender, b"3")
    wait_until(sender, lambda: len(sender) == 0)
    assert sender.serve() == 2
    assert [str(error) for error in told] == ["purged"] * 2
    running.ended()
    until = time.monotonic() + SECONDS
    while not client.deleted:
        assert time.monotonic() < until
        time.sleep(0.01)  # what nothing waits for any more tells nothing
    assert client.deleted == ["r"]
    assert client.sent["t"] == [b"3"]


class Ledger:
    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        self.is_full = False

    def intend(self, reference: str) -> None:
        self.notes.append(("intend", reference))

    def settle(self, reference: str) -> None:
        if self.is_full:
            raise OSError("the disk is full")
        self.notes.append(("settle", reference))


def test_uploads_are_noted_before_they_begin_and_settled_before_their_records_leave(client: Client) -> None:
    ledger = Ledger()
    sender = Sender(client, ledger=ledger)
    upload = Upload("1", made="a")
    put(sender, upload)
    assert upload.begun.wait(SECONDS)
    assert ledger.notes == [("intend", "a")]
    upload.ended()
    drain(sender)
    assert ledger.notes == [("intend", "a"), ("settle", "a")]
    ledger.is_full = True
    put(sender, Upload("2", made="b").ended())
    drain(sender)
    assert client.sent["t"] == [b"[1]"], "the next process would delete what this record refers to"


def test_payloads_belong_to_the_transaction(client: Client) -> None:
    ledger = Ledger()
    sender = Sender(client, ledger=ledger)
    for delete in (True, False):
        client.deleted.clear()
        ledger.notes.clear()
        sender.begin_transaction()
        put(sender, Upload("1", made="a").ended())
        drain(sender)
        assert ledger.notes == [("intend", "a")], "a transaction whose process is killed is never committed"
        if not delete:
            sender.commit()
            assert ledger.notes[-1] == ("settle", "a")
        sender.end(delete=delete)
        drain(sender)
        assert client.deleted == (["a"] if delete else [])


def test_a_transaction_that_may_be_committed_loses_nothing_by_the_end_of_the_next(client: Client) -> None:
    sender = Sender(client)
    sender.begin_transaction()
    put(sender, Upload("1", made="a").ended())
    drain(sender)
    sender.commit()  # an interrupt keeps its caller from telling the end
    sender.begin_transaction()
    put(sender, Upload("2", made="b").ended())
    drain(sender)
    sender.end(delete=True)
    drain(sender)
    assert client.deleted == ["b"]


def test_a_failure_in_a_transaction_is_remembered_until_its_end(client: Client) -> None:
    sender = Sender(client)
    sender.begin_transaction()
    put(sender, Upload("1").failing(OSError("down")))
    drain(sender)
    assert str(sender.failure) == "down"
    sender.end(delete=True)
    sender.begin_transaction()
    assert sender.failure is None


@pytest.mark.parametrize("point", range(45))
def test_an_interrupt_at_any_point_of_put_loses_nothing(client: Client, point: int) -> None:
    sender = Sender(client, buffer_bytes=100, block_ms=20_000)
    record = Outgoing("t", None, Upload("1", size=90).ended())
    is_in = False
    with suppress(KeyboardInterrupt), interrupted_at(point, SENDER):
        sender.put(record)
        is_in = True
    sender.wake()
    put(sender, Upload("2", size=90).ended())  # also the bytes of a record that never came are given back
    drain(sender)
    assert client.sent["t"] in ([b"[1]", b"[2]"], [b"[2]"])
    if is_in:
        assert client.sent["t"] == [b"[1]", b"[2]"]
    assert sender.is_clear("t")


@pytest.mark.parametrize("point", range(12))
def test_an_interrupt_at_any_point_of_serve_loses_no_report(client: Client, point: int) -> None:
    told: list[Any] = []
    sender = Sender(client)
    for _ in range(3):
        put(sender, Upload("1").failing(OSError()), on_delivery=told.append)
    drain(sender)
    with suppress(KeyboardInterrupt), interrupted_at(point, SENDER):
        sender.serve()
    sender.serve()
    assert len(told) == 3


class Outrun(deque[Any]):
    """A queue whose last entry another thread takes out between two steps."""

    def __bool__(self) -> bool:
        return True


def test_a_thread_that_stops_to_wait_does_not_disturb_the_driver(client: Client) -> None:
    sender = Sender(client)
    sender._buffer._waiters = Outrun()
    for number in range(3):
        put(sender, Upload(str(number)).ended())
    drain(sender)
    assert client.sent["t"] == [b"[0]", b"[1]", b"[2]"]


@pytest.mark.parametrize("point", range(12))
def test_threads_that_serve_at_the_same_time_call_each_callback_once(client: Client, point: int) -> None:
    told: list[Any] = []
    sender = Sender(client)
    put(sender, Upload("1").failing(OSError()), on_delivery=told.append)
    drain(sender)
    with interrupted_at(point, SENDER, sender.serve):
        sender.serve()
    assert len(told) == 1


def test_threads_share_a_sender_and_keep_their_own_order(client: Client) -> None:
    sender = Sender(client, buffer_bytes=2_000)

    def work(name: int) -> None:
        for number in range(100):
            step = Upload(f"{name}.{number}").ended() if number % 3 else f"[{name}.{number}]".encode()
            put(sender, step)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    drain(sender)
    sent = [each[1:-1].decode().split(".") for each in client.sent["t"]]
    assert len(sent) == 400
    for name in range(4):
        assert [int(number) for who, number in sent if who == str(name)] == list(range(100))


def test_a_forked_process_has_nothing_of_it(client: Client) -> None:
    sender = Sender(client)
    upload = Upload("1")
    put(sender, upload)
    assert upload.begun.wait(SECONDS)
    child = os.fork()
    if child == 0:  # the records are the parent's; the child may use the object all the same
        is_empty = sender.is_idle and len(sender) == 0 and sender.is_clear("t")
        sender.put(Outgoing("t", None, b"child"))
        until = time.monotonic() + SECONDS
        while not sender.is_idle and time.monotonic() < until:
            sender.wait(0.1)
        os._exit(0 if is_empty and client.sent["t"] == [b"child"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    upload.ended()
    drain(sender)
    assert client.sent["t"] == [b"[1]"]


@pytest.mark.parametrize(("count", "said"), [(1, "1 record was not sent"), (3, "3 records were not sent")])
def test_a_process_ends_at_once_and_says_what_was_not_sent(count: int, said: str) -> None:
    program = f"""if True:
        import sys
        from tests.clients.test_sender import Client, Outgoing, Sender, Upload
        sender = Sender(Client())
        upload = Upload("hangs")
        for _ in range({count}):
            sender.put(Outgoing("t", None, upload))
        assert upload.begun.wait(20)
        print("ready")
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=15, check=True, cwd=ROOT
    )
    assert done.stdout == "ready\n"
    assert f"{said}, because the process ended first: wait until flush() returns 0" in done.stderr
