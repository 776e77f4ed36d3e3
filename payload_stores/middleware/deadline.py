"""One deadline for a whole store call, even if the store hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, BinaryIO, Final, TypeVar

from payload_stores import forks
from payload_stores.base import PayloadStore, PublishContext
from payload_stores.errors import PayloadStoreUnavailableError
from payload_stores.kip1159 import KipPayloadStore
from payload_stores.middleware.base import Middleware
from payload_stores.threads import Call

T = TypeVar("T")


class Deadline(Middleware):
    """One deadline for a whole publish, download, delete or open, including all its requests and retries.

    For a stream it is the longest time without progress: it restarts whenever the store reads more.

    It holds even if the inner store hangs: the call runs in another thread, which is abandoned when the time is up. An
    abandoned publish may still succeed; its payload is then an orphan until the store's lifecycle removes it. While 64
    calls are abandoned, further ones fail at once: each holds a thread and its payload.

    Args:
        store: The inner store.
        timeout_ms: Time for one call, in ms.
        setting: Name of the setting with the time, for errors.

    Example:
        >>> from payload_stores import open_store
        >>> store = Deadline(open_store("memory", {}), 30_000)
        >>> store.download(store.publish("alerts", b"payload"))
        b'payload'
    """

    def __init__(self, store: PayloadStore | KipPayloadStore, timeout_ms: int, *, setting: str = "timeout_ms") -> None:
        super().__init__(store)
        self.timeout_ms = timeout_ms
        self._setting = setting
        self._left_behind: set[Call[Any]] = set()
        forks.watch(self, Deadline._forget_calls)

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation within the deadline.

        Raises:
            PayloadStoreUnavailableError: The time is up, or too many earlier calls still hang.
        """
        return self._run(operation, args, _Start())

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Publish the contents of a reader; the deadline restarts whenever the store reads more of it.

        See :class:`~payload_stores.SupportsStreaming`.
        """
        watched = _Watched(reader)
        try:
            return self._run(super().publish_stream, (topic, watched, context), watched)
        finally:
            watched.is_over = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_left_behind": set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        forks.watch(self, Deadline._forget_calls)

    def _forget_calls(self) -> tuple[()]:
        self._left_behind.clear()
        return ()

    def _run(self, operation: Callable[..., T], args: tuple[Any, ...], progress: _Start) -> T:
        if len(self._left_behind) >= _MOST_LEFT_BEHIND:
            raise self._unavailable(
                f"the payload store hangs: {len(self._left_behind)} calls have not returned yet", str(args[0])
            )
        call = Call(operation, *args).start()
        try:
            while not call.wait(max(0.0, progress.at + self.timeout_ms / 1000 - time.monotonic())):
                if time.monotonic() >= progress.at + self.timeout_ms / 1000:
                    raise self._unavailable(
                        f"the payload store did not finish within {self.timeout_ms} ms", str(args[0])
                    )
        except BaseException:  # the time is up, or a signal handler raised
            self._left_behind.add(call)
            call.drop(self._left_behind.discard)
            raise
        return call.take()

    def _unavailable(self, message: str, subject: str) -> PayloadStoreUnavailableError:
        where = {"reference": subject} if "://" in subject else {"topic": subject}
        return PayloadStoreUnavailableError(
            message,
            hint=f"Check that the store is up and how fast it answers, or raise {self._setting}",
            store=self.scheme,
            **where,
        )


_MOST_LEFT_BEHIND: Final = 64


class _Start:
    """The start of a deadline."""

    def __init__(self) -> None:
        self.at = time.monotonic()


class _Watched(_Start):
    """A reader that records when the store last read from it.

    Attributes:
        is_over: Whether the caller has given up: further reads raise.
    """

    def __init__(self, reader: BinaryIO) -> None:
        super().__init__()
        self._reader = reader
        self.is_over = False

    def read(self, size: int = -1, /) -> bytes:
        block = b"" if self.is_over else self._reader.read(size)
        if self.is_over:
            raise PayloadStoreUnavailableError("the upload's deadline has passed, so its payload is no longer read")
        self.at = time.monotonic()
        return block

    def seekable(self) -> bool:
        return self._reader.seekable()

    def tell(self) -> int:
        return self._reader.tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._reader.seek(offset, whence)
