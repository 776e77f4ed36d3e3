"""Memory of a worker process: returns the memory of large payloads to the system, and reserves little in advance."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from functools import cache
from typing import Final

from serde_chain.stages.avro.native import library

# malloc.h: blocks of at least this size get their own pages.
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 1 << 20
# malloc.h: maximum number of arenas, each of which reserves 64 MiB.
_M_ARENA_MAX: Final = -8
# Read by pyarrow's allocator when it is loaded. Mimalloc reserves 1 GiB; the unit is KiB.
_FRUGAL: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MIMALLOC_ARENA_RESERVE": "16384"}
_STACK: Final = 1 << 20
# Columns of ordinary records.
_KEPT: Final = 8 << 20


@cache
def give_back_at_once() -> None:
    """Make allocators return large blocks to the system as soon as they are freed.

    glibc stops doing so after a large block was freed: it then keeps blocks of up to 32 MiB, in one heap per thread,
    and many threads download payloads. pyarrow's allocator, mimalloc, delays the return, and the compiled reader of
    Avro keeps the memory of batches. Together they would keep several unused payloads.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")  # read when the library is loaded, at the first batch
    _mallopt(_M_MMAP_THRESHOLD, _LARGE)
    compiled = library()
    if compiled is not None:
        compiled.keep(_KEPT)


@cache
def bound_address_space() -> None:
    """Reserve little address space if it is limited; called before pyarrow is loaded.

    ``spark.executor.pyspark.memory`` limits a worker's address space, used or not. With 140 MB in use, allocators and
    thread stacks reserve 3 GB.
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
