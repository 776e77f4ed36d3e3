"""Stages that know the Arrow type of their results."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["SupportsArrowType"]


@runtime_checkable
class SupportsArrowType(Protocol):
    """A deserializer, or a foreign callable, that may know the Arrow type of its results."""

    def arrow_type(self) -> Any | None:
        """The ``pyarrow.DataType``; None if pyarrow must infer it from the values."""
