"""Stores that tell how long their server keeps the payloads of a topic."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["Lifetimes", "SupportsLifetimes"]


@dataclass(frozen=True)
class Lifetimes:
    """The ages at which a server deletes the payloads of a topic.

    Attributes:
        shortest: The lowest age at which it deletes any of them: records that live longer lose their payloads. None if
            it deletes none.
        longest: The age at which it has deleted all of them. None if some stay forever, such as those that no rule
            covers.
        rules: What the server's rules delete and what they leave, in its own terms, for people.
        hint: What to do about payloads that stay, if :meth:`SupportsExpiration.set_expiration` does not help.

    Example:
        >>> rules = ("rule 'old' (after 9 days), only keys that begin with 'alerts/a'",)
        >>> Lifetimes(timedelta(days=9), None, rules).longest is None
        True
    """

    shortest: timedelta | None
    longest: timedelta | None
    rules: tuple[str, ...] = ()
    hint: str | None = None


@runtime_checkable
class SupportsLifetimes(Protocol, metaclass=Capability):
    """A store whose server deletes payloads by rules, which may differ among the payloads of a topic.

    :meth:`SupportsExpiration.expiration` returns only ``shortest``.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.lifetimes("alerts")  # doctest: +SKIP
        Lifetimes(shortest=datetime.timedelta(days=9), longest=datetime.timedelta(days=9), …)
    """

    def lifetimes(self, topic: str) -> Lifetimes:
        """The lowest age at which the server deletes payloads of a topic, and the highest.

        Raises:
            PayloadStoreError: The rules cannot be read.
        """
