"""Configurations: a mapping, a Java ``.properties`` file or TOML, and the owners of its keys.

A client's configuration contains keys of chains (``value.serializers``), stages (``avro.schema``), stores
(``s3.bucket``), and of the Kafka client. The first three are declared as options; the rest is passed to the client
unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from payload_stores.options import CLIENT_PREFIXES, UNDECLARED, Option, boolean, choice, nearest, text
from payload_stores.plugins import import_object, require
from serde_chain import bakdata_config
from serde_chain.catalogue import (
    DESERIALIZE,
    DESERIALIZERS,
    SERIALIZE,
    SERIALIZERS,
    ConfiguredStage,
    Side,
    StageItem,
    bare_key,
)
from serde_chain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "CLIENT_OPTIONS",
    "DEAD_LETTER",
    "DEAD_LETTER_TOPIC",
    "DESCRIBE",
    "ERROR_POLICY",
    "RAISE",
    "SKIP",
    "Config",
    "Resolved",
    "check_keys",
    "checked",
    "foreign_addresses",
    "is_of_librdkafka",
    "is_secret",
    "load",
    "parse",
    "read",
    "resolve",
    "stages_of",
    "unknown_keys",
    "with_settings",
]

Config: TypeAlias = Mapping[str, object]

# Keys that name the class of values, with their stages.
_MODELS: Final = {f"{stage}.type": stage for stage in ("avro", "json", "protobuf")}

# Keys of librdkafka and the Java client whose values are or contain secrets.
_CLIENT_SECRETS: Final = frozenset({
    "sasl.jaas.config", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions", "sasl.password",
    "ssl.key.password", "ssl.key.pem", "ssl.keystore.key", "ssl.keystore.password", "ssl.truststore.password",
    "ssl_key",
})  # fmt: skip
DESCRIBE: Final = Option(
    "serde.chain.describe",
    boolean,
    False,
    doc="list the stages in a header, for readers with value.deserializers = auto",
)

RAISE: Final = "raise"
SKIP: Final = "skip"
DEAD_LETTER: Final = "dead-letter"
ERROR_POLICY: Final = Option(
    "serde.error.policy",
    choice(RAISE, SKIP, DEAD_LETTER),
    RAISE,
    of_client=True,
    doc="what happens to an undecodable record: raise, skip, dead-letter",
)
DEAD_LETTER_TOPIC: Final[Option[str | None]] = Option(
    "serde.dead.letter.topic",
    text,
    None,
    of_client=True,
    doc="the topic that gets such records, with serde.error.policy = dead-letter",
)
# Client options with a prefix that stages own too.
CLIENT_OPTIONS: Final[tuple[Option[Any], ...]] = (ERROR_POLICY, DEAD_LETTER_TOPIC)

# Options of stages that begin like a client's, and that no client has.
_BEGIN_LIKE_CLIENTS: Final = frozenset({
    "auto.register.schemas", "compression.max.output.bytes", "compression.min.bytes",
})  # fmt: skip

_NEAR: Final = 0.9
_NEAR_PREFIX: Final = 0.7  # a transposition in a word of four letters
_NEAR_CLIENT: Final = 0.8  # a letter too many or too few in a word of four
_MOST_BYTES: Final = 16 << 20
_OTHER_FORMATS: Final = frozenset({".json", ".yaml", ".yml", ".ini", ".xml"})
_BUILDER: Final = "serializer.builder"
_SINGLE_FORMS: Final = tuple(f"{field}.{side.word}" for field in ("key", "value") for side in (SERIALIZE, DESERIALIZE))
# Keys of one stage or store; the value may be a mapping with its options.
_ROUTES: Final = "large.message.route."
_PLURAL_ROUTES: Final = "large.message.routes."
_ITEMS: Final = (*_SINGLE_FORMS, "large.message.payload.store.class", "mirror.primary", "mirror.secondary")


class Resolved:
    """A configuration, read once for all callers.

    Attributes:
        settings: Flat mapping of dotted keys.
        chains: The stages of each chain, by its single key (``value.serializer``), in the order of application.
        options: The options of all these stages and their stores, and of clients.
    """

    def __init__(
        self, settings: Config, chains: Mapping[str, list[ConfiguredStage]], options: tuple[Option[Any], ...]
    ) -> None:
        self.settings, self.chains, self.options = settings, chains, options

    def of(self, side: Side, *, is_key: bool) -> list[ConfiguredStage]:
        """The stages of one chain; as :func:`stages_of`."""
        return self.chains[_single_key(side, is_key=is_key)]

    @cached_property
    def client(self) -> dict[str, object]:
        """The keys for the Kafka client: all that belong to no chain, stage or store.

        With a store that declares no keys, such as one of KIP-1159's interface alone, dotted keys whose first word no
        client has are the store's; unless that word is a client's misspelt one, which the client should refuse.
        """
        declares = UNDECLARED not in self.options
        written = {option.name for stage in self._stages(SERIALIZE) for option in stage.options}
        shared = {option.name for option in self.options if option.of_producer} - written
        return {
            key: value
            for key, value in self.settings.items()
            if key.removesuffix("s") not in _SINGLE_FORMS
            and (declares or not _is_of_no_client(key))
            and (key in shared or not any(_is_of(option, key) for option in self.options))
            and key not in _BEGIN_LIKE_CLIENTS
            and (key.partition(".")[0] in CLIENT_PREFIXES or not any(_is_of(o, key) for o in _builtin_options()))
        }

    def _stages(self, side: Side) -> Iterator[ConfiguredStage]:
        for is_key in (False, True):
            yield from self.of(side, is_key=is_key)

    def with_defaults(self, defaults: Config) -> Resolved:
        """The configuration with settings for absent keys, such as a client's own defaults of stages.

        Args:
            defaults: The settings; their options are known.
        """
        chains = {key: [stage.with_defaults(defaults) for stage in chain] for key, chain in self.chains.items()}
        return Resolved({**defaults, **self.settings}, chains, self.options)


def resolve(source: Config | Resolved | str | Path) -> Resolved:
    """Load a configuration and determine its stages and options.

    Args:
        source: As for :func:`load`; a resolved configuration is returned unchanged.

    Raises:
        ConfigError: As in :func:`load` and :func:`stages_of`; or a stage is unknown.
    """
    if isinstance(source, Resolved):
        return source
    settings = load(source)
    chains = {
        _single_key(side, is_key=is_key): stages_of(settings, side, is_key=is_key)
        for side in (SERIALIZE, DESERIALIZE)
        for is_key in (False, True)
    }
    options = (option for chain in chains.values() for stage in chain for option in stage.options)
    return Resolved(settings, chains, (*CLIENT_OPTIONS, *options))


def load(source: Config | str | Path) -> dict[str, object]:
    """Load a configuration into a flat mapping of dotted keys.

    Args:
        source: A mapping, which is copied; or the path of a ``.toml`` or Java ``.properties`` file in UTF-8, of up to
            16 MiB.
            Nested TOML tables become dotted keys, except for stages (``value.serializer = {class = "zstd", …}``) and
            stores (``large.message.payload.store.class = {class = "s3", …}``).
            Keys and class names of bakdata's Java library are translated. Relative paths in a file count from its
            folder; in a mapping, from the current one.

    Returns:
        A new dictionary.

    Raises:
        ConfigError: It is neither a mapping nor a path, the file cannot be read, or a key is not a string.
        MissingDependencyError: The reader for ``.properties`` files is not installed.
    """
    if isinstance(source, Mapping):
        config = dict(source)
    elif not isinstance(source, (str, os.PathLike)):
        raise ConfigError(f"a configuration is a mapping or the path of a file, not {type(source).__name__}")
    else:
        from pathlib import Path  # needed only for files

        path = Path(source)
        config = parse(path, read(path))
    for key in config:
        if not isinstance(key, str):
            raise ConfigError(f"the configuration key {key!r} is not a string")
    return bakdata_config.translated(config)


def read(path: Path) -> str:
    """Read the text of a configuration file; a pipe can be read only once.

    Args:
        path: The file: UTF-8, with or without a byte order mark, of up to 16 MiB.

    Raises:
        ConfigError: It cannot be read.
    """
    if path.suffix in _OTHER_FORMATS:
        raise ConfigError(f"the configuration {path} is neither TOML nor properties", hint="Write .toml or .properties")
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error}") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"the configuration {path} has more than {_MOST_BYTES:,} bytes", hint="Is it another file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"the configuration {path} cannot be read: line {line} is not UTF-8", hint="Save the file as UTF-8"
        ) from None  # the original error contains the file's content


def parse(path: Path, text: str) -> dict[str, object]:
    """Parse the text of a configuration file into dotted keys, without translation, and with absolute paths.

    Args:
        path: The file; its suffix determines the format.
        text: Result of :func:`read`.

    Raises:
        ConfigError: The text is malformed.
        MissingDependencyError: The reader for ``.properties`` files is not installed.
    """
    from serde_chain import config_paths  # needed only for files

    try:
        return config_paths.anchored(_parse(path, text), path)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error}") from error
    except RecursionError:
        raise ConfigError(f"the configuration {path} is nested too deeply") from None


def _parse(path: Path, text: str) -> dict[str, object]:
    if path.suffix == ".toml":
        import tomllib

        try:
            return dict(_flatten(tomllib.loads(text)))
        except tomllib.TOMLDecodeError as error:
            is_twice = "overwrite" in str(error) or "twice" in str(error)
            hint = "Set each key once" if is_twice else 'In TOML, text stands in quotes: key = "value"'
            raise ConfigError(f"the configuration {path} cannot be read: {error}", hint=hint) from error
    properties: Any = require("javaproperties", "config")
    return dict(properties.loads(text))


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, Mapping) and not _is_item(name):
            yield from _flatten(value, f"{name}.")
        elif isinstance(value, list):
            yield name, [_flat_item(item) for item in value]
        else:
            yield name, _flat_item(value)


def _is_item(name: str) -> bool:
    name = bare_key(name)
    return name in _ITEMS or (name.startswith(_ROUTES) and name.endswith((".payload.store.class", *_ITEMS[-2:])))


def _flat_item(item: object) -> object:
    return dict(_flatten(item)) if isinstance(item, Mapping) else item


def with_settings(config: Config, settings: Config) -> dict[str, object]:
    """A configuration with settings that replace those of both sides.

    Args:
        config: Flat configuration.
        settings: Settings by key, without a side.

    Example:
        >>> with_settings({"value.json.validate": True}, {"json.validate": False})
        {'json.validate': False}
    """
    return {**{key: value for key, value in config.items() if bare_key(key) not in settings}, **settings}


def stages_of(config: Config, side: Side, *, is_key: bool) -> list[ConfiguredStage]:
    """Read the stage list of one chain, in the order of application.

    Args:
        config: Flat configuration.
        side: Direction of the chain.
        is_key: Whether the chain is for keys.

    Returns:
        The stages; empty if neither the list nor the single form is set, so that the client's default applies. With
        ``serde.chain.describe``, the describing stage comes first.

    Raises:
        ConfigError: Both forms are set (KIP-1159), or the list is empty or not a list.
    """
    items = _items(config, _single_key(side, is_key=is_key), side)
    stages = ConfiguredStage.all_of(items, config, side, is_key=is_key)
    if side is SERIALIZE and stages:
        describing = ConfiguredStage.of(StageItem("describe", {}), config, side, is_key=is_key)
        if describing.read(DESCRIBE):
            return [describing, *stages]
    return stages


def _items(config: Config, single: str, side: Side) -> list[StageItem]:
    several = single + "s"
    one, many = config.get(single), config.get(several)
    if one is not None and many is not None:
        raise ConfigError(f"{single} and {several} exclude each other", hint="Set one of them", key=several)
    if one is not None:
        if isinstance(one, str) and "," in one:
            raise ConfigError(f"{single} = {one!r} names several stages", hint=f"Set {several}", key=single)
        if isinstance(one, (list, tuple)):
            raise ConfigError(f"{single} is a list", hint=f"Set {several}", key=single)
        return [StageItem.of(one, single)]
    if many is None:
        return []
    items = [part for part in many.split(",") if part.strip()] if isinstance(many, str) else many
    if not isinstance(items, (list, tuple)) or not items:
        example = "avro, zstd, large-message" if side is SERIALIZE else "large-message, zstd, avro"
        raise ConfigError(f"{several} is not a list of stages", hint=f'Write for instance "{example}"', key=several)
    return [StageItem.of(item, several) for item in items]


def _single_key(side: Side, *, is_key: bool) -> str:
    return f"{'key' if is_key else 'value'}.{side.word}"


def checked(source: Config | Resolved | str | Path) -> Resolved:
    """Load a configuration as :func:`resolve` does, and refuse what :func:`check_keys` refuses.

    Args:
        source: As for :func:`load`; a resolved configuration is returned unchanged.

    Raises:
        ConfigError: As in :func:`resolve` and :func:`check_keys`.
    """
    resolved = resolve(source)
    check_keys(resolved)
    return resolved


def check_keys(config: Config | Resolved) -> None:
    """Refuse misspelt keys, and models of stages that are in no list.

    Args:
        config: The configuration.

    Raises:
        ConfigError: The first of :func:`unknown_keys`.
    """
    for error in unknown_keys(config):
        raise error


# Kafka's settings of topics that are neither settings of clients too, such as compression.type, nor of a broker alone.
_TOPIC_KEYS: Final = frozenset({
    "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
    "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes", "leader.replication.throttled.replicas", "local.retention.bytes", "local.retention.ms",
    "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
    "message.timestamp.type", "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas",
    "preallocate", "remote.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes",
    "retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
    "unclean.leader.election.enable",
})  # fmt: skip
_BROKERS: Final = ("bootstrap.servers", "metadata.broker.list")
_PROTOCOLS: Final = frozenset({"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"})
_LIMIT_OF_CLIENT: Final = (
    "The producer's limit is message.max.bytes; with large.message.threshold.bytes = auto, it follows the topic's. "
)


def unknown_keys(config: Config | Resolved) -> Iterator[ConfigError]:
    """Find misspelt keys, unknown ones with a prefix that a stage or store owns, and keys that have no place here.

    Args:
        config: The configuration.

    Yields:
        An error for each, which names the nearest known key.
    """
    resolved = resolve(config)
    used, keys = resolved.options, resolved.settings
    yield from _models_of_no_stage(used, keys)
    yield from _settings_of_topics(used, keys)
    yield from foreign_addresses(keys)
    if not any(_is_strange(key, used) for key in keys):
        return
    known = [*_builtin_options(), *used]
    names = {option.name for option in known} | {form + plural for form in _SINGLE_FORMS for plural in ("", "s")}
    owned = {name.partition(".")[0] for name in names} - CLIENT_PREFIXES
    for key in keys:
        prefix = key.partition(".")[0]
        if key in names or any(_is_of(option, key) for option in known):
            continue
        bare = bare_key(key)
        side = key.removesuffix(bare)
        if side and any(option.matches(bare) for option in known):
            hint: str | None = f"It is of the client, for keys and values alike: write {bare}"
            yield ConfigError(f"{key!r} is not a configuration key", hint=hint, key=key)
            continue
        if bare.startswith(_ROUTES) and (hint := _of_other_store(bare)):
            yield ConfigError(f"{key!r} is not a configuration key", hint=hint, key=key)
            continue
        near = bare if bare in names else _nearest(bare, side, names)
        near_miss = prefix in CLIENT_PREFIXES and nearest(key, [option.name for option in used], cutoff=_NEAR)
        if key.endswith(_BUILDER):
            stages = f"{key.removesuffix('.builder')}s"
            hint = f"It is a key of SerializingProducer and DeserializingConsumer; here, {stages} names the stages"
            yield ConfigError(f"{key!r} is not a configuration key here", hint=hint, key=key)
        elif corrected := _with_right_prefix(bare, used, owned):
            hint = f"Did you mean {side}{corrected}?"
            yield ConfigError(f"{key!r} is not a configuration key", hint=hint, key=key)
        elif prefix in owned or near_miss:
            yield ConfigError(
                f"{key!r} is not a configuration key",
                hint=f"Did you mean {near}?" if near else _known(key, prefix, names),
                key=key,
            )


def foreign_addresses(keys: Config) -> Iterator[ConfigError]:
    """Find addresses that no broker has: librdkafka leaves them out, and waits."""
    for key in _BROKERS:
        for address in str(keys.get(key)).split(","):
            scheme, mark, _ = address.strip().partition("://")
            if mark and scheme.lower() not in _PROTOCOLS:
                hint = "Write host:port, such as localhost:9092"
                yield ConfigError(f"{key} has an address with {scheme}://, which no broker has", hint=hint, key=key)


def _settings_of_topics(used: Iterable[Option[Any]], keys: Iterable[str]) -> Iterator[ConfigError]:
    for key in keys:
        if key in _TOPIC_KEYS and not any(_is_of(option, key) for option in used):
            hint = f"{_LIMIT_OF_CLIENT if key == 'max.message.bytes' else ''}Set it when the topic is created, or by "
            hint += f"kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config {key}=VALUE"
            yield ConfigError(f"{key!r} is a setting of topics, and not of clients", hint=hint, key=key)


def _models_of_no_stage(used: Iterable[Option[Any]], keys: Iterable[str]) -> Iterator[ConfigError]:
    """Find models of a stage that is in no list, where another stage would take them: their checks would not run.

    Other keys of such a stage are no mistake: files are shared by programs.
    """
    taken = {option.name for option in used} & _MODELS.keys()
    for key in keys:
        stage = _MODELS.get(bare_key(key))
        if stage is not None and taken and bare_key(key) not in taken:
            near = " or ".join(sorted(taken))
            yield ConfigError(
                f"{key!r} has no effect: no list of stages names {stage}",
                hint=f"Did you mean {near}? Otherwise leave it out",
                key=key,
            )


def _with_right_prefix(key: str, used: Iterable[Option[Any]], owned: Iterable[str]) -> str | None:
    """The option of a configured stage or store that a key with a misspelt prefix names (``maks.byte``), or None.

    Only the prefix may differ, and it must be unknown, so that a client's own keys never match.
    """
    prefix, _, rest = key.partition(".")
    if not rest or prefix in CLIENT_PREFIXES or prefix in owned:
        return None
    right = {first for option in used for first, _, after in [option.name.partition(".")] if after == rest}
    near = nearest(prefix, sorted(right), cutoff=_NEAR_PREFIX)
    return near and f"{near}.{rest}"


def _nearest(bare: str, side: str, names: Iterable[str]) -> str | None:
    """The nearest key, with the same side if there is one."""
    if bare.startswith(_PLURAL_ROUTES):
        return side + _ROUTES + bare.removeprefix(_PLURAL_ROUTES)
    if bare.startswith(_ROUTES):
        near = _nearest_in_route(bare, names)
    else:
        near = nearest(bare, [name.removeprefix(side) for name in names])
    return near and side + near


def _nearest_in_route(key: str, names: Iterable[str]) -> str | None:
    """The nearest key of the same route, without the common prefix, which would distort the comparison."""
    start = key[: key.find(".", len(_ROUTES)) + 1]
    near = nearest(key.removeprefix(start), [name.removeprefix(start) for name in names if name.startswith(start)])
    return near and start + near


def _known(key: str, prefix: str, names: set[str]) -> str:
    if key.startswith(_ROUTES):
        return "Under a route stand keys of its store, and those of large-message that may differ by topic"
    return f"Known under {prefix}. are {_under(prefix, names)}"


def _of_other_store(key: str) -> str | None:
    """Advice for a key under a route that belongs to another store than the route's; None for other keys."""
    route, _, setting = key.removeprefix(_ROUTES).partition(".")
    if not any(option.matches(setting) for option in _builtin_options()):
        return None
    return f"{setting} is of a store that the route does not have: name it by {_ROUTES}{route}.payload.store.class"


