"""Checks of schema registries, and of the schemas of keys and values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from serde_chain.base import Stage
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, ConfiguredStage, settings_of
from serde_chain.cli.doctor.base import CheckContext
from serde_chain.cli.findings import Finding, Level
from serde_chain.errors import ConfigError, SchemaRegistryError
from serde_chain.record import KEY, VALUE, RecordContext
from serde_chain.schemas.framing import APICURIO, CONFLUENT
from serde_chain.schemas.http_settings import LOGIN
from serde_chain.schemas.registry import AUTO_REGISTER, URL, RegisteredSchema, SchemaRegistry
from serde_chain.schemas.schema_registry import OPTIONS, TYPE, HasSchema, StageSchema, is_configured, open_registry

# The paths of the registries' interfaces.
_PATHS: Final = {CONFLUENT: ("", "/apis/ccompat/v7"), APICURIO: ("/apis/registry/v3",)}
_CLOUD: Final = "confluent.cloud"
_ENDPOINT: Final = (
    f"Set {URL.name} to the endpoint of Schema Registry, https://psrc-….confluent.cloud: the console shows it for the "
    "environment, under Schema Registry"
)
_KINDS: Final = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "JSON": "JSON"}


def schemas(context: CheckContext) -> Iterator[Finding]:
    """Whether the registries answer, and which schemas keys and values have there."""
    asked: list[tuple[Mapping[str, object], bool]] = []
    for is_key in (True, False):
        settings = settings_of(context.config.settings, is_key=is_key)
        own = (*OPTIONS, *LOGIN)
        registry = {key: value for key, value in settings.items() if any(option.matches(key) for option in own)}
        answers = next((answers for other, answers in asked if other == registry), True)
        if is_configured(registry) and all(other != registry for other, _ in asked):
            check = _registry(registry)
            answers = check.level is Level.OK
            asked.append((registry, answers))
            yield check
        if answers:
            yield from _schemas(context, is_key=is_key)


def _registry(config: Mapping[str, object]) -> Finding:
    address = URL.read(config)
    if address is not None and (wrong := wrong_host(address)) is not None:
        return Finding("registry", Level.ERROR, wrong, _ENDPOINT)
    try:
        _ask(config)
    except SchemaRegistryError as error:
        change = error.hint or "Check its address and credentials"
        path = None if error.transient else _right_path(config)
        if path is not None:
            change = f"Set {URL.name} to {path}"
        return Finding("registry", Level.ERROR, error.message, change)
    return Finding("registry", Level.OK, "it answers")


def _ask(config: Mapping[str, object]) -> None:
    with closing(open_registry(config, is_key=False)) as registry:
        registry.check()


def wrong_host(address: str) -> str | None:
    """Why an address of Confluent Cloud is not that of a registry; None if it may be.

    Args:
        address: The address.

    Example:
        >>> wrong_host("https://confluent.cloud/environments/env-1/schema-registry")
        "schema.registry.url is the address of Confluent Cloud's console"
        >>> wrong_host("https://psrc-8kz20.us-east-2.aws.confluent.cloud")
    """
    host = urlsplit(address).hostname or ""
    if host in {_CLOUD, f"www.{_CLOUD}", f"login.{_CLOUD}"}:
        return f"{URL.name} is the address of Confluent Cloud's console"
    if host.endswith(f".{_CLOUD}") and host.startswith(("pkc-", "lkc-")):
        return f"{URL.name} is the address of a Kafka cluster in Confluent Cloud"
    return None


def _right_path(config: Mapping[str, object]) -> str | None:
    """The address on the same server at which a registry answers; None if there is none, or several are configured."""
    address = URL.read(config)
    if address is None or "," in address:
        return None
    parts = urlsplit(address)
    # Without a password, which is shown nowhere.
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    for path in _PATHS.get(TYPE.read(config), ()):
        if path != parts.path.rstrip("/"):
            try:
                _ask({**config, URL.name: parts._replace(path=path, query="", fragment="").geturl()})
            except (SchemaRegistryError, ConfigError):
                continue
            return shown._replace(path=path).geturl()
    return None


def _schemas(context: CheckContext, *, is_key: bool) -> Iterator[Finding]:
    """The schema of keys or of values: the writers', or the readers' if the configuration only reads."""
    field, side = KEY if is_key else VALUE, SERIALIZE if context.writes else DESERIALIZE
    stages = context.config.of(side, is_key=is_key)
    configured = next((stage for stage in stages if _has_schema(stage)), None)
    name = f"{field} schema"
    if configured is None:
        names = ", ".join(stage.label for stage in stages)
        chain = f"its chain has {names}" if stages else f"there are no {field}.{side.word}s"
        foreign = ", ".join(stage.label for stage in stages if not _is_ours(stage))
        message = f"not checked: {foreign} may have one of their own" if foreign else f"no schema: {chain}"
        yield Finding(name, Level.OK, message, facts={"field": field})
        return
    with ExitStack() as stack:
        made: object = configured.make()
        if isinstance(made, Stage) and made is not configured.item.target:
            stack.callback(made.close)
        schema = made.stage_schema() if isinstance(made, HasSchema) else None
        if schema is None:
            yield Finding(name, Level.OK, f"no schema: {configured.label} has none", facts={"field": field})
        elif schema.registry is None:
            facts = {"field": field, "type": schema.kind, "name": schema.name}
            yield Finding(name, Level.OK, f"{_words(schema)}; no registry", facts=facts)
        else:
            used = _Used(schema, schema.registry, field, context, AUTO_REGISTER.read(configured.settings))
            for topic in context.topics:
                yield used.check(topic)


def _has_schema(stage: ConfiguredStage) -> bool:
    kind = stage.kind
    return issubclass(kind, HasSchema) if isinstance(kind, type) else isinstance(kind, HasSchema)


def _is_ours(stage: ConfiguredStage) -> bool:
    """Whether a stage is known to have no schema, unlike foreign ones, and those that records list."""
    return isinstance(stage.kind, type) and stage.kind.__module__.startswith("serde_chain.stages.")


class _Used(NamedTuple):
    """The use of a registry's schema.

    Attributes:
        schema: The schema of the stage.
        registry: The registry.
        field: ``key`` or ``value``.
        context: The configuration.
        registers: Whether the first record of a topic registers the schema.
    """

    schema: StageSchema
    registry: SchemaRegistry
    field: str
    context: CheckContext
    registers: bool

    def check(self, topic: str) -> Finding:
        """The schema's version in a topic's subject."""
        schema, name = self.schema, f"{self.field} schema"
        ctx = RecordContext(topic, self.field)
        if schema.name is None and self.registry.subject(ctx, "a") != self.registry.subject(ctx, "b"):
            return Finding(
                name, Level.OK, f"{_words(schema)}s are named by records", topic=topic, facts=self._facts(None)
            )
        try:
            subject = self.registry.subject(ctx, schema.name or "")
            if schema.text is None:
                find = self.registry.schema_for if self.context.writes else None
                found: RegisteredSchema | None = (
                    self.registry.latest(subject, schema.kind) if find is None else find(subject, None, schema.kind)
                )
            else:
                found = self.registry.find(subject, schema.text, schema.kind)
            if found is None:
                return self._missing(topic, subject, schema.text or "")
        except SchemaRegistryError as error:
            level = Level.ERROR if self.context.writes else Level.WARNING
            return Finding(name, level, f"the schema was not found: {error.message}", error.hint, topic)
        named = schema._replace(name=schema.name or _name(found.text, schema.kind))
        key = found.key if isinstance(found.key, int) else str(found.key)
        facts = {**self._facts(subject), "id": key, "version": found.version, "name": named.name}
        version = "" if found.version is None else f", version {found.version}"
        latest = " (the latest)" if schema.text is None and found.version is not None else ""
        message = f"{_words(named)}: subject {subject}{version}{latest}, id {key}"
        return Finding(name, Level.OK, message, topic=topic, facts=facts)

    def _missing(self, topic: str, subject: str, text: str) -> Finding:
        """The subject does not have the schema."""
        found = Finding(
            f"{self.field} schema",
            Level.OK,
            f"{_words(self.schema)} is not registered under the subject {subject}",
            topic=topic,
            facts=self._facts(subject),
        )
        if not self.registers:
            change = f"Register it, or set {AUTO_REGISTER.name} = true"
            return replace(
                found, level=Level.ERROR, message=f"{found.message}: no record can be written", change=change
            )
        fits = self.registry.is_compatible(subject, text, self.schema.kind) if self.context.tries else None
        if fits is False:
            message = f"{found.message}, which refuses it: it is not compatible with the version there"
            change = "Correct the schema, or the compatibility level of the subject"
            return replace(found, level=Level.ERROR, message=message, change=change)
        accepted = ", which would accept it" if fits else ""
        return replace(found, message=f"{found.message}{accepted}; the first record registers it")

    def _facts(self, subject: str | None) -> dict[str, str | int | None]:
        return {"field": self.field, "subject": subject, "type": self.schema.kind, "name": self.schema.name}


def _words(schema: StageSchema) -> str:
    return f"{_KINDS[schema.kind]} {schema.name}" if schema.name else f"{_KINDS[schema.kind]} schema"


def _name(text: str, kind: str) -> str | None:
    """The name in a registered schema."""
    if kind == "PROTOBUF":
        return None
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(schema, dict):
        return schema if isinstance(schema, str) else None
    if kind == "JSON":
        return str(schema["title"]) if "title" in schema else None
    name = schema.get("name", schema.get("type"))
    return f"{schema['namespace']}.{name}" if schema.get("namespace") and "." not in str(name) else str(name)
