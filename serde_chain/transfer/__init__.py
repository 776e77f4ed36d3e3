"""I/O that a record waits for: the steps of a record, transfers that run ahead of their reader, remembered answers."""

from serde_chain.transfer.ahead import Ahead, Prefetch
from serde_chain.transfer.answers import Lookups
from serde_chain.transfer.step import Question, Slots, Transfer, answered, finish, then, together

__all__ = ["Ahead", "Lookups", "Prefetch", "Question", "Slots", "Transfer", "answered", "finish", "then", "together"]
