"""Deserializers that declare what they change in a record's headers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

from serde_chain.base.plain import is_same_work

__all__ = ["DeclaresHeaders", "RemovedHeaders", "removed_headers_of"]


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


@runtime_checkable
class DeclaresHeaders(Protocol):
    """A deserializer that declares its changes of a record's headers, so that headers can be read without its data.

    As with ``plain`` of :class:`SupportsPlainCalls`, a subclass that overrides ``__call__`` or ``begin`` declares them
    anew.

    Attributes:
        removed_headers: The headers that the stage removes from records that it reads; it changes no others. Empty if
            it leaves headers unchanged. None if its changes, as configured, depend on more than the names of headers.
    """

    @property
    def removed_headers(self) -> tuple[RemovedHeaders, ...] | None: ...  # noqa: D102  described above


def removed_headers_of(stages: Iterable[object]) -> tuple[RemovedHeaders, ...] | None:
    """The headers that the stages of a chain remove.

    Args:
        stages: Deserializers.

    Returns:
        None if a stage may change headers in other ways, or does not declare its changes.
    """
    removed: list[RemovedHeaders] = []
    for stage in stages:
        if not isinstance(stage, DeclaresHeaders) or not is_same_work(stage, "removed_headers"):
            return None
        of_stage = stage.removed_headers
        if of_stage is None:
            return None
        removed += of_stage
    return tuple(removed)
