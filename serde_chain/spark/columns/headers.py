"""Conditions on the headers of a record, and headers without those that stages remove."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, functions

from serde_chain.base import RemovedHeaders


def any_of(conditions: Iterable[Column | None]) -> Column | None:
    """Whether one of several conditions is true; None without conditions."""
    given = [one for one in conditions if one is not None]
    return reduce(operator.or_, given) if given else None


def marked(headers: Column, *markers: frozenset[str] | None) -> Column:
    """Whether a record has the mark of a reference.

    Args:
        headers: The record's headers; unused if any record may be a reference.
        *markers: Headers of which every reference has at least one, as in
            :class:`~serde_chain.spark.chains.plan.FieldPlan`; None if any record may be one.
    """
    names: set[str] = set()
    for some in markers:
        if some is None:
            return functions.lit(True)
        names |= some
    wanted: Any = sorted(names)
    return functions.exists(headers, lambda header: header["key"].isin(*wanted))


def last_header(headers: Column, name: str) -> Column:
    """The value of the last header with a name, as the stages see it; null without one."""
    named = functions.filter(headers, lambda header: header["key"] == name)
    return functions.get(named, functions.size(named) - 1)["value"]


def without_removed(headers: Column, removed: Sequence[tuple[Column, RemovedHeaders]]) -> Column:
    """Headers without those that stages remove; null if none are left, as in Spark's source.

    Args:
        headers: The records' headers.
        removed: What stages remove, each with the column that the stage reads: tombstones keep their headers.
    """

    def is_left(header: Column) -> Column:
        uses = (_is_one(header, each) & _applies(headers, data, each) for data, each in removed)
        some = any_of(uses)
        return functions.lit(True) if some is None else ~some

    left = functions.filter(headers, is_left)
    return functions.when(functions.size(left) > 0, left)


def _is_one(header: Column, removed: RemovedHeaders) -> Column:
    names: Any = sorted(removed.names)
    return header["key"].isin(*names)


def _applies(headers: Column, data: Column, removed: RemovedHeaders) -> Column:
    """Whether a stage removes headers from a record."""
    applies = data.isNotNull()
    if removed.mark is not None:
        applies &= last_header(headers, removed.mark).isNotNull()
    for other in sorted(removed.unless):
        applies &= last_header(headers, other).isNull()
    return applies
