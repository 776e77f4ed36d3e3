"""Chains and decoders that a worker process keeps open: a registry is queried once per id instead of once per query.

Spark's workers outlive queries, so the number of both is limited: the least recently used is closed.
"""

from __future__ import annotations

import atexit
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from payload_stores.plugins import require
from serde_chain.base import SupportsClose
from serde_chain.chain import DeserializerChain
from serde_chain.errors import MissingDependencyError
from serde_chain.spark.udfs.shipping import remedy

_MOST: Final = 32


T = TypeVar("T", bound=SupportsClose)


@dataclass
class _Entry:
    held: Any
    users: int = 0


_decoders: Final[OrderedDict[bytes, _Entry]] = OrderedDict()
_chains: Final[dict[bytes, _Entry]] = {}


@contextmanager
def use(key: bytes, make: Callable[[bytes], T]) -> Iterator[T]:
    """Use the object for a plan, created once per process.

    Args:
        key: The pickled plan.
        make: Creates it from the key.

    Raises:
        MissingDependencyError: A package is missing, with the interpreter's path.
    """
    entry = _decoders.get(key)
    if entry is None:
        try:
            entry = _decoders[key] = _Entry(make(key))
        except MissingDependencyError as error:
            raise MissingDependencyError(
                f"{error.message} in the interpreter of Spark's workers, {sys.executable}",
                hint=remedy(str(error.hint), driver=pickle.loads(key).python),  # noqa: S301, the driver's own bytes
            ) from error
    _decoders.move_to_end(key)
    entry.users += 1
    try:
        yield entry.held
    finally:
        entry.users -= 1
        idle = [name for name, entry in _decoders.items() if not entry.users]
        for name in idle[: max(len(_decoders) - _MOST, 0)]:
            _decoders.pop(name).held.close()


def chain(config: Mapping[str, object], *, is_key: bool) -> DeserializerChain:
    """The chain of a configuration, shared by all plans with this configuration."""
    key: bytes = require("pyspark.cloudpickle", "spark").dumps((dict(config), is_key))
    entry = _chains.get(key)
    if entry is None:
        entry = _chains[key] = _Entry(DeserializerChain.from_config(config, is_key=is_key))
    entry.users += 1
    opened: DeserializerChain = entry.held
    return opened


def let_go(unused: DeserializerChain) -> None:
    """Release a plan's use of a chain."""
    for key, entry in list(_chains.items()):
        if entry.held is unused:
            entry.users -= 1
            if not entry.users:
                _chains.pop(key).held.close()


# pyspark's daemon kills its workers without this; the operating system then releases their resources.
@atexit.register
def close_all() -> None:
    """Close everything."""
    while _decoders:
        with suppress(Exception):  # the others must be closed too
            _decoders.popitem()[1].held.close()