def _is_strange(key: str, used: Iterable[Option[Any]]) -> bool:
    """Whether a key must be compared with the options of all stages, which imports these."""
    if key.removesuffix("s") in _SINGLE_FORMS or any(_is_of(option, key) for option in used):
        return False
    if key.partition(".")[0] not in CLIENT_PREFIXES:
        return True
    return nearest(key, [option.name for option in used], cutoff=_NEAR) is not None


def _is_of(option: Option[Any], key: str) -> bool:
    """Whether a key belongs to an option, for both chains or one of them."""
    return option.matches(key) or (not option.of_client and option.matches(bare_key(key)))


def _is_of_no_client(key: str) -> bool:
    first, dot, _ = key.lower().partition(".")
    if not dot or nearest(first, CLIENT_PREFIXES, cutoff=_NEAR_CLIENT) is not None:
        return False
    return not any(sorted(first) == sorted(word) for word in CLIENT_PREFIXES)  # letters in another order


def is_of_librdkafka(key: str) -> bool:
    """Whether a key begins like one of librdkafka's."""
    return key.partition(".")[0] in CLIENT_PREFIXES


def is_secret(key: str, options: Iterable[Option[Any]]) -> bool:
    """Whether a key's value must not be shown, by its declaration.

    Args:
        key: The key.
        options: The options of the chains. An exact name takes precedence over a wildcard.
    """
    key = bare_key(key)
    declared = [option for option in options if option.matches(key)]
    declared = [option for option in declared if option.name == key] or declared
    return key in _CLIENT_SECRETS or any(option.secret for option in declared)


@cache
def _builtin_options() -> tuple[Option[Any], ...]:
    from payload_stores.base import PayloadStore
    from payload_stores.registry import STORES

    paths = [*SERIALIZERS.builtins.values(), *DESERIALIZERS.builtins.values(), *STORES.builtins.values()]
    classes = [PayloadStore, *(import_object(path) for path in dict.fromkeys(paths))]
    return tuple(dict.fromkeys(option for cls in classes for option in cls.options))  # type: ignore[attr-defined]


def _under(prefix: str, names: set[str]) -> str:
    return ", ".join(sorted(name for name in names if name.startswith(prefix + ".")))
