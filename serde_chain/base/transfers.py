"""Stages with I/O: they stop at it, and their chain runs it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from serde_chain.record import Context

__all__ = ["SupportsTransfers"]


@runtime_checkable
class SupportsTransfers(Protocol):
    """A stage that has to publish or fetch something before some records can go on."""

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """Do what calling the stage does, up to the first I/O.

        Args:
            data: The data; not None.
            ctx: The record around it.

        Returns:
            The stage's result, or a :class:`~serde_chain.transfer.Transfer` that leads to it.
        """
