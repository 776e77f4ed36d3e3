"""Stores whose references contain the topic."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsTopics"]


@runtime_checkable
class SupportsTopics(Protocol, metaclass=Capability):
    """A store whose references contain the topic of the payload.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> store.topic_of("memory:///alerts/1")
        'alerts'
    """

    def topic_of(self, reference: str) -> str:
        """The topic in a reference; below a trusted prefix, the first segment.

        Raises:
            UntrustedReferenceError: The reference is not this store's.
        """
