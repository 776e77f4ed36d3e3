"""The payloads of a batch, fetched ahead in the order of its records."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from operator import methodcaller
from typing import Any

from payload_stores.base import PayloadStore
from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError
from serde_chain.arrow.batch import Batch
from serde_chain.errors import SerializationError, in_chain
from serde_chain.transfer import Prefetch, Prefetched, Transfer


class BatchDownloads:
    """Transfers of a batch, started at once; one deadline for all payloads held together.

    Args:
        transfers: The transfers, in the order in which they are taken.
        in_flight: Most transfers at a time.
        max_bytes: Most bytes fetched ahead; None if all payloads are held to the end anyway.
        timeout_ms: Deadline for all payloads taken before the next :meth:`let_go`, in ms.
    """

    def __init__(
        self, transfers: Iterable[Transfer[Any]], *, in_flight: int, max_bytes: int | None, timeout_ms: int
    ) -> None:
        # Without their own deadlines: payloads held together have one.
        self._prefetch = Prefetch(methodcaller("work"), in_flight=in_flight, max_bytes=max_bytes)
        self._waiting = deque(self._prefetch.add(transfers))
        self._taken: list[Prefetched] = []
        self._timeout_ms = timeout_ms
        self._until: float | None = None

    def take(self) -> Any:
        """The result of the next transfer, resumed.

        Raises:
            SerializationError: The transfer failed; or PayloadStoreError.
            PayloadStoreUnavailableError: The time is up.
        """
        if self._until is None:
            self._until = time.monotonic() + self._timeout_ms / 1000
        ahead = self._waiting.popleft()
        left = self._until - time.monotonic()
        if not ahead.is_done and not (left > 0 and self._prefetch.wait(ahead, left)):
            raise PayloadStoreUnavailableError(
                f"the payloads of the batch did not arrive within {self._timeout_ms} ms",
                hint="Check that the store is up and how fast it answers, read smaller batches, or raise "
                f"{PayloadStore.TIMEOUT.name}",
            )
        # An equal reference later in this part may reuse the result.
        self._taken.append(ahead)
        return ahead.transfer.resume(ahead.take())

    def let_go(self) -> None:
        """Release the payloads taken so far; the deadline restarts with the next one."""
        self._until = None
        if self._taken:
            self._taken.clear()
            self._prefetch.go_on()


def fail(batch: Batch, row: int, error: SerializationError | PayloadStoreError) -> None:
    """Mark a record as failed by a stage's or a store's error."""
    batch.fail(row, error if isinstance(error, SerializationError) else in_chain(error))
