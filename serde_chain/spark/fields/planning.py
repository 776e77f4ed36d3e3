"""Plans for fetching single fields: each of the columns that may hold references is fetched by itself.

Spark's optimizer then drops those that a query does not use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.base import FieldType
from serde_chain.spark.chains.opened import FetchingStage, OpenedChain
from serde_chain.spark.chains.plan import FieldPlan
from serde_chain.spark.fields.plan import FieldColumn
from serde_chain.spark.prerequisites import has_arrow_udfs
from serde_chain.stages.large_fields.options import PATHS
from serde_chain.stages.large_fields.paths import Pattern, leaves, spellings, template
from serde_chain.wire.large_fields import HEADER, Path

# Each of them is a step of its own in a query's plan, with a pass through Python.
MOST_COLUMNS: Final = 20
# By aliases, beside one for each field: with more, in a schema of many levels, all fields are fetched together.
_MOST_ALIASES: Final = 500


@dataclass(frozen=True)
class FieldsPlan:
    """The columns that are fetched by themselves.

    Attributes:
        value: The plan for the stages before.
        columns: The columns.
        left_out: Other fields of bytes or strings, as patterns, by all their names; records with references there are
            refused.
        unknown: What is wrong with each path that names no field of the values.
        markers: The header that every record with references has.
    """

    value: FieldPlan
    columns: tuple[FieldColumn, ...]
    left_out: tuple[str, ...]
    unknown: tuple[str, ...]
    markers: frozenset[str]


def plan_fields(chain: OpenedChain) -> FieldsPlan | str | None:
    """Plan the columns to fetch by themselves.

    Args:
        chain: The chain of values.

    Returns:
        The plan; the reason if fields can only be fetched with the rest of the value; None if the last stage fetches no
        fields.
    """
    whole, last = chain.whole, chain.fetching
    if last is None:
        return None
    missing = _why_without_header(last) or (None if has_arrow_udfs() else "pyspark has no Arrow UDFs")
    if missing is not None:
        return missing
    if last.value_type is None or not require("pyarrow.types", "spark").is_struct(whole.arrow_type):
        return "the fields are unknown before the values are read"
    names = _all_names(last.value_type)
    if names is None:
        return f"its fields have more than {_MOST_ALIASES} names by aliases"
    patterns = PATHS.read(last.config)
    wanted = [path for path, known in names.items() if patterns is None or _names_any(patterns, known)]
    columns = _columns(whole.arrow_type, wanted)
    if isinstance(columns, str):
        return columns
    value = FieldPlan(
        is_key=False,
        arrow_type=whole.arrow_type,
        needs_headers=whole.needs_headers,
        stages=len(chain.stages) - 1,
        restores=whole.restores,
        removes=last.removed_before,
    )
    within = [column.path for column in columns]
    others = (path for path in names if not any(_names(path)[: len(above)] == above for above in within))
    # The header has the writer's names.
    left_out = tuple(template(name) for path in others for name in names[path])
    idle = [each for each in patterns or () if not any(_names_any([each], known) for known in names.values())]
    return FieldsPlan(value, columns, left_out, tuple(_problems(idle, last.value_type)), last.markers)


def _why_without_header(last: FetchingStage) -> str | None:
    """Why records with references may lack the header that lists them; None if they have it."""
    if last.markers != {HEADER}:
        return f"the last stage marks records with references by another header than {HEADER}"
    is_removed = any(HEADER in each.names for each in last.removed_before or ())
    return f"an earlier stage removes {HEADER}" if is_removed else None


def _all_names(kind: FieldType) -> dict[Path, tuple[Path, ...]] | None:
    """The fields of bytes or strings, each by all its names; None if there are too many to compare with headers."""
    found: dict[Path, tuple[Path, ...]] = {}
    left = _MOST_ALIASES
    for path, _ in leaves(kind):
        found[path] = tuple(islice(spellings(kind, path), left + 2))
        left -= len(found[path]) - 1
        if left < 0:
            return None
    return found


def _names_any(patterns: Sequence[Pattern], names: Sequence[Path]) -> bool:
    """Whether a reader's configuration names a field, by its own name or by the writer's."""
    return any(pattern.names(name) for pattern in patterns for name in names)


def _problems(patterns: Iterable[Pattern], kind: FieldType) -> Iterator[str]:
    """Why some patterns name no field: no errors, since a reader's schema may leave out what writers move."""
    for pattern in patterns:
        if (problem := pattern.problem(kind)) is not None:
            reason, nearest = problem
            yield reason if nearest is None else f"{reason} (did you mean {nearest}?)"


def _columns(kind: Any, paths: Iterable[Path]) -> tuple[FieldColumn, ...] | str:
    """The columns with these fields; the reason if they cannot be fetched by themselves."""
    found: dict[tuple[str, ...], FieldColumn] = {}
    for path in paths:
        column = _column(kind, path)
        if column is None:
            return "the values are unions"
        found[column.path] = column
    # A union's column may contain others.
    columns = tuple(
        column for path, column in found.items() if not any(path[:at] in found for at in range(1, len(path)))
    )
    if len(columns) > MOST_COLUMNS:
        return f"{len(columns)} columns may hold references: name those that do in {PATHS.name}"
    return columns


def _column(kind: Any, path: Path) -> FieldColumn | None:
    types = require("pyarrow.types", "spark")
    found = None
    names: list[str] = []
    for step in path:
        if not isinstance(step, str) or not types.is_struct(kind) or kind.get_field_index(step) < 0:
            break
        kind = kind.field(step).type
        names.append(step)
        found = FieldColumn(tuple(names), kind)
    return found


def _names(path: Path) -> tuple[str, ...]:
    return tuple(step for step in path if isinstance(step, str))
