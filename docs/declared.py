"""Tables of configuration keys, generated from the declared options of stages, stores and clients.

The pages contain them between cog marks, so that they are readable in the repository too; ``make tables``
regenerates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from payload_stores.base import PayloadStore
from payload_stores.options import Option
from payload_stores.plugins import import_object
from payload_stores.registry import STORES
from serde_chain.catalogue import DESERIALIZERS, SERIALIZERS
from serde_chain.clients.client_chains import LOCK, MAX_BLOCK, MAX_POLL_INTERVAL
from serde_chain.config import CLIENT_OPTIONS, DESCRIBE
from serde_chain.schemas.schema_registry import OPTIONS as REGISTRY
from serde_chain.self_describing import ALLOW, DEFAULT
from tests.clients.confluent.differences import rows

__all__ = ["CLIENTS", "EVERY_STORE", "REGISTRY", "SELF_DESCRIBING", "differences", "stage", "store", "table"]

CLIENTS = (MAX_BLOCK, MAX_POLL_INTERVAL, LOCK, *CLIENT_OPTIONS)
EVERY_STORE = PayloadStore.options
SELF_DESCRIBING = (DESCRIBE, ALLOW, DEFAULT)


def table(options: Iterable[Option[Any]]) -> None:
    """Print a table of options: key, default, and description."""
    print("| key | default | |\n|---|---|---|")
    for option in options:
        print(f"| `{option.name}` | {_default(option)} | {option.doc}{' (secret)' if option.secret else ''} |")


def stage(name: str) -> None:
    """Print the options of a stage: the writer's, then the reader's additional ones."""
    _declared((SERIALIZERS.builtins[name], DESERIALIZERS.builtins[name]), REGISTRY)


def store(name: str) -> None:
    """Print the options of a store, without those of every store."""
    _declared((STORES.builtins[name],), EVERY_STORE)


def differences() -> None:
    """Print the table of differences from confluent_kafka's clients."""
    print("| | confluent_kafka | here |\n|---|---|---|")
    print(rows())


def _declared(paths: Iterable[str], apart: Sequence[Option[Any]]) -> None:
    options = {option.name: option for path in paths for option in getattr(import_object(path), "options")}  # noqa: B009, for mypy
    table(option for option in options.values() if option not in apart)


def _default(option: Option[Any]) -> str:
    if option.required:
        return "**required**"
    match option.default:
        case None | "" | ():
            return ""
        case bool() as flag:
            return f"`{str(flag).lower()}`"
        case tuple() as several:
            return ", ".join(f"`{item}`" for item in several)
        case value if callable(value):  # one of the library's own
            return ""
        case value:
            return f"`{value}`"
