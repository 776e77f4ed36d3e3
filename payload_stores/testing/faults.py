"""A payload store that fails on demand, or at random."""

from __future__ import annotations

import io
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, BinaryIO, Final, Literal, TypeVar, get_args

from payload_stores.base import PayloadInfo, PayloadStore, PublishContext, StoredRecord
from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.middleware import Middleware
from payload_stores.options import nearest

T = TypeVar("T")
Kind = Literal["latency", "transient", "permanent", "cut", "corrupt", "hang", "error after success"]

# Operations that return payloads, which can be damaged.
_READS: Final = frozenset({"download", "download_record", "read_range", "open"})
_CUTS: Final = _READS | {"publish", "publish_stream", "publish_record", "list", "list_range"}
_OPERATIONS: Final = _CUTS | {
    "delete", "delete_many", "info", "expiration", "set_expiration", "lifetimes", "unprepared",
}  # fmt: skip
_AFTER_SUCCESS: Final = frozenset({"publish", "publish_stream", "publish_record", "delete", "delete_many"})


@dataclass(frozen=True)
class Toxic:
    """A fault, and the calls it affects.

    ==========================  ========================================================================================
    ``latency``                 the call takes ``seconds`` longer, at most
    ``transient``               the store is down: PayloadStoreUnavailableError, without effect
    ``permanent``               the store refuses: PayloadStoreError, without effect
    ``cut``                     the connection breaks halfway: reads are too short, listings fail after some payloads,
                                uploads have no effect
    ``corrupt``                 one bit of the data read is flipped
    ``hang``                    no answer for ``seconds``, or until :meth:`FaultyStore.release`
    ``error after success``     the call takes effect, and its answer is lost: PayloadStoreUnavailableError
    ==========================  ========================================================================================

    Attributes:
        kind: The kind of fault.
        operations: Names of the affected methods; empty for all.
        path: A glob for the affected topics and references.
        probability: The probability for each such call.
        seconds: Duration of ``latency`` and ``hang``.

    Raises:
        ValueError: The kind or an operation does not exist, or the probability is not between 0 and 1.

    Example:
        >>> from payload_stores import open_store
        >>> store = FaultyStore(open_store("memory", {}))
        >>> store.add(Toxic("transient", operations=("publish",), path="images-*"))
        >>> store.publish("alerts", b"payload") is None
        False
    """

    kind: Kind
    operations: tuple[str, ...] = ()
    path: str = "*"
    probability: float = 1.0
    seconds: float = 3600.0

    def __post_init__(self) -> None:
        """Refuse faults that would never occur."""
        _check("kind of fault", self.kind, get_args(Kind))
        operations: object = self.operations
        if isinstance(operations, str):
            raise ValueError(f"operations is a tuple of names, not {operations!r}")
        for operation in self.operations:
            _check("operation", operation, _OPERATIONS)
        if not 0 <= self.probability <= 1:
            raise ValueError(f"a probability is between 0 and 1, not {self.probability}")

    def befalls(self, operation: str, path: str) -> bool:
        """Whether it may affect a call; kinds that change an answer affect only calls with an answer.

        Args:
            operation: Name of the method.
            path: The topic or the reference.
        """
        can_have = {"cut": _CUTS, "corrupt": _READS, "error after success": _AFTER_SUCCESS}.get(self.kind)
        return (
            (not self.operations or operation in self.operations)
            and (can_have is None or operation in can_have)
            and fnmatchcase(path, self.path)
        )


