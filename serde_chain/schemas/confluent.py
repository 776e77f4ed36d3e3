"""Confluent's schema registry: its own client, with deadlines and typed errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from json import JSONDecodeError
from typing import Any, Final
from uuid import UUID

from payload_stores.options import Option, boolean
from payload_stores.plugins import require
from serde_chain.errors import UNKNOWN_SCHEMA, ConfigError, SchemaRegistryError
from serde_chain.schemas import http_settings
from serde_chain.schemas.deadline import one_deadline, within_deadline
from serde_chain.schemas.registry import (
    AUTO_REGISTER,
    FOREIGN,
    TIMEOUT_S,
    URL,
    USE_METADATA,
    RegisteredSchema,
    SchemaRegistry,
    context_of,
    if_known,
    is_outage,
    mistyped,
    one_line,
    unusable_id,
    within_context,
)
from serde_chain.schemas.schema_id import SchemaKey
from serde_chain.schemas.schema_references import REFERENCES, OwnReference, collected

_NO_SCHEMA: Final = (1 << 31) - 1
_OWN_REFERENCES: Final = f"Check names, subjects and versions in {REFERENCES.name}"
_PATHS: Final = f"Check the path in {URL.name}: Confluent's has none, Apicurio's is /apis/ccompat/v7"
# Types of rules by which Confluent's serializers encrypt single fields, or the whole payload, and the modes that write.
_ENCRYPTING: Final = frozenset({"ENCRYPT", "ENCRYPT_PAYLOAD"})
# The user and password in an address, which the client quotes if it is none of http.
_LOGIN: Final = re.compile(r"//\S*@")
_WRITING: Final = frozenset({"WRITE", "WRITEREAD"})
# What the client raises while it takes an answer apart that no registry gives.
_NO_ANSWER: Final = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)

NORMALIZE: Final = Option("normalize.schemas", boolean, False, doc="normalize schemas when registering")

OPTIONS: Final[tuple[Option[Any], ...]] = (*http_settings.OPTIONS, NORMALIZE)


class ConfluentRegistry(SchemaRegistry):
    """Confluent's registry, and others with its interface. Its client caches by id and by schema."""

    def __init__(self, config: Mapping[str, object], *, is_key: bool) -> None:
        """Create the client; no request is sent before the first record.

        Args:
            config: Flat configuration with ``schema.registry.url``.
            is_key: Whether subjects are for keys.

        Raises:
            ConfigError: The client refuses its settings, or a file of theirs is missing or wrong.
            MissingDependencyError: The extra ``registry`` is not installed.
        """
        self._library: Any = require("confluent_kafka.schema_registry", "registry")
        super().__init__(config, is_key=is_key)
        self._normalize = NORMALIZE.read(config)
        settings = http_settings.settings_of(config, http_settings.LIBRARYS, "confluent")
        http_settings.tls_context(settings)  # the client creates its own, and its errors name no file
        try:
            self._client = self._library.SchemaRegistryClient.new_client({"timeout": TIMEOUT_S, **settings})
        except (ValueError, TypeError, OSError) as error:
            reason = _LOGIN.sub("//…@", str(error))
            raise ConfigError(f"the schema registry client refuses its settings: {reason}", key=URL.name) from None

    def key_of(self, number: int | UUID) -> SchemaKey:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        if isinstance(number, UUID):
            raise unusable_id(number, "Confluent's registry")
        return number

    def registered(self, subject: str, schema: str, schema_type: str, references: Sequence[Any]) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        wanted = self._referring(subject, schema, schema_type, references)
        if self.auto_register:
            answer = self._register(subject, wanted)
        else:
            with _advised(f"Register it, or set {AUTO_REGISTER.name} = true; or check {URL.name}", _is_unknown):
                answer = self._look_up(subject, wanted)
        found = RegisteredSchema(
            answer.schema_id, schema, guid=answer.guid, order=answer.schema_id, rules=answer.schema.rule_set
        )
        if not references:
            return found
        with _advised(_OWN_REFERENCES, _is_unknown):
            return found._replace(**self._texts(wanted, subject))

    @one_deadline
    def with_references(self, subject: str, schema: str, references: Sequence[OwnReference]) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        with _advised(_OWN_REFERENCES, _is_unknown):
            wanted = self._referring(subject, schema, None, references)
            return RegisteredSchema(0, schema, **self._texts(wanted, subject))

    def _referring(self, subject: str, schema: str, schema_type: str | None, references: Sequence[Any]) -> Any:
        """A schema with its references, in the form of the client."""
        return self._library.Schema(schema, schema_type, [self._reference(item, subject) for item in references])

    @one_deadline
    def latest(self, subject: str, schema_type: str) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        latest = self._latest(subject)
        if (actual := latest.schema.schema_type or "AVRO") != schema_type:
            raise mistyped(latest.schema_id, actual, schema_type).marked(about_record=False)
        found = self._with_references(latest.schema_id, latest.schema, subject)
        return found._replace(version=latest.version, guid=latest.guid)

    def check_writable(self, subject: str, registered: RegisteredSchema) -> RegisteredSchema:
        """Refuse to write in clear what the schema's rules require to be encrypted.

        Only Confluent's serializers run rules. Others do not protect data: docs/confluent-kafka.md lists them.
        """
        _check_rules(subject, registered.rules)
        return registered

    @one_deadline
    def find(self, subject: str, schema: str, schema_type: str) -> RegisteredSchema | None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        found = if_known(lambda: self._look_up(subject, self._library.Schema(schema, schema_type)))
        if found is None:
            return None
        return RegisteredSchema(found.schema_id, schema, order=found.schema_id, version=found.version)

    @one_deadline
    def is_compatible(self, subject: str, schema: str, schema_type: str) -> bool | None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        wanted = self._library.Schema(schema, schema_type)
        what = f"the compatibility of the schema of {subject}"
        answer = if_known(lambda: bool(self._ask(what, self._client.test_compatibility, subject, wanted)))
        return answer is not False  # a new subject accepts any schema

    def references_of_latest(self, subject: str) -> Sequence[OwnReference]:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        return _referred(self._latest(subject).schema)

    @one_deadline
    def reference(self, subject: str, name: str, schema: str, schema_type: str, references: Sequence[Any]) -> Any:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        own = within_context(name, subject)
        wanted = self._referring(own, schema, schema_type, references)
        try:
            if self.auto_register:
                self._register(own, wanted)
            version = self._look_up(own, wanted).version
        except SchemaRegistryError as error:
            if not error.about_record:
                raise
            raise SchemaRegistryError(
                f"the schema imports {name}, which is not registered as it is under the subject {own}",
                hint=f"Register it there, or say in {REFERENCES.name} under which subject it is registered",
            ) from error
        return self._library.SchemaReference(name, name, version)

    def _reference(self, reference: Any, parent: str) -> Any:
        """A reference of a subject's schema in the form of the client."""
        if not isinstance(reference, OwnReference):
            return reference
        version = reference.version
        if version is None:
            subject = within_context(reference.subject, parent)
            what = f"the latest schema of {subject}"
            hint = f"Check the subject of {reference.name} in {REFERENCES.name}"
            with _advised(hint, _is_answer):
                version = self._ask(what, self._client.get_version, subject, "latest").version
        return self._library.SchemaReference(reference.name, reference.subject, version)

    @one_deadline
    def get(self, key: SchemaKey, schema_type: str, subject: str | None = None) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        what = f"schema {key}"
        try:
            schema = self._schema_of(what, key, subject)
        except SchemaRegistryError as error:
            # For unsupported GUIDs, and for numbers that cannot be ids, registries answer like any server asked for an
            # unknown address.
            error.about_record |= self._is_not_found(error.__cause__)
            raise
        if not isinstance(schema.schema_str, str):
            raise _foreign(what)
        if (actual := schema.schema_type or "AVRO") != schema_type:
            raise mistyped(key, actual, schema_type)
        return self._with_references(key, schema, subject)

    def _schema_of(self, what: str, key: SchemaKey, subject: str | None) -> Any:
        if not isinstance(key, int):
            return self._ask(what, self._client.get_schema_by_guid, str(key))
        try:
            return self._ask(what, self._client.get_schema, key, subject)
        except SchemaRegistryError as error:
            # Records of mirrors and dead-letter topics name ids of other subjects, which some registries then refuse.
            if not error.about_record or subject is None or context_of(subject):
                raise
        return self._ask(what, self._client.get_schema, key)

    @one_deadline
    def versions(self, subject: str) -> list[RegisteredSchema]:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        versions = self._ask(f"the versions of {subject}", self._client.get_versions, subject)
        registered = [self._ask(f"{subject} version {at}", self._client.get_version, subject, at) for at in versions]
        return [self._with_references(item.schema_id, item.schema, subject) for item in registered]

    def close(self) -> None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
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
                hint=_PATHS,
            ) from error

    def _latest(self, subject: str) -> Any:
        what = f"the latest schema of {subject}"
        if self.metadata is None:
            return self._checked(what, self._ask(what, self._client.get_version, subject, "latest"))
        self._client.clear_latest_caches()  # callers remember the answer for as long as it may be used
        of_metadata = self._client.get_latest_with_metadata
        what = f"{what} with {', '.join(f'{name} = {value}' for name, value in self.metadata.items())}"
        with _advised(
            f"Has the registry {USE_METADATA.name}? Confluent's has, others with its interface may not", _is_answer
        ):
            return self._checked(what, self._ask(what, of_metadata, subject, self.metadata, deleted=True))

    def _register(self, subject: str, schema: Any) -> Any:
        method, what = self._client.register_schema_full_response, f"registering the schema of {subject}"
        with _advised(_OWN_REFERENCES, _refers(schema)):
            return self._ask(what, method, subject, schema, normalize_schemas=self._normalize)

    def _look_up(self, subject: str, schema: Any) -> Any:
        return self._ask(f"the schema of {subject}", self._client.lookup_schema, subject, schema, self._normalize)

    def _with_references(self, key: SchemaKey, schema: Any, subject: str | None) -> RegisteredSchema:
        order = key if isinstance(key, int) else None
        found = RegisteredSchema(key, schema.schema_str, order=order, rules=schema.rule_set)
        return found._replace(**self._texts(schema, subject))

    def _texts(self, schema: Any, subject: str | None) -> dict[str, Any]:
        """The parts of a subject's schema that say what it refers to."""
        refers = _referred(schema)

        def fetch(reference: OwnReference) -> tuple[str, Iterable[OwnReference]]:
            what = f"schema {reference.subject} version {reference.version}"
            found = self._ask(what, self._client.get_version, reference.subject, reference.version, deleted=True)
            return self._checked(what, found).schema.schema_str, _within(reference.subject, _referred(found.schema))

        texts = collected(_within(subject, refers), fetch)
        names = tuple(reference.name for reference in texts)
        return {"references": tuple(texts.values()), "names": names, "refers": refers}

    @staticmethod
    def _checked(what: str, found: Any) -> Any:
        """A version of a subject, if the answer is one: the client takes any mapping for it."""
        if type(found.schema_id) is not int or not isinstance(found.schema.schema_str, str):
            raise _foreign(what)
        return found

    def _is_not_found(self, error: Any) -> bool:
        """Whether an error of the registry's client is the status 404; its other errors have no status."""
        return isinstance(error, self._library.SchemaRegistryError) and error.http_status_code == HTTPStatus.NOT_FOUND

    def _ask(self, what: str, method: Callable[..., Any], *arguments: object, **options: object) -> Any:
        try:
            return within_deadline(method, *arguments, **options)
        except self._library.SchemaRegistryError as error:
            unknown = self._is_not_found(error)
            if unknown and what and error.error_code not in UNKNOWN_SCHEMA:
                self.check()  # it may be another server's answer
            is_foreign = error.error_code == error.UNKNOWN
            transient = is_outage(error.http_status_code, is_foreign=is_foreign)
            if is_foreign:
                error.error_message = FOREIGN  # the client has put the whole answer there
            reason = f"HTTP {error.http_status_code}"
            reason = f"{one_line(error.error_message)} ({reason})" if error.error_message else reason
            raise SchemaRegistryError(
                f"the schema registry refused {what or 'to answer'}: {reason}",
                hint="Is it in another registry? Check schema.registry.url, its path included, and schema.registry.type"
                if unknown or (is_foreign and error.http_status_code == HTTPStatus.INTERNAL_SERVER_ERROR)
                else None,
            ).marked(
                transient=transient,
                # The registry itself reports an unknown schema; other 404s come from another server.
                about_record=unknown and error.error_code in UNKNOWN_SCHEMA,
            ) from error
        except JSONDecodeError as error:
            raise SchemaRegistryError(
                f"{URL.name} has no schema registry at its path: the answer{what and f' on {what}'} is not JSON",
                hint=_PATHS,
            ) from error
        except _NO_ANSWER as error:
            raise _foreign(what, error) from error
        except Exception as error:  # the client does not wrap errors of its HTTP and authentication libraries
            if (refused := http_settings.refused_tls(error)) is not None:
                raise refused from error
            raise SchemaRegistryError(
                f"the schema registry did not answer{what and f' on {what}'}: {type(error).__name__}: "
                f"{one_line(error)}",
                hint="Check schema.registry.url and that the registry runs",
            ).marked(transient=True) from error


