"""Payload stores around other payload stores: a deadline for every call, and retries of transient errors.

They nest, the outermost is asked first: ``Deadline(Retry(store), 30_000)`` gives 30 s to all attempts together.
"""

from payload_stores.elsewhere import run_elsewhere
from payload_stores.middleware.base import Middleware
from payload_stores.middleware.deadline import Deadline
from payload_stores.middleware.retry import Retry

__all__ = ["Deadline", "Middleware", "Retry", "run_elsewhere"]
