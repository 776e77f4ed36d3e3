"""PIP-70's frame as a column."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from serde_chain import ConfigError
from serde_chain.spark import decode, entry_metadata
from serde_chain.wire.entry_metadata import EntryMetadataError, frame, peek

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "golden" / "pulsar_entry_metadata.json").read_text())


def rows(spark: SparkSession, values: list[bytes | None], **options: Any) -> list[Any]:
    found = spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)
    selected = found.select(entry_metadata("value", **options).alias("m"))
    assert selected.schema["m"].dataType.simpleString() == "struct<broker_timestamp:bigint,index:bigint>"
    return [None if row["m"] is None else tuple(row["m"]) for row in selected.collect()]


def test_frames(spark: SparkSession) -> None:
    values = [
        frame(b"x" * 100_000, broker_timestamp=1_700_000_000_000, index=7),
        frame(b"", index=0),
        frame(b"payload"),
        b"no frame",
        b"",
        None,
    ]
    assert rows(spark, values) == [(1_700_000_000_000, 7), (None, 0), (None, None), None, None, None]


def test_pulsar_vectors(spark: SparkSession) -> None:
    expected, values = [], []
    for found in _hex_values(VECTORS):
        try:
            metadata = peek(found)
        except EntryMetadataError:
            metadata = None
        if metadata is not None and max(metadata.broker_timestamp or 0, metadata.index or 0) >= 1 << 63:
            metadata = None  # Spark has no unsigned numbers
        values.append(found)
        expected.append(None if metadata is None else tuple(metadata))
    assert any(expected)
    assert rows(spark, list(values), mode="PERMISSIVE") == expected


def _hex_values(found: Any) -> list[bytes]:
    """All frames of the vectors, whatever else is said about them."""
    if isinstance(found, dict):
        return [value for item in found.values() for value in _hex_values(item)]
    if isinstance(found, list):
        return [value for item in found for value in _hex_values(item)]
    return [bytes.fromhex(found)] if isinstance(found, str) and found[:4] == "0e02" else []


def test_a_malformed_frame_ends_the_query(spark: SparkSession) -> None:
    with pytest.raises(PythonException, match="EntryMetadataError"):
        rows(spark, [frame(b"x", index=1)[:7]])
    with pytest.raises(ConfigError, match="Did you mean FAILFAST"):
        entry_metadata("value", mode="FAILFAS")


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
@pytest.mark.parametrize("last", ["avro", "string"])
def test_decode_hands_on_time_and_index(spark: SparkSession, last: str, mode: str) -> None:
    payload = b"\x02" if last == "avro" else b"\x01"  # avro's 1
    forged = [("serde-chain-entry-index", b"666"), ("band", b"g")]
    values = [frame(payload, broker_timestamp=1_700_000_000_000, index=41), payload, None]
    raw = spark.createDataFrame(
        [(value, forged) for value in values], "value binary, headers array<struct<key: string, value: binary>>"
    )
    config = {
        "value.deserializers": f"entry-metadata, {last}",
        "avro.schema": '"int"',
        "entry.metadata.headers": True,
    }
    decoded = raw.coalesce(1).transform(decode(config, mode=mode))
    found = [[(header["key"], bytes(header["value"])) for header in row["headers"]] for row in decoded.collect()]
    true = [("serde-chain-entry-timestamp", b"1700000000000"), ("serde-chain-entry-index", b"41")]
    assert found == [[("band", b"g"), *true], [("band", b"g")], [("band", b"g")]]
    # The headers alone: no column but theirs is read.
    assert decoded.select("headers").collect() == decoded.select("headers", "value").select("headers").collect()
    with pytest.raises(ConfigError, match=r'no column headers.*\.option\("includeHeaders", "true"\)'):
        raw.drop("headers").transform(decode(config))
