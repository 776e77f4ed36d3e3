"""Payload stores by name, and opening one from a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final, Self, cast

from payload_stores.base import PayloadStore
from payload_stores.base.signatures import check_methods
from payload_stores.errors import ConfigError
from payload_stores.kip1159 import HasOptions, KipPayloadStore, KipStore, is_kip_class, is_kip_store
from payload_stores.options import CLIENT_PREFIXES, UNDECLARED, Option, nearest
from payload_stores.plugins import Catalogue, PluginName, configure, declared, make

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")  # RFC 3986, in the canonical lower case
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


class StoreItem(PluginName):
    """A payload store named in a configuration, alone or in a list."""

    kind = "payload store"
    example = "s3"


class ConfiguredStore:
    """A payload store with its part of a configuration. Each part is determined once, when it is first needed.

    Attributes:
        item: What names it.

    Example:
        >>> bucket = ConfiguredStore.of({"class": "s3", "s3.bucket": "archive"}, {"s3.bucket": "payloads"})
        >>> bucket.settings["s3.bucket"]
        'archive'
    """

    def __init__(self, item: StoreItem, config: Mapping[str, object]) -> None:
        self.item = item
        self._config = config

    @classmethod
    def of(cls, spec: object, config: Mapping[str, object]) -> Self:
        """Read a store.

        Args:
            spec: Anything :func:`open_store` accepts.
            config: Flat mapping of dotted keys.

        Raises:
            ConfigError: A mapping without ``class``.
        """
        return cls(StoreItem.of(spec), config)

    @cached_property
    def target(self) -> PayloadStore | KipPayloadStore | type[PayloadStore | KipPayloadStore]:
        """Its class; or the store itself, if an instance was given.

        Raises:
            ConfigError: The name is unknown or not a payload store, or an instance has options.
        """
        target = self.item.target
        if not (isinstance(target, PayloadStore) or is_kip_store(target)):
            return _class(target)
        if self.item.options:
            raise ConfigError(f"{self.item.label} is an instance; options not allowed", hint="Pass its class instead")
        return target

    @cached_property
    def options(self) -> tuple[Option[Any], ...]:
        """Its options, including those shared by all stores. The ones in its item are not required elsewhere.

        Raises:
            ConfigError: Not a payload store, options that are no tuple of options, or an item with an unknown option.
        """
        item = self.item
        target: object = self.target
        own = declared(target.options, item.label) if isinstance(target, HasOptions) else (UNDECLARED,)
        options = (*own, *PayloadStore.options)
        if UNDECLARED not in options:
            item.check(options)
        return tuple(option.changed(required=False) if option.name in item.options else option for option in options)

    @cached_property
    def settings(self) -> Mapping[str, object]:
        """Its view of the configuration: its item's options first."""
        return {**self._config, **self.item.options}

    def made_of(self, others: Iterable[Option[Any]] = ()) -> tuple[object, dict[str, object]]:
        """The class, or the instance, and the settings that it reads. Equal ones make equal stores.

        Args:
            others: Options of its user, in which equal stores are equal too.
        """
        options = (*self.options, *others)
        # A class that declares no options alone knows which keys it reads.
        declares = UNDECLARED not in options
        return self.target, {
            key: value
            for key, value in self.settings.items()
            if not declares or any(option.matches(key) for option in options)
        }

    def open(self) -> PayloadStore:
        """Make and configure the store, or return the instance; the caller closes it. Its keys are not checked.

        Raises:
            ConfigError: As :func:`open_store`.
            MissingDependencyError: The store's extra is not installed.
        """
        label, target = self.item.label, self.target
        if not isinstance(target, type):
            return _checked(target, label)
        _ = self.options  # refuses unknown ones in the item
        made = make(
            target,
            label,
            {},
            hint="A store's class takes no arguments, and reads its settings in configure(config). A middleware is "
            "passed as an instance, around its store",
        )
        opened = _checked(made, label)
        configure(opened, label, dict(self.settings), signature="configure(self, config)")
        scheme = getattr(opened, "scheme", None)
        if not isinstance(scheme, str) or not _SCHEME.fullmatch(scheme):
            opened.close()
            raise ConfigError(
                f"{label}.scheme is {scheme!r}, which no reference can begin with",
                hint="A scheme has lower-case letters, digits, '+', '-' and '.', and begins with a letter (RFC 3986)",
            )
        return opened


