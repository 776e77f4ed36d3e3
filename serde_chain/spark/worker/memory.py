"""Memory of a worker process: the memory of a large payload goes back to the system when it is no longer used."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

__all__ = ["give_back_at_once"]

# malloc.h: blocks from this size on get pages of their own.
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 1 << 20


@cache
def give_back_at_once() -> None:
    """Have allocators return large blocks to the system as soon as they are freed.

    glibc stops doing so once a large block was freed: it then keeps blocks of up to 32 MiB, in one heap per thread, and
    payloads are downloaded by many threads. The Avro reader's own allocator, mimalloc, waits for a while. Together they
    would keep several payloads that are no longer used.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")  # read when the library is loaded, at the first batch
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGE)
