"""Questions to the stores for a page: a few at a time, until the page is sent or given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from payload_stores.errors import ContextualError
from payload_stores.threads import DaemonPool
from serde_chain.cli.browse.large_fields import HEAD, Seen, seen
from serde_chain.cli.browse.payloads import Payloads
from serde_chain.cli.browse.topic import Patience
from serde_chain.cli.records import RecordUnavailableError

_log = logging.getLogger("serde_chain")

# Of all pages together.
_AT_ONCE: Final = 8


class Answer(NamedTuple):
    """What a store says about a reference.

    Attributes:
        seen: Whether it leads to its payload.
        head: The payload's first bytes; None if they are not wanted, or cannot be had.
    """

    seen: Seen
    head: bytes | None


class Questions:
    """Asks about references, each question in a thread.

    Args:
        payloads: Asks the stores.
    """

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads
        self._pool = DaemonPool(_AT_ONCE)

    def asked(
        self, topic: str, sizes: Mapping[str, int | None], patience: Patience, *, heads: bool = False
    ) -> dict[str, Answer]:
        """What the stores say about references.

        Args:
            topic: The topic of the records.
            sizes: The references, with the sizes that their records state.
            patience: The rest is not asked once it has ended.
            heads: Whether their first bytes are wanted too.

        Raises:
            AbandonedError: The result is not needed any more.
        """
        calls: list[Callable[[], Any]] = [partial(self._see, topic, *each, patience) for each in sizes.items()]
        if heads:  # at the same time
            calls += (partial(self._head, topic, reference, patience) for reference in sizes)
        found = iter(self._pool.all(calls))
        seen = [next(found) for _ in sizes]
        return {reference: Answer(each, next(found, None)) for reference, each in zip(sizes, seen, strict=True)}

    def _see(self, topic: str, reference: str, size: int | None, patience: Patience) -> Seen:
        try:
            patience.check()
        except RecordUnavailableError:
            return Seen("not asked: the time is up", "unknown")
        return seen(self._payloads, topic, reference, size)

    def _head(self, topic: str, reference: str, patience: Patience) -> bytes | None:
        try:
            patience.check()
            return self._payloads.head(topic, reference, HEAD)
        except ContextualError as error:
            _log.debug("the beginning of a payload cannot be shown: %s", error)  # the result of `_see` is shown
            return None
