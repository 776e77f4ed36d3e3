"""The schemas that a registered schema refers to, directly or through others."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from payload_stores.options import Option
from serde_chain.errors import SchemaRegistryError

R = TypeVar("R", bound=Hashable)

MOST_REFERENCES: Final = 1000
"""Most schemas that one schema may refer to. Each is a request to the registry."""


class OwnReference(NamedTuple):
    """A reference of one's own schema to one that is registered.

    Attributes:
        name: The name in the schema's text: a full name in Avro, the address in ``$ref`` in JSON Schema, a file in
            Protobuf.
        subject: The subject of the other schema.
        version: Its version there; None for the latest.
    """

    name: str
    subject: str
    version: int | None = None


def _references(value: object) -> tuple[OwnReference, ...]:
    """Parse references: a list of mappings, or the same as JSON text."""
    expected = 'expected a list such as [{"name": "shop.Customer", "subject": "customers-value", "version": 1}]'
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(expected) from None
    if not isinstance(value, (list, tuple)):
        raise ValueError(expected)
    return tuple(_reference(item, expected) for item in value)


def _reference(item: Any, expected: str) -> OwnReference:
    if not isinstance(item, Mapping) or not {"name", "subject"} <= item.keys() <= {"name", "subject", "version"}:
        raise ValueError(expected)
    name, subject, version = item["name"], item["subject"], item.get("version")
    is_version = version is None or (type(version) is int and version > 0)
    if not (isinstance(name, str) and isinstance(subject, str) and is_version):
        raise ValueError(expected)
    return OwnReference(name, subject, version)


REFERENCES: Final[Option[tuple[OwnReference, ...]]] = Option(
    "schema.references",
    _references,
    (),
    doc="registered schemas that one's own refers to: a JSON list of name, subject and version (default: the latest)",
)


def collected(
    direct: Iterable[R], fetch: Callable[[R], tuple[str, Iterable[R]]], *, most: int = MOST_REFERENCES
) -> dict[R, str]:
    """Fetch all schemas that a schema refers to, without recursion: a chain of references may be of any length.

    Args:
        direct: Its own references.
        fetch: Returns the text of a referenced schema, and its references.
        most: Most references.

    Returns:
        The texts by their references, each after those that it refers to. One that refers to itself, through others,
        is not followed further.

    Raises:
        SchemaRegistryError: There are more references.

    Example:
        >>> texts = {"b": ("B", ["c"]), "c": ("C", [])}
        >>> collected(["b"], texts.__getitem__)
        {'c': 'C', 'b': 'B'}
    """
    texts: dict[R, str] = {}
    done: dict[R, str] = {}
    waiting = list(direct)[::-1]
    while waiting:
        reference = waiting[-1]
        if reference in texts:
            waiting.pop()
            done.setdefault(reference, texts[reference])
            continue
        if len(texts) == most:
            raise SchemaRegistryError(
                f"the schema refers to more than {most} others",
                hint="Define its types in fewer schemas",
                # the registry has answered, and other records name other schemas
            ).marked(about_record=True)
        texts[reference], others = fetch(reference)
        waiting += [other for other in others if other not in texts][::-1]
    return done
