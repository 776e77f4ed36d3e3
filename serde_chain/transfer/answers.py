"""Answers that many records need, such as schemas and keys: each is asked for once and remembered.

A stage uses a known answer directly, and returns a :class:`~serde_chain.transfer.Transfer` for an unknown one. The
driver chooses where to ask, as for a download.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from payload_stores.errors import release
from serde_chain.errors import is_about_record
from serde_chain.transfer.step import Question, Transfer

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_MOST: Final = 10_000
_MOST_REFUSED: Final = 4096
_REFUSED_SECONDS: Final = 5.0
# Longer than the requests of one question. A thread that has waited this long for another asks for itself.
_WAIT_SECONDS: Final = 60.0


class _Remembered(dict[K, T]):
    """Answers that are forgotten after a time.

    Args:
        seconds: The time.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._until: dict[K, float] = {}

    def __setitem__(self, key: K, answer: T) -> None:
        self._until[key] = time.monotonic() + self._seconds
        super().__setitem__(key, answer)

    def __delitem__(self, key: K) -> None:
        self._until.pop(key, None)
        super().__delitem__(key)

    def __contains__(self, key: object) -> bool:
        return self._until.get(cast("K", key), 0.0) > time.monotonic()

    def __getitem__(self, key: K) -> T:
        if key not in self:
            raise KeyError(key)
        return super().__getitem__(key)

    def get(self, key: K, default: Any = None) -> Any:
        """The answer, or the default."""
        return super().get(key, default) if key in self else default


class Lookups(Generic[K, T]):
    """Remembers answers. Thread-safe.

    Threads that need the same answer share one question. A negative answer is remembered for a short time, by default
    if it is the record's fault. After an outage, the next record asks again.

    Args:
        most: Most answers; the oldest is dropped.
        refused_s: Seconds for which a negative answer is remembered.
        known_s: Seconds for which an answer is remembered; None for ever.
        is_refusal: Whether an error is a negative answer.

    Attributes:
        known: The answers that are still remembered. Read-only.

    Example:
        >>> lengths = Lookups()
        >>> lengths.get("M 51", lambda: len("M 51")), dict(lengths.known)
        (4, {'M 51': 4})
    """

    def __init__(
        self,
        *,
        most: int = _MOST,
        refused_s: float = _REFUSED_SECONDS,
        known_s: float | None = None,
        is_refusal: Callable[[Exception], bool] = is_about_record,
    ) -> None:
        self.known: dict[K, T] = {} if known_s is None else _Remembered(known_s)
        self._most = most
        self._refused_s = refused_s
        self._is_refusal = is_refusal
        self._refused: OrderedDict[K, tuple[float, Exception]] = OrderedDict()
        self._asked: dict[K, Future[T]] = {}
        self._lock = threading.Lock()

    def get(self, key: K, ask: Callable[[], T]) -> T:
        """The answer; blocks while it is asked for, unless it is known.

        Args:
            key: Identifies the question.
            ask: Returns the answer; has its own deadline.

        Raises:
            Exception: The error of ``ask``; a copy for each caller.
        """
        answer: T | None = self.known.get(key)
        if answer is not None:  # mostly: a future costs several times as much
            return answer
        own: Future[T] = Future()
        try:
            with self._lock:
                answer = self.known.get(key)
                if answer is not None:
                    return answer
                self._raise_refused(key)
                asked = self._asked.setdefault(key, own)
            return self._ask(key, ask, own) if asked is own else self._wait(key, ask, asked)
        finally:
            if self._asked.get(key) is own:
                del self._asked[key]
            if not own.done():  # interrupted: waiting threads ask for themselves
                own.set_exception(CancelledError())

    def _ask(self, key: K, ask: Callable[[], T], own: Future[T]) -> T:
        try:
            answer = ask()
        except Exception as error:
            kept = _another(error)
            kept.__cause__ = error.__cause__
            release(kept)
            with self._lock:
                if self._is_refusal(error):
                    self._refused.pop(key, None)
                    self._refused[key] = (time.monotonic() + self._refused_s, kept)
                    if len(self._refused) > _MOST_REFUSED:
                        self._refused.popitem(last=False)
                del self._asked[key]
            own.set_exception(kept)
            raise
        with self._lock:
            self._refused.pop(key, None)
            self.known[key] = answer
            if len(self.known) > self._most:
                del self.known[next(iter(self.known))]
            del self._asked[key]
        own.set_result(answer)
        return answer

    def _wait(self, key: K, ask: Callable[[], T], asked: Future[T]) -> T:
        done, _ = wait([asked], _WAIT_SECONDS)
        if not done:
            return ask()
        error = asked.exception()
        if isinstance(error, CancelledError):
            return self.get(key, ask)
        if isinstance(error, Exception):
            raise _another(error) from error.__cause__
        return asked.result()

    def _raise_refused(self, key: K) -> None:
        until, error = self._refused.get(key, (0.0, None))
        if error is not None:
            if until > time.monotonic():
                raise _another(error) from error.__cause__
            del self._refused[key]

    def transfer(self, key: K, ask: Callable[[], T], go_on: Callable[[T], Any]) -> Transfer[T]:
        """The question as a transfer that continues with a record.

        Args:
            key: As for :meth:`get`.
            ask: As for :meth:`get`.
            go_on: Called with the answer; returns data or another transfer.
        """
        return Question(partial(self.get, key, ask), go_on, key=(self, key), within_call=True)


def _another(error: Exception) -> Exception:
    """A copy of an error, since each caller adds the place of its record."""
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001  a user's class whose objects cannot be copied
        return error
