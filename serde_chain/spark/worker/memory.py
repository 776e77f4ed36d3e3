"""Memory of a worker process: what a large payload took goes back to the system, and little is reserved ahead."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from functools import cache
from typing import Final

__all__ = ["bound_address_space", "give_back_at_once"]

# malloc.h: blocks from this size on get pages of their own.
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 1 << 20
# malloc.h: most arenas, each of which reserves 64 MiB.
_M_ARENA_MAX: Final = -8
# Read by pyarrow's and DataFusion's allocators when they are loaded. Mimalloc reserves 1 GiB, here in KiB.
_FRUGAL: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MIMALLOC_ARENA_RESERVE": "16384",
    "TOKIO_WORKER_THREADS": "1",
}
_STACK: Final = 1 << 20


@cache
def give_back_at_once() -> None:
    """Have allocators return large blocks to the system as soon as they are freed.

    glibc stops doing so once a large block was freed: it then keeps blocks of up to 32 MiB, in one heap per thread, and
    payloads are downloaded by many threads. The Avro reader's own allocator, mimalloc, waits for a while. Together they
    would keep several payloads that are no longer used.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")  # read when the library is loaded, at the first batch
    _mallopt(_M_MMAP_THRESHOLD, _LARGE)


@cache
def bound_address_space() -> None:
    """Reserve little address space where it is limited; called before pyarrow is loaded.

    ``spark.executor.pyspark.memory`` limits a worker's address space, used or not. With 140 MB in use, allocators and
    stacks of threads reserve 3 GB.
    """
    if not _is_limited():
        return
    for name, value in _FRUGAL.items():
        os.environ.setdefault(name, value)
    _mallopt(_M_ARENA_MAX, 1)
    threading.stack_size(_STACK)


def _is_limited() -> bool:
    try:
        import resource
    except ImportError:  # Windows
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _mallopt(name: int, value: int) -> None:
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        ctypes.CDLL(None).mallopt(name, value)
