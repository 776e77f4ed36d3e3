"""Which engine reads a chain, and why: Spark's own ``from_avro`` where it returns the same, Arrow otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from serde_chain.chain import DeserializerChain
from serde_chain.errors import ConfigError, SchemaRegistryError
from serde_chain.schemas import schema_id, schema_registry
from serde_chain.schemas.schema_registry import SchemaRegistry
from serde_chain.spark.plan.arguments import ARROW, NATIVE, PERMISSIVE
from serde_chain.spark.plan.fields import plan_first_stages
from serde_chain.spark.plan.plan import FieldPlan
from serde_chain.spark.plan.spark_avro import required_field, type_of_from_avro
from serde_chain.spark.plan.types import as_nullable, spark_of
from serde_chain.stages.avro.schema import READER_SCHEMA, AvroSchema, read_schema
from serde_chain.stages.avro.stage import CONFLUENT, CONTAINER, FRAMING, NONE, SINGLE_OBJECT, AvroDeserializer
from serde_chain.stages.primitives import BytesDeserializer, StringDeserializer

__all__ = ["Branch", "Choice", "choose"]


@dataclass(frozen=True)
class Branch:
    """Records that begin with certain bytes.

    Attributes:
        prefix: These bytes, which name the writer's schema; empty where all records have the same.
        schema: The writer's schema, as JSON.
    """

    prefix: bytes
    schema: str


@dataclass(frozen=True)
class Choice:
    """An engine for keys or values.

    Attributes:
        engine: ``native`` or ``arrow``.
        reason: The reason for it, in words.
        kind: What Spark is to do in the native engine: ``avro``, ``string`` or ``bytes``.
        branches: The writers' schemas, for ``avro``.
        reader: The schema that records are read into, as JSON; None if it is the writer's.
        label: What errors call the last stage.
        before: How the stages before it run, in Python; None if there are none.
    """

    engine: str
    reason: str
    kind: str = "avro"
    branches: tuple[Branch, ...] = ()
    reader: str | None = None
    label: str = ""
    before: FieldPlan | None = None

    @property
    def native(self) -> bool:
        """Whether Spark's own functions read the last stage."""
        return self.engine == NATIVE


class _NotNativeError(Exception):
    """The reason why a chain cannot be read natively, or should not."""


def choose(
    config: Mapping[str, object],
    field: FieldPlan,
    *,
    engine: str,
    mode: str,
    topics: Sequence[str],
    session: SparkSession | None = None,
) -> Choice:
    """Choose the engine for keys or values.

    Args:
        config: Flat configuration.
        field: How the chain is read by the engine ``arrow``.
        engine: ``auto``, ``arrow`` or ``native``.
        mode: The mode.
        topics: Topics whose subjects in the registry name the schemas.
        session: Where to try whether Spark has ``from_avro``; the active one by default.

    Raises:
        ConfigError: The engine is ``native``, and the chain cannot be read by it.
        SchemaRegistryError: The engine is ``native``, and the registry does not answer.
    """
    if engine == ARROW:
        return Choice(ARROW, "as requested")
    try:
        with DeserializerChain.from_config(config, is_key=field.is_key) as chain:
            choice = _native(chain, field, strict=engine == NATIVE, mode=mode, topics=topics)
        if choice.kind == "avro":
            _try(choice, field, mode, session or SparkSession.getActiveSession())
    except _NotNativeError as reason:
        if engine == NATIVE:
            raise ConfigError(
                f"engine='native' cannot read {'keys' if field.is_key else 'values'}: {reason}",
                hint="Use engine='auto'",
                key="engine",
            ) from None
        return Choice(ARROW, str(reason))
    return choice


