"""Schemas with which fastavro refuses negative indexes of symbols and branches.

It takes them from lists, in which Python counts backwards from the end: the index -1 is the last symbol. Dictionaries
have no such places, and are as fast.
"""

from __future__ import annotations

from typing import Any

from serde_chain.stages.avro.types import changed


def guarded(writer: Any, *, resolves: bool) -> Any:
    """A writer's schema, for fastavro alone, that has exactly the indexes of its symbols and branches.

    Args:
        writer: The schema with which fastavro reads.
        resolves: Whether it is read into another schema; fastavro then knows unions by their class.

    Example:
        >>> schema = guarded(["null", "long"], resolves=False)
        >>> schema[1], -1 in schema
        ('long', False)
    """

    def change(part: dict[str, Any]) -> None:
        for key in ("type", "items", "values"):
            if isinstance(part.get(key), list):
                part[key] = _union(part[key], resolves=resolves)
        if isinstance(part.get("symbols"), list):
            part["symbols"] = dict(enumerate(part["symbols"]))

    schema = changed(writer, change)
    if not isinstance(schema, list):
        return schema
    union = _union(schema, resolves=resolves)
    # fastavro parses unmarked schemas again.
    return union if resolves else union | {"__fastavro_parsed": True, "__named_schemas": _named(schema)}


def _named(union: list[Any]) -> dict[str, Any]:
    return next((branch["__named_schemas"] for branch in union if isinstance(branch, dict)), {})


def _union(branches: list[Any], *, resolves: bool) -> Any:
    inner = [_union(branch, resolves=resolves) if isinstance(branch, list) else branch for branch in branches]
    numbered = dict(enumerate(inner))
    if resolves:
        # fastavro's compiled code adds the length to a negative index.
        members = {"__slots__": (), "__getitem__": numbered.__getitem__, "__len__": lambda _union: 0}
        return type("Union", (list,), members)(inner)
    return {"type": "union", **numbered}
