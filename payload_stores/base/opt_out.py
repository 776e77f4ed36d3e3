"""Stores that can be switched off."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsOptOut"]


@runtime_checkable
class SupportsOptOut(Protocol, metaclass=Capability):
    """A store that can be switched off, by its user or its broker.

    Attributes:
        sender: User name the store publishes as, for formats that record it; None if it has none.
        offloads: Whether to publish payloads; otherwise records stay unchanged.
        fetches: Whether to follow references; otherwise readers get the references themselves.

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
        """Why the store can publish nothing at all; None if it can publish.

        Called before a payload is published. If there is a reason, records stay unchanged, and the client refuses
        those that are too large. May take as long as a request, within the store's own time limits. A reason other
        than the user's choice is logged as a warning, once.
        """
