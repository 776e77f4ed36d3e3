"""Apicurio Registry by its own interface, version 3, as Apicurio's Java serde uses it.

Its other interface, Confluent's (``/apis/ccompat/v7``), needs no file: ``schema.registry.type`` is then ``confluent``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import quote
from uuid import UUID

from payload_stores.options import Option, choice, text, without_login
from payload_stores.plugins import require
from serde_chain.errors import ConfigError, SchemaRegistryError
from serde_chain.schemas import http_settings
from serde_chain.schemas.deadline import one_deadline, within_deadline
from serde_chain.schemas.registry import (
    AUTO_REGISTER,
    FOREIGN,
    TIMEOUT_S,
    URL,
    RegisteredSchema,
    SchemaRegistry,
    if_known,
    is_outage,
    mistyped,
    one_line,
    unusable_id,
)
from serde_chain.schemas.schema_id import GlobalId, SchemaKey
from serde_chain.schemas.schema_references import OwnReference, collected

GLOBAL_ID: Final = "globalid"


def _id_bytes(value: object) -> int:
    if str(value) not in {"4", "8"}:
        raise ValueError("expected 4 or 8")
    return int(str(value))


GROUP: Final = Option("apicurio.group.id", text, "default", doc="group of the artifacts")
USE_ID: Final = Option(
    "apicurio.use.id", choice("contentid", GLOBAL_ID), "contentid", doc="the id in records: contentId, globalId"
)
ID_BYTES: Final = Option(
    "apicurio.id.bytes", _id_bytes, 4, doc="bytes of the id that is written: 4, 8 (legacy); readers take both"
)
OPTIONS: Final[tuple[Option[Any], ...]] = (GROUP, USE_ID, ID_BYTES)

_CONTENT_TYPES: Final = {"AVRO": "application/json", "JSON": "application/json", "PROTOBUF": "application/x-protobuf"}
_UNKNOWN: Final = frozenset({"ContentNotFoundException", "VersionNotFoundException", "ArtifactNotFoundException"})
_VIOLATION: Final = "RuleViolationException"
_MOST_VERSIONS: Final = 500
_ENABLED: Final = "ENABLED"


class _Reference(NamedTuple):
    """A reference from one schema to another: the name in its text, and the version of an artifact."""

    name: str
    group: str
    artifact: str
    version: str


class ApicurioRegistry(SchemaRegistry):
    """Apicurio's registry, by the HTTP client that Confluent's registry client brings along."""

    def __init__(self, config: Mapping[str, object], *, is_key: bool) -> None:
        """Create the client; no request is sent before the first record.

        Args:
            config: Flat configuration with ``schema.registry.url``, which ends in ``/apis/registry/v3``.
            is_key: Whether subjects are for keys.

        Raises:
            ConfigError: The client refuses its settings.
            MissingDependencyError: The extra ``registry`` is not installed.
        """
        super().__init__(config, is_key=is_key)
        self._library: Any = require("httpx2", "registry")
        self.refuse_metadata("Apicurio")
        # Without them, the Java serde does not resolve the others. Other writers may have registered without them.
        self.refers_to_known_files = self.auto_register
        self._group = GROUP.read(config)
        self._by_global_id = USE_ID.read(config) == GLOBAL_ID
        settings = http_settings.settings_of(config, http_settings.PLAIN, "apicurio")
        user, _, password = settings.get("basic.auth.user.info", "").partition(":")
        context = http_settings.tls_context(settings)
        try:
            self._client = self._library.Client(
                base_url=without_login(settings.get("url", ""), URL.name).rstrip("/"),
                timeout=settings.get("timeout", TIMEOUT_S),
                auth=(user, password) if user else None,
                verify=True if context is None else context,
                proxy=settings.get("proxy"),
            )
        except (self._library.InvalidURL, OSError, ValueError) as error:
            raise ConfigError(f"the schema registry's client refuses its settings: {error}", key=URL.name) from error

    def key_of(self, number: int | UUID) -> SchemaKey:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        if isinstance(number, UUID):
            raise unusable_id(number, "Apicurio")
        return GlobalId(number) if self._by_global_id else number

    def registered(self, subject: str, schema: str, schema_type: str, references: Sequence[Any]) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        with _understood(f"the schema of {subject}"):
            version = self._version(subject, schema, schema_type, list(map(self._reference, references)))
            found = RegisteredSchema(self._key(version), schema, order=version["globalId"])
            if not references:
                return found
            path = f"ids/globalIds/{version['globalId']}"
            what = f"schema {version['globalId']}"
            return found._replace(**self._texts(what, self._referred(what, path)))

    @one_deadline
    def with_references(self, subject: str, schema: str, references: Sequence[OwnReference]) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        what = "the referenced schemas"
        with _understood(what):
            return RegisteredSchema(0, schema, **self._texts(what, list(map(self._reference, references))))

    @one_deadline
    def latest(self, subject: str, schema_type: str) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        with _understood(f"the schema of {subject}"):
            path = f"{self._artifact(subject)}/branch=latest"
            return self._of_version(self._json(f"the latest schema of {subject}", "GET", path), schema_type)

    def find(self, subject: str, schema: str, schema_type: str) -> RegisteredSchema | None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        with _understood(f"the schema of {subject}"):
            version = self._newest(subject, schema, schema_type)
            if version is None:
                return None
            number = version["globalId"]
            return RegisteredSchema(self._key(version), schema, order=number, version=version.get("version"))

    def is_compatible(self, subject: str, schema: str, schema_type: str) -> bool | None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`. By a registration with ``dryRun``."""
        content = {"content": schema, "contentType": _CONTENT_TYPES[schema_type]}
        what = f"the compatibility of the schema of {subject}"
        request: dict[str, Any] = {"params": {"dryRun": "true"}, "json": {"content": content}}
        answer = if_known(lambda: self._ask(what, "POST", self._artifact(subject), accepted=_VIOLATION, **request))
        return answer is None or bool(answer.is_success)  # a new subject accepts any schema

    def references_of_latest(self, subject: str) -> Sequence[_Reference]:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        what = f"the latest schema of {subject}"
        with _understood(what):
            return self._referred(what, f"{self._artifact(subject)}/branch=latest")

    @one_deadline
    def reference(self, subject: str, name: str, schema: str, schema_type: str, references: Sequence[Any]) -> Any:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        with _understood(f"the schema of {name}"):
            found = self._version(name, schema, schema_type, list(map(self._reference, references)))
            return _Reference(name, self._group, name, found["version"])

    def _reference(self, reference: Any) -> _Reference:
        """A reference of ``schema.references`` in Apicurio's form: the subject is an artifact of the group."""
        if not isinstance(reference, OwnReference):
            found: _Reference = reference
            return found
        version: object = reference.version
        if version is None:
            path = f"{self._artifact(reference.subject)}/branch=latest"
            version = self._json(f"the latest schema of {reference.subject}", "GET", path)["version"]
        return _Reference(reference.name, self._group, reference.subject, str(version))

    @one_deadline
    def get(self, key: SchemaKey, schema_type: str, subject: str | None = None) -> RegisteredSchema:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        path = f"ids/globalIds/{key.number}" if isinstance(key, GlobalId) else f"ids/contentIds/{key}"
        with _understood(f"schema {key}"):
            return self._with_references(key, f"schema {key}", path, schema_type)

    @one_deadline
    def versions(self, subject: str) -> list[RegisteredSchema]:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        page = {"limit": _MOST_VERSIONS, "order": "desc", "orderby": "globalId"}
        with _understood(f"the versions of {subject}"):
            listed = self._json(f"the versions of {subject}", "GET", self._artifact(subject), params=page)
            return [self._of_version(version) for version in listed["versions"] if version.get("state") == _ENABLED]

    def check(self) -> None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        self._json("its version", "GET", "system/info")

    def close(self) -> None:
        """See :class:`~serde_chain.schemas.registry.SchemaRegistry`."""
        self._client.close()

    def _artifact(self, subject: str, group: str | None = None) -> str:
        return f"groups/{quote(group or self._group, safe='')}/artifacts/{quote(subject, safe='')}/versions"

    def _key(self, version: Mapping[str, Any]) -> SchemaKey:
        return GlobalId(version["globalId"]) if self._by_global_id else int(version["contentId"])

    def _version(
        self, subject: str, schema: str, schema_type: str, references: Sequence[_Reference]
    ) -> Mapping[str, Any]:
        """The version of a subject with a definition, registered if there is none and that is not switched off."""
        if not self.auto_register:
            newest = (
                self._same(subject, schema, schema_type, references)
                if references
                else self._newest(subject, schema, schema_type)
            )
            if newest is None:
                raise SchemaRegistryError(
                    f"the schema of {subject} is not registered in the group {self._group}",
                    hint=f"Register it, or set {AUTO_REGISTER.name}",
                )
            return newest
        return self._posted(subject, schema, schema_type, references)

    def _posted(
        self, subject: str, schema: str, schema_type: str, references: Sequence[_Reference], **more: str
    ) -> Mapping[str, Any]:
        """The version that a registration finds or creates."""
        referred = [
            {"name": item.name, "groupId": item.group, "artifactId": item.artifact, "version": item.version}
            for item in references
        ]
        content = {"content": schema, "contentType": _CONTENT_TYPES[schema_type], "references": referred}
        answer: Mapping[str, Any] = self._json(
            f"registering the schema of {subject}",
            "POST",
            f"groups/{quote(self._group, safe='')}/artifacts",
            # Other spaces, as other languages write them, are no other version.
            params={"ifExists": "FIND_OR_CREATE_VERSION", "canonical": "true", **more},
            json={"artifactId": subject, "artifactType": schema_type, "firstVersion": {"content": content}},
        )["version"]
        return answer

    def _same(
        self, subject: str, schema: str, schema_type: str, references: Sequence[_Reference]
    ) -> Mapping[str, Any] | None:
        """The version with a definition and references, which a search does not find; None if there is none."""
        found = self._posted(subject, schema, schema_type, references, dryRun="true")
        path = f"{self._artifact(subject)}/{quote(found['version'], safe='')}"
        there: Mapping[str, Any] | None = if_known(lambda: self._json(f"the schema of {subject}", "GET", path))
        # Without an answer, it would be created.
        return None if there is None or there["globalId"] != found["globalId"] else there

    def _newest(self, subject: str, schema: str, schema_type: str) -> Mapping[str, Any] | None:
        """The newest version of a subject with a definition; None if there is none."""
        found = self._json(
            f"the schema of {subject}",
            "POST",
            "search/versions",
            params={
                "groupId": self._group,
                "artifactId": subject,
                "artifactType": schema_type,
                "canonical": "true",
                "orderby": "globalId",
                "order": "desc",
            },
            content=schema,
            headers={"content-type": _CONTENT_TYPES[schema_type]},
        )["versions"]
        return next((version for version in found if version.get("state") == _ENABLED), None)

    def _of_version(self, version: Mapping[str, Any], schema_type: str | None = None) -> RegisteredSchema:
        """A version of a subject, which no record has named."""
        path = f"ids/globalIds/{version['globalId']}"
        try:
            found = self._with_references(self._key(version), f"schema {version['globalId']}", path, schema_type)
        except SchemaRegistryError as error:
            error.about_record = False
            raise
        return found._replace(order=version["globalId"], version=version.get("version"))

    def _with_references(self, key: SchemaKey, what: str, path: str, schema_type: str | None) -> RegisteredSchema:
        answer = self._ask(what, "GET", path)
        is_protobuf = "protobuf" in answer.headers.get("content-type", "")
        if schema_type is not None and is_protobuf != (schema_type == "PROTOBUF"):
            raise mistyped(key, "PROTOBUF" if is_protobuf else "AVRO or JSON", schema_type)
        order = key.number if isinstance(key, GlobalId) else key if isinstance(key, int) else None
        return RegisteredSchema(key, answer.text, order=order, **self._texts(what, self._referred(what, path)))

    def _texts(self, what: str, direct: Iterable[_Reference]) -> dict[str, Any]:
        """The parts of a registered schema that say what it refers to."""

        def fetch(reference: _Reference) -> tuple[str, Iterable[_Reference]]:
            at = f"{self._artifact(reference.artifact, reference.group)}/{quote(reference.version, safe='')}"
            text = self._ask(f"schema {reference.artifact}", "GET", f"{at}/content").text
            return text, self._referred(what, at)

        texts = collected(direct, fetch)
        return {"references": tuple(texts.values()), "names": tuple(item.name for item in texts)}

    def _referred(self, what: str, path: str) -> list[_Reference]:
        return [
            _Reference(item["name"], item.get("groupId") or "default", item["artifactId"], item["version"])
            for item in self._json(what, "GET", f"{path}/references")
        ]

    def _json(self, what: str, method: str, path: str, **options: Any) -> Any:
        answer = self._ask(what, method, path, **options)
        try:
            return answer.json()
        except ValueError as error:
            raise SchemaRegistryError(
                f"{URL.name} has no Apicurio registry at its path: its answer on {what} is not JSON", hint=_HINT
            ) from error

    def _ask(self, what: str, method: str, path: str, *, accepted: str | None = None, **options: object) -> Any:
        """Send a request. A refusal with the name ``accepted`` is returned, others are raised."""
        try:
            answer = within_deadline(self._client.request, method, path, **options)
        except Exception as error:  # the client does not wrap errors of TLS and of addresses
            if (refused := http_settings.refused_tls(error)) is not None:
                raise refused from error
            raise SchemaRegistryError(
                f"the schema registry did not answer on {what}: {type(error).__name__}: {one_line(error)}",
                hint=f"Check {URL.name} and that the registry runs",
            ).marked(transient=True) from error
        if answer.is_success:
            if "html" in answer.headers.get("content-type", ""):  # the page of a proxy would be taken for a schema
                raise SchemaRegistryError(f"the answer of {URL.name} on {what} is a page", hint=_HINT)
            return answer
        name, reason = _refusal(answer)
        if name == accepted:
            return answer
        is_missing = answer.status_code == 404
        raise SchemaRegistryError(
            f"{URL.name} has no Apicurio registry at its path: no answer on {what} (HTTP 404)"
            if is_missing and not name
            else f"the schema registry refused {what}: {reason} (HTTP {answer.status_code})",
            hint="Was it written with another registry? " + _HINT if is_missing else None,
            # The registry itself reports an unknown id; other 404s come from another server.
        ).marked(transient=is_outage(answer.status_code, is_foreign=reason == FOREIGN), about_record=name in _UNKNOWN)


@contextmanager
def _understood(what: str) -> Iterator[None]:
    """Answers that are not Apicurio's, as of a proxy: the registry's fault, not that of the record that asks for it."""
    try:
        yield
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise SchemaRegistryError(
            f"the answer of {URL.name} on {what} is not that of an Apicurio registry: {type(error).__name__}",
            hint=_HINT,
        ) from error


_HINT: Final = f"Check the path in {URL.name}: Apicurio's is /apis/registry/v3"


def _refusal(answer: Any) -> tuple[str, str]:
    """The name and the text of a refusal."""
    try:
        problem = answer.json()
        return str(problem.get("name", "")), one_line(problem.get("title") or problem.get("detail") or "")
    except (ValueError, AttributeError):
        return "", FOREIGN
