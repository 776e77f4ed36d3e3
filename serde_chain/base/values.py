"""What members of a stage return: the types of fields, and the headers that it removes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class FieldType:
    """What a field may hold. A union counts as all of its branches.

    Attributes:
        holds_bytes: Whether it may be ``bytes``.
        holds_text: Whether it may be a string.
        fields: Returns the fields of its records by name; called late, since types may be recursive.
        items: Returns the type of its arrays' items; None if it is no array.
        renamed: Other names of its records' fields (Avro's aliases), with the names in effect.
        is_open: Whether its records may have fields besides these, of any type, as in JSON.

    Example:
        >>> stamp = FieldType(holds_bytes=True)
        >>> FieldType(fields=lambda: {"stamp": stamp}).fields()["stamp"].holds_bytes
        True
    """

    def __init__(
        self,
        *,
        holds_bytes: bool = False,
        holds_text: bool = False,
        fields: Callable[[], Mapping[str, FieldType]] = dict,
        items: Callable[[], FieldType] | None = None,
        renamed: Callable[[], Mapping[str, str]] = dict,
        is_open: bool = False,
    ) -> None:
        self.holds_bytes, self.holds_text = holds_bytes, holds_text
        self.fields, self.items = fields, items
        self.renamed, self.is_open = renamed, is_open


NO_FIELDS = FieldType()


def _anything() -> FieldType:
    return ANYTHING


ANYTHING = FieldType(holds_bytes=True, holds_text=True, items=_anything, is_open=True)


class RemovedHeaders(NamedTuple):
    """Headers that a stage removes from the records with a mark.

    Attributes:
        mark: The header that these records have, its last value not null; None for every record with data.
        names: The removed headers.
        unless: Headers of which such records have none: other marks that count first.

    Example:
        >>> RemovedHeaders("large-message", frozenset({"large-message", "large-message-size"})).mark
        'large-message'
    """

    mark: str | None
    names: frozenset[str]
    unless: frozenset[str] = frozenset()
