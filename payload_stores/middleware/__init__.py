"""Payload stores around other payload stores: a deadline, a cache, retries, figures.

They nest, and the outermost is asked first: ``Deadline(Cache(Retry(Metered(store))), 30_000)``. In this order, the
deadline holds for all attempts together, and for waiting for another's download; a payload that the cache has costs no
attempt, and all who wait for one share its attempts; and the figures are those of the store itself. ``Mirror`` has two
inner stores, with their own retries.
"""

from payload_stores.elsewhere import run_elsewhere
from payload_stores.middleware.base import Middleware
from payload_stores.middleware.cache import Cache, CachedPayloads, CacheFigures
from payload_stores.middleware.deadline import Deadline
from payload_stores.middleware.metered import Metered, OperationFigures
from payload_stores.middleware.mirror import Mirror
from payload_stores.middleware.retry import Retry

__all__ = [
    "Cache",
    "CacheFigures",
    "CachedPayloads",
    "Deadline",
    "Metered",
    "Middleware",
    "Mirror",
    "OperationFigures",
    "Retry",
    "run_elsewhere",
]
