"""Which payload stores there are, and how one is opened from a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from payload_stores.base import PayloadStore
from payload_stores.errors import ConfigError
from payload_stores.plugins import Catalogue

__all__ = ["STORES", "open_store", "store_class"]

_KIP: Final = "org.apache.kafka.common.serialization.largemessage."

STORES: Final = Catalogue(
    kind="payload store",
    group="payload_stores.stores",
    builtins={
        "memory": "payload_stores.memory:MemoryStore",
        "local": "payload_stores.local.store:LocalStore",
        "s3": "payload_stores.s3.store:S3Store",
        "hop": "payload_stores.hop.store:HopStore",
    },
    aliases={_KIP + "S3PayloadStore": "s3", _KIP + "store.S3PayloadStore": "s3"},
)


def store_class(spec: object) -> type[PayloadStore]:
    """Find the class of a payload store.

    Args:
        spec: Short name, entry point name, Java class name, dotted path, or the class.

    Raises:
        ConfigError: It is not known or not a payload store.
    """
    found = STORES.find(spec) if isinstance(spec, str) else spec
    if isinstance(found, type) and issubclass(found, PayloadStore):
        return found
    shown = repr(spec) if isinstance(spec, (str, type)) else f"a {type(spec).__name__}"  # which may hold secrets
    raise ConfigError(
        f"{shown} is not a payload store", hint="Give a name, or a subclass of payload_stores.PayloadStore"
    )


def open_store(name_or_class: str | type[PayloadStore] | PayloadStore, config: Mapping[str, object]) -> PayloadStore:
    """Open a payload store.

    Args:
        name_or_class: Anything that :func:`store_class` takes, or an instance, which is returned as it is: its
            maker configured it.
        config: Flat mapping of dotted keys.

    Returns:
        A configured store; the caller closes it.

    Raises:
        ConfigError: The name is unknown, a required key is missing or a value is wrong.
        MissingDependencyError: The store's extra is not installed.
    """
    if isinstance(name_or_class, PayloadStore):
        return name_or_class
    store = store_class(name_or_class)()
    store.configure(config)
    return store
