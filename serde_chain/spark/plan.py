"""What the driver tells the workers: built and checked once per call, pickled into the function that Spark ships.

The configuration, secrets included, travels in here and nowhere else: a query's plan shows names of columns only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from payload_stores.options import nearest
from payload_stores.plugins import require
from serde_chain import config as configuration
from serde_chain.base import Data, Stage
from serde_chain.chain import DeserializerChain
from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.serializers import primitives
from serde_chain.serializers.avro import AvroDeserializer
from serde_chain.serializers.avro_arrow import ArrowAvroDeserializer
from serde_chain.serializers.avro_schema import SCHEMA, SCHEMA_FILE
from serde_chain.serializers.json import JsonDeserializer

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

Reading = Literal["avro", "json text", "values", "bytes"]

_PRIMITIVES: Final[Mapping[type, str]] = {
    primitives.StringDeserializer: "string",
    primitives.BytesDeserializer: "binary",
    primitives.IntegerDeserializer: "int32",
    primitives.LongDeserializer: "int64",
    primitives.FloatDeserializer: "float32",
    primitives.DoubleDeserializer: "float64",
    primitives.UuidDeserializer: "string",
}


@dataclass(frozen=True)
class FieldPlan:
    """How keys or values are read.

    Attributes:
        is_key: Whether these are keys.
        reading: What becomes of what the chain gives: ``avro`` reads into Arrow's form at once, ``json text`` keeps the
            text, ``values`` converts Python values, ``bytes`` keeps bytes.
        arrow_type: The ``pyarrow.DataType`` of the column.
        needs_headers: Whether a stage cannot work without the record's headers.
        stages: How many stages are run; None for all.
    """

    is_key: bool
    reading: Reading
    arrow_type: Any
    needs_headers: bool
    stages: int | None = None


@dataclass(frozen=True)
class Plan:
    """What one function does in the workers.

    Attributes:
        config: The whole configuration, flat.
        columns: What the function's arguments are: ``value``, ``headers``, ``topic``, ``partition``, ``offset``,
            ``key``, ``timestamp`` (ms).
        value: How values are read; None leaves them.
        key: How keys are read; None leaves them.
        whole: Give a struct of all that was read, with headers and error; else the value alone.
        mode: ``FAILFAST``, ``PERMISSIVE`` or ``DROPMALFORMED``.
        python: The driver's interpreter, for messages.
        record: Give a struct of value, headers, key and timestamp; null where neither value nor key came.
    """

    config: Mapping[str, object]
    columns: tuple[str, ...]
    value: FieldPlan | None
    key: FieldPlan | None
    whole: bool
    mode: str
    python: str
    record: bool = False


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
    """Options with the schema itself in place of the path of its file."""
    loaded = dict(options)
    path = SCHEMA_FILE.read(options)
    if path is not None and SCHEMA.name not in options:
        try:
            loaded[SCHEMA.name] = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{SCHEMA_FILE.name} = {path!r} cannot be read: {error}", key=SCHEMA_FILE.name) from error
        del loaded[SCHEMA_FILE.name]
    return loaded


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
        needs_headers = any(getattr(stage, "moves_payloads", False) for stage in chain.stages)
        if given is not None:
            return FieldPlan(is_key, "values", given, needs_headers)
        return FieldPlan(is_key, *_type_of(chain, is_key=is_key), needs_headers)


def _type_of(chain: DeserializerChain, *, is_key: bool) -> tuple[Reading, Any]:
    arrow = require("pyarrow", "spark")
    last = chain.stages[-1]
    if type(last) is AvroDeserializer:  # a subclass may read other things
        stage = ArrowAvroDeserializer.like(last)
        stage.close()
        return "avro", stage.arrow_type
    if isinstance(last, JsonDeserializer):
        return "json text", arrow.string()
    name = next((name for cls, name in _PRIMITIVES.items() if isinstance(last, cls)), None)
    if name is not None:
        return "values", getattr(arrow, name)()
    if isinstance(last, Stage) and last.gives is Data.BYTES:
        return "values", arrow.binary()
    raise ConfigError(
        f"the type of the {'keys' if is_key else 'values'} is not known: {chain.labels[-1]} does not say what it gives",
        hint="Pass schema= to deserialize(), with the Spark type of the column",
        key=f"{'key' if is_key else 'value'}.deserializers",
    )
