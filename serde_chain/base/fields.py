"""The fields of a typed stage's values, for stages that move single fields to a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

__all__ = ["ANYTHING", "NO_FIELDS", "DescribesFields", "FieldType", "ModelOfRecords", "MovesFields", "SupportsModels"]


def _nothing() -> Mapping[str, FieldType]:
    return {}


@dataclass(frozen=True, eq=False)  # compared by identity: types may be recursive
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

    holds_bytes: bool = False
    holds_text: bool = False
    fields: Callable[[], Mapping[str, FieldType]] = _nothing
    items: Callable[[], FieldType] | None = None
    renamed: Callable[[], Mapping[str, str]] = dict
    is_open: bool = False


NO_FIELDS = FieldType()


def _anything() -> FieldType:
    return ANYTHING


ANYTHING = FieldType(holds_bytes=True, holds_text=True, items=_anything, is_open=True)


@runtime_checkable
class DescribesFields(Protocol):
    """A typed stage that knows the fields of its values before the first one.

    Attributes:
        holds_objects: Whether a field may hold any Python object in place of its value, as in dictionaries; false for
            Protobuf's messages.
    """

    @property
    def holds_objects(self) -> bool: ...  # noqa: D102  described above

    def field_type(self) -> FieldType | None:
        """The type of all values; None if it is unknown, or may differ from record to record."""


@runtime_checkable
class MovesFields(Protocol):
    """A stage from object to object that moves fields to a store, or fetches them.

    Attributes:
        authenticates_fields: Whether the fields' payloads pass a stage that ``authenticates``. In a chain with such a
            stage, they must.
    """

    @property
    def authenticates_fields(self) -> bool: ...  # noqa: D102  described above


class ModelOfRecords(Protocol):
    """A class whose objects are the values of records."""

    def write(self, value: Any, /) -> Any:
        """An object as a dictionary; a dictionary unchanged.

        Raises:
            EncodeError: It is not an object of the class.
        """

    def read(self, value: Any, /) -> Any:
        """An object of a dictionary.

        Raises:
            DecodeError: The class refuses it.
        """


@runtime_checkable
class SupportsModels(Protocol):
    """A typed stage whose values may be objects of a class.

    Next to a stage that moves fields, its values are dictionaries, and that stage converts them: a class never sees a
    reference in place of a field.
    """

    def model(self) -> ModelOfRecords | None:
        """The class; None if values are dictionaries anyway."""
