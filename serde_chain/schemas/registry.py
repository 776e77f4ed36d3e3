"""What stages ask of a schema registry, and what registries share; each has a file of its own."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from payload_stores.errors import text_of
from payload_stores.options import Option, boolean, integer, text
from payload_stores.plugins import import_object
from payload_stores.signals import let_through
from serde_chain.errors import ConfigError, SchemaRegistryError, shape_of
from serde_chain.record import Context
from serde_chain.schemas.deadline import one_deadline
from serde_chain.schemas.schema_id import SchemaKey
from serde_chain.schemas.schema_references import REFERENCES, OwnReference

T = TypeVar("T")

# Seconds; the libraries' own limits are longer, or none.
TIMEOUT_S: Final = 10
# In place of a page, of any length, of another server or a proxy.
FOREIGN: Final = "the answer is not that of a schema registry"

SubjectStrategy = Callable[[str, str, str], str]


def _strategy(value: object) -> SubjectStrategy:
    """Parse a subject name strategy: Java class name, short name, or a callable (ctx, record name), or its path."""
    name = str(value).rpartition(".")[2].removesuffix("NameStrategy").lower()
    if not callable(value) and name in STRATEGIES:
        return STRATEGIES[name]
    expected = "expected TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy, a callable or its dotted path"
    if isinstance(value, str) and "." in value:
        try:
            value = import_object(value, "function")
        except ConfigError as error:
            raise ValueError(f"{expected}: {error.message}") from error
    if not callable(value):
        raise ValueError(expected)
    function = value
    return lambda topic, field, record: function(_SubjectContext(topic, field), record)


class _SubjectContext(NamedTuple):
    topic: str
    field: str


STRATEGIES: Final[dict[str, SubjectStrategy]] = {
    "topic": lambda topic, field, _record: f"{topic}-{field}",
    "record": lambda _topic, _field, record: record,
    "topicrecord": lambda topic, _field, record: f"{topic}-{record}",
}

URL: Final = Option("schema.registry.url", text, None, doc="address of the schema registry")
USER_INFO: Final = Option("basic.auth.user.info", text, None, secret=True, doc="user:password for the registry")
AUTO_REGISTER: Final = Option("auto.register.schemas", boolean, True, doc="register the schema on first use")
USE_LATEST: Final = Option("use.latest.version", boolean, False, doc="write and read with the subject's latest schema")
STRATEGY: Final[Option[SubjectStrategy | None]] = Option(
    "subject.name.strategy", _strategy, None, doc="how subjects are named (default topic; for glue, the topic's name)"
)


def _schema_id(value: object) -> int | UUID:
    try:
        return integer(minimum=1)(value)
    except ValueError:
        pass
    try:
        return UUID(text(value))
    except ValueError:
        raise ValueError("expected the id of a schema: a number, or Glue's UUID of a version") from None


def _metadata(value: object) -> Mapping[str, str]:
    """Parse metadata: a mapping, the same as JSON text, or pairs as in Java: ``major=1, team=alerts``."""
    expected = "expected pairs such as major=1, team=alerts"
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.lstrip().startswith("{") else _pairs(value)
        except ValueError:
            raise ValueError(expected) from None
    if not isinstance(value, Mapping) or not value or not all(value) or "" in value.values():
        raise ValueError(expected)
    return {name: str(wanted) for name, wanted in value.items()}


def _pairs(value: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in value.split(","))
    return {name.strip(): wanted.strip() if sign else "" for name, sign, wanted in pairs}


def _lifetime(value: object) -> float | None:
    """Seconds; None for ever."""
    try:
        seconds = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except ValueError:
        seconds = None
    if seconds is None or not (seconds >= 0 or seconds == -1):
        raise ValueError("expected seconds; -1 for ever")
    return None if seconds < 0 else seconds


USE_ID: Final = Option("use.schema.id", _schema_id, None, doc="write with the registered schema of this id")
USE_METADATA: Final = Option(
    "use.latest.with.metadata",
    _metadata,
    None,
    doc="write and read with the subject's latest schema that has these metadata: name=value, …",
)
LATEST_TTL: Final[Option[float | None]] = Option(
    "schema.registry.cache.latest.ttl.sec",
    _lifetime,
    300.0,
    doc="seconds after which the latest schema is looked up again; -1: never",
)


class RegisteredSchema(NamedTuple):
    """A schema as the registry returns it.

    Attributes:
        key: Its id or GUID.
        text: The schema.
        references: Texts of the referenced schemas, each after those that it refers to.
        guid: Its GUID, if the registry has GUIDs.
        names: The names by which it refers to ``references``; for Protobuf, the file names in its imports.
        order: A number that grows with each version of a subject; None if unknown.
        version: Its version in the subject that was queried; None if no subject was.
        refers: Its own references, with their subjects and versions, if the registry has them in this form.
        rules: Its rules, in the form of the registry's client; None without any.
    """

    key: SchemaKey
    text: str
    references: tuple[str, ...] = ()
    guid: str | None = None
    names: tuple[str, ...] = ()
    order: int | None = None
    version: int | str | None = None
    refers: tuple[OwnReference, ...] = ()
    rules: Any = None


_CONTEXT: Final = re.compile(r":\.([^:]*):")
_NEEDS_RECORD: Final = (STRATEGIES["record"], STRATEGIES["topicrecord"])
_MOST_TOPICS: Final = 10_000


def context_of(subject: str | None) -> str:
    """The context of a subject in Confluent's registry, where each context has its own ids; empty for the default one.

    Example:
        >>> context_of(":.staging:orders-value"), context_of(":.:orders-value"), context_of("orders-value")
        ('staging', '', '')
    """
    found = _CONTEXT.match(subject or "")
    return "" if found is None else found[1]


def within_context(subject: str, parent: str | None) -> str:
    """The subject of a reference: without a context, it is in that of the schema that refers to it.

    As in Confluent's registry and Java client (``QualifiedSubject.qualifySubjectWithParent``).

    Args:
        subject: The subject in the reference.
        parent: The subject of the schema that has the reference; None if it is unknown.

    Example:
        >>> within_context("customers", ":.staging:orders"), within_context(":.prod:customers", ":.staging:orders")
        (':.staging:customers', ':.prod:customers')
    """
    context = context_of(parent)
    return f":.{context}:{subject}" if context and not subject.startswith((":.", ":*:")) else subject


class SchemaRegistry(ABC):
    """Looks up and registers schemas. Clients may cache answers; callers cache what they parse.

    All methods but ``subject`` and ``subjects`` send requests, with a time limit, and are thread-safe. They raise
    SchemaRegistryError if the registry is down, refuses the request, or does not know the schema.

    Args:
        config: Flat configuration.
        is_key: Whether subjects are for keys.
        default: The strategy if none is configured.

    Attributes:
        auto_register: Whether schemas are registered.
        metadata: The metadata by which the latest schema is chosen; None without any.
        reads_latest: Whether readers use the subject's latest schema.
        writes_registered: Whether writers use a schema that the registry has, such as the subject's latest, instead of
            their own.
        latest_s: Seconds for which the latest schema is used before it is looked up again; None if it never changes.
        is_scoped: Whether a schema id may mean different schemas, or different ways to read, in different topics.
        refers_to_known_files: Whether its readers expect references to Protobuf's own files too, which every program
            has.
    """

    refers_to_known_files = False

    def __init__(
        self, config: Mapping[str, object], *, is_key: bool, default: SubjectStrategy = STRATEGIES["topic"]
    ) -> None:
        self._field = "key" if is_key else "value"
        strategy = STRATEGY.read(config)
        self._strategy = strategy or default
        self.auto_register = AUTO_REGISTER.read(config)
        self.metadata = USE_METADATA.read(config)
        self._id = USE_ID.read(config)
        self._references = REFERENCES.read(config)
        self.reads_latest = USE_LATEST.read(config) or self.metadata is not None
        self.writes_registered = self.reads_latest or self._id is not None
        latest_s = LATEST_TTL.read(config)
        self.latest_s = latest_s if self.reads_latest else None
        # The names of topics have no contexts, so only a function's subjects may.
        self._has_contexts = strategy is not None and strategy not in STRATEGIES.values()
        self.is_scoped = self._has_contexts or self.reads_latest
        self._scopes: dict[str, str] = {}

    def subject(self, ctx: Context | None, record_name: str) -> str:
        """Name the subject of a record's schema.

        Args:
            ctx: The record's context.
            record_name: Full name of the record; empty if the schema is no record.

        Raises:
            ConfigError: The strategy requires the name of a record.
            SchemaRegistryError: The strategy requires a topic, and the context has none.
        """
        topic = _topic(ctx)
        self.check_name(record_name)
        if not topic and self._strategy is not STRATEGIES["record"]:
            raise SchemaRegistryError("the schema's subject requires the record's topic", hint="Pass it in the context")
        return self._subject_of(topic, record_name)

    def _subject_of(self, topic: str, record_name: str) -> str:
        """The subject by the strategy, which may be a user's function."""
        try:
            subject: object = self._strategy(topic, self._field, record_name)
        except Exception as error:
            let_through(error)
            raise ConfigError(
                f"{STRATEGY.name} failed for the topic {topic}: {type(error).__name__}: {text_of(error)}",
                hint="It is called with a context, which has topic and field, and the record's full name",
                key=STRATEGY.name,
            ) from error
        if not isinstance(subject, str) or not subject:
            raise ConfigError(
                f"{STRATEGY.name} returned {shape_of(subject)} for the topic {topic}, not the name of a subject",
                key=STRATEGY.name,
            )
        return subject

    def check_name(self, record_name: str) -> None:
        """Refuse a schema that the strategy cannot name.

        As Confluent's Java client, whose readers find the subject thereby.

        Args:
            record_name: As for :meth:`subject`.

        Raises:
            ConfigError: The strategy requires the name of a record.
        """
        if not record_name and self._strategy in _NEEDS_RECORD:
            raise ConfigError(
                f"{STRATEGY.name} names subjects after records, and the schema of {self._field}s is not a named record",
                hint=f"Set {STRATEGY.name} = TopicNameStrategy, or use a record; a JSON Schema is named by its title",
                key=STRATEGY.name,
            )

    def reading_subject(self, ctx: Context | None) -> str | None:
        """The subject of a record before its schema is known; None if the strategy requires the record's name.

        A function is called with an empty name.
        """
        topic = _topic(ctx)
        if not topic or self._strategy in _NEEDS_RECORD:
            return None
        try:
            return self._subject_of(topic, "")
        except ConfigError:  # of a user's function, which may require a name
            return None

    def scope(self, ctx: Context | None) -> str:
        """What the schema id of a record depends on: records of the same scope and id are read in the same way."""
        if not self.is_scoped:
            return ""
        topic = _topic(ctx)
        if self.reads_latest:
            return topic
        known = self._scopes.get(topic)
        if known is None:
            known = context_of(self.reading_subject(ctx))
            if len(self._scopes) < _MOST_TOPICS:
                self._scopes[topic] = known
        return known

    def subjects(self, topics: Iterable[str], record_name: str) -> list[str]:
        """Name the subjects of topics' schemas; none if the strategy depends on topics and none are given.

        Args:
            topics: The topics.
            record_name: Full name of the record.
        """
        if self._strategy is STRATEGIES["record"]:
            self.check_name(record_name)
            return [record_name]
        topics = list(topics)
        if topics:
            self.check_name(record_name)
        return [self._subject_of(topic, record_name) for topic in topics]

    @one_deadline
    def schema_for(
        self, subject: str, schema: str | None, schema_type: str, references: Sequence[Any] = ()
    ) -> RegisteredSchema:
        """The schema for writing a subject's records: registered, looked up, the latest, or that of an id.

        Args:
            subject: The subject.
            schema: Text of the configured schema; None for the latest.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
            references: Results of :meth:`reference`, or :class:`OwnReference` objects, for the referenced schemas.

        Raises:
            SchemaRegistryError: As for all methods, and if the schema requires of writers what stages do not do.
        """
        if self._id is not None:
            return self.check_writable(subject, self.get(self.key_of(self._id), schema_type, subject))
        if schema is None or self.reads_latest:
            return self.check_writable(subject, self.latest(subject, schema_type))
        return self.check_writable(subject, self.registered(subject, schema, schema_type, references))

    def check_writable(self, _subject: str, registered: RegisteredSchema) -> RegisteredSchema:
        """A schema, unless it requires of writers what stages do not do."""
        return registered

    @abstractmethod
    def key_of(self, number: int | UUID) -> SchemaKey:
        """The key for ``use.schema.id``.

        Raises:
            ConfigError: The registry has no such ids.
        """

    @abstractmethod
    def registered(self, subject: str, schema: str, schema_type: str, references: Sequence[Any]) -> RegisteredSchema:
        """A subject's version with a definition: registered, or looked up if that is switched off."""

    @abstractmethod
    def latest(self, subject: str, schema_type: str) -> RegisteredSchema:
        """The latest schema of a subject, for reading; with ``use.latest.with.metadata``, of those with the metadata.

        The answer is new: callers remember it for :attr:`latest_s`.

        Args:
            subject: The subject.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        """

    @one_deadline
    def latest_for(self, ctx: Context | None, record_name: str, schema_type: str) -> RegisteredSchema | None:
        """The latest schema for a record that is read; None if readers do not use it.

        Args:
            ctx: The record's context.
            record_name: Full name of the record, in the schema that it was written with; empty if it has none.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        """
        if not self.reads_latest:
            return None
        try:
            return self.latest(self.subject(ctx, record_name), schema_type)
        except SchemaRegistryError as error:
            # Of a topic; otherwise the record names it.
            if self._strategy not in _NEEDS_RECORD:
                error.about_record = False
            raise

    @abstractmethod
    def find(self, subject: str, schema: str, schema_type: str) -> RegisteredSchema | None:
        """The version of a subject with a definition; None if there is none. Registers nothing.

        Args:
            subject: The subject.
            schema: Text of a schema without references.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        """

    @abstractmethod
    def is_compatible(self, subject: str, schema: str, schema_type: str) -> bool | None:
        """Whether a subject would accept a schema as its next version. Registers nothing.

        Args:
            subject: The subject; it may be unknown.
            schema: Text of a schema without references.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.

        Returns:
            The answer; None if the registry checks this only when it registers.
        """

    @one_deadline
    def known_references(self, subject: str) -> Mapping[str, Any]:
        """The references, for :meth:`schema_for`, by the names with which a schema of a subject is looked up.

        Those of ``schema.references``; if nothing is registered, also those of the subject's latest schema.

        Args:
            subject: The subject.
        """
        own = {reference.name: reference for reference in self._references}
        if self.auto_register:
            return own
        # None if nothing is registered; looking up the schema says so.
        latest = if_known(lambda: self.references_of_latest(subject))
        return {**{item.name: item for item in latest or ()}, **own}

    def references_of_latest(self, _subject: str) -> Sequence[Any]:
        """The references of a subject's latest schema; none if the registry has no references."""
        return ()

    @abstractmethod
    def reference(self, subject: str, name: str, schema: str, schema_type: str, references: Sequence[Any]) -> Any:
        """A reference to a schema, registered under its own name unless that is switched off.

        Args:
            subject: The subject of the schema that refers to it, in whose context it is registered.
            name: Its name, which is also its subject.
            schema: Its text.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
            references: The references of the schema itself.
        """

    @abstractmethod
    def with_references(self, subject: str, schema: str, references: Sequence[OwnReference]) -> RegisteredSchema:
        """A schema of one's own, with the texts of those that it refers to. Registers nothing.

        Args:
            subject: Its subject.
            schema: Its text.
            references: Its references.

        Returns:
            The schema, whose key is 0: it has none yet.
        """

    @abstractmethod
    def get(self, key: SchemaKey, schema_type: str, subject: str | None = None) -> RegisteredSchema:
        """The schema that a record names.

        Args:
            key: Its id.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
            subject: The record's subject, whose context the id belongs to; None if it is unknown.

        Raises:
            SchemaRegistryError: As for all methods. An unknown schema, or one of another type, is the record's fault,
                which may contain any id.
        """

    @abstractmethod
    def versions(self, subject: str) -> list[RegisteredSchema]:
        """All schemas of a subject."""

    @abstractmethod
    def check(self) -> None:
        """Check that the registry answers and accepts the credentials."""

    @abstractmethod
    def close(self) -> None:
        """Close its connections."""

    def refuse_metadata(self, registry: str) -> None:
        """Refuse ``use.latest.with.metadata``, for registries without metadata.

        Raises:
            ConfigError: It is set.
        """
        if self.metadata is not None:
            raise ConfigError(
                f"{USE_METADATA.name} requires schema.registry.type = confluent: {registry} has no such look-up",
                key=USE_METADATA.name,
            )


