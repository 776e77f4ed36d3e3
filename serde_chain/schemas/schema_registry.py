"""The schema registry of stages with schemas: which one, with which framing, by ``schema.registry.type``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from payload_stores.options import Option, choice
from serde_chain.base import Stage
from serde_chain.errors import ConfigError
from serde_chain.record import Context, RecordContext
from serde_chain.schemas import apicurio, confluent, glue
from serde_chain.schemas.apicurio import ApicurioRegistry
from serde_chain.schemas.confluent import ConfluentRegistry
from serde_chain.schemas.deadline import one_deadline
from serde_chain.schemas.framing import APICURIO, CONFLUENT, GLUE, HEADER, NONE, Apicurio, Confluent, Framing, Glue
from serde_chain.schemas.glue import GlueRegistry
from serde_chain.schemas.registry import (
    AUTO_REGISTER,
    LATEST_TTL,
    STRATEGY,
    URL,
    USE_ID,
    USE_LATEST,
    USE_METADATA,
    USER_INFO,
    RegisteredSchema,
    SchemaRegistry,
)
from serde_chain.schemas.schema_references import REFERENCES, OwnReference
from serde_chain.transfer import Lookups, Transfer

TYPE: Final = Option(
    "schema.registry.type",
    choice(CONFLUENT, GLUE, APICURIO),
    CONFLUENT,
    doc="kind of registry: confluent (also others with its interface), glue, apicurio",
)

OPTIONS: Final[tuple[Option[Any], ...]] = (
    TYPE, URL, LATEST_TTL, *confluent.OPTIONS, USER_INFO, AUTO_REGISTER, USE_LATEST, USE_METADATA, USE_ID, REFERENCES,
    STRATEGY, *glue.OPTIONS, *apicurio.OPTIONS,
)  # fmt: skip

FRAMINGS: Final = (CONFLUENT, HEADER, GLUE, APICURIO)
"""How a record names a registry's schema; stages add framings of their own."""

# Without a registry, records would silently be written with one's own schema, and without its id.
_NEEDING: Final[tuple[Option[Any], ...]] = (REFERENCES, USE_LATEST, USE_METADATA, USE_ID)

_OF_TYPE: Final = {CONFLUENT: {CONFLUENT, HEADER}, GLUE: {GLUE}, APICURIO: {APICURIO, HEADER}}
_OPTIONS_OF_TYPE: Final[Mapping[str, tuple[Option[Any], ...]]] = {GLUE: glue.OPTIONS, APICURIO: apicurio.OPTIONS}
_REGISTRIES: Final[Mapping[str, type[ConfluentRegistry | GlueRegistry | ApicurioRegistry]]] = {
    CONFLUENT: ConfluentRegistry,
    GLUE: GlueRegistry,
    APICURIO: ApicurioRegistry,
}


def is_configured(config: Mapping[str, object]) -> bool:
    """Whether a configuration names a registry."""
    return TYPE.read(config) == GLUE or URL.read(config) is not None


def idle_options(config: Mapping[str, object]) -> frozenset[Option[Any]]:
    """The options without effect: those of other registries; without a registry, all."""
    if not is_configured(config):
        return frozenset(OPTIONS)
    kind = TYPE.read(config)
    return frozenset(option for name, options in _OPTIONS_OF_TYPE.items() if name != kind for option in options)


def open_registry(config: Mapping[str, object], *, is_key: bool) -> SchemaRegistry:
    """The configured registry; no request is sent.

    Args:
        config: Flat configuration.
        is_key: Whether subjects are for keys.

    Raises:
        ConfigError: The registry's client refuses its settings.
        MissingDependencyError: An extra is not installed.
    """
    return _REGISTRIES[TYPE.read(config)](config, is_key=is_key)


class Framed(NamedTuple):
    """How the records of a stage name their schemas.

    Attributes:
        name: The framing's name.
        framing: The registry's framing; None for others.
        registry: The registry; None if none is needed.
    """

    name: str
    framing: Framing | None
    registry: SchemaRegistry | None


