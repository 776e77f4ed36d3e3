"""Stores whose references tell the topic."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsTopics"]


@runtime_checkable
class SupportsTopics(Protocol, metaclass=Capability):
    """A store whose references contain the topic for which a payload was published.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> store.topic_of("memory:///alerts/1")
        'alerts'
    """

    def topic_of(self, reference: str) -> str:
        """The topic in a reference; below a trusted prefix, it is the first segment.

        Raises:
            UntrustedReferenceError: The reference is not this store's.
        """
