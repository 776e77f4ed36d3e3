"""Middleware around payload stores: a deadline, a cache, retries, translated exceptions.

They nest, outermost first: ``Deadline(Cache(Retry(store), 64 << 20), 30_000)``. In this order, the deadline covers all
attempts and the wait for another thread's download; a cached payload costs no attempt, and threads waiting for the same
payload share its attempts. ``Translated`` is the innermost, around stores of others: retries are of errors of this
package. ``Mirror`` has two inner stores, with their own retries.
"""

from payload_stores.middleware.base import Middleware
from payload_stores.middleware.cache import Cache, CachedPayloads, CacheFigures
from payload_stores.middleware.deadline import Deadline
from payload_stores.middleware.mirror import Mirror
from payload_stores.middleware.retry import Retry
from payload_stores.middleware.translated import Translated
from payload_stores.threads import run_in_daemon_thread

__all__ = [
    "Cache",
    "CacheFigures",
    "CachedPayloads",
    "Deadline",
    "Middleware",
    "Mirror",
    "Retry",
    "Translated",
    "run_in_daemon_thread",
]
