"""Runs blocking calls of a program with an event loop in daemon threads, with the caller's context variables.

A thread that hangs in a call blocks neither the loop nor the interpreter's exit.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, runtime_checkable

from payload_stores import threads
from payload_stores.errors import PayloadStoreError
from serde_chain.base import is_stream
from serde_chain.transfer import Transfer, finish

P = ParamSpec("P")
T = TypeVar("T")

# Larger records are encoded in a thread; after a slow record, so are the next records of its topic.
_LARGE_BYTES: Final = 1 << 18
_LONG_SECONDS: Final = 0.005
# For how long one task may hold the loop. A sleeping coroutine continues two or three turns of the loop later, in each
# of which a producing and a reporting task may hold it, and wait for the interpreter lock.
_HOLD_SECONDS: Final = 0.001
# A value with more members, on all levels together, is large.
_MEMBERS: Final = 2000
_MEMBER_BYTES: Final = 8
# Decay per record of the longest duration: 100 ms count for 300 records.
_MEMORY: Final = 0.99
_SCALARS: Final = frozenset({int, float, bool, type(None)})

_now = time.monotonic


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    """Call a function on an event loop, from any thread; ignored if the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *args)


class Call(threads.Call[T]):
    """A blocking call, and a future of its result.

    Attributes:
        future: On the loop of the calling coroutine; gone once it has the outcome, because an error's traceback leads
            to the call.
        is_abandoned: Whether it should end early; long work checks it.

    Args:
        work: The call.
        *args: Its arguments.
    """

    def __init__(self, work: Callable[..., T], /, *args: Any) -> None:
        super().__init__(work, *args)
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()
        self.is_abandoned = False

    def ended(self) -> None:
        """Pass the outcome to the loop."""
        result, error = self.outcome()
        if error is None:
            tell(self._loop, self._succeed, result)
        else:
            tell(self._loop, self._fail, error)

    def _succeed(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)
        del self.future

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)
        del self.future


async def in_daemon_thread(work: Callable[..., T], *args: Any) -> T:
    """Make a blocking call in a daemon thread. If the coroutine is cancelled, the call continues.

    Args:
        work: The call.
        *args: Its arguments.

    Example:
        >>> asyncio.run(in_daemon_thread(max, 1, 2))
        2
    """
    call = Call(work, *args)
    call.start()
    return await call.future


class Wrapper(Protocol):
    """A client for asyncio around a blocking one."""

    _client: Any

    async def _call(self, work: Callable[[], T]) -> T:
        """Make a blocking call in a thread."""


def awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Wrapper, P], Coroutine[Any, Any, T]]:
    """The method of a :class:`Wrapper` that makes the call of that name of its client.

    Args:
        method: The method of the blocking client.
    """

    @wraps(method)
    async def call(self: Wrapper, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self._call(partial(getattr(self._client, method.__name__), *args, **kwargs))
        return result

    return call


# The callback in which a coroutine runs, if any.
_callback: Final[contextvars.ContextVar[_Callback | None]] = contextvars.ContextVar("_callback", default=None)


class Calls:
    """Makes blocking calls one at a time, in order. On one event loop.

    For clients that are not thread-safe. A call starts when the previous one is done, and its coroutine has the result
    or is cancelled. A call may run callbacks that are coroutines; calls by these run in the thread that waits for them.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._thread = threads.DaemonPool(1)

    async def make(self, call: Call[T]) -> T:
        """Make a call and return its result. If it is cancelled, the next one still waits for its end."""
        callback = _callback.get()
        if callback is not None and callback.take(call):
            return await call.future
        async with self._turn:
            try:
                self._thread.start([call])
            except PayloadStoreError:
                call.future.cancel()  # otherwise asyncio logs its error as never retrieved
                raise
            try:
                return await call.future
            except asyncio.CancelledError as error:
                call.fail(error)  # unless it has begun
                raise


def on_loop(callback: Callable[..., Any]) -> Callable[..., Any]:
    """A callback that runs on the current event loop, from any thread, and may be a coroutine function.

    Args:
        callback: Called on the loop.

    Returns:
        A function that calls it and waits for its result; for the threads of blocking calls.
    """
    loop = asyncio.get_running_loop()

    def call(*args: Any) -> Any:
        return _Callback(loop, callback, args).wait()

    return call


class _Callback:
    """A running callback, and the blocking calls that it makes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args
        self._calls: threads.SimpleQueue[Call[Any] | None] = threads.SimpleQueue()
        self._lock = threading.Lock()
        self._is_done = False
        self._future = asyncio.run_coroutine_threadsafe(self._run(), loop)
        self._future.add_done_callback(self._done)

    def take(self, call: Call[Any]) -> bool:
        """Make a call in the waiting thread; refused for tasks that outlive the callback."""
        with self._lock:
            if not self._is_done:
                self._calls.put(call)
            return not self._is_done

    def wait(self) -> Any:
        while (call := self._calls.get()) is not None:
            call.run()
        return self._future.result()

    async def _run(self) -> Any:
        _callback.set(self)
        result = self._callback(*self._args)
        return await result if inspect.isawaitable(result) else result

    def _done(self, _future: object) -> None:
        with self._lock:
            self._is_done = True
        self._calls.put(None)


class Turns:
    """The order of a topic's records, and where they are encoded: small ones on the event loop, others in a thread.

    Attributes:
        count: Number of records that are encoded in a thread or wait for one.
        lock: Keeps the order; first come, first served.
    """

    def __init__(self) -> None:
        self.count = 0
        self.lock = asyncio.Lock()
        # The first record may need a schema registry.
        self._seconds = math.inf

    def is_quick(self, size: int) -> bool:
        """Whether a record of a size in bytes is likely to be encoded quickly."""
        return size <= _LARGE_BYTES and self._seconds < _LONG_SECONDS

    async def encode(self, work: Callable[[], Any], size: int) -> Any:
        """Encode a record of a size, in bytes: quick work on the event loop, all other and all I/O in a thread.

        Args:
            work: Encodes the record, up to its first transfer.
            size: Size of the record.
        """
        step = self.do(work) if self.is_quick(size) else await in_daemon_thread(self.do, work)
        return await in_daemon_thread(finish, step) if isinstance(step, Transfer) else step

    def do(self, work: Callable[[], T]) -> T:
        """Encode a record and note the duration."""
        began = _now()
        result = work()
        seconds = _now() - began
        self._seconds = seconds if self._seconds == math.inf else max(seconds, _MEMORY * self._seconds)
        return result


class Pace:
    """Lets an event loop proceed while one task does much work on it, in calls that never wait."""

    def __init__(self) -> None:
        self._since: float | None = None

    def is_over(self) -> bool:
        """Whether the loop was held long enough, so that the caller should yield by ``asyncio.sleep(0)``.

        Called after each piece of work.
        """
        now = _now()
        if self._since is None:
            self._since = now
            asyncio.get_running_loop().call_soon(self._begin)
        is_over = now - self._since >= _HOLD_SECONDS
        if is_over:
            self._begin()
        return is_over

    def _begin(self) -> None:
        """The loop has proceeded, or is about to."""
        self._since = None


@runtime_checkable
class SupportsByteCount(Protocol):
    """A view, an array or a table: it knows the bytes of its values."""

    nbytes: int


def size_of(value: Any) -> int:
    """The size of a value's bytes and text on all levels, as far as it is visible.

    Values with very many members are large: both encoding and counting them take long. So are files.

    Example:
        >>> size_of({"name": "M 51", "image": {"data": bytes(1000)}})
        1028
    """
    size = members = 0
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, (bytes, bytearray, str)):
            size += len(each)
        elif type(each) not in _SCALARS and isinstance(each, (list, tuple, Mapping)):
            members += len(each)
            if members > _MEMBERS:
                return _LARGE_BYTES + 1
            stack += each.values() if isinstance(each, Mapping) else each
        elif type(each) not in _SCALARS and isinstance(each, SupportsByteCount):
            size += each.nbytes
        elif each is value and is_stream(each):
            return _LARGE_BYTES + 1
    return size + members * _MEMBER_BYTES
