"""Confluent's schema registry: its own client, with deadlines and typed errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from json import JSONDecodeError
from typing import Any, Final

from payload_stores.options import Option, boolean, text
from payload_stores.plugins import require
from serde_chain.errors import UNKNOWN_SCHEMA, ConfigError, SchemaRegistryError
from serde_chain.schemas.in_time import in_time
from serde_chain.schemas.registry import (
    AUTO_REGISTER,
    TIMEOUT_S,
    URL,
    USE_LATEST,
    USER_INFO,
    RegisteredSchema,
    SubjectNames,
    mistyped,
)
from serde_chain.schemas.schema_id import SchemaKey

__all__ = ["OPTIONS", "ConfluentRegistry"]

_NO_SCHEMA: Final = (1 << 31) - 1
_PATHS: Final = f"Check the path in {URL.name}: Confluent's has none, Apicurio's is /apis/ccompat/v7"
# Types of rules by which Confluent's serializers encrypt single fields, or the whole payload, and the modes that write.
_ENCRYPTING: Final = frozenset({"ENCRYPT", "ENCRYPT_PAYLOAD"})
# The user and password in an address, which the client quotes if it is none of http.
_LOGIN: Final = re.compile(r"//\S*@")
_WRITING: Final = frozenset({"WRITE", "WRITEREAD"})

CLIENT: Final = Option("schema.registry.*", text, "", secret=True, doc="settings of Confluent's registry client")
USER_INFO_SOURCE: Final = Option("basic.auth.credentials.source", text, None, doc="USER_INFO, as in Java")
NORMALIZE: Final = Option("normalize.schemas", boolean, False, doc="normalize schemas when registering")

OPTIONS: Final[tuple[Option[Any], ...]] = (CLIENT, USER_INFO_SOURCE, NORMALIZE)


class ConfluentRegistry(SubjectNames):
    """Confluent's registry, and others with its interface. Its client caches by id and by schema."""

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
        super().__init__(config, is_key=is_key)
        self._auto_register = AUTO_REGISTER.read(config)
        self.use_latest = USE_LATEST.read(config)
        self._normalize = NORMALIZE.read(config)
        settings = {"timeout": TIMEOUT_S, **CLIENT.select(config)}
        settings.pop("type", None)
        if user_info := USER_INFO.read(config):
            settings.setdefault("basic.auth.user.info", user_info)
        numbers = {key: int(value) for key, value in settings.items() if isinstance(value, str) and value.isdigit()}
        try:
            self._client = self._library.SchemaRegistryClient.new_client({**settings, **numbers})
        except (ValueError, TypeError) as error:
            told = _LOGIN.sub("//…@", str(error))
            raise ConfigError(f"the schema registry client refuses its settings: {told}", key=URL.name) from None

    def schema_for(
        self, subject: str, schema: str | None, schema_type: str, references: Sequence[Any] = ()
    ) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        if schema is None or self.use_latest:
            latest = self._latest(subject)
            _check_rules(subject, latest.schema)
            return self._with_references(latest.schema_id, latest.schema)
        wanted = self._library.Schema(schema, schema_type, list(references))
        answer = self._register(subject, wanted) if self._auto_register else self._look_up(subject, wanted)
        _check_rules(subject, answer.schema)
        return RegisteredSchema(answer.schema_id, schema, guid=getattr(answer, "guid", None), order=answer.schema_id)

    def latest(self, subject: str, schema_type: str) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        latest = self._latest(subject)
        return self._with_references(latest.schema_id, latest.schema)._replace(version=latest.version)

    def find(self, subject: str, schema: str, schema_type: str) -> RegisteredSchema | None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        try:
            found = self._look_up(subject, self._library.Schema(schema, schema_type))
        except SchemaRegistryError as error:
            if error.about_record:
                return None
            raise
        return RegisteredSchema(found.schema_id, schema, order=found.schema_id, version=found.version)

    def is_compatible(self, subject: str, schema: str, schema_type: str) -> bool | None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        wanted = self._library.Schema(schema, schema_type)
        what = f"the compatibility of the schema of {subject}"
        try:
            return bool(self._ask(what, self._client.test_compatibility, subject, wanted))
        except SchemaRegistryError as error:
            if error.about_record:
                return True  # a new subject accepts any schema
            raise

    def reference(self, name: str, schema: str, schema_type: str, references: Sequence[Any]) -> Any:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        wanted = self._library.Schema(schema, schema_type, list(references))
        if self._auto_register:
            self._register(name, wanted)
        return self._library.SchemaReference(name, name, self._look_up(name, wanted).version)

    def get(self, key: SchemaKey, schema_type: str) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        method = self._client.get_schema if isinstance(key, int) else self._client.get_schema_by_guid
        try:
            schema = self._ask(f"schema {key}", method, key if isinstance(key, int) else str(key))
        except SchemaRegistryError as error:
            # For unsupported GUIDs, and for numbers that cannot be ids, registries answer like any server asked for an
            # unknown address.
            if not error.about_record and self._is_not_found(error.__cause__):
                self.check()
                error.about_record = True
            raise
        if (actual := schema.schema_type or "AVRO") != schema_type:
            raise mistyped(key, actual, schema_type)
        return self._with_references(key, schema)

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        versions = self._ask(f"the versions of {subject}", self._client.get_versions, subject)
        registered = [self._ask(f"{subject} version {at}", self._client.get_version, subject, at) for at in versions]
        return [self._with_references(item.schema_id, item.schema) for item in registered]

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
        return self._ask(f"the latest schema of {subject}", self._client.get_latest_version, subject)

    def _register(self, subject: str, schema: Any) -> Any:
        method = self._client.register_schema_full_response
        return self._ask(
            f"registering the schema of {subject}", method, subject, schema, normalize_schemas=self._normalize
        )

    def _look_up(self, subject: str, schema: Any) -> Any:
        return self._ask(f"the schema of {subject}", self._client.lookup_schema, subject, schema, self._normalize)

    def _with_references(self, key: SchemaKey, schema: Any) -> RegisteredSchema:
        collected: dict[tuple[str, int], tuple[str, str]] = {}
        self._collect(schema, collected)
        names, texts = zip(*collected.values(), strict=True) if collected else ((), ())
        order = key if isinstance(key, int) else None
        return RegisteredSchema(key, schema.schema_str, texts, getattr(schema, "guid", None), names, order)

    def _collect(self, schema: Any, collected: dict[tuple[str, int], tuple[str, str]]) -> None:
        """Depth first, so that referenced schemas precede the schema; a reference already collected is not followed."""
        for reference in schema.references or ():
            at = (reference.subject, reference.version)
            if at not in collected:
                what = f"schema {reference.subject} version {reference.version}"
                registered = self._ask(what, self._client.get_version, *at)
                collected[at] = (reference.name, "")
                self._collect(registered.schema, collected)
                collected.pop(at)
                collected[at] = (reference.name, registered.schema.schema_str)

    def _is_not_found(self, error: Any) -> bool:
        """Whether an error of the registry's client is the status 404; its other errors have no status."""
        return isinstance(error, self._library.SchemaRegistryError) and error.http_status_code == HTTPStatus.NOT_FOUND

    def _ask(self, what: str, method: Callable[..., Any], *arguments: object, **options: object) -> Any:
        try:
            return in_time(method, *arguments, **options)
        except self._library.SchemaRegistryError as error:
            unknown = self._is_not_found(error)
            said = f"HTTP {error.http_status_code}"
            said = f"{error.error_message} ({said})" if error.error_message else said
            raise SchemaRegistryError(
                f"the schema registry refused {what or 'to answer'}: {said}",
                hint="Is it in another registry? Check schema.registry.url, its path included, and schema.registry.type"
                if unknown
                else None,
            ).marked(
                transient=error.http_status_code >= 500 or error.http_status_code == 429,
                # The registry itself reports an unknown schema; other 404s come from another server.
                about_record=unknown and error.error_code in UNKNOWN_SCHEMA,
            ) from error
        except JSONDecodeError as error:
            raise SchemaRegistryError(
                f"{URL.name} has no schema registry at its path: the answer{what and f' on {what}'} is not JSON",
                hint=_PATHS,
            ) from error
        except Exception as error:  # the client does not wrap errors of its HTTP and authentication libraries
            raise SchemaRegistryError(
                f"the schema registry did not answer{what and f' on {what}'}: {type(error).__name__}: {error}",
                hint="Check schema.registry.url and that the registry runs",
            ).marked(transient=True) from error


def _check_rules(subject: str, schema: Any) -> None:
    """Refuse to write in clear what the schema's rules require to be encrypted: only Confluent's serializers run rules.

    Other rules do not protect data; docs/integrations.md says that they do not run.
    """
    rules = schema.rule_set
    if rules is None:
        return
    for rule in (*(rules.domain_rules or ()), *(rules.encoding_rules or ())):
        if rule.type in _ENCRYPTING and not rule.disabled and rule.mode is not None and rule.mode.value in _WRITING:
            raise SchemaRegistryError(
                f"the schema of {subject} requires encryption (rule {rule.name!r}), which this stage does not do: "
                "the fields would be written in clear",
                hint="Use Confluent's serializer with its encryption executor as the stage: docs/csfle.md",
            )
