"""The payload stores by their names, and opening one from a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from payload_stores.base import PayloadStore
from payload_stores.errors import ConfigError
from payload_stores.options import Option
from payload_stores.plugins import Catalogue, Item

__all__ = ["STORES", "StoreItem", "open_store", "store_class", "store_options"]

_KIP: Final = "org.apache.kafka.common.serialization.largemessage."

STORES: Final = Catalogue(
    kind="payload store",
    group="payload_stores.stores",
    builtins={
        "memory": "payload_stores.memory:MemoryStore",
        "local": "payload_stores.local.store:LocalStore",
        "s3": "payload_stores.s3.store:S3Store",
        "objects": "payload_stores.objects.store:ObjectsStore",
        "hop": "payload_stores.hop.store:HopStore",
        "kafka": "payload_stores.kafka.store:KafkaStore",
        "mirror": "payload_stores.mirror:MirrorStore",
    },
    aliases={_KIP + "S3PayloadStore": "s3", _KIP + "store.S3PayloadStore": "s3"},
)


class StoreItem(Item):
    """A payload store as a configuration names it, by itself or in a list."""

    kind = "payload store"
    example = "s3"


def store_class(spec: object) -> type[PayloadStore]:
    """Find the class of a payload store.

    Args:
        spec: Short name, entry point name, Java class name, dotted path, the class, or a mapping that has one of these
            under ``class``.

    Raises:
        ConfigError: It is not known or not a payload store.
    """
    return _class(StoreItem.of(spec).target)


def _class(target: object) -> type[PayloadStore]:
    cls = STORES.find(target) if isinstance(target, str) else target
    if isinstance(cls, type) and issubclass(cls, PayloadStore):
        return cls
    shown = repr(target) if isinstance(target, (str, type)) else f"a {type(target).__name__}"  # which may hold secrets
    raise ConfigError(
        f"{shown} is not a payload store", hint="Give a name, or a subclass of payload_stores.PayloadStore"
    )


def store_options(spec: object) -> tuple[Option[Any], ...]:
    """The options of a payload store, those that all stores share among them.

    Args:
        spec: Anything that :func:`open_store` takes. What a mapping has by itself is not required of the configuration.

    Raises:
        ConfigError: It is not a payload store, or is given an option that it does not have.
    """
    item = StoreItem.of(spec)
    options = (*_store_or_class(item).options, *PayloadStore.options)
    item.check(options)
    return tuple(replace(option, required=False) if option.name in item.options else option for option in options)


def open_store(
    name_or_class: str | type[PayloadStore] | PayloadStore | Mapping[str, object], config: Mapping[str, object]
) -> PayloadStore:
    """Open a payload store.

    Args:
        name_or_class: Anything that :func:`store_class` takes, or an instance, which is returned as it is: its maker
            configured it. A mapping holds options beside ``class``, which come before those of the configuration:
            ``{"class": "s3", "s3.bucket": "archive"}``.
        config: Flat mapping of dotted keys.

    Returns:
        A configured store; the caller closes it.

    Raises:
        ConfigError: The name is unknown, a required key is missing, a value is wrong, or a mapping has a key that is
            not an option of the store.
        MissingDependencyError: The store's extra is not installed.

    Example:
        >>> store = open_store("memory", {"large.message.max.payload.bytes": 1_000_000})
        >>> store.max_payload_bytes
        1000000
    """
    item = StoreItem.of(name_or_class)
    store = _store_or_class(item)
    if isinstance(store, PayloadStore):
        return store
    item.check(store_options(store))
    opened = store()
    opened.configure({**config, **item.options})
    return opened


def _store_or_class(item: StoreItem) -> PayloadStore | type[PayloadStore]:
    if not isinstance(item.target, PayloadStore):
        return _class(item.target)
    if item.options:
        raise ConfigError(f"{item.label} is made already, so it takes no options", hint="Pass its class instead")
    return item.target