def if_known(ask: Callable[[], T]) -> T | None:
    """An answer; None if the registry says that it has no such schema."""
    try:
        return ask()
    except SchemaRegistryError as error:
        if not error.about_record:
            raise
        return None


def _topic(ctx: Context | None) -> str:
    return "" if ctx is None else str(ctx.topic or "")


def unusable_id(number: int | UUID, registry: str) -> ConfigError:
    """The error of a ``use.schema.id`` of another registry."""
    return ConfigError(f"{USE_ID.name} = {number}: ids of {registry} are of another form", key=USE_ID.name)


def is_outage(status: int, *, is_foreign: bool) -> bool:
    """Whether a refusal may pass. Proxies use 502 to 504; other servers, such as S3's, answer unknown paths with 500.

    Args:
        status: The HTTP status.
        is_foreign: Whether the answer is not in a registry's form.
    """
    return status == 429 or status > 500 or (status == 500 and not is_foreign)


def one_line(text: object) -> str:
    """The beginning of another program's message, for an error."""
    return " ".join(str(text)[:1000].split())


def mistyped(key: SchemaKey, actual: str, expected: str) -> SchemaRegistryError:
    """The error of a record, or a subject, with a schema of another type."""
    return SchemaRegistryError(
        f"schema {key} of the registry has the type {actual}, not {expected}",
        hint="Was the record written by another kind of serializer, or with another registry?",
    ).marked(about_record=True)
