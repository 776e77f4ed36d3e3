"""What the driver tells the workers: built and checked once per call, pickled into the function that Spark ships.

The configuration, secrets included, travels in here and nowhere else: a query's plan shows names of columns only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from payload_stores.options import Option, nearest
from payload_stores.plugins import require
from serde_chain import config as configuration
from serde_chain.arrow.loop import declared_type
from serde_chain.base import Data, Stage
from serde_chain.chain import DeserializerChain
from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.stages.avro.schema import SCHEMA, SCHEMA_FILE
from serde_chain.stages.avro.stage import AvroDeserializer
from serde_chain.stages.protobuf.schema import DESCRIPTOR_SET

__all__ = [
    "DROPMALFORMED",
    "FAILFAST",
    "PERMISSIVE",
    "FieldPlan",
    "Plan",
    "check_mode",
    "load",
    "pickled",
    "plan_field",
]

FAILFAST: Final = "FAILFAST"
PERMISSIVE: Final = "PERMISSIVE"
DROPMALFORMED: Final = "DROPMALFORMED"
_MODES: Final = (FAILFAST, PERMISSIVE, DROPMALFORMED)


@dataclass(frozen=True)
class FieldPlan:
    """How keys or values are read.

    Attributes:
        is_key: Whether these are keys.
        arrow_type: The ``pyarrow.DataType`` of the column.
        needs_headers: Whether a stage cannot work without the record's headers.
        stages: How many stages are run; None for all.
        given: Whether the type is one that the user asks for: values are fitted to it by the names of fields.
        restores: Whether references may stand for whole records, with headers, key and timestamp.
    """

    is_key: bool
    arrow_type: Any
    needs_headers: bool
    stages: int | None = None
    given: bool = False
    restores: bool = False


@dataclass(frozen=True)
class Plan:
    """What one function does in the workers.

    Attributes:
        config: The whole configuration, flat.
        columns: What the function's arguments are: ``value``, ``headers``, ``topic``, ``partition``, ``offset``,
            ``key``, ``timestamp`` (ms).
        value: How values are read; None leaves them.
        key: How keys are read; None leaves them.
        gives: The fields of the struct that the function gives, out of ``value``, ``key``, ``headers``, ``timestamp``
            (µs, UTC) and ``error``; none for the value alone.
        mode: ``FAILFAST``, ``PERMISSIVE`` or ``DROPMALFORMED``.
        python: The driver's interpreter, for messages.
        leaves_empty: Give null instead of a struct where neither value nor key came.
    """

    config: Mapping[str, object]
    columns: tuple[str, ...]
    value: FieldPlan | None
    key: FieldPlan | None
    gives: tuple[str, ...]
    mode: str
    python: str
    leaves_empty: bool = False


def pickled(plan: Plan) -> bytes:
    """Pickle what the workers are to know.

    Raises:
        ConfigError: Something in the configuration cannot be pickled.
    """
    try:
        found: bytes = require("pyspark.cloudpickle", "spark").dumps(plan)
    except Exception as error:
        raise ConfigError(
            f"the configuration cannot travel to Spark's workers: {error}",
            hint="Give stages and stores by name or class, not as instances that hold connections",
        ) from error
    return found


def check_mode(mode: str) -> str:
    """Check a mode, in any case.

    Raises:
        ConfigError: There is no such mode.
    """
    found = str(mode).upper()
    if found not in _MODES:
        near = nearest(found, _MODES)
        raise ConfigError(
            f"there is no mode {mode!r}",
            hint=(f"Did you mean {near}? " if near else "") + f"There are {', '.join(_MODES)}",
            key="mode",
        )
    return found


def load(source: Config | str | Path) -> dict[str, object]:
    """Load a configuration such that it can be used on other machines: files of the driver are read here.

    Raises:
        ConfigError: It or a file that it names cannot be read.
    """
    config = configuration.load(source)
    for name in ("key.deserializers", "value.deserializers", "key.deserializer", "value.deserializer"):
        items = config.get(name)
        if isinstance(items, (list, tuple)):
            config[name] = [_with_schema(item) if isinstance(item, Mapping) else item for item in items]
        elif isinstance(items, Mapping):
            config[name] = _with_schema(items)
    return _with_schema(config)


def _with_schema(options: Mapping[str, object]) -> dict[str, object]:
    """Options with what is in files in place of their paths."""
    loaded = dict(options)
    path = SCHEMA_FILE.read(options)
    if path is not None and SCHEMA.name not in options:
        loaded[SCHEMA.name] = str(_read(SCHEMA_FILE, path), "utf-8", "replace")
        del loaded[SCHEMA_FILE.name]
    descriptors = DESCRIPTOR_SET.read(options)
    if isinstance(descriptors, str):
        loaded[DESCRIPTOR_SET.name] = _read(DESCRIPTOR_SET, descriptors)
    return loaded


def _read(option: Option[Any], path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{option.name} = {path!r} cannot be read: {error}", key=option.name) from error


def plan_field(config: Mapping[str, object], *, is_key: bool, given: Any = None) -> FieldPlan | None:
    """Build a chain once, as the workers will, to find its mistakes and the type of its column.

    Args:
        config: Flat configuration.
        is_key: Whether for keys.
        given: A ``pyarrow.DataType`` that the user asks for, in place of the one that the chain has.

    Returns:
        The plan; None if the configuration names no stages for this field.

    Raises:
        ConfigError: The configuration is wrong, or the type is not known.
        MissingDependencyError: A package is not installed.
    """
    with DeserializerChain.from_config(config, is_key=is_key) as chain:
        if not chain.stages:
            return None
        kind = _type_of(chain, is_key=is_key) if given is None else given
        return FieldPlan(
            is_key,
            kind,
            needs_headers=any(getattr(stage, "moves_payloads", False) for stage in chain.stages),
            given=given is not None,
            restores=any(getattr(stage, "restores_records", False) for stage in chain.stages),
        )


def _type_of(chain: DeserializerChain, *, is_key: bool) -> Any:
    arrow = require("pyarrow", "spark")
    last = chain.stages[-1]
    kind = declared_type(last)
    if kind is not None:
        return _signed(kind, arrow)
    if isinstance(last, Stage) and last.gives is Data.BYTES:
        return arrow.binary()
    needs_schema = isinstance(last, AvroDeserializer)
    raise ConfigError(
        f"the type of the {'keys' if is_key else 'values'} is not known before they are read: {chain.labels[-1]} does "
        "not say what it gives",
        hint="Set avro.reader.schema to the schema that all of them are read into"
        if needs_schema
        else "Pass schema= to deserialize(), with the Spark type of the column",
        key="avro.reader.schema" if needs_schema else f"{'key' if is_key else 'value'}.deserializers",
    )


def _signed(kind: Any, arrow: Any) -> Any:
    """A type with larger numbers in place of unsigned ones, which Spark does not have."""
    types = arrow.types
    if types.is_unsigned_integer(kind):
        return arrow.decimal128(20, 0) if kind.bit_width == 64 else arrow.int64()
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return arrow.struct([field.with_type(_signed(field.type, arrow)) for field in fields])
    if types.is_map(kind):
        key, item = (field.with_type(_signed(field.type, arrow)) for field in (kind.key_field, kind.item_field))
        return arrow.map_(key, item)
    if types.is_list(kind):
        return arrow.list_(kind.value_field.with_type(_signed(kind.value_type, arrow)))
    return kind
