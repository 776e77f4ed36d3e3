"""The maximum number of parts of one key or value, the same for all decoders.

Memory depends on parts more than on bytes: an empty list takes a byte on the wire, and a hundred in memory. Every
record, list, map and leaf is a part. Each byte of a record pays for :data:`PARTS_PER_BYTE` parts, and
:data:`FREE_PARTS` are free, unless ``serde.max.parts`` sets the number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from payload_stores.options import Option, integer

FREE_PARTS: Final = 100_000
# Ordinary records have fewer than two, wrappers of one field slightly more.
PARTS_PER_BYTE: Final = 4
# Of an Arrow type, which has all fields of all branches: types used twice count twice.
MOST_FIELDS: Final = 10_000

MAX_PARTS: Final[Option[int | None]] = Option(
    "serde.max.parts",
    integer(1),
    None,
    doc="maximum number of records, lists, maps and leaves in a key or value (default 100000, plus 4 per byte of it)",
)

TOO_MANY: Final = f"If such records are expected, raise {MAX_PARTS.name}"
# Possessive, and up to the end of the text if a string is unterminated: otherwise each quote in it is tried again.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


class TooManyPartsError(ValueError):
    """A record claims more parts than allowed."""


@dataclass(frozen=True)
class Budget:
    """The maximum number of parts of one key or value.

    Attributes:
        most: The number; None if it depends on the size.

    Example:
        >>> Budget().of(10), Budget(500).of(10)
        (100040, 500)
    """

    most: int | None = None

    @classmethod
    def read(cls, config: Mapping[str, object]) -> Budget:
        """Read the budget from a configuration.

        Raises:
            ConfigError: The value is not a number of at least 1.
        """
        return cls(MAX_PARTS.read(config))

    def of(self, size: int) -> int:
        """Maximum number of parts for a size in bytes."""
        return FREE_PARTS + PARTS_PER_BYTE * size if self.most is None else self.most

    def exceeded(self, size: int) -> TooManyPartsError:
        """The error for too many parts for a size in bytes."""
        return TooManyPartsError(f"the record claims more than {self.of(size)} parts (records, lists, maps and leaves)")


def parts_of_json(text: bytes) -> int:
    """An upper bound of the number of parts in a JSON text, without parsing it.

    Example:
        >>> parts_of_json(b'{"a": [1, 2, "[,"]}') >= 5
        True
    """
    bare = _STRING.sub(b"", text)
    return 1 + sum(bare.count(mark) for mark in (b",", b"[", b"{"))
