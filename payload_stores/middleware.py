"""Payload stores around other payload stores: a deadline for every call, and retries of transient errors.

They nest, the outermost is asked first: ``Deadline(Retry(store), 30_000)`` gives 30 s to all attempts together.
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from inspect import get_annotations, isfunction, signature
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, ClassVar, Final, TypeVar, cast

from payload_stores.base import CAPABILITIES, Buffer, PayloadStore, PublishContext, SupportsStreaming
from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError, UntrustedReferenceError
from payload_stores.plugins import require

__all__ = ["Deadline", "Middleware", "Retry", "run_elsewhere"]

T = TypeVar("T")


def _of_inner(name: str) -> Any:
    """An attribute of the contract that is the inner store's, also after it was configured anew."""

    def read(self: Middleware) -> object:
        return getattr(self.store, name)

    def write(self: Middleware, value: object) -> None:
        setattr(self.store, name, value)

    return property(read, write, doc=f"``{name}`` of the inner store.")


class Middleware(PayloadStore):
    """A store around another. By itself it changes nothing; subclasses override :meth:`call`.

    It has what the inner store has, limits and trusted prefixes included, and can do what that can, and no more:
    ``isinstance(store, SupportsDelete)`` says the same of both.

    Args:
        store: The inner store; closed with this one.

    Example:
        >>> from payload_stores import open_store
        >>> class Logged(Middleware):
        ...     def call(self, operation, *args):
        ...         print(operation.__name__)
        ...         return super().call(operation, *args)
        >>> Logged(open_store("memory", {})).publish("alerts", b"payload") is None
        publish
        False
    """

    wrapped: ClassVar[frozenset[str]] = frozenset()
    """The optional operations that go through :meth:`call`; the others are the inner store's own."""

    scheme: str = _of_inner("scheme")
    trusted_references: tuple[str, ...] = _of_inner("trusted_references")
    max_payload_bytes: int = _of_inner("max_payload_bytes")
    grace_ms: int = _of_inner("grace_ms")
    stable_references: bool = _of_inner("stable_references")

    def __init__(self, store: PayloadStore) -> None:
        self.store = store
        self.options = store.options  # type: ignore[misc]  # of this one, whose class knows of no store
        # A protocol's isinstance looks for the names in the class, and this one would have all of them.
        capabilities = tuple(protocol for protocol in CAPABILITIES if isinstance(store, protocol))
        self.__class__ = _with_capabilities(type(self), capabilities)

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation of the inner store.

        Args:
            operation: A bound method of the inner store.
            *args: Its arguments; the first is a topic or a reference.
        """
        return operation(*args)

    def configure(self, config: Mapping[str, object]) -> None:
        """Configure the inner store."""
        self.store.configure(config)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Publish to the inner store. See :meth:`PayloadStore.publish`."""
        return self.call(self.store.publish, topic, data, context)

    def download(self, reference: str) -> bytes:
        """Download from the inner store. See :meth:`PayloadStore.download`."""
        return self.call(self.store.download, reference)

    def id(self, data: Buffer, context: PublishContext | None = None) -> str:
        """Ids are made by the inner store."""
        return self.store.id(data, context)

    def reference(self, topic: str, payload_id: str) -> str | None:
        """The inner store's. See :meth:`PayloadStore.reference`."""
        return self.store.reference(topic, payload_id)

    def owns(self, reference: str) -> bool:
        """Whether it is the inner store's. See :meth:`PayloadStore.owns`."""
        return self.store.owns(reference)

    def worst_case_ms(self) -> int | None:
        """Worst case of one request of the inner store, in ms."""
        return self.store.worst_case_ms()

    def check_topic(self, topic: str) -> str:
        """As the inner store does it. See :meth:`PayloadStore.check_topic`."""
        return self.store.check_topic(topic)

    def check_size(self, size: int, reference: str) -> None:
        """As the inner store does it. See :meth:`PayloadStore.check_size`."""
        self.store.check_size(size, reference)

    def is_stale(self, modified: datetime) -> bool:
        """As the inner store sees it. See :meth:`PayloadStore.is_stale`."""
        return self.store.is_stale(modified)

    def untrusted(self, reference: str, why: str) -> UntrustedReferenceError:
        """As the inner store makes it. See :meth:`PayloadStore.untrusted`."""
        return self.store.untrusted(reference, why)

    def close(self) -> None:
        """Close the inner store."""
        self.store.close()