def _native(chain: DeserializerChain, field: FieldPlan, *, strict: bool, mode: str, topics: Sequence[str]) -> Choice:
    count, last = len(chain.stages) - 1, chain.stages[-1]
    before = plan_first_stages(chain, count, is_key=field.is_key) if count else None
    follows = before is not None and before.markers is not None
    if before is not None and not follows and not strict:
        raise _NotNativeError(f"all records pass through Python for {chain.labels[count - 1]}")
    label = chain.labels[-1]
    for kind, stage in (("string", StringDeserializer), ("bytes", BytesDeserializer)):
        if type(last) is stage:
            return Choice(NATIVE, f"Spark reads {kind} itself", kind, label=label, before=before)
    if type(last) is not AvroDeserializer or last.configured is None or field.given:
        raise _NotNativeError(f"Spark has no function of its own for {label}")
    config, is_key = last.configured
    branches, reader = _branches(config, is_key=is_key, strict=strict, topics=topics)
    if mode == PERMISSIVE and required_field(json.loads(reader.text)) is None:
        raise _NotNativeError(
            "without a required field, a record that from_avro cannot read looks like one whose fields are all null"
        )
    return Choice(
        NATIVE,
        f"Spark's from_avro reads {label}"
        + (", Python only follows references" if follows else ", Python the stages before it" if before else ""),
        branches=branches,
        reader=None if all(branch.schema == reader.text for branch in branches) else reader.text,
        label=label,
        before=before,
    )


def _branches(
    config: Mapping[str, object], *, is_key: bool, strict: bool, topics: Sequence[str]
) -> tuple[tuple[Branch, ...], AvroSchema]:
    """The writers' schemas, and the one to read into."""
    framing = FRAMING.read(config) or (CONFLUENT if schema_registry.URL.read(config) is not None else NONE)
    own, target = read_schema(config), read_schema(config, READER_SCHEMA)
    reader = target or own
    if reader is None:  # the type of the column would not be known either
        raise _NotNativeError("no schema to read into is configured")
    _check(reader)
    if framing in {NONE, SINGLE_OBJECT} and own is not None:
        _check(own)
        prefix = schema_id.encode_single_object(own.fingerprint) if framing == SINGLE_OBJECT else b""
        return (Branch(prefix, own.text),), reader
    if framing == CONTAINER:
        raise _NotNativeError("each record is a container file with a schema of its own")
    if framing != CONFLUENT:
        raise _NotNativeError("the schema's id is in a header")
    if not strict:
        raise _NotNativeError("schema ids that are registered later would be errors in the native engine")
    return _registered(config, reader, is_key=is_key, topics=topics), reader


def _registered(
    config: Mapping[str, object], reader: AvroSchema, *, is_key: bool, topics: Sequence[str]
) -> tuple[Branch, ...]:
    """The schemas that the topics' subjects have in the registry."""
    registry = SchemaRegistry(config, is_key=is_key)
    try:
        registered = {}
        for subject in registry.subjects(topics, reader.name):
            registered.update({item.key: item for item in registry.versions(subject)})
    finally:
        registry.close()
    if not registered:
        raise _NotNativeError("the topics, and so their schemas, are not known: pass topics=")
    branches = []
    for key, item in sorted(registered.items(), key=lambda pair: str(pair[0])):
        if item.references:
            raise _NotNativeError(f"schema {key} of the registry refers to other schemas")
        try:
            schema = AvroSchema.parse(item.text)
        except ValueError as error:
            raise SchemaRegistryError(f"schema {key} of the registry is {error}") from error
        _check(schema)
        branches.append(Branch(schema_id.encode_id(int(str(key))), item.text))
    return tuple(branches)


def _check(schema: AvroSchema) -> None:
    if not isinstance(schema.parsed, dict) or schema.parsed["type"] != "record":
        raise _NotNativeError("the schema is not a record")
    if schema.unbounded:
        raise _NotNativeError(
            "a few bytes of this schema may claim unbounded memory, and from_avro does not check for that"
        )


def _try(choice: Choice, field: FieldPlan, mode: str, session: SparkSession | None) -> None:
    """Try without a record whether Spark has from_avro, accepts the schemas, and has the types of the other engine."""
    if session is None:
        raise _NotNativeError("there is no Spark session yet in which from_avro could be tried")
    expected = spark_of(field.arrow_type)
    try:
        kind = type_of_from_avro(session, [branch.schema for branch in choice.branches], choice.reader, mode)
    except Exception as error:  # noqa: BLE001, whatever Spark raises, the other engine does not need it
        first = str(error).strip().partition("\n")[0]
        raise _NotNativeError(
            f"Spark does not accept from_avro with this schema; is the jar spark-avro installed? ({first})"
        ) from None
    if kind != (as_nullable(expected) if mode == PERMISSIVE else expected):
        raise _NotNativeError("from_avro gives this schema another type")
