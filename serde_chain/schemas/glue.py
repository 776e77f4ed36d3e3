"""AWS Glue Schema Registry: schemas are named after topics, and records name versions by UUIDs.

Registration is that of Glue's Java serde: the version with this definition is looked up, registered if the schema has
no such version, and the schema is created if it does not exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from payload_stores.options import Option, choice, text, without_login
from payload_stores.plugins import require
from serde_chain.errors import ConfigError, SchemaRegistryError
from serde_chain.schemas import http_settings
from serde_chain.schemas.deadline import one_deadline, within_deadline
from serde_chain.schemas.registry import (
    AUTO_REGISTER,
    TIMEOUT_S,
    RegisteredSchema,
    SchemaRegistry,
    mistyped,
    unusable_id,
)
from serde_chain.schemas.schema_id import SchemaKey
from serde_chain.schemas.schema_references import REFERENCES, OwnReference

REGION: Final = Option("glue.region", text, None, doc="region of Glue; default: boto3's")
NAME: Final = Option("glue.registry.name", text, "default-registry", doc="name of the registry in Glue")
ENDPOINT: Final = Option("glue.endpoint.url", text, "", doc="address of Glue, if it is not Amazon's default")
COMPRESSION: Final = Option(
    "glue.compression", choice("none", "zlib"), "none", doc="compression within Glue's framing: none, zlib"
)

OPTIONS: Final[tuple[Option[Any], ...]] = (REGION, NAME, ENDPOINT, COMPRESSION)

_ATTEMPTS: Final = 3
# The Java serde's.
_COMPATIBILITY: Final = "BACKWARD"
# Seconds between questions about a version whose compatibility is being checked.
_PENDING_S: Final = 0.5
_ABSENT: Final = "EntityNotFoundException"
_EXISTS: Final = "AlreadyExistsException"
_TRANSIENT: Final = frozenset({
    "ConcurrentModificationException", "InternalServiceException", "OperationTimeoutException", "ThrottlingException",
})  # fmt: skip


class GlueRegistry(SchemaRegistry):
    """AWS Glue, by boto3, which finds the credentials."""

    def __init__(self, config: Mapping[str, object], *, is_key: bool) -> None:
        """Create the client; no request is sent before the first record.

        Args:
            config: Flat configuration.
            is_key: Whether subjects are for keys.

        Raises:
            ConfigError: boto3 refuses the settings, or there is no region.
            MissingDependencyError: The extra ``glue`` is not installed.
        """
        # The Java serde names schemas after the topic, those of keys too.
        super().__init__(config, is_key=is_key, default=lambda topic, _field, _record: topic)
        self.refuse_metadata("Glue")
        http_settings.settings_of(config, {}, "glue")
        if REFERENCES.read(config):
            raise ConfigError(f"{REFERENCES.name} is set, and Glue's registry has no references", key=REFERENCES.name)
        self._name = NAME.read(config)
        require("boto3", "glue")
        import boto3.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        self._refused, self._unanswered = ClientError, (BotoCoreError, TimeoutError)
        endpoint = without_login(ENDPOINT.read(config), ENDPOINT.name)
        try:
            # A separate session: boto3 creates its default session on first use, which is not thread-safe.
            self._client: Any = boto3.session.Session().client(
                "glue",
                region_name=REGION.read(config),
                endpoint_url=endpoint or None,
                config=Config(
                    connect_timeout=TIMEOUT_S,
                    read_timeout=TIMEOUT_S,
                    retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
                ),
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(
                f"boto3 cannot create a Glue client from these settings: {error}",
                hint=f"Set {REGION.name}, or the region of boto3's profile",
                key=REGION.name,
            ) from error

    def key_of(self, number: int | UUID) -> SchemaKey:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        if not isinstance(number, UUID):
            raise unusable_id(number, "Glue")
        return number

    @one_deadline
    def registered(self, subject: str, schema: str, schema_type: str, references: Sequence[Any]) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        found = self._find(subject, schema)
        if found is None and not self.auto_register:
            raise SchemaRegistryError(
                f"the schema of {subject} is not registered in Glue's registry {self._name}",
                hint=f"Register it, or set {AUTO_REGISTER.name}",
            )
        return RegisteredSchema(found or self._register(subject, schema, schema_type), schema)

    def with_references(self, subject: str, schema: str, references: Sequence[OwnReference]) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`. Glue has no references."""
        return RegisteredSchema(0, schema)

    def latest(self, subject: str, schema_type: str) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        latest = {"SchemaId": self._named(subject), "SchemaVersionNumber": {"LatestVersion": True}}
        answer = self._ask(f"the latest schema of {subject}", self._client.get_schema_version, **latest)
        return _registered(answer, schema_type, about_record=False)

    def find(self, subject: str, schema: str, schema_type: str) -> RegisteredSchema | None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        found = self._find(subject, schema)
        if found is None:
            return None
        answer = self._ask(f"schema {found}", self._client.get_schema_version, SchemaVersionId=str(found))
        return _registered(answer, schema_type)

    def is_compatible(self, subject: str, schema: str, schema_type: str) -> bool | None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`. Glue checks compatibility only on registration."""
        return None

    def _find(self, subject: str, schema: str) -> UUID | None:
        """The version with a definition; None if there is none."""
        what, find = f"the schema of {subject}", self._client.get_schema_by_definition
        try:
            answer = self._ask(what, find, SchemaId=self._named(subject), SchemaDefinition=schema)
        except SchemaRegistryError as error:
            if self._code(error) == _ABSENT:
                return None
            raise
        return self._available(answer, subject)

    def _register(self, subject: str, schema: str, schema_type: str) -> UUID:
        what, register = f"registering the schema of {subject}", self._client.register_schema_version
        version: dict[str, Any] = {"SchemaId": self._named(subject), "SchemaDefinition": schema}
        try:
            return self._available(self._ask(what, register, **version), subject)
        except SchemaRegistryError as error:
            if self._code(error) != _ABSENT:
                raise
        try:
            answer = self._ask(
                what,
                self._client.create_schema,
                RegistryId={"RegistryName": self._name},
                SchemaName=subject,
                DataFormat=schema_type,
                Compatibility=_COMPATIBILITY,
                SchemaDefinition=schema,
            )
        except SchemaRegistryError as error:
            if self._code(error) != _EXISTS:
                raise
            answer = self._ask(what, register, **version)  # another writer was first
        else:
            answer = {"SchemaVersionId": answer["SchemaVersionId"], "Status": answer["SchemaVersionStatus"]}
        return self._available(answer, subject)

    def _available(self, answer: Mapping[str, Any], subject: str) -> UUID:
        """The id of a version, once Glue has checked its compatibility."""
        version, until = answer["SchemaVersionId"], time.monotonic() + TIMEOUT_S
        while answer["Status"] == "PENDING" and time.monotonic() < until:
            time.sleep(_PENDING_S)
            answer = self._ask(f"schema {version}", self._client.get_schema_version, SchemaVersionId=version)
        if answer["Status"] != "AVAILABLE":
            raise SchemaRegistryError(
                f"the version {version} of the schema {subject} in Glue has the status {answer['Status']}",
                hint="FAILURE: it is not compatible with the versions before it; see the schema's compatibility mode",
            ).marked(transient=answer["Status"] == "PENDING")
        return UUID(version)

    def reference(self, subject: str, name: str, schema: str, schema_type: str, references: Sequence[Any]) -> Any:
        """Refuse references, which Glue does not have.

        Raises:
            SchemaRegistryError: Always.
        """
        raise SchemaRegistryError(
            f"the schema imports {name}, and Glue's registry has no references", hint="Define all types in one file"
        )

    def get(self, key: SchemaKey, schema_type: str, subject: str | None = None) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        try:
            answer = self._ask(f"schema {key}", self._client.get_schema_version, SchemaVersionId=str(key))
        except SchemaRegistryError as error:
            error.about_record = self._code(error) == _ABSENT
            raise
        return _registered(answer, schema_type)

    @one_deadline
    def versions(self, subject: str) -> list[RegisteredSchema]:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        what = f"the versions of {subject}"
        latest = self._version(what, subject, {"LatestVersion": True})
        # By number: a page of the list has no definitions, so each version is requested anyway.
        found = [latest]
        for number in range(latest["VersionNumber"] - 1, 0, -1):
            try:
                found.append(self._version(what, subject, {"VersionNumber": number}))
            except SchemaRegistryError as error:
                if self._code(error) != _ABSENT:  # deleted
                    raise
        return [_registered(answer, answer["DataFormat"]) for answer in found if answer["Status"] == "AVAILABLE"]

    def _version(self, what: str, subject: str, number: Mapping[str, object]) -> Mapping[str, Any]:
        return self._ask(
            what, self._client.get_schema_version, SchemaId=self._named(subject), SchemaVersionNumber=number
        )

    def check(self) -> None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`. Glue creates its default registry when needed."""
        name = self._name
        try:
            self._ask(f"the registry {name}", self._client.get_registry, RegistryId={"RegistryName": name})
        except SchemaRegistryError as error:
            if self._code(error) != _ABSENT or name != NAME.default:
                raise

    def close(self) -> None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        self._client.close()

    def _named(self, subject: str) -> dict[str, str]:
        return {"RegistryName": self._name, "SchemaName": subject}

    def _code(self, error: SchemaRegistryError) -> str:
        """Glue's code of a refusal; empty without one."""
        cause: Any = error.__cause__
        return str(cause.response["Error"]["Code"]) if isinstance(cause, self._refused) else ""

    def _ask(self, what: str, method: Callable[..., Any], **arguments: object) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = within_deadline(method, **arguments)
        except self._refused as error:
            refusal = error.response["Error"]
            code = str(refusal.get("Code", ""))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            raise SchemaRegistryError(
                f"Glue refused {what}: {refusal.get('Message', '')} ({code})",
                hint=f"Check {NAME.name} and {REGION.name}: is it in another registry?" if code == _ABSENT else None,
            ).marked(transient=code in _TRANSIENT or status >= 500 or status == 429) from error
        except self._unanswered as error:
            raise SchemaRegistryError(
                f"Glue did not answer on {what}: {type(error).__name__}: {error}",
                hint=f"Check {REGION.name}, {ENDPOINT.name} and the credentials",
            ).marked(transient=True) from error
        return answer


def _registered(answer: Mapping[str, Any], schema_type: str, *, about_record: bool = True) -> RegisteredSchema:
    version = UUID(answer["SchemaVersionId"])
    if answer["DataFormat"] != schema_type:
        raise mistyped(version, answer["DataFormat"], schema_type).marked(about_record=about_record)
    return RegisteredSchema(
        version, answer["SchemaDefinition"], order=answer["VersionNumber"], version=answer["VersionNumber"]
    )