@cache
def _with_capabilities(cls: type[Middleware], capabilities: tuple[type, ...]) -> type[Middleware]:
    """A middleware's class with what some protocols ask for, all of it handed on to the inner store."""
    members: dict[str, Any] = {}
    for protocol in capabilities:
        members |= {name: _of_inner(name) for name in get_annotations(protocol)}
        members |= {name: _handed_on(name, item) for name, item in vars(protocol).items() if isfunction(item)}
    # Python's own members of a protocol are not part of it, and the class's own methods are not passed on.
    missing = {name: item for name, item in members.items() if not name.startswith("_") and not hasattr(cls, name)}
    return type(cls.__name__, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__, **missing})


def _handed_on(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a protocol that is the inner store's; through :meth:`Middleware.call` where it is ``wrapped``."""
    in_order = signature(method).bind

    def run(self: Middleware, *args: Any, **kwargs: Any) -> Any:
        operation = getattr(self.store, name)
        if name not in self.wrapped:
            return operation(*args, **kwargs)
        # By position, as `call` has it: the topic or the reference is the first.
        return self.call(operation, *(in_order(self, *args, **kwargs).args[1:] if kwargs else args))

    run.__doc__ = f"``{name}`` of the inner store."
    return run


class Deadline(Middleware):
    """One deadline for a whole publish, download, delete or open, with all requests and retries that it takes.

    For a stream it is the longest time without progress: it begins anew whenever the store has read some more.

    It holds also when the inner store hangs: the call runs in another thread, which is left behind when the time is
    up. A publish left behind may still succeed; its payload then is an orphan until the store's lifecycle ends it.
    While 64 calls are left behind, further ones fail at once: each holds a thread, and its payload.

    Args:
        store: The inner store.
        timeout_ms: Time for one call, in ms.
        setting: Name of the setting that the time comes from, for errors.

    Example:
        >>> from payload_stores import open_store
        >>> store = Deadline(open_store("memory", {}), 30_000)
        >>> store.download(store.publish("alerts", b"payload"))
        b'payload'
    """

    wrapped = frozenset({"delete", "open", "publish_record", "download_record"})

    def __init__(self, store: PayloadStore, timeout_ms: int, *, setting: str = "timeout_ms") -> None:
        super().__init__(store)
        self.timeout_ms = timeout_ms
        self._setting = setting
        self._left_behind: set[threading.Event] = set()
        _deadlines.add(self)

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation, for as long as it may take.

        Raises:
            PayloadStoreUnavailableError: The time is up, or too many calls before this one still hang.
        """
        return self._run(operation, args, _Start())

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Publish what a reader returns; the deadline begins anew whenever the store has read some more of it.

        See :class:`~payload_stores.SupportsStreaming`.
        """
        watched = _Watched(reader)
        publish = cast("SupportsStreaming", self.store).publish_stream
        try:
            return self._run(publish, (topic, watched, context), watched)
        finally:
            watched.is_over = True

    def forget_calls(self) -> None:
        """Begin with no calls left behind: their threads are not in a forked process."""
        self._left_behind.clear()

    def _run(self, operation: Callable[..., T], args: tuple[Any, ...], progress: _Start) -> T:
        if len(self._left_behind) >= _MOST_LEFT_BEHIND:
            raise self._unavailable(
                f"the payload store hangs: {len(self._left_behind)} calls have not come back yet", str(args[0])
            )
        outcome: list[tuple[T | None, BaseException | None]] = []
        finished = threading.Event()
        context = contextvars.copy_context()  # so that traces go on in the other thread

        def run() -> None:
            try:
                outcome.append((context.run(operation, *args), None))
            except BaseException as error:  # noqa: BLE001  raised again in the caller's thread
                outcome.append((None, error))
            finished.set()
            self._left_behind.discard(finished)

        run_elsewhere(run)
        try:
            while not finished.wait(max(0.0, progress.at + self.timeout_ms / 1000 - time.monotonic())):
                if time.monotonic() >= progress.at + self.timeout_ms / 1000:
                    raise self._unavailable(
                        f"the payload store did not finish within {self.timeout_ms} ms", str(args[0])
                    )
        except BaseException:  # the time is up, or a signal handler has raised
            self._left_behind.add(finished)
            if finished.is_set():  # meanwhile, so that it may have looked before it was added
                self._left_behind.discard(finished)
            raise
        result, error = outcome.pop()
        if error is not None:
            try:
                raise error
            finally:
                del error  # otherwise this frame and its traceback keep each other, and the payload, alive
        return result  # type: ignore[return-value]  # without an error it is the operation's

    def _unavailable(self, message: str, subject: str) -> PayloadStoreUnavailableError:
        where = {"reference": subject} if "://" in subject else {"topic": subject}
        return PayloadStoreUnavailableError(
            message,
            hint=f"Check that the store is up and how fast it answers, or raise {self._setting}",
            store=self.scheme,
            **where,
        )


_MOST_LEFT_BEHIND: Final = 64
_deadlines: Final[weakref.WeakSet[Deadline]] = weakref.WeakSet()


class _Start:
    """When a deadline has begun."""

    def __init__(self) -> None:
        self.at = time.monotonic()


class _Watched(_Start):
    """A reader, and when a store has last read from it.

    Attributes:
        is_over: Whether no one waits for the store any more: it gets nothing further, and gives up.
    """

    def __init__(self, reader: BinaryIO) -> None:
        super().__init__()
        self._reader = reader
        self.is_over = False

    def read(self, size: int = -1, /) -> bytes:
        block = b"" if self.is_over else self._reader.read(size)
        if self.is_over:
            raise PayloadStoreUnavailableError("the payload is no longer wanted: the deadline of its upload is over")
        self.at = time.monotonic()
        return block

    def seekable(self) -> bool:
        return self._reader.seekable()

    def tell(self) -> int:
        return self._reader.tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._reader.seek(offset, whence)


# Inboxes of threads that have nothing to do. Starting a thread for every call would take longer than a small publish.
_idle: Final[list[SimpleQueue[Callable[[], None]]]] = []
_IDLE_SECONDS: Final = 10


def _forget_threads() -> None:
    """The threads are not in a forked process (multiprocessing, Spark's workers)."""
    _idle.clear()
    for deadline in list(_deadlines):
        deadline.forget_calls()


os.register_at_fork(after_in_child=_forget_threads)


def run_elsewhere(job: Callable[[], None]) -> None:
    """Run a job in a daemon thread that waits for one, or in a new one; never queue it behind one that may hang.

    Not a :class:`~concurrent.futures.ThreadPoolExecutor`: the interpreter joins its threads when it ends, so that a
    program whose store hangs would never end; and its jobs wait for a thread, behind those that hang.

    Raises:
        PayloadStoreUnavailableError: The system starts no more threads.

    Example:
        >>> results = SimpleQueue()
        >>> run_elsewhere(lambda: results.put("done"))
        >>> results.get(timeout=60)
        'done'
    """
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        try:
            threading.Thread(target=_work, args=(inbox,), name="payload-deadline", daemon=True).start()
        except RuntimeError as error:  # Python's own for EAGAIN
            raise PayloadStoreUnavailableError(
                "no thread can be started for the payload store's call",
                hint="Calls that hang keep their threads: check the store, and the limit (pids.max, ulimit -u)",
            ) from error
    inbox.put(job)


def _work(inbox: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        try:
            job = inbox.get(timeout=_IDLE_SECONDS)
        except Empty:
            try:
                _idle.remove(inbox)
            except ValueError:  # another thread took it just now and is about to put a job in
                continue
            return
        job()
        del job  # it holds the payload
        _idle.append(inbox)


class Retry(Middleware):
    """Repeats what failed with a transient error, with exponentially growing random waits between (tenacity).

    For stores that do not do this by themselves. A stream is not repeated, since it cannot be read twice. A publish
    with a random id whose answer was lost leaves an orphan behind.

    Args:
        store: The inner store.
        attempts: Attempts in all.
        timeout_ms: No attempt begins later than this after the first, in ms.
        wait_ms: Longest wait before the second attempt, in ms; it doubles from one attempt to the next.
        max_wait_ms: Longest of all waits, in ms.

    Raises:
        MissingDependencyError: tenacity is not installed.

    Example:
        >>> from payload_stores import open_store
        >>> store = Retry(open_store("memory", {}), attempts=5)
        >>> store.download(store.publish("alerts", b"payload"))
        b'payload'
    """

    wrapped = frozenset({"delete", "open", "publish_record", "download_record"})

    def __init__(
        self,
        store: PayloadStore,
        attempts: int = 3,
        *,
        timeout_ms: int = 30_000,
        wait_ms: int = 100,
        max_wait_ms: int = 5_000,
    ) -> None:
        super().__init__(store)
        tenacity = require("tenacity", "retry")
        self._timeout_ms = timeout_ms
        self._retrying = tenacity.Retrying(
            stop=tenacity.stop_any(
                tenacity.stop_after_attempt(attempts), tenacity.stop_before_delay(timeout_ms / 1000)
            ),
            wait=tenacity.wait_random_exponential(multiplier=wait_ms / 1000, max=max_wait_ms / 1000),
            retry=tenacity.retry_if_exception(_is_transient),
            reraise=True,
        )

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation until it succeeds, fails for good, or attempts or time are used up."""
        result: T = self._retrying.copy()(operation, *args)
        return result

    def worst_case_ms(self) -> int | None:
        """An attempt may begin as late as the time limit; in ms, None if the inner store has no bound."""
        inner = self.store.worst_case_ms()
        return None if inner is None else self._timeout_ms + inner


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, PayloadStoreError) and error.transient
