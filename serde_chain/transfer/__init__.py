"""I/O that a record waits for: the steps of a record, transfers that run ahead of their reader, remembered answers.

Public names are loaded on first use: most clients need the steps alone.
"""

from typing import TYPE_CHECKING

from payload_stores.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from serde_chain.transfer.ahead import Prefetch as Prefetch
    from serde_chain.transfer.ahead import Prefetched as Prefetched
    from serde_chain.transfer.answers import Lookups as Lookups
    from serde_chain.transfer.step import Question as Question
    from serde_chain.transfer.step import Transfer as Transfer
    from serde_chain.transfer.step import TransferSlots as TransferSlots
    from serde_chain.transfer.step import answered as answered
    from serde_chain.transfer.step import finish as finish
    from serde_chain.transfer.step import then as then
    from serde_chain.transfer.step import together as together
else:
    __all__, __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            ".ahead": "Prefetch Prefetched",
            ".answers": "Lookups",
            ".step": "Question Transfer TransferSlots answered finish then together",
        },
    )
