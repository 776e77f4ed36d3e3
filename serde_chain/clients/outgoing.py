"""Records on their way to a client, and what a sender needs of a client, a ledger and a gate."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from serde_chain.record import Header
from serde_chain.transfer import Transfer

__all__ = ["Client", "Gate", "Ledger", "Outgoing", "Report", "size_of"]

Report: TypeAlias = tuple[Any, ...]


class Outgoing:
    """A record on its way.

    Attributes:
        number: Its place among all records of the sender.
        topic: Topic.
        key: The encoded key.
        step: The encoded value, or a transfer that leads to it.
        partition: Partition, or -1.
        timestamp: Timestamp in ms, or 0.
        headers: Headers; a list of the record's own, which transfers add to.
        on_delivery: The user's callback, if there is one; until it was called, or given to the client. The last
            record of each topic is kept, and what the callback holds is not.
        size: Bytes that it holds until it is sent.
        until: When it is too late to send it, on the monotonic clock.
        made: References of payloads that belong to this record alone.
        error: Why it cannot be sent.
        is_gone: Whether it was sent, or will not be.
        state: Of the :class:`Gate`.
        context: The context variables of the thread that made it: what is done for it elsewhere belongs to its trace.
    """

    __slots__ = (
        "context",
        "error",
        "headers",
        "is_gone",
        "key",
        "made",
        "number",
        "on_delivery",
        "partition",
        "size",
        "state",
        "step",
        "timestamp",
        "topic",
        "until",
    )

    def __init__(  # noqa: PLR0917  as in the client's produce
        self,
        topic: str,
        key: Any,
        step: Any,
        partition: int = -1,
        timestamp: int = 0,
        headers: list[Header] | None = None,
        on_delivery: Callable[..., Any] | None = None,
    ) -> None:
        self.number = 0
        self.topic = topic
        self.key = key
        self.step = step
        self.partition = partition
        self.timestamp = timestamp
        self.headers = headers
        self.on_delivery = on_delivery
        self.size = size_of(step) + size_of(key)
        self.until = math.inf
        self.made: tuple[str, ...] = ()
        self.error: BaseException | None = None
        self.is_gone = False
        self.state: Any = None
        self.context = contextvars.copy_context()


class Client(Protocol):
    """What a sender needs of a Kafka client. Called in daemon threads."""

    def send(self, record: Outgoing) -> None:
        """Hand a record to the client; its ``step`` is the encoded value.

        Raises:
            BufferError: The client has no room for now.
            Exception: It does not take the record.
        """

    def failed(self, record: Outgoing, error: BaseException) -> Report | None:
        """The user's callback and its arguments, to tell that a record was not sent; None if there is no callback."""

    def delete(self, reference: str) -> None:
        """Delete a payload. Raises PayloadStoreError."""


class Ledger(Protocol):
    """Notes which payloads are on their way, for the next process to delete if this one is killed."""

    def intend(self, reference: str) -> None:
        """Note that a payload is about to be uploaded. Raises PayloadStoreError if that cannot be noted."""

    def settle(self, reference: str) -> None:
        """Note that its record is about to be sent, or that it was deleted."""


class Gate(Protocol):
    """Decides when records may be sent, and which ones go again. Called by the driver alone."""

    def admit(self, record: Outgoing) -> Transfer[Any] | bool:
        """Whether the next record of its topic may be sent now; or what has to be done first.

        A record that may not is asked for again after the next :meth:`settle` of its topic.
        """

    def withdraw(self, record: Outgoing) -> None:
        """Note that a record is not sent after all, admitted or not."""

    def settle(self, report: Any) -> tuple[str, Outgoing | None]:
        """Note the client's report on a record that was admitted. Called again with the same one, it changes nothing.

        Args:
            report: Of the gate's own kind.

        Returns:
            The topic, and the record if it has to be sent again.
        """


def size_of(step: Any) -> int:
    """Bytes that a step of a record holds."""
    if isinstance(step, Transfer):
        return step.size or 0
    return 0 if step is None else len(step)
