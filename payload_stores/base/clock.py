"""Stores whose server tells the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from payload_stores.base.capability import Capability

if TYPE_CHECKING:
    from datetime import datetime  # takes a millisecond, and few processes need it

__all__ = ["SupportsClock"]


@runtime_checkable
class SupportsClock(Protocol, metaclass=Capability):
    """A store whose server tells the time with which it stamps payloads.

    The age of a payload is a difference of two times. The clock of another machine may be wrong by more than the age
    after which payloads are deleted.

    Example:
        >>> from datetime import UTC
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> isinstance(store, SupportsClock) and store.now().tzinfo is UTC
        True
    """

    def now(self) -> datetime:
        """The server's time, with time zone, at a resolution of a second or better; never later than it is there.

        Raises:
            PayloadStoreError: The server did not tell.
        """
