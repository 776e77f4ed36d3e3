"""Both engines read and write the same records, whatever the schema: moments, aliases, odd types, unions at the top."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

from serde_chain import ConfigError, DeserializerChain
from serde_chain.spark import decode, encode
from tests.spark.records import kafka, row
from tests.stages.avro.test_avro_moments import PLACES, TYPES, written
from tests.stages.avro.test_schemas_of_others import decimal, record, sized


def config(source: Any, **more: Any) -> dict[str, Any]:
    return {"value.deserializers": "avro", "avro.schema": json.dumps(source), **more}


def values(spark: SparkSession, settings: dict[str, Any], data: list[bytes], engine: str, mode: str) -> list[Any]:
    rows = [row(each, [], at, b"k") for at, each in enumerate(data)]
    found = kafka(spark, rows).transform(decode(settings, mode=mode, engine=engine))
    # As text: pyspark's own conversion does not reach as far as Spark's types.
    return sorted(tuple(each) for each in found.select("offset", functions.col("value").cast("string")).collect())


@pytest.mark.parametrize("place", PLACES)
def test_moments(spark: SparkSession, place: str) -> None:
    """Eight queries, of a schema with all types of moments."""
    wrap, frame, _ = PLACES[place]
    # Both engines in one query for all types of a place: a struct of them.
    fields, data = [], []
    for at, (base, logical, refused, read) in enumerate(TYPES):
        fields.append({"name": f"f{at}", "type": wrap({"type": base, "logicalType": logical})})
        data.append(([frame(written(each)) for each in refused], [frame(written(each)) for each, _ in read]))
    source = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, *fields]}
    goods = [good[0] for _, good in data]
    records = [b"\0" + b"".join(goods)]
    for at, (wrong, good) in enumerate(data):
        records += [b"\0" + b"".join([*goods[:at], each, *goods[at + 1 :]]) for each in [*wrong, *good]]
    settings = config(source)
    for mode in ("DROPMALFORMED", "PERMISSIVE"):
        native = values(spark, settings, records, "native", mode)
        assert native == values(spark, settings, records, "arrow", mode)
        kept = [offset for offset, value in native if value is not None]
        assert len(kept) == 1 + sum(len(good) for _, good in data)
    bad = records[1]
    for engine in ("native", "arrow"):
        with pytest.raises(Exception, match="outside the years 1 to 9999"):
            values(spark, settings, [records[0], bad], engine, "FAILFAST")
    assert values(spark, settings, records[:1], "native", "FAILFAST") == values(
        spark, settings, records[:1], "arrow", "FAILFAST"
    )


def alias(name: str, *aliases: str, kind: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "aliases": list(aliases), **more}


A, B = record("int")["fields"][0] | {"name": "a"}, alias("b", "a", default=5)
OTHER = {"type": "record", "name": "Old", "fields": [A]}
# A writer's schema and a reader's, and the bytes of a record.
ALIASES: dict[str, tuple[list[Any], list[Any], bytes]] = {
    "of a sibling": ([A, {"name": "b", "type": "int"}], [A, B], b"\2\4"),
    "of a sibling that is missing": ([A], [A, B], b"\2"),
    "the writer has both": ([A, {"name": "b", "type": "int"}], [B], b"\2\4"),
    "of a sibling, nested": (
        [{"name": "in", "type": {"type": "record", "name": "I", "fields": [A, {"name": "b", "type": "int"}]}}],
        [{"name": "in", "type": {"type": "record", "name": "I", "fields": [A, B]}}],
        b"\2\4",
    ),
    "of another type": (
        [{"name": "x", "type": OTHER}, {"name": "y", "type": {**OTHER, "name": "New"}}],
        [{"name": "x", "type": OTHER}, {"name": "y", "type": {**OTHER, "name": "New", "aliases": ["Old"]}}],
        b"\2\4",
    ),
    "an ordinary one": ([A], [alias("b", "a")], b"\2"),
}


@pytest.mark.parametrize("name", ALIASES)
def test_aliases(spark: SparkSession, name: str) -> None:
    writer, reader, data = ALIASES[name]
    own, target = ({"type": "record", "name": "R", "fields": fields} for fields in (writer, reader))
    settings = config(own, **{"avro.reader.schema": json.dumps(target)})
    value = DeserializerChain.from_config(settings)(data)
    for mode in ("FAILFAST", "DROPMALFORMED"):
        found = values(spark, settings, [data] * 2, "auto", mode)
        assert found == values(spark, settings, [data] * 2, "arrow", mode)
        assert [offset for offset, _ in found] == [0, 1]
    assert value is not None
    if name != "an ordinary one":
        with pytest.raises(ConfigError, match="does not distinguish"):
            values(spark, settings, [data], "native", "FAILFAST")


def test_odd_schemas(spark: SparkSession) -> None:
    """The schema of an unframed topic is one's own; that of a reader too, whose defaults count where needed."""
    error = {"type": "error", "name": "Failure", "fields": [{"name": "code", "type": "int"}]}
    source = record(["null", error], default=None)
    data = b"\2\2\6"
    for engine in ("native", "arrow"):
        assert values(spark, config(source), [data], engine, "FAILFAST") == [(0, "{1, {3}}")]
    wide = record(decimal(precision=40))
    with pytest.raises(ConfigError, match=r"odd is a decimal of 40 digits.*38 digits"):
        values(spark, config(wide), [b"\2" + sized(b"\1")], "auto", "FAILFAST")
    fitting = {"avro.reader.schema": json.dumps(record(decimal(precision=38)))}
    assert values(spark, config(wide, **fitting), [b"\2" + sized(b"\1")], "auto", "FAILFAST") == [(0, "{1, 1}")]


P = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
Q = {"type": "record", "name": "Q", "fields": [{"name": "y", "type": "string"}]}
# A schema, a column of that type in SQL, and the bytes.
TOPS: dict[str, tuple[Any, str, bytes]] = {
    "two records": ([P, Q], "struct(struct(1 as x) as member0, cast(null as struct<y: string>) as member1)", b"\0\2"),
    "with null": (
        ["null", P, Q],
        "struct(cast(null as struct<x: int>) as member0, struct('a' as y) as member1)",
        b"\4\2a",
    ),
    "primitives": (["int", "string"], "struct(cast(null as int) as member0, 'a' as member1)", b"\2\2a"),
    "optional": (["null", P], "struct(1 as x)", b"\2\2"),
    "one": ([P], "struct(1 as x)", b"\0\2"),
    "an error": ({**P, "type": "error"}, "struct(1 as x)", b"\2"),
    "an error within": (
        {"type": "record", "name": "R", "fields": [{"name": "e", "type": ["null", {**P, "type": "error"}]}]},
        "struct(struct(1 as x) as e)",
        b"\2\2",
    ),
}


@pytest.mark.parametrize("engine", ["auto", "native", "arrow"])
@pytest.mark.parametrize("name", TOPS)
def test_unions_at_the_top_and_errors_are_written(spark: SparkSession, name: str, engine: str) -> None:
    source, column, data = TOPS[name]
    settings = {"value.serializers": "avro", "avro.schema": json.dumps(source)}
    rows = spark.range(2).select(functions.expr(column).alias("value"), functions.lit("t").alias("topic"))
    if engine == "native" and name in {"two records", "with null", "primitives"}:
        with pytest.raises(ConfigError, match="to_avro writes no union of several types"):
            rows.transform(encode(settings, engine=engine))
        return
    found = rows.transform(encode(settings, engine=engine)).collect()
    assert [bytes(each["value"]) for each in found] == [data] * 2


def test_missing_columns_have_their_defaults(spark: SparkSession) -> None:
    source = {"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "int"},
        {"name": "price", "type": decimal(precision=9, scale=2), "default": "\u0000\u00a0"},
    ]}  # fmt: skip
    rows = spark.range(2).select(functions.expr("struct(cast(1 as int) as id)").alias("value"))
    for engine in ("auto", "arrow"):
        found = rows.transform(encode({"value.serializers": "avro", "avro.schema": json.dumps(source)}, engine=engine))
        assert [bytes(each["value"]) for each in found.collect()] == [b"\2" + sized(b"\0\xa0")] * 2


def test_files_beside_the_schemas(spark: SparkSession, tmp_path: Any) -> None:
    """Workers get one schema."""
    (tmp_path / "shop.P.avsc").write_text(json.dumps({**P, "namespace": "shop"}))
    (tmp_path / "order.avsc").write_text(
        json.dumps({"type": "record", "name": "shop.O", "fields": [{"name": "p", "type": ["null", "P"]}]})
    )
    settings = {"value.deserializers": "avro", "avro.schema.file": str(tmp_path / "order.avsc")}
    for engine in ("native", "arrow"):
        assert values(spark, settings, [b"\2\2"], engine, "FAILFAST") == [(0, "{{1}}")]
