"""Nested values: limits, since native writers and readers crash when their stack overflows; and order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

MAX_DEPTH: Final = 200
# Most parts are of these; to find that one is no mapping takes ten times as long.
_LEAVES: Final = frozenset({str, int, float, bool, bytes, type(None)})


def check_depth(value: Any, most: int = MAX_DEPTH) -> None:
    """Refuse a value nested too deeply to be read again.

    Args:
        value: The value to encode with a recursive schema.
        most: Maximum number of levels.

    Raises:
        ValueError: The value nests too deeply, or contains itself.
    """
    level = [value]
    for _ in range(most + 1):
        level = [
            part
            for whole in level
            for part in _parts(whole)
            if type(part) not in _LEAVES and isinstance(part, (dict, list, tuple, Mapping))
        ]
        if not level:
            return
    raise ValueError(f"the value nests deeper than {most} levels")


def _parts(whole: Any) -> Iterable[Any]:
    if isinstance(whole, (dict, Mapping)):  # dict first: an abstract class is asked by Python code
        return whole.values()
    return whole if isinstance(whole, (list, tuple)) else ()


def in_order(data: Any) -> Any:
    """A record key with sorted members on all levels, so that equal keys are equal bytes.

    Example:
        >>> in_order({"b": [{"d": 1, "c": 2}], "a": 1})
        {'a': 1, 'b': [{'c': 2, 'd': 1}]}
    """
    if isinstance(data, Mapping):
        return {name: in_order(data[name]) for name in sorted(data)}
    if isinstance(data, (list, tuple)):
        return (list if isinstance(data, list) else tuple)(map(in_order, data))
    return data
