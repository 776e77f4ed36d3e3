"""Chooses the engine that reads a chain: Spark's own ``from_avro`` if it returns the same, and faster; otherwise Arrow.

Even with the engine ``native``, each row is assigned a reader: the JVM reads the rows whose headers and first bytes it
recognizes, Arrow the others, with the whole chain. So the result does not depend on what was known when the query was
planned.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyspark.sql import SparkSession, functions

from serde_chain.errors import ConfigError, SchemaRegistryError
from serde_chain.schemas import schema_id
from serde_chain.schemas.framing import HEADER, Framing
from serde_chain.schemas.part_budget import MAX_PARTS
from serde_chain.schemas.registry import RegisteredSchema, SchemaRegistry
from serde_chain.schemas.schema_id import SchemaKey
from serde_chain.schemas.schema_registry import named_framing, open_registry
from serde_chain.spark.arguments import ARROW, AUTO, NATIVE, PERMISSIVE
from serde_chain.spark.chains.opened import OpenedChain
from serde_chain.spark.chains.plan import FieldPlan
from serde_chain.spark.columns.frame import is_refusal
from serde_chain.spark.columns.types import as_nullable, spark_of
from serde_chain.spark.spark_avro import (
    aliases_not_told_apart,
    names_not_told_apart,
    required_field,
    type_of_from_avro,
)
from serde_chain.stages.avro.native import absence, library
from serde_chain.stages.avro.reader import CONTAINER, RECORD_KEY, SINGLE_OBJECT
from serde_chain.stages.avro.resolution import resolved
from serde_chain.stages.avro.schema import READER_SCHEMA, AvroSchema, read_schema
from serde_chain.stages.avro.stage import FRAMING, AvroDeserializer
from serde_chain.stages.primitives import BytesDeserializer, StringDeserializer

_log: Final = logging.getLogger(__name__)

# With 200 branches, Spark generates more code for a query than Java compiles, and then takes minutes.
_MOST_BRANCHES: Final = 20

_UNREADABLE: Final = {
    CONTAINER: "each record is a container file with its own schema",
    RECORD_KEY: "the schema is in the record's key",
    HEADER: "the schema's id is in a header",
}


@dataclass(frozen=True)
class Branch:
    """Records with a certain prefix.

    Attributes:
        prefix: The prefix, which names the writer's schema; empty if all records have the same.
        schema: The writer's schema, as JSON.
    """

    prefix: bytes
    schema: str


@dataclass(frozen=True)
class Choice:
    """An engine for keys or values.

    Attributes:
        engine: ``native`` or ``arrow``.
        reason: Its reason, in words.
        kind: The reader in the native engine: ``avro``, ``string`` or ``bytes``.
        branches: The writers' schemas, for ``avro``.
        reader: The schema to read into, as JSON; None if it is the writer's.
        label: The last stage's name in errors.
        markers: Headers of rows that Arrow must read, since they are references.
        open_ended: Whether Arrow must read rows without a known prefix, whose schemas may have been registered
            since.
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

    @property
    def crosses(self) -> bool:
        """Whether rows may pass through Python."""
        return not self.native or bool(self.markers) or self.open_ended


class _NotNativeError(Exception):
    """The reason why a chain cannot or should not be read natively."""


def choose(
    chain: OpenedChain,
    field: FieldPlan,
    *,
    engine: str,
    mode: str,
    topics: Sequence[str],
    session: SparkSession | None = None,
) -> Choice:
    """Choose the engine for keys or values.

    Args:
        chain: The chain.
        field: The plan for the engine ``arrow``.
        engine: ``auto``, ``arrow`` or ``native``.
        mode: The mode.
        topics: Topics whose subjects in the registry determine the schemas.
        session: The session in which to try ``from_avro``; the active one by default.

    Raises:
        ConfigError: The engine is ``native``, but cannot read the chain.
        SchemaRegistryError: The engine is ``native``, and the registry does not answer.
    """
    if engine == ARROW:
        return Choice(ARROW, "as requested")
    try:
        choice = _native(chain, field, mode=mode, topics=topics, only_if_faster=engine == AUTO)
        if choice.kind == "avro":
            _try(choice, field, mode, session or SparkSession.getActiveSession(), is_requested=engine == NATIVE)
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
        why = f"the schema registry failed to return the topics' schemas: {error.message}"
        _warn(f"Python reads the {'keys' if field.is_key else 'values'} of {', '.join(topics)}: {why}")
        return Choice(ARROW, why)
    return choice


