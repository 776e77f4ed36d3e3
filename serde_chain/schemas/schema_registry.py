"""The schema registry of stages with schemas: Confluent's client, with deadlines and typed errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast
from uuid import UUID

from payload_stores.options import Option, boolean, text
from payload_stores.plugins import require
from serde_chain.base import Stage
from serde_chain.errors import UNKNOWN_SCHEMA, ConfigError, SchemaRegistryError
from serde_chain.lookups import Lookups
from serde_chain.record import Context, RecordContext, set_header
from serde_chain.schemas import schema_id
from serde_chain.schemas.schema_id import SchemaKey
from serde_chain.transfer import Transfer

__all__ = [
    "CONFLUENT",
    "HEADER",
    "NONE",
    "OPTIONS",
    "PerTopic",
    "RegisteredSchema",
    "SchemaFrame",
    "SchemaRegistry",
    "UsesRegistry",
    "frame_of",
    "framing_of",
]

# How a record names its schema; stages add framings of their own.
CONFLUENT: Final = "confluent"
HEADER: Final = "header"
NONE: Final = "none"

SubjectStrategy = Callable[[str, str, str], str]

# Confluent's client has no default time limit.
_TIMEOUT_S: Final = 10
_NO_SCHEMA: Final = (1 << 31) - 1


def _strategy(value: object) -> SubjectStrategy:
    """Parse a subject name strategy: Java class name, short name, or a callable (ctx, record name)."""
    if callable(value):
        function: Callable[..., str] = value
        return lambda topic, field, record: function(_SubjectContext(topic, field), record)
    name = str(value).rpartition(".")[2].removesuffix("NameStrategy").lower()
    if name not in _STRATEGIES:
        raise ValueError("expected TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy or a callable")
    return _STRATEGIES[name]


class _SubjectContext(NamedTuple):
    topic: str
    field: str


_STRATEGIES: Final[dict[str, SubjectStrategy]] = {
    "topic": lambda topic, field, _record: f"{topic}-{field}",
    "record": lambda _topic, _field, record: record,
    "topicrecord": lambda topic, _field, record: f"{topic}-{record}",
}

CLIENT: Final = Option("schema.registry.*", text, "", secret=True, doc="settings of Confluent's registry client")
URL: Final = Option("schema.registry.url", text, None, doc="address of the schema registry")
USER_INFO: Final = Option("basic.auth.user.info", text, None, secret=True, doc="user:password for the registry")
USER_INFO_SOURCE: Final = Option("basic.auth.credentials.source", text, None, doc="USER_INFO, as in Java")
AUTO_REGISTER: Final = Option("auto.register.schemas", boolean, True, doc="register the schema on first use")
USE_LATEST: Final = Option("use.latest.version", boolean, False, doc="write with the subject's latest schema")
NORMALIZE: Final = Option("normalize.schemas", boolean, False, doc="normalize schemas when registering")
STRATEGY: Final = Option("subject.name.strategy", _strategy, _STRATEGIES["topic"], doc="how subjects are named")

OPTIONS: Final[tuple[Option[Any], ...]] = (
    URL, CLIENT, USER_INFO, USER_INFO_SOURCE, AUTO_REGISTER, USE_LATEST, NORMALIZE, STRATEGY,
)  # fmt: skip


class RegisteredSchema(NamedTuple):
    """A schema as the registry returns it.

    Attributes:
        key: Its id or GUID.
        text: The schema.
        references: Texts of the referenced schemas, each after those that it refers to.
        guid: Its GUID, if the registry has GUIDs.
        names: The names by which it refers to ``references``; for Protobuf, the file names in its imports.
    """

    key: SchemaKey
    text: str
    references: tuple[str, ...] = ()
    guid: str | None = None
    names: tuple[str, ...] = ()


class SchemaRegistry:
    """Looks up and registers schemas. Confluent's client caches by id and by schema; callers cache what they parse."""

    def __init__(self, config: Mapping[str, object], *, is_key: bool) -> None:
        """Create the client; no request is sent before the first record.

        Args:
            config: Flat configuration with ``schema.registry.url``.
            is_key: Whether subjects are for keys.

        Raises:
            ConfigError: The client refuses its settings.
            MissingDependencyError: The extra ``registry`` is not installed.
        """
        self._library: Any = require("confluent_kafka.schema_registry", "registry")
        self._field = "key" if is_key else "value"
        self._strategy = STRATEGY.read(config)
        self._auto_register = AUTO_REGISTER.read(config)
        self.use_latest = USE_LATEST.read(config)
        self._normalize = NORMALIZE.read(config)
        settings = {"timeout": _TIMEOUT_S, **CLIENT.select(config)}
        if user_info := USER_INFO.read(config):
            settings.setdefault("basic.auth.user.info", user_info)
        numbers = {key: int(value) for key, value in settings.items() if isinstance(value, str) and value.isdigit()}
        try:
            self._client = self._library.SchemaRegistryClient.new_client({**settings, **numbers})
        except (ValueError, TypeError) as error:
            raise ConfigError(f"the schema registry client refuses its settings: {error}", key=URL.name) from error

    def subject(self, ctx: Context | None, record_name: str) -> str:
        """The subject of a record's schema.

        Raises:
            SchemaRegistryError: The strategy requires a topic, and the context has none.
        """
        topic = "" if ctx is None else str(ctx.topic or "")
        if not topic and self._strategy is not _STRATEGIES["record"]:
            raise SchemaRegistryError("the schema's subject requires the record's topic", hint="Pass it in the context")
        return self._strategy(topic, self._field, record_name)

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
            SchemaRegistryError: The registry is down, refuses the request, or does not know the schema.
        """
        if schema is None or self.use_latest:
            latest = self._ask(f"the latest schema of {subject}", self._client.get_latest_version, subject)
            return self._with_references(latest.schema_id, latest.schema)
        wanted = self._library.Schema(schema, schema_type, list(references))
        answer = self._register(subject, wanted) if self._auto_register else self._look_up(subject, wanted)
        return RegisteredSchema(answer.schema_id, schema, guid=getattr(answer, "guid", None))

    def reference(self, name: str, schema: str, schema_type: str, references: Sequence[Any]) -> Any:
        """A reference to a schema, registered under its own name unless that is switched off.

        Args:
            name: Its name, which is also its subject (Confluent's default).
            schema: Its text.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
            references: The references of the schema itself.

        Raises:
            SchemaRegistryError: The registry is down, refuses the request, or does not know the schema.
        """
        wanted = self._library.Schema(schema, schema_type, list(references))
        if self._auto_register:
            self._register(name, wanted)
        return self._library.SchemaReference(name, name, self._look_up(name, wanted).version)

    def get(self, key: SchemaKey, schema_type: str, form: str | None = None) -> RegisteredSchema:
        """The schema with the id or GUID in a record.

        Args:
            key: The id or GUID.
            schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
            form: The format's name in Confluent's registry: ``serialized`` for Protobuf in base64.

        Raises:
            SchemaRegistryError: The registry is down, refuses the request, does not know the schema, or has it with
                another type. The last two are the record's fault, which may contain any id.
        """
        method = self._client.get_schema if isinstance(key, int) else self._client.get_schema_by_guid
        try:
            schema = self._ask(f"schema {key}", method, key if isinstance(key, int) else str(key), fmt=form)
        except SchemaRegistryError as error:
            # For unsupported GUIDs, and for numbers that cannot be ids, registries answer like any server asked for an
            # unknown address.
            if not error.about_record and self._is_not_found(error.__cause__):
                self.check()
                error.about_record = True
            raise
        if (actual := schema.schema_type or "AVRO") != schema_type:
            failure = SchemaRegistryError(
                f"schema {key} of the registry has the type {actual}, not {schema_type}",
                hint="Was the record written by another kind of serializer, or with another registry?",
            )
            failure.about_record = True
            raise failure
        return self._with_references(key, schema, form)

    def subjects(self, topics: Iterable[str], record_name: str) -> list[str]:
        """The subjects of topics' schemas; none if the strategy depends on topics and none are given.

        Args:
            topics: The topics.
            record_name: Full name of the record.
        """
        if self._strategy is _STRATEGIES["record"]:
            return [record_name]
        return [self._strategy(topic, self._field, record_name) for topic in topics]

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """All schemas of a subject.

        Raises:
            SchemaRegistryError: The registry is down, refuses the request, or does not know the subject.
        """
        versions = self._ask(f"the versions of {subject}", self._client.get_versions, subject)
        registered = [self._ask(f"{subject} version {at}", self._client.get_version, subject, at) for at in versions]
        return [self._with_references(item.schema_id, item.schema) for item in registered]

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def check(self) -> None:
        """Check that a registry answers at the address, by requesting a schema with the highest id.

        Raises:
            SchemaRegistryError: The registry is down or refuses the request, or another server answers.
        """
        try:
            self._ask("", self._client.get_schema, _NO_SCHEMA)
        except SchemaRegistryError as error:
            if error.about_record:
                return
            if not self._is_not_found(error.__cause__):
                raise
            raise SchemaRegistryError(
                f"{URL.name} has no schema registry at its path",
                hint=f"Check the path in {URL.name}: Confluent's has none, Apicurio's is /apis/ccompat/v7",
            ) from error

    def _register(self, subject: str, schema: Any) -> Any:
        method = self._client.register_schema_full_response
        return self._ask(
            f"registering the schema of {subject}", method, subject, schema, normalize_schemas=self._normalize
        )

    def _look_up(self, subject: str, schema: Any) -> Any:
        return self._ask(f"the schema of {subject}", self._client.lookup_schema, subject, schema, self._normalize)

    def _with_references(self, key: SchemaKey, schema: Any, form: str | None = None) -> RegisteredSchema:
        collected: dict[tuple[str, int], tuple[str, str]] = {}
        self._collect(schema, collected, form)
        names, texts = zip(*collected.values(), strict=True) if collected else ((), ())
        return RegisteredSchema(key, schema.schema_str, texts, getattr(schema, "guid", None), names)

    def _collect(self, schema: Any, collected: dict[tuple[str, int], tuple[str, str]], form: str | None) -> None:
        """Depth first, so that referenced schemas precede the schema; a reference already collected is not followed."""
        for reference in schema.references or ():
            at = (reference.subject, reference.version)
            if at not in collected:
                what = f"schema {reference.subject} version {reference.version}"
                registered = self._ask(what, self._client.get_version, *at, fmt=form)
                collected[at] = (reference.name, "")
                self._collect(registered.schema, collected, form)
                collected.pop(at)
                collected[at] = (reference.name, registered.schema.schema_str)

    def _is_not_found(self, error: Any) -> bool:
        """Whether an error of the registry's client is the status 404; its other errors have no status."""
        return isinstance(error, self._library.SchemaRegistryError) and error.http_status_code == HTTPStatus.NOT_FOUND

    def _ask(self, what: str, method: Callable[..., Any], *arguments: object, **options: object) -> Any:
        try:
            return method(*arguments, **options)
        except self._library.SchemaRegistryError as error:
            unknown = self._is_not_found(error)
            said = f"HTTP {error.http_status_code}"
            said = f"{error.error_message} ({said})" if error.error_message else said
            failure = SchemaRegistryError(
                f"the schema registry refused {what or 'to answer'}: {said}",
                hint="Was it written with another registry? Check schema.registry.url" if unknown else None,
            )
            failure.transient = error.http_status_code >= 500 or error.http_status_code == 429
            # The registry itself reports an unknown schema; other 404s come from another server.
            failure.about_record = unknown and error.error_code in UNKNOWN_SCHEMA
            raise failure from error
        except Exception as error:  # the client does not wrap errors of its HTTP and authentication libraries
            failure = SchemaRegistryError(
                f"the schema registry did not answer{what and f' on {what}'}: {type(error).__name__}: {error}",
                hint="Check schema.registry.url and that the registry runs",
            )
            failure.transient = True
            raise failure from error


class SchemaFrame(NamedTuple):
    """The bytes or header by which a record names its schema.

    Attributes:
        prefix: Bytes in front of the record.
        header: Header that names the schema, if the prefix does not.
    """

    prefix: bytes
    header: tuple[str, bytes] | None

    def put(self, encoded: bytes, ctx: Context | None) -> bytes:
        """Name the schema in a record.

        Args:
            encoded: The record's bytes.
            ctx: The record around it.

        Returns:
            The bytes, with the prefix.
        """
        if self.header is not None:
            set_header(ctx, *self.header)
        return self.prefix + encoded


def frame_of(registered: RegisteredSchema, framing: str, *, is_key: bool, indexes: bytes = b"") -> SchemaFrame:
    """The frame for records of a schema.

    Args:
        registered: The schema, identified by its id.
        framing: ``confluent`` or ``header``.
        is_key: Whether the records are keys.
        indexes: Protobuf's message indexes.
    """
    by_id = schema_id.encode_id(cast(int, registered.key)) + indexes
    if framing == CONFLUENT:
        return SchemaFrame(by_id, None)
    # Registries with GUIDs expect them in headers; readers accept ids there as well.
    named = schema_id.encode_guid(UUID(registered.guid)) + indexes if registered.guid else by_id
    return SchemaFrame(b"", (schema_id.KEY_HEADER if is_key else schema_id.VALUE_HEADER, named))


T = TypeVar("T")


class PerTopic(Generic[T]):
    """Answers of the registry, queried once per topic.

    Args:
        ask: Queries the registry, by the context of a record.

    Attributes:
        known: The answers by topic. Read-only.
    """

    def __init__(self, ask: Callable[[Context | None], T]) -> None:
        self._ask = ask
        # A missing schema is the configuration's fault, which may be corrected at any time.
        self._answers: Lookups[str | None, T] = Lookups(refused_s=0)
        self.known: Mapping[str | None, T] = self._answers.known

    def of(self, ctx: Context | None) -> T:
        """The answer for a record's topic, queried immediately if unknown."""
        return self._answers.get(None if ctx is None else ctx.topic, lambda: self._ask(ctx))

    def transfer(self, ctx: Context | None, go_on: Callable[[T], Any]) -> Transfer[T]:
        """The query for a record's topic, as a transfer."""
        topic = None if ctx is None else ctx.topic
        # Do not hold the record's payload while others wait for the answer, which does not depend on key and headers.
        asking = None if ctx is None else RecordContext(ctx.topic, ctx.field)
        return self._answers.transfer(topic, lambda: self._ask(asking), go_on)


def framing_of(
    option: Option[Any], config: Mapping[str, object], *, is_key: bool, needs_registry: bool = True
) -> tuple[str, SchemaRegistry | None]:
    """The framing of records, and the registry for it.

    Args:
        option: The stage's option; the default is ``confluent`` if a registry is configured, otherwise ``none``.
        config: Flat configuration.
        is_key: Whether subjects are for keys.
        needs_registry: Whether the registry's framings require a registry.

    Returns:
        The framing; and the registry, if the framing is one of the registry's and it is configured.

    Raises:
        ConfigError: A registry is required but not configured.
    """
    has_registry = URL.read(config) is not None
    framing: str = option.read(config) or (CONFLUENT if has_registry else NONE)
    if framing not in {CONFLUENT, HEADER}:
        return framing, None
    if has_registry:
        return framing, SchemaRegistry(config, is_key=is_key)
    if needs_registry:
        raise ConfigError(
            f"{option.name} = {framing} requires a schema registry", hint="Set schema.registry.url", key=option.name
        )
    return framing, None


class UsesRegistry(Stage):
    """A stage with an optional schema registry, which is closed with it."""

    _registry: SchemaRegistry | None = None

    def close(self) -> None:
        """Close the registry's client."""
        if self._registry is not None:
            self._registry.close()
