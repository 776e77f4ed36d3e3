"""Random queries of a topic with three large fields, with what each needs.

The schema has large fields on the top level, within a record and within an array. A query filters by Kafka's columns,
by small fields and by a large one, and then selects, aggregates, joins, sorts or limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from pyspark.sql import Column, DataFrame, functions

__all__ = ["COUNT", "LARGE", "PATHS", "SCHEMA", "Generated", "alert", "generate", "has_large"]

COUNT: Final = 9
PATHS: Final = "stamp, source.cutout, history[].image"
# In the order in which Spark fetches them.
LARGE: Final = ("stamp", "source.cutout", "history")
_SMALL: Final = ("flux", "mjd", "band", "source.flux", "source.name", "note")

SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "flux", "type": "double"},
        {"name": "band", "type": "string"},
        {"name": "stamp", "type": ["null", "bytes"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "flux", "type": "double"},
                    {"name": "cutout", "type": "bytes"},
                    {"name": "name", "type": "string"},
                ],
            },
        },
        {
            "name": "history",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Past", "fields": [{"name": "image", "type": "bytes"}]},
            },
        },
        {"name": "mjd", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def alert(at: int) -> dict[str, Any]:
    """Each third record has no large field."""
    size = 10 if at % 3 == 0 else 200
    return {
        "flux": float(at),
        "band": "gri"[at % 3],
        "stamp": b"s%d" % at * size,
        "source": {"flux": at / 2, "cutout": b"c%d" % at * size, "name": f"o{at % 2}"},
        "history": [{"image": b"h%d" % at * size}],
        "mjd": 60_000.0 + at,
        "note": None if at % 2 else "n",
    }


def has_large(at: int) -> bool:
    """Whether a record has references."""
    return at % 3 != 0


@dataclass
class Generated:
    """A query.

    Attributes:
        text: What it does, in words, to repeat it.
        run: The query.
        fields: The large fields that it uses.
        rows: The offsets of the records whose large fields it may fetch, by field.
        exact: Whether it needs all of these.
        again: The offsets of the records whose large fields it may fetch once more.
    """

    text: str
    run: Callable[[DataFrame], DataFrame]
    fields: set[str]
    rows: dict[str, set[int]] = field(default_factory=dict)
    exact: bool = True
    again: frozenset[int] = frozenset()


# Conditions and the records that they keep.
_KAFKA: Final[dict[str, Callable[[int], bool]]] = {
    "partition = 0": lambda at: at % 2 == 0,
    "offset < 5": lambda at: at < 5,
    "offset between 2 and 7 and partition = 1": lambda at: 2 <= at <= 7 and at % 2 == 1,
    "key = 'k4'": lambda at: at == 4,
    "topic = 'alerts'": lambda _: True,
}
_VALUES: Final[dict[str, Callable[[int], bool]]] = {
    "value.flux > 2": lambda at: at > 2,
    "value.source.flux <= 3": lambda at: at <= 6,
    "value.band = 'r' or value.note is null": lambda at: at % 3 == 1 or at % 2 == 1,
    "value is not null": lambda _: True,
    "value.source is not null": lambda _: True,
    "value.source.name like 'o1%'": lambda at: at % 2 == 1,
}
_CONTENTS: Final[dict[str, tuple[str, Callable[[int], bool]]]] = {
    "length(value.stamp) > 100": ("stamp", has_large),
    "length(value.source.cutout) > 100": ("source.cutout", has_large),
    "length(value.history[0].image) > 100": ("history", has_large),
}


def generate(random: Random) -> Generated:
    """Make a query."""
    conditions: list[str] = []
    rows = set(range(COUNT))
    for some in (_KAFKA, _VALUES):
        for condition in random.sample(sorted(some), random.choice([0, 0, 1, 2])):
            conditions.append(condition)
            rows = {at for at in rows if some[condition](at)}
    content = random.choice([None, None, None, *sorted(_CONTENTS)])
    used = _names(random, _SMALL, 4)
    large = _names(random, LARGE, 3)
    if not used and not large:
        used = ["flux"]
    fetched = dict.fromkeys(large, rows)
    if content is not None:
        conditions.append(content)
        filtered, keeps = _CONTENTS[content]
        kept = {at for at in rows if keeps(at)}
        # Fields are fetched one after another: those before the filter's in any case, those behind it as it decides.
        fetched = {name: rows if LARGE.index(name) < LARGE.index(filtered) else kept for name in large}
        fetched[filtered] = rows
    random.shuffle(conditions)
    shape, make = random.choice(sorted(_SHAPES.items()))
    if shape == "count":  # which uses no column of the selection
        fetched = {_CONTENTS[content][0]: rows} if content is not None else {}
    columns = [*used, *large]
    random.shuffle(columns)

    def run(alerts: DataFrame) -> DataFrame:
        for condition in conditions:
            alerts = alerts.where(condition)
        return make(alerts, columns)

    return Generated(
        f"{' and '.join(conditions) or 'all'}: {shape} of {', '.join(columns)}",
        run,
        set(fetched),
        {name: {at for at in some if has_large(at)} for name, some in fetched.items()},
        exact=shape not in _LIMITED,
        again=_FIRST if shape == "union" else frozenset(),
    )


def _names(random: Random, of: tuple[str, ...], most: int) -> list[str]:
    return random.sample(of, random.randrange(min(most, len(of)) + 1))


def _named(columns: list[str]) -> list[Column]:
    return [functions.col(f"value.{name}").alias(name.replace(".", "_")) for name in columns]


def _starred(alerts: DataFrame, columns: list[str]) -> DataFrame:
    return alerts.select("offset", "value.*").select("offset", *[_aliased(name) for name in columns])


def _aliased(name: str) -> Column:
    return functions.col(name).alias(name.replace(".", "_"))


def _aggregated(alerts: DataFrame, columns: list[str]) -> DataFrame:
    counts = [functions.count(functions.col(f"value.{name}")).alias(f"n{at}") for at, name in enumerate(columns)]
    return alerts.groupBy("value.band", "partition").agg(functions.max("value.flux"), *counts)


def _joined(alerts: DataFrame, columns: list[str]) -> DataFrame:
    others = alerts.sparkSession.range(COUNT).withColumnRenamed("id", "offset")
    return alerts.join(others, "offset").select("offset", *_named(columns))


def _chained(alerts: DataFrame, columns: list[str]) -> DataFrame:
    for name in columns:
        alerts = alerts.withColumn(name.replace(".", "_"), functions.col(f"value.{name}"))
    return alerts.withColumn("twice", functions.expr("offset * 2")).drop("value", "headers", "timestamp")


def _ranked(alerts: DataFrame, columns: list[str]) -> DataFrame:
    nth = functions.expr("row_number() over (partition by value.band order by value.flux)").alias("nth")
    return alerts.select("offset", nth, *_named(columns))


_SHAPES: Final[dict[str, Callable[[DataFrame, list[str]], DataFrame]]] = {
    "selection": lambda alerts, columns: alerts.select("offset", *_named(columns)),
    "star": _starred,
    "aggregate": _aggregated,
    "join": _joined,
    "columns": _chained,
    "union": lambda alerts, columns: (
        alerts.where("offset < 3").unionByName(alerts.where("offset >= 3")).select("offset", *_named(columns))
    ),
    "window": _ranked,
    "sort": lambda alerts, columns: alerts.select("offset", *_named(columns)).sortWithinPartitions("offset"),
    "distinct": lambda alerts, columns: alerts.select("offset", *_named(columns)).distinct(),
    "limit": lambda alerts, columns: alerts.select("offset", *_named(columns)).limit(3),
    "count": lambda alerts, columns: alerts.select("offset", *_named(columns)).groupBy().count(),
}
_LIMITED: Final = frozenset({"limit"})
# The offsets of a union's first part.
_FIRST: Final = frozenset(range(3))
