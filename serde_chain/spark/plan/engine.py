"""Which engine reads a chain, and why: Spark's own ``from_avro`` where it gives the same, else Arrow."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, SparkSession, functions

from payload_stores.options import nearest
from serde_chain.chain import DeserializerChain
from serde_chain.config import Config
from serde_chain.errors import ConfigError, SchemaRegistryError
from serde_chain.record import KEY, VALUE
from serde_chain.schemas import schema_id, schema_registry
from serde_chain.schemas.schema_registry import SchemaRegistry
from serde_chain.spark.plan.plan import PERMISSIVE, FieldPlan, check_mode, load, plan_field
from serde_chain.spark.plan.schemas import as_nullable, spark_of
from serde_chain.stages.avro.schema import READER_SCHEMA, AvroSchema, read_schema
from serde_chain.stages.avro.stage import CONFLUENT, CONTAINER, FRAMING, NONE, SINGLE_OBJECT, AvroDeserializer
from serde_chain.stages.large_message.read import LargeMessageDeserializer
from serde_chain.stages.primitives import BytesDeserializer, StringDeserializer

__all__ = [
    "ARROW",
    "AUTO",
    "NATIVE",
    "Branch",
    "Choice",
    "as_topics",
    "check_engine",
    "choose",
    "explain",
    "from_avro",
    "required_field",
]

AUTO: Final = "auto"
ARROW: Final = "arrow"
NATIVE: Final = "native"
_ENGINES: Final = (AUTO, ARROW, NATIVE)


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
        reason: Why.
        kind: What Spark is to do in the native engine: ``avro``, ``string`` or ``bytes``.
        branches: The writers' schemas, for ``avro``.
        reader: The schema that records are read into, as JSON; None if it is the writer's.
        label: What errors call the last stage.
        before: How many stages run in Python before it.
    """

    engine: str
    reason: str
    kind: str = "avro"
    branches: tuple[Branch, ...] = ()
    reader: str | None = None
    label: str = ""
    before: int = 0

    @property
    def native(self) -> bool:
        """Whether Spark's own functions read the last stage."""
        return self.engine == NATIVE


class _NotNativeError(Exception):
    """Why a chain cannot be read natively, or should not."""


def check_engine(engine: str) -> str:
    """Check an engine.

    Raises:
        ConfigError: There is no such engine.
    """
    if engine not in _ENGINES:
        near = nearest(str(engine), _ENGINES)
        raise ConfigError(
            f"there is no engine {engine!r}",
            hint=(f"Did you mean {near}? " if near else "") + f"There are {', '.join(_ENGINES)}",
            key="engine",
        )
    return engine


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
        return Choice(ARROW, "as asked for")
    try:
        with DeserializerChain.from_config(config, is_key=field.is_key) as chain:
            found = _native(chain, field, strict=engine == NATIVE, mode=mode, topics=topics)
        if found.kind == "avro":
            _try(found, field, mode, session or SparkSession.getActiveSession())
    except _NotNativeError as reason:
        if engine == NATIVE:
            raise ConfigError(
                f"engine='native' cannot read {'keys' if field.is_key else 'values'}: {reason}",
                hint="Use engine='auto'",
                key="engine",
            ) from None
        return Choice(ARROW, str(reason))
    return found


def _native(chain: DeserializerChain, field: FieldPlan, *, strict: bool, mode: str, topics: Sequence[str]) -> Choice:
    *before, last = chain.stages
    follows = (
        len(before) == 1 and type(before[0]) is LargeMessageDeserializer and before[0].marker_headers() is not None
    )
    if before and not follows and not strict:
        raise _NotNativeError(f"all records pass through Python for {chain.labels[len(before) - 1]}")
    label = chain.labels[-1]
    for kind, stage in (("string", StringDeserializer), ("bytes", BytesDeserializer)):
        if type(last) is stage:
            return Choice(NATIVE, f"Spark reads {kind} itself", kind, label=label, before=len(before))
    if type(last) is not AvroDeserializer or field.given:
        raise _NotNativeError(f"Spark has no function of its own for {label}")
    config, is_key = last._configured  # noqa: SLF001, what the stage was made with
    branches, reader = _branches(config, is_key=is_key, strict=strict, topics=topics)
    if mode == PERMISSIVE and required_field(json.loads(reader.text)) is None:
        raise _NotNativeError("a record without a required field cannot be told from one that from_avro has given up")
    return Choice(
        NATIVE,
        f"Spark's from_avro reads {label}"
        + (", Python only follows references" if follows else ", Python the stages before it" if before else ""),
        branches=branches,
        reader=None if all(branch.schema == reader.text for branch in branches) else reader.text,
        label=label,
        before=len(before),
    )