def why_not_compiled(stage: AvroDeserializer) -> str | None:
    """Why fastavro reads the batches of a stage in Python; None if the compiled part does, as in the driver."""
    return stage.batch_form().refusal if library() else f"serde-chain is {absence()}"


def _slower(stage: AvroDeserializer, markers: frozenset[str]) -> _NotNativeError | None:
    """Why ``from_avro`` costs more than the compiled part in a Python step that is needed beside it, if it does.

    The driver's compiled part decides. Workers without one read with fastavro, unless ``avro.native`` is ``on``.
    """
    if why_not_compiled(stage) is not None:
        return None
    needs = "follows references" if markers else "reads schema ids registered later"
    return _NotNativeError(f"Python {needs}, and its compiled reader costs less than from_avro beside that")


@lru_cache(maxsize=128)
def _warn(message: str) -> None:
    """Log a message, once."""
    _log.warning("%s", message)


def _native(chain: OpenedChain, field: FieldPlan, *, mode: str, topics: Sequence[str], only_if_faster: bool) -> Choice:
    last, label = chain.reader, chain.labels[chain.reader_at]
    if chain.first_markers is None:
        raise _NotNativeError(f"all records pass through Python for {chain.labels[chain.reader_at - 1]}")
    markers = chain.first_markers
    if chain.fetching is not None and field.stages is None:  # otherwise steps of their own fetch the fields
        markers |= chain.fetching.markers
    follows = ", Python follows references" if markers else ""
    for kind, stage in (("string", StringDeserializer), ("bytes", BytesDeserializer)):
        if type(last) is stage:
            if kind == "string" and not hasattr(functions, "is_valid_utf8"):
                raise _NotNativeError(f"this version of Spark cannot check text for {label}")
            return Choice(NATIVE, f"Spark reads {kind} itself{follows}", kind, label=label, markers=markers)
    if type(last) is not AvroDeserializer or last.configured is None or field.given:
        raise _NotNativeError(f"Spark has no function for {label}")
    config, is_key = last.configured
    if MAX_PARTS.read(config) is not None:
        raise _NotNativeError(f"{MAX_PARTS.name} limits records, and from_avro does not check that")
    slower = _slower(last, markers) if only_if_faster else None
    branches, reader, open_ended = _branches(config, is_key=is_key, topics=topics, slower=slower, follows=bool(markers))
    branches = _resolvable(branches, reader, open_ended=open_ended)
    writers = [AvroSchema.parse(branch.schema) for branch in branches]
    if (names := aliases_not_told_apart(reader, writers)) is not None:
        raise _NotNativeError(f"from_avro does not distinguish {names[0]} and its alias {names[1]}")
    if mode == PERMISSIVE and required_field(json.loads(reader.text)) is None:
        raise _NotNativeError(
            "without a required field, a record that from_avro cannot read looks like one with only null fields"
        )
    target = reader.text_without_wrong_defaults
    others = f", Python the schema ids other than these {len(branches)}" if open_ended else ""
    return Choice(
        NATIVE,
        f"Spark's from_avro reads {label}{follows}{others}",
        branches=branches,
        reader=None if all(branch.schema == target for branch in branches) else target,
        label=label,
        markers=markers,
        open_ended=open_ended,
    )


def _branches(
    config: Mapping[str, object],
    *,
    is_key: bool,
    topics: Sequence[str],
    slower: _NotNativeError | None,
    follows: bool,
) -> tuple[tuple[Branch, ...], AvroSchema, bool]:
    """The writers' schemas, the schema to read into, and whether other writers' schemas may occur.

    Args:
        config: The stage's configuration.
        is_key: Whether it reads keys.
        topics: As for :func:`choose`.
        slower: Why Python is faster where rows may have to pass through it, if it is.
        follows: Whether Python follows references.
    """
    framing, of_registry = named_framing(FRAMING, config, is_key=is_key)
    own, target = read_schema(config), read_schema(config, READER_SCHEMA)
    reader = target or own
    if reader is None:  # the column's type would be unknown too
        raise _NotNativeError("no schema to read into is configured")
    _check(reader)
    if framing in _UNREADABLE:
        raise _NotNativeError(_UNREADABLE[framing])
    if slower is not None and (follows or of_registry is not None):  # before the registry is asked
        raise slower
    if of_registry is not None:
        return _registered(config, of_registry, reader, is_key=is_key, topics=topics), reader, True
    if own is None:
        raise _NotNativeError("the writers' schema is not configured")
    _check(own)
    prefix = schema_id.encode_single_object(own.fingerprint) if framing == SINGLE_OBJECT else b""
    return (Branch(prefix, own.text_without_wrong_defaults),), reader, False