def _is_answer(error: SchemaRegistryError) -> bool:
    # Not after a check, which has found no registry.
    return not error.transient and not isinstance(error.__cause__, SchemaRegistryError)


def _refers(schema: Any) -> Callable[[SchemaRegistryError], bool]:
    return lambda error: bool(schema.references) and error.hint is None


def _is_unknown(error: SchemaRegistryError) -> bool:
    return error.about_record


@contextmanager
def _advised(hint: str, when: Callable[[SchemaRegistryError], bool]) -> Iterator[None]:
    """Give the errors of a question a hint of its own, where they meet a condition."""
    try:
        yield
    except SchemaRegistryError as error:
        if when(error):
            error.hint = hint
        raise


def _within(parent: str | None, references: Iterable[OwnReference]) -> list[OwnReference]:
    """References with the subjects to ask for; a registry compares those in a schema letter by letter."""
    return [reference._replace(subject=within_context(reference.subject, parent)) for reference in references]


def _referred(schema: Any) -> tuple[OwnReference, ...]:
    """The references of a registered schema."""
    references = schema.references or ()
    for item in references:
        if not (isinstance(item.name, str) and isinstance(item.subject, str) and type(item.version) is int):
            raise _foreign("a schema's references")
    return tuple(OwnReference(item.name, item.subject, item.version) for item in references)


def _foreign(what: str, error: Exception | None = None) -> SchemaRegistryError:
    """The error of an answer that is JSON, but that no registry gives: neither an outage, nor about a record."""
    named = "" if error is None else f": {type(error).__name__}"
    return SchemaRegistryError(
        f"the answer of {URL.name}{what and f' on {what}'} is not that of a schema registry{named}", hint=_PATHS
    )


def _check_rules(subject: str, rules: Any) -> None:
    if rules is None:
        return
    for rule in (*(rules.domain_rules or ()), *(rules.encoding_rules or ())):
        if rule.type in _ENCRYPTING and not rule.disabled and rule.mode is not None and rule.mode.value in _WRITING:
            raise SchemaRegistryError(
                f"the schema of {subject} requires encryption (rule {rule.name!r}), which this stage does not do: "
                "the fields would be written in clear",
                hint="Use Confluent's serializer with its encryption executor as the stage: docs/encryption.md",
            )
