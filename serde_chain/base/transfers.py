"""Stages that need I/O: they stop before it, and their chain runs it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from serde_chain.record import Context

__all__ = ["SupportsTransfers"]


@runtime_checkable
class SupportsTransfers(Protocol):
    """A stage that needs I/O for some records: it publishes, fetches or asks."""

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """Do the same as a call of the stage, up to the first I/O.

        Args:
            data: The data; not None.
            ctx: The record around it.

        Returns:
            The stage's result, or a :class:`~serde_chain.transfer.Transfer` that leads to it.
        """
