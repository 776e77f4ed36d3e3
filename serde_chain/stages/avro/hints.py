"""fastavro's hint ``-type``: a member of a dictionary that names the branch of a union.

fastavro's strict forms take it for a field that the schema lacks, and its validation, which also chooses between
the branches of a union around another, compares it with another name than the record's. A pair of the name and the
dictionary is equivalent and always accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from serde_chain.stages.avro.types import bare, kind

_HINT: Final = "-type"


def as_pairs(schema: Any, value: Any, named: Mapping[str, Any]) -> Any:
    """A value whose hints are pairs in unions, and left out elsewhere.

    Args:
        schema: The schema in fastavro's form.
        value: The value.
        named: Definitions of named types.

    Returns:
        The value itself if it has no hint that names a branch.

    Example:
        >>> kinds = [{"type": "record", "name": name, "fields": []} for name in ("A", "B")]
        >>> as_pairs(kinds, {"-type": "B"}, {})
        ('B', {})
    """
    schema = bare(schema, named)
    if isinstance(schema, list):
        return _in_union(schema, value, named)
    match kind(schema), value:
        case (("record" | "error"), dict()):
            types = {field["name"]: field["type"] for field in schema["fields"]}
            changed = _changed(value, lambda name, item: as_pairs(types[name], item, named) if name in types else item)
            if _is(value.get(_HINT), schema["name"]) and _HINT not in types:
                return {name: item for name, item in changed.items() if name != _HINT}
            return changed
        case "map", dict():
            return _changed(value, lambda _, item: as_pairs(schema["values"], item, named))
        case "array", list():
            items = [as_pairs(schema["items"], item, named) for item in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _in_union(union: list[Any], value: Any, named: Mapping[str, Any]) -> Any:
    if isinstance(value, tuple) and len(value) == 2:
        name, inner = value
        for branch in union:
            if _is(name, _name(branch, named)):
                found = as_pairs(branch, inner, named)
                return value if found is inner else (name, found)
        return value
    if isinstance(value, dict) and _HINT in value:
        return next(
            (
                (value[_HINT], as_pairs(branch, value, named))
                for branch in union
                if kind(bare(branch, named)) in {"record", "error"} and _is(value[_HINT], _name(branch, named))
            ),
            value,
        )
    # Of several branches, only a hint of its own says which one the value has; trying all would multiply by level.
    takes = ("array",) if isinstance(value, list) else ("record", "error", "map")
    branches = [branch for branch in union if kind(bare(branch, named)) in takes]
    return as_pairs(branches[0], value, named) if len(branches) == 1 else value


def _is(hint: Any, name: str) -> bool:
    """Whether a hint is this name. Others, such as NumPy's arrays, may not compare to a truth value."""
    return isinstance(hint, str) and hint == name


def _name(branch: Any, named: Mapping[str, Any]) -> Any:
    branch = bare(branch, named)
    return branch.get("name", branch["type"]) if isinstance(branch, dict) else branch


def _changed(value: dict[Any, Any], convert: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    made = {name: convert(name, item) for name, item in value.items()}
    return made if any(made[name] is not item for name, item in value.items()) else value
