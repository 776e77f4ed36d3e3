"""I/O that a record waits for: the steps of a record, transfers that run ahead of their reader, remembered answers."""

from serde_chain.transfer.ahead import Prefetch, Prefetched
from serde_chain.transfer.answers import Lookups
from serde_chain.transfer.step import Question, Transfer, TransferSlots, answered, finish, then, together

__all__ = [
    "Lookups",
    "Prefetch",
    "Prefetched",
    "Question",
    "Transfer",
    "TransferSlots",
    "answered",
    "finish",
    "then",
    "together",
]
