"""The keys of ``large-fields``. Stores, ids, routes, limits and deadlines are those of ``large-message``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from payload_stores.options import Option, choice, integer, listing
from serde_chain.stages.large_fields.paths import Pattern

STAGE: Final = "large-fields"


def _patterns(value: object) -> tuple[Pattern, ...]:
    patterns = tuple(Pattern(one) for one in listing(value))
    if not patterns:
        raise ValueError("expected names of fields")
    return patterns


PATHS: Final[Option[tuple[Pattern, ...] | None]] = Option(
    "large.fields.paths",
    _patterns,
    None,
    doc="fields to move to the store: names or globs; records in records as a.b, items of arrays as a[]",
)
MIN_BYTES: Final = Option("large.fields.min.bytes", integer(1), 8192, doc="smallest field that is moved, in bytes")
LAZY: Final = "lazy"
FETCH: Final = Option(
    "large.fields.fetch",
    choice("eager", LAZY),
    "eager",
    doc="lazy: moved fields are handles (serde_chain.PayloadHandle) that fetch their payloads on request",
)


def _items(value: object) -> tuple[Any, ...]:
    return listing(value) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else (value,)


SERIALIZERS: Final[Option[tuple[Any, ...]]] = Option(
    "large.fields.serializers",
    _items,
    (),
    doc="stages for the payloads of fields, such as zstd, encrypt; the same list for readers, which reverse it",
)

OF_WRITERS: Final[tuple[Option[Any], ...]] = (PATHS, MIN_BYTES, SERIALIZERS)
# Readers need no paths: the header names the fields. One configuration serves both sides.
OF_READERS: Final[tuple[Option[Any], ...]] = (PATHS, MIN_BYTES, SERIALIZERS, FETCH)

# The reference is in the field, and the header is this stage's own.
_FORMAT_KEYS: Final = ("format", "compression")
_LARGE_MESSAGE: Final = "large.message."


def settings_of_stores(config: Mapping[str, object]) -> dict[str, object]:
    """The configuration for the stage that moves the payloads: without formats of whole records' references."""
    return {
        key: value
        for key, value in config.items()
        if not (key.startswith(_LARGE_MESSAGE) and key.rpartition(".")[2] in _FORMAT_KEYS)
    }