def _resolvable(branches: tuple[Branch, ...], reader: AvroSchema, *, open_ended: bool) -> tuple[Branch, ...]:
    """The branches of which every record can be read into a schema: of others, Spark's error names no field.

    Raises:
        _NotNativeError: There are none, or the other records would not pass through Python.
    """
    problems = {branch: resolved(AvroSchema.parse(branch.schema), reader).problems for branch in branches}
    kept = tuple(branch for branch in branches if not problems[branch])
    if not kept or (len(kept) < len(branches) and not open_ended):
        (problem, *_) = next(found for found in problems.values() if found)
        raise _NotNativeError(f"the writer's schema does not resolve into the reader's: {problem}")
    return kept


def _registered(
    config: Mapping[str, object], framing: Framing, reader: AvroSchema, *, is_key: bool, topics: Sequence[str]
) -> tuple[Branch, ...]:
    """The newest schemas of the topics' subjects in the registry, as far as Spark can read them."""
    registry = open_registry(config, is_key=is_key)
    try:
        registered = _versions(registry, registry.subjects(topics, reader.name))
    finally:
        registry.close()
    if not registered:
        raise _NotNativeError("the topics, and thereby their schemas, are unknown: pass topics=")
    branches: list[Branch] = []
    reason = _NotNativeError()
    for item in sorted(registered.values(), key=lambda item: item.order or 0, reverse=True):
        prefix = framing.prefix_of(item.key)
        if len(branches) == _MOST_BRANCHES:
            break
        try:
            schema = _checked(item)
        except _NotNativeError as refused:
            reason = refused
        else:
            if prefix is not None:
                # Spark sends a parsed schema to executors, which refuse it for defaults that nothing needs.
                branches.append(Branch(prefix, schema.text_without_wrong_defaults))
    if not branches:
        raise reason
    return tuple(branches)


def _versions(registry: SchemaRegistry, subjects: Sequence[str]) -> dict[SchemaKey, RegisteredSchema]:
    """The schemas of subjects by their ids, each of which must mean one schema: rows are compared by it alone."""
    found: dict[SchemaKey, RegisteredSchema] = {}
    for subject in subjects:
        for item in registry.versions(subject):
            if found.setdefault(item.key, item).text != item.text:
                raise _NotNativeError("one schema id means several schemas, in contexts of the registry")
    return found


def _checked(item: RegisteredSchema) -> AvroSchema:
    """A registered schema, with those that it refers to."""
    try:
        schema = AvroSchema.parse(item.text, item.references)
    except ValueError as error:
        raise SchemaRegistryError(f"schema {item.key} of the registry is {error}") from error
    _check(schema)
    return schema


def _check(schema: AvroSchema) -> None:
    if not isinstance(schema.parsed, dict) or schema.parsed["type"] != "record":
        raise _NotNativeError("the schema is not a record")
    if schema.unbounded:
        raise _NotNativeError(
            "a few bytes of this schema may claim unbounded memory, and from_avro does not check that"
        )
    if (names := names_not_told_apart(schema)) is not None:
        raise _NotNativeError(f"from_avro does not distinguish the fields {' and '.join(names)}")


def _try(choice: Choice, field: FieldPlan, mode: str, session: SparkSession | None, *, is_requested: bool) -> None:
    """Try without records whether Spark has from_avro, accepts the schemas, and has the other engine's types.

    Where Spark refuses to analyse anything, only a requested from_avro is used: Spark tries it with the whole query.
    """
    if session is None:
        raise _NotNativeError("from_avro cannot be tried: there is no Spark session yet")
    expected = spark_of(field.arrow_type)
    try:
        kind = type_of_from_avro(session, [branch.schema for branch in choice.branches], choice.reader, mode)
    except Exception as error:  # noqa: BLE001, any error of Spark: the other engine does not need it
        if is_refusal(error):
            if is_requested:
                return
            raise _NotNativeError("from_avro cannot be tried in a query function of a pipeline") from None
        first = str(error).strip().partition("\n")[0]
        raise _NotNativeError(
            f"Spark does not accept from_avro with this schema; is the jar spark-avro installed? ({first})"
        ) from None
    if kind != (as_nullable(expected) if mode == PERMISSIVE else expected):
        raise _NotNativeError("from_avro gives this schema another type")
