"""The budget of parts that one key or value may have, the same for all decoders.

Memory follows from parts more than from bytes: a list of nothing takes a byte on the wire, and a hundred in memory.
Every record, list, map and leaf is a part. The bytes of a record pay for :data:`PARTS_PER_BYTE` each, and
:data:`FREE_PARTS` are free, unless ``serde.max.parts`` says how many there may be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from payload_stores.options import Option, integer

__all__ = [
    "FREE_PARTS",
    "MAX_PARTS",
    "MOST_FIELDS",
    "PARTS_PER_BYTE",
    "TOO_MANY",
    "Budget",
    "TooManyPartsError",
    "parts_of_json",
]

FREE_PARTS: Final = 100_000
# Usual records have less than two, wrappers of one field some more.
PARTS_PER_BYTE: Final = 4
# Of an Arrow type, which has all fields of all branches: types that are named twice count twice.
MOST_FIELDS: Final = 10_000

MAX_PARTS: Final[Option[int | None]] = Option(
    "serde.max.parts",
    integer(1),
    None,
    doc="most records, lists, maps and leaves in one key or value (default 100000, and 4 for each byte of it)",
)

TOO_MANY: Final = f"If such records are expected, raise {MAX_PARTS.name}"
# Without a way back, and to the end of the text where it does not end: otherwise each quote in it is tried again.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


class TooManyPartsError(ValueError):
    """A record claims more parts than it may have."""


@dataclass(frozen=True)
class Budget:
    """How many parts one key or value may have.

    Attributes:
        most: The number; None where it depends on the bytes.

    Example:
        >>> Budget().of(10), Budget(500).of(10)
        (100040, 500)
    """

    most: int | None = None

    @classmethod
    def read(cls, config: Mapping[str, object]) -> Budget:
        """Read the budget out of a configuration.

        Raises:
            ConfigError: It is not a number of at least 1.
        """
        return cls(MAX_PARTS.read(config))

    def of(self, size: int) -> int:
        """How many parts may be built of so many bytes."""
        return FREE_PARTS + PARTS_PER_BYTE * size if self.most is None else self.most

    def exceeded(self, size: int) -> TooManyPartsError:
        """The error for more parts than may be built of so many bytes."""
        return TooManyPartsError(f"the record claims more than {self.of(size)} parts (records, lists, maps and leaves)")


def parts_of_json(text: bytes) -> int:
    """How many parts a JSON text has at most, without building them.

    Example:
        >>> parts_of_json(b'{"a": [1, 2, "[,"]}') >= 5
        True
    """
    bare = _STRING.sub(b"", text)
    return 1 + sum(bare.count(mark) for mark in (b",", b"[", b"{"))
