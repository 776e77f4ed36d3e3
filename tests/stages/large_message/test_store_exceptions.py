"""Exceptions of a store's own code or library: the same in both directions, and never about the record."""

import io
import pickle
import signal
import socket
import threading
import traceback
import urllib.error
from collections.abc import Callable, Iterator
from errno import EHOSTUNREACH, ENETUNREACH, ENOSPC
from pathlib import Path
from typing import Any, BinaryIO

import botocore.exceptions
import httpx2
import pyarrow as pa
import pytest
import requests

from payload_stores import (
    ConfigError,
    PayloadInfo,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    open_store,
)
from payload_stores.memory import MemoryStore
from payload_stores.middleware import Translated
from payload_stores.mirror import MirrorStore
from serde_chain import DeserializerChain, EncodeError, RecordContext, SerializationError, SerializerChain


class Careless(MemoryStore):
    """Raises what its library raises."""

    failure: BaseException | None = None

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    def publish(self, topic: str, data: Any, context: Any = None) -> str:
        self._fail()
        return super().publish(topic, data, context)

    def download(self, reference: str) -> bytes:
        self._fail()
        return super().download(reference)

    def delete(self, reference: str) -> None:
        self._fail()
        super().delete(reference)

    def list(self, topic: str, **options: Any) -> Iterator[PayloadInfo]:
        self._fail()
        yield from super().list(topic, **options)
        raise RuntimeError("the listing broke off")

    def open(self, reference: str) -> BinaryIO:
        self._fail()
        return super().open(reference)

    def publish_stream(self, topic: str, reader: BinaryIO, context: Any = None) -> str:
        self._fail()
        return super().publish_stream(topic, reader, context)


class BrokenFile(io.BytesIO):
    """A file of a store whose reads fail."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(b"payload" * 10)
        self._failure = failure

    def read(self, size: int | None = -1, /) -> bytes:
        raise self._failure


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def answered(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError("an error status", response=response)


class Unspeakable(Exception):  # noqa: N818
    """It has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


PERMANENT: list[Exception] = [
    RuntimeError("quota"),
    KeyError("payload"),
    ValueError("no such room"),
    PermissionError(13, "denied"),
    OSError(ENOSPC, "no space"),
    answered(403),
    Unspeakable(),
    ExceptionGroup("of a task group", [ConnectionResetError(), ValueError("wrong")]),
]
TRANSIENT: list[Exception] = [
    ConnectionResetError("reset by peer"),
    BrokenPipeError(),
    TimeoutError("too slow"),
    TimeoutError("too slow"),
    socket.gaierror(-3, "no answer from the name server"),
    OSError(ENETUNREACH, "no network"),
    OSError(EHOSTUNREACH, "no host"),
    requests.ConnectionError("refused"),
    requests.ReadTimeout("too slow"),
    httpx2.ConnectError("refused"),
    urllib.error.URLError(ConnectionRefusedError()),
    botocore.exceptions.EndpointConnectionError(endpoint_url="http://localhost"),
    answered(503),
    raised_from(RuntimeError("the library's own"), ConnectionAbortedError()),
    ExceptionGroup("of a task group", [ConnectionResetError(), ExceptionGroup("inner", [TimeoutError()])]),
]
ALL = [*((error, False) for error in PERMANENT), *((error, True) for error in TRANSIENT)]
PAYLOAD = b"payload" * 10


