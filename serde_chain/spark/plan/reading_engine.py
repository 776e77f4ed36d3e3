"""Which engine reads a chain, and why: Spark's own ``from_avro`` where it returns the same, Arrow otherwise.

With the engine ``native`` each row still has one that reads it: the JVM reads what it can be seen to read, by the row's
headers and first bytes, and Arrow the others, with the whole chain. So nothing depends on what was known when the query
was planned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from serde_chain.chain import DeserializerChain
from serde_chain.errors import ConfigError, SchemaRegistryError
from serde_chain.schemas import schema_id, schema_registry
from serde_chain.schemas.parts import MAX_PARTS
from serde_chain.schemas.schema_registry import RegisteredSchema, SchemaRegistry
from serde_chain.spark.plan.arguments import ARROW, NATIVE, PERMISSIVE
from serde_chain.spark.plan.fields import plan_first_stages
from serde_chain.spark.plan.reading import FieldPlan
from serde_chain.spark.plan.spark_avro import names_not_told_apart, required_field, type_of_from_avro
from serde_chain.spark.plan.types import as_nullable, spark_of
from serde_chain.stages.avro.reader import CONFLUENT, CONTAINER, NONE, SINGLE_OBJECT
from serde_chain.stages.avro.schema import READER_SCHEMA, AvroSchema, read_schema
from serde_chain.stages.avro.stage import FRAMING, AvroDeserializer
from serde_chain.stages.primitives import BytesDeserializer, StringDeserializer

__all__ = ["Branch", "Choice", "choose"]


# What Spark generates for a query with 200 branches is more than Java compiles, and then takes minutes.
_MOST_BRANCHES: Final = 20


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
        markers: Headers that mark the rows which Arrow has to read, since references stand for them.
        open_ended: Whether Arrow has to read the rows that begin with none of the branches' bytes, as their schemas
            may have been registered since.
    """

    engine: str
    reason: str
    kind: str = "avro"
    branches: tuple[Branch, ...] = ()
    reader: str | None = None
    label: str = ""
    markers: frozenset[str] = frozenset()
    open_ended: bool = False

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
            choice = _native(chain, field, mode=mode, topics=topics)
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
    except SchemaRegistryError as error:
        if engine == NATIVE:
            raise
        return Choice(ARROW, f"the registry was asked for the topics' schemas, and failed: {error.message}")
    return choice


def _native(chain: DeserializerChain, field: FieldPlan, *, mode: str, topics: Sequence[str]) -> Choice:
    count, last = len(chain.stages) - 1, chain.stages[-1]
    markers = plan_first_stages(chain, count, is_key=field.is_key).markers if count else frozenset()
    if markers is None:
        raise _NotNativeError(f"all records pass through Python for {chain.labels[count - 1]}")
    label, follows = chain.labels[-1], ", Python follows references" if markers else ""
    for kind, stage in (("string", StringDeserializer), ("bytes", BytesDeserializer)):
        if type(last) is stage:
            return Choice(NATIVE, f"Spark reads {kind} itself{follows}", kind, label=label, markers=markers)
    if type(last) is not AvroDeserializer or last.configured is None or field.given:
        raise _NotNativeError(f"Spark has no function of its own for {label}")
    config, is_key = last.configured
    if MAX_PARTS.read(config) is not None:
        raise _NotNativeError(f"{MAX_PARTS.name} bounds records, and from_avro does not check for that")
    branches, reader, open_ended = _branches(config, is_key=is_key, topics=topics)
    if mode == PERMISSIVE and required_field(json.loads(reader.text)) is None:
        raise _NotNativeError(
            "without a required field, a record that from_avro cannot read looks like one whose fields are all null"
        )
    others = f", Python the schema ids that are not among these {len(branches)}" if open_ended else ""
    return Choice(
        NATIVE,
        f"Spark's from_avro reads {label}{follows}{others}",
        branches=branches,
        reader=None if all(branch.schema == reader.text for branch in branches) else reader.text,
        label=label,
        markers=markers,
        open_ended=open_ended,
    )


def _branches(
    config: Mapping[str, object], *, is_key: bool, topics: Sequence[str]
) -> tuple[tuple[Branch, ...], AvroSchema, bool]:
    """The writers' schemas, the one to read into, and whether there may be other writers' schemas."""
    framing = FRAMING.read(config) or (CONFLUENT if schema_registry.URL.read(config) is not None else NONE)
    own, target = read_schema(config), read_schema(config, READER_SCHEMA)
    reader = target or own
    if reader is None:  # the type of the column would not be known either
        raise _NotNativeError("no schema to read into is configured")
    _check(reader)
    if framing in {NONE, SINGLE_OBJECT} and own is not None:
        _check(own)
        prefix = schema_id.encode_single_object(own.fingerprint) if framing == SINGLE_OBJECT else b""
        return (Branch(prefix, own.text),), reader, False
    if framing == CONTAINER:
        raise _NotNativeError("each record is a container file with a schema of its own")
    if framing != CONFLUENT:
        raise _NotNativeError("the schema's id is in a header")
    return _registered(config, reader, is_key=is_key, topics=topics), reader, True


def _registered(
    config: Mapping[str, object], reader: AvroSchema, *, is_key: bool, topics: Sequence[str]
) -> tuple[Branch, ...]:
    """The newest schemas that the topics' subjects have in the registry, as far as Spark reads them."""
    registry = SchemaRegistry(config, is_key=is_key)
    try:
        registered = {}
        for subject in registry.subjects(topics, reader.name):
            registered.update({item.key: item for item in registry.versions(subject)})
    finally:
        registry.close()
    if not registered:
        raise _NotNativeError("the topics, and so their schemas, are not known: pass topics=")
    branches: list[Branch] = []
    reason = _NotNativeError()
    for number, item in sorted(((int(str(key)), item) for key, item in registered.items()), reverse=True):
        if len(branches) == _MOST_BRANCHES:
            break
        try:
            _check_registered(item)
        except _NotNativeError as refused:
            reason = refused
        else:
            branches.append(Branch(schema_id.encode_id(number), item.text))
    if not branches:
        raise reason
    return tuple(branches)


def _check_registered(item: RegisteredSchema) -> None:
    if item.references:
        raise _NotNativeError(f"schema {item.key} of the registry refers to other schemas")
    try:
        schema = AvroSchema.parse(item.text)
    except ValueError as error:
        raise SchemaRegistryError(f"schema {item.key} of the registry is {error}") from error
    _check(schema)


def _check(schema: AvroSchema) -> None:
    if not isinstance(schema.parsed, dict) or schema.parsed["type"] != "record":
        raise _NotNativeError("the schema is not a record")
    if schema.unbounded:
        raise _NotNativeError(
            "a few bytes of this schema may claim unbounded memory, and from_avro does not check for that"
        )
    if (names := names_not_told_apart(schema)) is not None:
        raise _NotNativeError(f"from_avro does not tell the fields {' and '.join(names)} apart")


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