def _class(target: object) -> type[PayloadStore | KipPayloadStore]:
    cls: Any = STORES.find(target) if isinstance(target, str) else target
    if is_kip_class(cls) or (isinstance(cls, type) and issubclass(cls, PayloadStore)):
        return cls
    shown = repr(target) if isinstance(target, (str, type)) else f"a {type(target).__name__}"  # which may hold secrets
    raise ConfigError(
        f"{shown} is not a payload store",
        hint="Give a name, a subclass of payload_stores.PayloadStore, or a class with the methods of KIP-1159's "
        "interface: publish(self, topic, data) and download(self, full_path)",
    )


def open_store(
    name_or_class: str | type[PayloadStore | KipPayloadStore] | PayloadStore | KipPayloadStore | Mapping[str, object],
    config: Mapping[str, object],
    *,
    check_keys: bool = True,
) -> PayloadStore:
    """Open a payload store.

    Args:
        name_or_class: Short name, entry point name, Java class name, dotted path, or the class: a subclass of
            ``PayloadStore``, or a class with KIP-1159's methods. A mapping has one of these under ``class``; its other
            options override those of the configuration: ``{"class": "s3", "s3.bucket": "archive"}``. Or a configured
            instance, which is returned unchanged; one that has only the KIP's methods, in a ``PayloadStore`` around it.
        config: Flat mapping of dotted keys. Other stores, stages and clients may have keys in it too.
        check_keys: Refuse unknown keys with a prefix of the store's options, such as ``s3.bukket``. False for a
            configuration that is checked, or where another class has options with this prefix.

    Returns:
        A configured store; the caller closes it.

    Raises:
        ConfigError: The configuration is not a mapping, the name is unknown, a required key is missing, a value is
            wrong, a key is misspelt, a mapping contains a key that is not an option of the store, or the class does not
            follow the contract of stores: a method is missing, or cannot be called with the arguments of the contract
            or of the KIP.
        MissingDependencyError: The store's extra is not installed.

    Example:
        >>> store = open_store("memory", {"large.message.max.payload.bytes": 1_000_000})
        >>> store.max_payload_bytes
        1000000
    """
    given: object = config
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"a store's configuration is a mapping of dotted keys, not {type(given).__name__}",
            hint="Pass one, such as {'s3.bucket': 'payloads'}. serde_chain.config.load(path) makes one of a file",
        )
    store = ConfiguredStore.of(name_or_class, config)
    if check_keys and isinstance(store.target, type):
        _check_keys(config, store.options)
    return store.open()


def _check_keys(config: Mapping[str, object], options: Iterable[Option[Any]]) -> None:
    """Refuse unknown keys with a prefix that only the store's own options have."""
    own = [option for option in options if option not in PayloadStore.options]
    owned = {option.name.partition(".")[0] for option in own} - CLIENT_PREFIXES
    shared = {option.name.partition(".")[0] for option in PayloadStore.options}
    for key in config:
        prefix = key.partition(".")[0]
        if prefix in owned - shared and not any(option.matches(key) for option in own) and not _is_of_builtin(key):
            names = sorted(option.name for option in own)
            near = nearest(key, names)
            known = ", ".join(name for name in names if name.startswith(f"{prefix}."))
            raise ConfigError(
                f"{key!r} is not a configuration key",
                hint=f"Did you mean {near}?" if near else f"Known under {prefix}. are {known}",
                key=key,
            )


def _is_of_builtin(key: str) -> bool:
    """Whether a key belongs to a built-in store, which a third party's class may extend."""
    return any(option.matches(key) for name in STORES.builtins for option in ConfiguredStore.of(name, {}).options)


def _checked(store: object, label: str) -> PayloadStore:
    """A store whose methods can be called with all arguments of the contract.

    Raises:
        ConfigError: A method cannot be called so.
    """
    if not isinstance(store, PayloadStore):
        return KipStore(cast("KipPayloadStore", store), label)
    check_methods(store, label)
    return store
