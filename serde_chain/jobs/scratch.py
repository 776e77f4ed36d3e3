"""Tables that may be larger than memory, in a temporary file without a name, which ends with the process."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from serde_chain.errors import JobError

_CACHE_KIB: Final = 32 * 1024


class Scratch:
    """A private SQLite database: in memory while it is small, then in ``TMPDIR``.

    Args:
        *tables: The statements that create its tables.

    Example:
        >>> scratch = Scratch("CREATE TABLE seen (name INTEGER PRIMARY KEY)")
        >>> scratch.add("INSERT OR IGNORE INTO seen VALUES (?)", [(1,), (2,), (1,)])
        >>> scratch.value("SELECT count(*) FROM seen")
        2
    """

    def __init__(self, *tables: str) -> None:
        # An empty name means a temporary file; a report may be read, and collected, in another thread.
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self.close = weakref.finalize(self, self._connection.close)
        # Nothing is ever rolled back, or read by another process.
        for setting in (f"cache_size = -{_CACHE_KIB}", "journal_mode = OFF", "synchronous = OFF"):
            self._connection.execute(f"PRAGMA {setting}")
        # Without an end, so that only pages beyond the cache are written.
        for statement in ("BEGIN", *tables):
            self._connection.execute(statement)

    def add(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each row.

        Raises:
            JobError: The file cannot be written.
        """
        with _errors():
            self._connection.executemany(statement, rows)

    def rows(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The rows of a query.

        Raises:
            JobError: The file cannot be read.
        """
        with _errors():
            yield from self._connection.execute(query, values)

    def value(self, query: str, *values: object) -> Any:
        """The only value of a query's only row."""
        [(value,)] = self.rows(query, *values)
        return value


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise JobError(
            f"the temporary file of the job failed: {error}",
            hint="Set the environment variable TMPDIR to a folder with more space, and run it again",
        ) from error
