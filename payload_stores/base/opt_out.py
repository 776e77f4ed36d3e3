"""Stores that may be switched off."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsOptOut"]


@runtime_checkable
class SupportsOptOut(Protocol, metaclass=Capability):
    """A store that may be switched off, by its user or by what its broker says.

    Attributes:
        sender: Name of the user as which the store publishes, for formats that write it down; None if it has none.
        offloads: Whether payloads are to be published; if not, records stay as they are.
        fetches: Whether references are to be followed; if not, readers get the references themselves.

    Example:
        >>> from payload_stores import open_store
        >>> config = {"hop.offload.url": "https://offload.example.org", "automatic_offload": False}
        >>> store = open_store("hop", config)  # doctest: +SKIP
        >>> store.why_not()  # doctest: +SKIP
        'automatic_offload is off'
    """

    sender: str | None
    offloads: bool
    fetches: bool

    def why_not(self) -> str | None:
        """Say why nothing can be published here at all; None if it can.

        Asked before a payload is published. Records then stay as they are, and the client refuses what is too large.
        May take as long as a request, within time limits of the store's own. A reason that is not the user's own wish
        is logged, once, as a warning.
        """
