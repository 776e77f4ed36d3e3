"""Searching a topic for records that match a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from payload_stores.errors import ContextualError
from serde_chain.cli.browse.filters import Filter
from serde_chain.cli.browse.preview import Shown
from serde_chain.cli.browse.topic import Scan

__all__ = ["FilteredList"]

# It ends after the window with this match.
_MOST_FOUND: Final = 200


class FilteredList:
    """The records that match a filter, as they are found.

    Args:
        scan: The records.
        show: Decodes some of them.
        wanted: Which of them are matches.

    Attributes:
        scan: The records; says how far it has read.
        count: Number of matches so far.
        problem: The reason if the search could not go on.
    """

    def __init__(self, scan: Scan, show: Callable[..., Iterable[Shown]], wanted: Filter) -> None:
        self.scan = scan
        self.count = 0
        self.problem: str | None = None
        self._show, self._wanted = show, wanted

    def __iter__(self) -> Iterator[list[Shown]]:
        """The matches, some at a time."""
        try:
            for rows in self.scan.windows(self._is_enough):
                found = [shown for shown in self._show(rows) if self._wanted.takes(shown)]
                self.count += len(found)
                yield sorted(found, key=_order, reverse=not self.scan.is_forward)
        except ContextualError as error:
            self.problem = str(error)

    def _is_enough(self) -> bool:
        return self.count >= _MOST_FOUND


def _order(shown: Shown) -> tuple[int, int]:
    return shown.row.timestamp_ms, shown.row.offset