def named_framing(
    option: Option[Any], config: Mapping[str, object], *, is_key: bool, confluent_by_default: bool = True
) -> tuple[str, Framing | None]:
    """The framing of records: its name; and the framing, if it is a registry's.

    Args:
        option: The stage's option; without a value, the registry's framing if a registry is configured, otherwise
            ``none``.
        config: Flat configuration.
        is_key: Whether records are keys.
        confluent_by_default: Whether a registry of the type ``confluent`` is used without a value too.

    Raises:
        ConfigError: The registry has another framing; or a key asks for registered schemas, and there is no registry.
    """
    kind = TYPE.read(config)
    _check_needs(config)
    by_default = is_configured(config) and (confluent_by_default or kind != CONFLUENT)
    name: str = option.read(config) or (kind if by_default else NONE)
    if name not in FRAMINGS:
        return name, None
    if name not in _OF_TYPE[kind]:
        right = sorted(_OF_TYPE[kind])
        raise ConfigError(
            f"{option.name} = {name}, and {TYPE.name} = {kind}",
            hint=f"Set {option.name} = {' or '.join(right)}, or {TYPE.name} = "
            f"{' or '.join(sorted(other for other, names in _OF_TYPE.items() if name in names))}",
            key=option.name,
        )
    if kind == GLUE:
        return name, Glue(config)
    if kind == APICURIO:
        return name, Apicurio(config, in_header=name == HEADER, is_key=is_key)
    return name, Confluent(in_header=name == HEADER, is_key=is_key)


def _check_needs(config: Mapping[str, object]) -> None:
    if is_configured(config):
        return
    needing = next((option.name for option in _NEEDING if option.read(config)), None)
    if needing is not None:
        raise ConfigError(
            f"{needing} requires a schema registry, and {URL.name} is not set",
            hint=f"Set {URL.name}, or remove {needing}",
            key=needing,
        )


def framing_of(
    option: Option[Any],
    config: Mapping[str, object],
    *,
    is_key: bool,
    needs_registry: bool = True,
    confluent_by_default: bool = True,
) -> Framed:
    """The framing of records, and the registry for it.

    Args:
        option: As for :func:`named_framing`.
        config: Flat configuration.
        is_key: Whether subjects are for keys.
        needs_registry: Whether the registry's framings require a registry.
        confluent_by_default: As for :func:`named_framing`.

    Raises:
        ConfigError: A registry is required but not configured, or has another framing.
    """
    name, framing = named_framing(option, config, is_key=is_key, confluent_by_default=confluent_by_default)
    if framing is None:
        return Framed(name, None, None)
    if is_configured(config):
        return Framed(name, framing, open_registry(config, is_key=is_key))
    if needs_registry:
        raise ConfigError(f"{option.name} = {name} requires a schema registry", hint=f"Set {URL.name}", key=option.name)
    return Framed(name, framing, None)


def schema_to_write(
    registry: SchemaRegistry,
    subject: str,
    text: str | None,
    kind: str,
    references: Sequence[OwnReference],
    *,
    check: Callable[[RegisteredSchema], object] | None,
) -> RegisteredSchema:
    """The schema for writing a subject's records. One's own that cannot be used is not registered.

    Args:
        registry: The registry.
        subject: The subject.
        text: Text of the configured schema; None for the latest.
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        references: The registered schemas that the configured one refers to.
        check: Called with a schema of one's own that refers to others, and their texts; raises ConfigError if it cannot
            be used. None if values are not validated.

    Raises:
        SchemaRegistryError: As for :meth:`SchemaRegistry.schema_for`.
    """
    if check is not None and references and text is not None and not registry.writes_registered:
        check(registry.with_references(subject, text, references))
    return registry.schema_for(subject, text, kind, references)


N = TypeVar("N", bound=Hashable)
T = TypeVar("T")


