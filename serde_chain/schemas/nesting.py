"""Limits of nesting: native writers and readers crash when their stack overflows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["MAX_DEPTH", "check_depth"]

MAX_DEPTH: Final = 200


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
        level = [part for whole in level for part in _parts(whole) if isinstance(part, (Mapping, list, tuple))]
        if not level:
            return
    raise ValueError(f"the value nests deeper than {most} levels")


def _parts(whole: Any) -> Iterable[Any]:
    if isinstance(whole, Mapping):
        return whole.values()
    return whole if isinstance(whole, (list, tuple)) else ()