def _branches(
    config: Mapping[str, object], *, is_key: bool, strict: bool, topics: Sequence[str]
) -> tuple[tuple[Branch, ...], AvroSchema]:
    """The writers' schemas, and the one to read into."""
    framing = FRAMING.read(config) or (CONFLUENT if schema_registry.URL.read(config) is not None else NONE)
    own, target = read_schema(config), read_schema(config, READER_SCHEMA)
    reader = target or own
    if reader is None:  # the type of the column would not be known either
        raise _NotNativeError("there is no schema to read into")
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
        raise _NotNativeError("schema ids that the registry gets later would be errors in the native engine")
    return _registered(config, reader, is_key=is_key, topics=topics), reader


def _registered(
    config: Mapping[str, object], reader: AvroSchema, *, is_key: bool, topics: Sequence[str]
) -> tuple[Branch, ...]:
    """The schemas that the topics' subjects have in the registry."""
    registry = SchemaRegistry(config, is_key=is_key)
    try:
        found = {}
        for subject in registry.subjects(topics, reader.name):
            found.update({item.key: item for item in registry.versions(subject)})
    finally:
        registry.close()
    if not found:
        raise _NotNativeError("the topics are not known, and so not their schemas: pass topics=")
    branches = []
    for key, item in sorted(found.items(), key=lambda pair: str(pair[0])):
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
        raise _NotNativeError("a few bytes of this schema may claim unbounded memory, which from_avro does not check")


def required_field(schema: Mapping[str, Any]) -> str | None:
    """The first field of a record that is never null; None if all may be."""
    for field in schema["fields"]:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        if not any(kind in ("null", {"type": "null"}) for kind in kinds):
            return str(field["name"])
    return None


def _try(found: Choice, field: FieldPlan, mode: str, session: SparkSession | None) -> None:
    """Try without a record whether Spark has from_avro, takes the schemas, and gives the types of the other engine."""
    if session is None:
        raise _NotNativeError("there is no Spark session yet in which from_avro could be tried")
    expected = spark_of(field.arrow_type)
    expected = as_nullable(expected) if mode == PERMISSIVE else expected
    nothing = functions.lit(None).cast("binary")
    text = io.StringIO()
    try:
        # Where the jar is missing, pyspark prints a page about it.
        with contextlib.redirect_stdout(text):
            columns = [from_avro(nothing, branch.schema, found.reader, mode) for branch in found.branches]
            # As writers' schemas they are not looked at before the first record.
            columns += [from_avro(nothing, branch.schema, None, mode) for branch in found.branches]
            schema = session.range(0).select(*columns).schema
    except Exception as error:  # noqa: BLE001, whatever Spark raises, the other engine does not need it
        first = str(error).strip().partition("\n")[0]
        raise _NotNativeError(
            f"Spark does not take from_avro with this schema; is the jar spark-avro there? ({first})"
        ) from None
    if schema[0].dataType != expected:
        raise _NotNativeError("from_avro has another type for this schema")


def from_avro(value: Column, schema: str, reader: str | None, mode: str) -> Column:
    """Spark's function, which needs the jar ``spark-avro``; a mode that it lacks is ``FAILFAST``."""
    from pyspark.sql.avro import functions as avro

    options = {"mode": PERMISSIVE if mode == PERMISSIVE else "FAILFAST"}
    if reader is not None:
        options["avroSchema"] = reader
    return avro.from_avro(value, schema, options)


def explain(
    config: Config | str | Path, *, engine: str = "auto", mode: str = "FAILFAST", topics: str | Sequence[str] = ()
) -> str:
    """Say which engine reads a configuration's chains, and why.

    Args:
        config: As in :func:`serde_chain.spark.decode`, as are the others.
        engine: The engine.
        mode: The mode.
        topics: The topics.

    Returns:
        A line each for keys and values that have a chain: ``value: native (Spark's from_avro reads avro (1 of 1))``.

    Raises:
        ConfigError: As in :func:`serde_chain.spark.decode`.
    """
    loaded, mode, engine = load(config), check_mode(mode), check_engine(engine)
    lines = []
    for field in (plan_field(loaded, is_key=True), plan_field(loaded, is_key=False)):
        if field is not None:
            found = choose(loaded, field, engine=engine, mode=mode, topics=as_topics(topics))
            lines.append(f"{KEY if field.is_key else VALUE}: {found.engine} ({found.reason})")
    if len({line.split()[1] for line in lines}) > 1:
        lines.append("Together, in decode(): arrow, since one of them passes through Python anyway")
    return "\n".join(lines)


def as_topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    """One topic or several, as several."""
    return (topics,) if isinstance(topics, str) else tuple(topics)