class PerTopic(Generic[T]):
    """Answers of the registry, queried once per topic.

    Args:
        ask: Queries the registry, by the context of a record; all of its requests have one deadline.
        latest_s: Seconds for which an answer is used; None for ever.

    Attributes:
        known: The answers by topic. Read-only.
    """

    def __init__(self, ask: Callable[[Context | None], T], *, latest_s: float | None = None) -> None:
        self._ask = one_deadline(ask)
        # A missing schema may be registered at any time. One's own that cannot be used stays so, unless those that it
        # refers to change.
        self._answers: Lookups[str | None, T] = Lookups(known_s=latest_s, is_refusal=_is_of_configuration)
        self.known: Mapping[str | None, T] = self._answers.known

    def of(self, ctx: Context | None) -> T:
        """The answer for a record's topic, queried immediately if unknown."""
        return self._answers.get(None if ctx is None else ctx.topic, lambda: self._ask(ctx))

    def transfer(self, ctx: Context | None, go_on: Callable[[T], Any]) -> Transfer[T]:
        """The query for a record's topic, as a transfer."""
        topic = None if ctx is None else ctx.topic
        asking = _place(ctx)
        return self._answers.transfer(topic, lambda: self._ask(asking), go_on)


class PerSchema(Generic[N, T]):
    """Answers about the schemas that records name, queried once per name and scope of the registry.

    A schema id belongs to a context of the registry, and readers that use the latest schema read by topic.

    Args:
        registry: The registry; None without one, for stages that never ask then.
        ask: Queries the registry, by what a record names and by its context; all of its requests have one deadline.
        most: Most answers.

    Attributes:
        is_scoped: Whether the answers depend on more than the name.
    """

    def __init__(
        self, registry: SchemaRegistry | None, ask: Callable[[N, Context | None], T], *, most: int = 10_000
    ) -> None:
        self._registry = registry
        self._ask = one_deadline(ask)
        self.is_scoped = registry is not None and registry.is_scoped
        self._answers: Lookups[tuple[str, N], T] = Lookups(
            most=most, known_s=None if registry is None else registry.latest_s
        )

    def known(self, name: N, ctx: Context | None) -> T | None:
        """The answer; None if it is not known yet."""
        return self._answers.known.get((self._scope(ctx), name))

    def get(self, name: N, ctx: Context | None) -> T:
        """The answer, queried immediately if unknown."""
        return self._answers.get((self._scope(ctx), name), lambda: self._ask(name, ctx))

    def transfer(self, name: N, ctx: Context | None, go_on: Callable[[T], Any]) -> Transfer[T]:
        """The query, as a transfer."""
        asking = _place(ctx)
        return self._answers.transfer((self._scope(ctx), name), lambda: self._ask(name, asking), go_on)

    def _scope(self, ctx: Context | None) -> str:
        return self._registry.scope(ctx) if self.is_scoped and self._registry is not None else ""


def _is_of_configuration(error: Exception) -> bool:
    return isinstance(error, ConfigError)


def _place(ctx: Context | None) -> Context | None:
    """A context without the record: others wait for an answer that does not depend on its key, headers or payload."""
    return None if ctx is None else RecordContext(ctx.topic, ctx.field)


class StageSchema(NamedTuple):
    """The schema of a stage, for commands that show and check it.

    Attributes:
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        name: Its name; None if records or the registry determine it, or if it has none.
        text: Its text as it would be registered, if it has no references; None otherwise.
        registry: The registry that records refer to; None without one.
    """

    kind: str
    name: str | None
    text: str | None
    registry: SchemaRegistry | None


@runtime_checkable
class HasSchema(Protocol):
    """A stage whose values have a schema."""

    def stage_schema(self) -> StageSchema | None:
        """The schema; None without one."""


class UsesRegistry(Stage):
    """A stage with an optional schema registry, which is closed with it."""

    _registry: SchemaRegistry | None = None

    def close(self) -> None:
        """Close the registry's client."""
        if self._registry is not None:
            self._registry.close()