class Ways:
    """All calls of a chain that reach the store."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.store = Careless()
        self.config: dict[str, Any] = {
            "large.message.payload.store.class": self.store,
            "large.message.threshold.bytes": 10,
            **config,
        }
        self._file = folder / "file"
        self._file.write_bytes(PAYLOAD)

    def write(self, value: Any = PAYLOAD, stages: str = "large-message") -> tuple[bytes, RecordContext]:
        ctx = RecordContext("topic", "value", [])
        return SerializerChain.from_config({**self.config, "value.serializers": stages})(value, ctx), ctx

    def _up(self) -> None:
        self.write()

    def _up_without_a_deadline(self) -> None:
        chain = SerializerChain.from_config({**self.config, "value.serializers": "large-message"})
        chain.begin(PAYLOAD, RecordContext("topic", "value", [])).work()

    def _up_in_columns(self) -> None:
        config = {**self.config, "value.serializers": "json, large-message"}
        SerializerChain.from_config(config).from_arrow(pa.table({"text": ["x" * 100]}), topic="topic")

    def _up_as_a_stream(self) -> None:
        self.write(self._file)

    def _up_as_a_field(self) -> None:
        fields = {"large.fields.paths": "text", "large.fields.min.bytes": 10}
        config = {**self.config, **fields, "value.serializers": "large-fields, json"}
        SerializerChain.from_config(config)({"text": "x" * 100}, RecordContext("topic", "value", []))

    def _read(self, call: Callable[[DeserializerChain, bytes, RecordContext], Any], **config: Any) -> Any:
        failure, self.store.failure = self.store.failure, None
        data, ctx = self.write()
        self.store.failure = failure
        chain = DeserializerChain.from_config({**self.config, "value.deserializers": "large-message", **config})
        return call(chain, data, ctx)

    def _down(self) -> None:
        self._read(lambda chain, data, ctx: chain(data, ctx))

    def _down_without_a_deadline(self) -> None:
        self._read(lambda chain, data, ctx: chain.begin(data, ctx).work())

    def _down_in_columns(self) -> None:
        self._read(lambda chain, data, ctx: chain.to_arrow([data], [ctx.headers], topic="topic"))

    def _down_by_handle(self) -> None:
        self._read(lambda chain, data, ctx: chain(data, ctx).read(), **{"large.message.fetch": "lazy"})

    def _opened_by_handle(self) -> None:
        self._read(lambda chain, data, ctx: chain(data, ctx).open().read(), **{"large.message.fetch": "lazy"})

    def _down_as_a_field(self) -> None:
        fields = {"large.fields.paths": "text", "large.fields.min.bytes": 10}
        failure, self.store.failure = self.store.failure, None
        ctx = RecordContext("topic", "value", [])
        config = {**self.config, **fields, "value.serializers": "large-fields, json"}
        data = SerializerChain.from_config(config)({"text": "x" * 100}, ctx)
        self.store.failure = failure
        DeserializerChain.from_config({**self.config, "value.deserializers": "json, large-fields"})(data, ctx)

    def all(self) -> dict[str, Callable[[], None]]:
        return {name[1:]: getattr(self, name) for name in vars(Ways) if name.startswith(("_up", "_down", "_opened"))}


WAYS = [name[1:] for name in vars(Ways) if name.startswith(("_up", "_down", "_opened"))]


def causes(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("failure", "transient"), ALL, ids=lambda case: repr(case)[:30])
def test_an_exception_means_the_same_in_both_directions(
    tmp_path: Path, way: str, failure: Exception, transient: bool
) -> None:
    ways = Ways(tmp_path)
    ways.store.failure = failure
    with pytest.raises(PayloadStoreError, match="the store failed: ") as caught:
        ways.all()[way]()
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):  # noqa: S301  our own
        assert (error.transient, error.about_record, error.about_topic) == (transient, False, False)
        assert isinstance(error, PayloadStoreUnavailableError) is transient
    found = causes(caught.value)
    assert sum(each is failure for each in found) == 1
    assert isinstance(next(each for each in found if each.__cause__ is failure), PayloadStoreError)
    if not way.endswith("without_a_deadline"):
        assert isinstance(caught.value, SerializationError)


@pytest.mark.parametrize("way", WAYS)
def test_other_readable_payloads_do_not_make_it_the_records_fault(tmp_path: Path, way: str) -> None:
    """A store that fails for one payload alone: nothing is known about why."""
    ways = Ways(tmp_path)
    for _ in range(3):
        ways.store.publish("topic", PAYLOAD)
    ways.store.failure = RuntimeError("quota")
    with pytest.raises(PayloadStoreError) as caught:
        ways.all()[way]()
    assert not caught.value.about_record


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "failure",
    [PayloadNotFoundError("gone"), PayloadStoreUnavailableError("down"), ConfigError("wrong"), KeyboardInterrupt()],
    ids=repr,
)
def test_errors_of_stores_and_what_is_no_exception_pass(tmp_path: Path, way: str, failure: BaseException) -> None:
    ways = Ways(tmp_path)
    ways.store.failure = failure
    with pytest.raises(type(failure)) as caught:
        ways.all()[way]()
    # A batch raises copies: several rows may have one error.
    assert any(each is failure or way.endswith("columns") for each in causes(caught.value))
    assert "the store failed" not in str(caught.value)
    if isinstance(caught.value, PayloadStoreError):
        assert caught.value.about_record is isinstance(failure, PayloadNotFoundError)


def test_an_exception_with_neither_text_nor_pickles_survives_pickling(tmp_path: Path) -> None:
    ways = Ways(tmp_path)
    ways.store.failure = failure = Unspeakable()
    failure.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(PayloadStoreError) as caught:
        ways.all()["down"]()
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  our own
    assert "the store failed: Unspeakable: (no text)" in str(copied)
    assert not copied.about_record


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("way", WAYS)
def test_a_payload_among_an_exceptions_arguments_is_dropped(tmp_path: Path, way: str, kind: Any) -> None:
    ways = Ways(tmp_path)
    ways.store.failure = KeyError(kind(PAYLOAD), "attic")
    with pytest.raises(PayloadStoreError, match=f"{kind.__name__} of length 70.*attic") as caught:
        ways.all()[way]()
    shown = "".join(traceback.format_exception(caught.value))
    assert "payloadpayload" not in shown
    assert b"payloadpayload" not in pickle.dumps(caught.value)


def test_memory_is_no_fault_of_the_store(tmp_path: Path) -> None:
    ways = Ways(tmp_path)
    ways.store.failure = MemoryError()
    for call in (ways._up, ways._down):
        with pytest.raises((MemoryError, SerializationError)) as caught:
            call()
        assert any(isinstance(each, MemoryError) for each in causes(caught.value))
        assert not isinstance(caught.value, PayloadStoreError)
        assert not getattr(caught.value, "about_record", False)


@pytest.mark.parametrize("failure", [RuntimeError("quota"), ConnectionResetError(), ValueError("closed")], ids=repr)
def test_a_file_that_breaks_off_while_a_handle_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    ways = Ways(tmp_path)
    monkeypatch.setattr(Careless, "open", lambda _self, _reference: BrokenFile(failure))
    with pytest.raises(PayloadStoreError, match="the store failed") as caught:
        ways._opened_by_handle()
    assert any(each is failure for each in causes(caught.value))
    assert (caught.value.transient, caught.value.about_record) == (isinstance(failure, ConnectionError), False)


class BrokenReader(io.RawIOBase):
    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        raise self.failure


def test_a_published_file_that_fails_is_no_fault_of_the_store(tmp_path: Path) -> None:
    ways = Ways(tmp_path)
    with pytest.raises(EncodeError) as caught:
        ways.write(BrokenReader(OSError(5, "bad disk")))
    assert not isinstance(caught.value, PayloadStoreError)
    failure = RuntimeError("the application's own")
    with pytest.raises(RuntimeError) as raw:
        Translated(ways.store).publish_stream("topic", BrokenReader(failure))  # type: ignore[arg-type]
    assert raw.value is failure


def test_lists_and_deletions() -> None:
    MemoryStore.clear()
    store = Careless()
    layer: Any = Translated(store)
    reference = layer.publish("topic", b"payload")
    listing = layer.list("topic")
    assert next(listing).reference == reference
    with pytest.raises(PayloadStoreError, match="the listing broke off"):
        next(listing)
    store.failure = ConnectionResetError()
    for call in (lambda: layer.delete(reference), lambda: list(layer.list("topic")), lambda: layer.open(reference)):
        with pytest.raises(PayloadStoreUnavailableError) as caught:
            call()
        assert caught.value.__cause__ is store.failure
    with pytest.raises(ValueError, match="range"):  # the caller's
        layer.read_range(reference, -1, 1)


def test_an_id_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = RuntimeError("no counter")

    def fail(*_arguments: object) -> str:
        raise failure

    ways = Ways(tmp_path)
    monkeypatch.setattr(ways.store, "id", fail)
    with pytest.raises(PayloadStoreError, match="no counter") as caught:
        ways.write()
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__cause__ is failure
    assert not caught.value.about_record


def test_a_time_limit_of_a_task_queue_is_no_fault_of_the_store(tmp_path: Path) -> None:
    """It is an exception that a signal handler raises, within the store's call."""

    class SoftTimeLimitError(Exception):
        pass

    class Slow(Careless):
        def publish(self, topic: str, data: Any, context: Any = None) -> str:
            signal.raise_signal(signal.SIGUSR1)
            return super().publish(topic, data, context)

    def handler(_signal: int, _frame: object) -> None:
        raise SoftTimeLimitError

    ways = Ways(tmp_path, **{"large.message.payload.store.class": Slow()})
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(SoftTimeLimitError):
            ways._up_without_a_deadline()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_retries_and_a_mirror_see_what_it_means(tmp_path: Path) -> None:
    class Flaky(Careless):
        left = 2

        def publish(self, topic: str, data: Any, context: Any = None) -> str:
            if self.left:
                self.left -= 1
                raise ConnectionResetError("reset by peer")
            return super().publish(topic, data, context)

    retried = {"large.message.payload.store.class": Flaky(), "large.message.store.retry.attempts": 3}
    data, _ = Ways(tmp_path, **retried).write()
    assert data.startswith(b"memory://")
    primary = Careless()
    local = {"class": "local", "local.path": str(tmp_path / "other")}
    mirror = open_store(MirrorStore, {"mirror.primary": primary, "mirror.secondary": local})
    reference = mirror.publish("topic", b"payload")
    primary.failure = RuntimeError("quota")
    assert mirror.download(reference) == b"payload"
    mirror.close()
