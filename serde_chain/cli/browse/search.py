"""Searching a topic for a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from payload_stores.errors import ContextualError
from serde_chain.cli.browse.preview import Shown
from serde_chain.cli.browse.topic import Scan

__all__ = ["Search"]

# It ends after the window with this match.
_MOST_FOUND: Final = 200


class Search:
    """The records that contain a text in key, value or reference, as they are found.

    Args:
        scan: The records.
        show: Decodes some of them.
        text: The text, in upper or lower case.

    Attributes:
        scan: The records; says how far it has read.
        count: Number of matches so far.
        problem: The reason if the search could not go on.
    """

    def __init__(self, scan: Scan, show: Callable[..., Iterable[Shown]], text: str) -> None:
        self.scan = scan
        self.count = 0
        self.problem: str | None = None
        self._show, self._text = show, text.casefold()

    def __iter__(self) -> Iterator[list[Shown]]:
        """The matches, some at a time."""
        try:
            for rows in self.scan.windows(self._is_enough):
                found = [shown for shown in self._show(rows) if self._matches(shown)]
                self.count += len(found)
                yield sorted(found, key=_order, reverse=not self.scan.is_forward)
        except ContextualError as error:
            self.problem = str(error)

    def _is_enough(self) -> bool:
        return self.count >= _MOST_FOUND

    def _matches(self, shown: Shown) -> bool:
        row, preview = shown.row, shown.preview
        texts = [field.get(name, "") for field in (row.key, row.value) for name in ("begins with", "reference")]
        if preview is not None:
            texts += [preview.key, preview.text]
        return any(self._text in text.casefold() for text in texts if text)


def _order(shown: Shown) -> tuple[int, int]:
    return shown.row.timestamp_ms, shown.row.offset
