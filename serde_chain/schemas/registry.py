"""What stages ask of a schema registry: the contract, implemented by a file per registry, and what these share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from payload_stores.options import Option, boolean, text
from serde_chain.errors import SchemaRegistryError
from serde_chain.record import Context
from serde_chain.schemas.schema_id import SchemaKey

__all__ = [
    "AUTO_REGISTER",
    "STRATEGY",
    "TIMEOUT_S",
    "URL",
    "USER_INFO",
    "USE_LATEST",
    "RegisteredSchema",
    "SchemaRegistry",
    "SubjectNames",
    "mistyped",
]

# Seconds; the libraries' own limits are longer, or none.
TIMEOUT_S: Final = 10

SubjectStrategy = Callable[[str, str, str], str]


def _strategy(value: object) -> SubjectStrategy:
    """Parse a subject name strategy: Java class name, short name, or a callable (ctx, record name)."""
    if callable(value):
        function: Callable[..., str] = value
        return lambda topic, field, record: function(_SubjectContext(topic, field), record)
    name = str(value).rpartition(".")[2].removesuffix("NameStrategy").lower()
    if name not in STRATEGIES:
        raise ValueError("expected TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy or a callable")
    return STRATEGIES[name]


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
USE_LATEST: Final = Option("use.latest.version", boolean, False, doc="write with the subject's latest schema")
STRATEGY: Final[Option[SubjectStrategy | None]] = Option(
    "subject.name.strategy", _strategy, None, doc="how subjects are named (default topic; for glue, the topic's name)"
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
    """

    key: SchemaKey
    text: str
    references: tuple[str, ...] = ()
    guid: str | None = None
    names: tuple[str, ...] = ()
    order: int | None = None
    version: int | str | None = None


class SchemaRegistry(Protocol):
    """Looks up and registers schemas. Clients may cache answers; callers cache what they parse.

    All methods but ``subject`` and ``subjects`` send requests, with a time limit, and are thread-safe. They raise
    SchemaRegistryError if the registry is down, refuses the request, or does not know the schema.
    """

    @property
    def use_latest(self) -> bool:
        """Whether writers use the subject's latest schema."""

    @property
    def refers_to_known_files(self) -> bool:
        """Whether its readers expect references to Protobuf's own files too, which every program has."""

    def subject(self, ctx: Context | None, record_name: str) -> str:
        """Name the subject of a record's schema.

        Raises:
            SchemaRegistryError: The strategy requires a topic, and the context has none.
        """

    def subjects(self, topics: Iterable[str], record_name: str) -> list[str]:
        """Name the subjects of topics' schemas; none if the strategy depends on topics and none are given.

        Args:
            topics: The topics.
            record_name: Full name of the record.
        """

    def schema_for(
        self, subject: str, schema: str | None, schema_type: str, references: Sequence[Any] = ()
    ) -> RegisteredSchema:
        """The schema for writing a subject's records: registered, looked up, or the latest.

        Args:
            subject: The subject.
            schema: Text of the configured schema; None for the latest.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
            references: Results of :meth:`reference` for the referenced schemas.

        Raises:
            SchemaRegistryError: As for all methods, and if the schema requires of writers what stages do not do.
        """

    def latest(self, subject: str, schema_type: str) -> RegisteredSchema:
        """The latest schema of a subject, for reading.

        Args:
            subject: The subject.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        """

    def find(self, subject: str, schema: str, schema_type: str) -> RegisteredSchema | None:
        """The version of a subject with a definition; None if there is none. Registers nothing.

        Args:
            subject: The subject.
            schema: Text of a schema without references.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        """

    def is_compatible(self, subject: str, schema: str, schema_type: str) -> bool | None:
        """Whether a subject would accept a schema as its next version. Registers nothing.

        Args:
            subject: The subject; it may be unknown.
            schema: Text of a schema without references.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.

        Returns:
            The answer; None if the registry checks this only when it registers.
        """

    def reference(self, name: str, schema: str, schema_type: str, references: Sequence[Any]) -> Any:
        """A reference to a schema, registered under its own name unless that is switched off.

        Args:
            name: Its name, which is also its subject.
            schema: Its text.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
            references: The references of the schema itself.
        """

    def get(self, key: SchemaKey, schema_type: str) -> RegisteredSchema:
        """The schema that a record names.

        Args:
            key: Its id.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.

        Raises:
            SchemaRegistryError: As for all methods. An unknown schema, or one of another type, is the record's fault,
                which may contain any id.
        """

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """All schemas of a subject."""

    def check(self) -> None:
        """Check that the registry answers and accepts the credentials."""

    def close(self) -> None:
        """Close its connections."""


class SubjectNames:
    """Names subjects by ``subject.name.strategy``; the part that all registries share.

    Args:
        config: Flat configuration.
        is_key: Whether subjects are for keys.
        default: The strategy if none is configured.
    """

    refers_to_known_files = False

    def __init__(
        self, config: Mapping[str, object], *, is_key: bool, default: SubjectStrategy = STRATEGIES["topic"]
    ) -> None:
        self._field = "key" if is_key else "value"
        self._strategy = STRATEGY.read(config) or default

    def subject(self, ctx: Context | None, record_name: str) -> str:
        """See :meth:`SchemaRegistry.subject`."""
        topic = "" if ctx is None else str(ctx.topic or "")
        if not topic and self._strategy is not STRATEGIES["record"]:
            raise SchemaRegistryError("the schema's subject requires the record's topic", hint="Pass it in the context")
        return self._strategy(topic, self._field, record_name)

    def subjects(self, topics: Iterable[str], record_name: str) -> list[str]:
        """See :meth:`SchemaRegistry.subjects`."""
        if self._strategy is STRATEGIES["record"]:
            return [record_name]
        return [self._strategy(topic, self._field, record_name) for topic in topics]


def mistyped(key: SchemaKey, actual: str, expected: str) -> SchemaRegistryError:
    """The error of a record that names a schema of another type."""
    return SchemaRegistryError(
        f"schema {key} of the registry has the type {actual}, not {expected}",
        hint="Was the record written by another kind of serializer, or with another registry?",
    ).marked(about_record=True)