def _check(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        near = nearest(name, known)
        raise ValueError(
            f"there is no {what} {name!r}; " + (f"did you mean {near}?" if near else ", ".join(sorted(known)))
        )


class FaultyStore(Middleware):
    """A store that fails on demand, to test the layers above a store.

    :meth:`fail`, :meth:`damage` and similar methods make single calls fail; :meth:`add` makes calls fail at random. The
    random numbers come from a seed, so that failures are reproducible, apart from thread scheduling.

    Args:
        store: The inner store.
        seed: Seed of the random numbers.

    Attributes:
        calls: Names of the called operations, in order.
        injected: Number of injected faults by kind.

    Example:
        >>> from payload_stores import open_store
        >>> store = FaultyStore(open_store("memory", {}), seed=7)
        >>> store.add(Toxic("corrupt", probability=0.5))
        >>> reference = store.publish("alerts", b"payload")
        >>> downloads = [store.download(reference) for _ in range(100)]
        >>> store.injected["corrupt"] == sum(data != b"payload" for data in downloads) > 0
        True
    """

    def __init__(self, store: PayloadStore, *, seed: int = 0) -> None:
        super().__init__(store)
        self.calls: list[str] = []
        self.injected: Counter[str] = Counter()
        self._toxics: tuple[Toxic, ...] = ()
        self._random = random.Random(seed)  # noqa: S311  reproducible by seed
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._errors: list[BaseException] = []
        self._changes: list[Callable[[bytes], bytes]] = []
        self._open = threading.Event()
        self._open.set()

    def add(self, *toxics: Toxic) -> None:
        """Add faults to all further calls; one call may have several."""
        self._toxics += toxics

    def heal(self) -> None:
        """Remove all faults, and release hanging calls."""
        self._toxics = ()
        self.release()

    def release(self) -> None:
        """Release hanging calls."""
        self._released.set()
        self._released = threading.Event()

    def fail(self, error: BaseException, times: int = 1) -> None:
        """Make the next operations raise an error, without effect.

        Args:
            error: The error.
            times: Number of operations.
        """
        self._errors += [error] * times

    def damage(self, change: Callable[[bytes], bytes] = lambda data: data[:-1]) -> None:
        """Make the next download return other bytes.

        Args:
            change: Returns the damaged payload for the real one; by default, drops the last byte.
        """
        self._changes.append(change)

    def flip_bit(self, position: int = 0) -> None:
        """Make the next download return a payload with one flipped bit.

        Args:
            position: Index of the byte.
        """
        self.damage(lambda data: data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Make operations that start within a ``with`` block hang until it ends."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Inject the requested faults around a call of the inner store."""
        name = operation.__name__
        toxics = self._begin(name, str(args[0]))
        if "cut" in toxics and name not in _READS:
            raise self._away("the connection was cut")
        result = operation(*args)
        if name in _READS:
            result = self._damaged(result, toxics)
        if "error after success" in toxics:
            raise self._away("the answer was lost")
        return result

    def download(self, reference: str) -> bytes:
        """Download, perhaps damaged."""
        data = super().download(reference)
        return self._changes.pop(0)(data) if self._changes else data

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Publish a stream; a cut comes in the middle."""
        toxics = self._begin("publish_stream", topic)
        if "cut" in toxics:
            reader.read(1)
            raise self._away("the connection was cut")
        reference = super().publish_stream(topic, reader, context)
        if "error after success" in toxics:
            raise self._away("the answer was lost")
        return reference

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """List a topic's payloads; a cut comes in the middle."""
        toxics = self._begin("list", topic)
        listed = super().list(topic, prefix=prefix, before=before)
        return self._cut_list([*listed]) if "cut" in toxics else listed

    def list_range(
        self, topic: str, *, after: str = "", until: str | None = None, before: datetime | None = None
    ) -> Iterator[PayloadInfo]:
        """List a range of a topic's ids; a cut comes in the middle."""
        toxics = self._begin("list_range", topic)
        listed = super().list_range(topic, after=after, until=until, before=before)
        return self._cut_list([*listed]) if "cut" in toxics else listed

    def _cut_list(self, listed: Sequence[PayloadInfo]) -> Iterator[PayloadInfo]:
        yield from listed[: len(listed) // 2]
        raise self._away("the listing was cut")

    def _begin(self, operation: str, path: str) -> frozenset[str]:
        """Inject the faults that come before a call.

        Returns:
            The kinds of faults to inject after it.
        """
        self.calls.append(operation)
        self._open.wait()
        if self._errors:
            raise self._errors.pop(0)
        released = self._released
        with self._lock:
            drawn = [
                toxic
                for toxic in self._toxics
                if toxic.befalls(operation, path) and self._random.random() < toxic.probability
            ]
            wait = sum(toxic.seconds * self._random.random() for toxic in drawn if toxic.kind == "latency")
            kinds = frozenset(toxic.kind for toxic in drawn)
            # The first fault that ends the call excludes those that change its result.
            for ending in ("transient", "permanent"):
                if ending in kinds:
                    kinds = kinds & {"latency", "hang", ending}
            self.injected.update(kinds)
        for toxic in drawn:
            if toxic.kind == "hang":
                released.wait(toxic.seconds)
        if wait:
            released.wait(wait)
        if "transient" in kinds:
            raise self._away("the store is down")
        if "permanent" in kinds:
            raise PayloadStoreError("a fault was injected: the store refuses", store=self.scheme)
        return kinds

    def _damaged(self, result: Any, toxics: frozenset[str]) -> Any:
        if toxics.isdisjoint({"cut", "corrupt"}):
            return result
        if isinstance(result, StoredRecord):
            return result._replace(value=self._damaged(bytes(result.value), toxics))
        if not isinstance(result, bytes):  # an open file
            with result as file:
                return io.BytesIO(self._damaged(file.read(), toxics))
        if "cut" in toxics:
            result = result[: len(result) // 2]
        if "corrupt" in toxics and result:
            with self._lock:
                at = self._random.randrange(len(result))
            result = result[:at] + bytes([result[at] ^ 1]) + result[at + 1 :]
        return result

    def _away(self, what: str) -> PayloadStoreUnavailableError:
        return PayloadStoreUnavailableError(f"a fault was injected: {what}", store=self.scheme)
