"""Batches of rows in Arrow, encoded as Spark's workers do it."""

import hashlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_chain.codec import Encoder
from serde_chain.errors import SerializationError
from serde_chain.spark.chains import worker as chains
from serde_chain.spark.chains.plan import ReadPlan
from serde_chain.spark.writing import worker
from serde_chain.spark.writing.plan import WritePlan
from serde_chain.spark.writing.worker import encode_batches
from serde_chain.stage_calls import Begun


@pytest.fixture
def config(tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield {
        "value.serializers": "bytes, large-message",
        "large.message.threshold.bytes": 10,
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
    }
    chains.close_all()


def encoded(plan: WritePlan, *batches: tuple[Any, ...]) -> list[Any]:
    return [row for part in encode_batches(pickle.dumps(plan), iter(batches)) for row in part.to_pylist()]


def test_rows(config: dict[str, Any]) -> None:
    plan = WritePlan(config, ("value", "topic", "headers"), ("value", "headers"))
    headers = [[{"key": "a", "value": b"1"}], None, None]
    batch = (pa.array([b"small", b"x" * 100, None]), pa.array(["t"] * 3), pa.array(headers))
    small, large, nothing = encoded(plan, batch)
    assert small == {"value": b"small", "headers": headers[0]}
    assert large["value"].startswith(b"file:///")
    assert {header["key"] for header in large["headers"]} >= {"large-message-size", "large-message-digest"}
    assert nothing == {"value": None, "headers": None}
    assert encoded(plan, (pa.array([], pa.binary()), pa.array([], pa.string()), pa.array([], batch[2].type))) == []


def test_fields_before_spark_writes_the_rest(config: dict[str, Any]) -> None:
    """Columns keep their types; a failure names the stage by its place in the whole chain."""
    config |= {
        "value.serializers": "large-fields, json",
        "large.fields.paths": "text, in.raw",
        "large.fields.min.bytes": 10,
    }
    plan = WritePlan(config, ("value", "topic", "headers"), ("value", "headers"), end=1)
    kind = pa.struct([("text", pa.string()), ("in", pa.struct([("raw", pa.binary())]))])
    given = [{"text": "t" * 10, "in": {"raw": b"r" * 9}}, {"text": None, "in": {"raw": b"r" * 10}}, None]
    values = pa.array(given, kind)
    headers = pa.array([[], [{"key": "a", "value": b"1"}], []], pa.list_(pa.struct({"key": "str", "value": "binary"})))
    [part] = encode_batches(pickle.dumps(plan), iter([(values, pa.array(["t"] * 3), headers)]))
    assert part.type.field("value").type == kind
    text, raw, nothing = part.to_pylist()
    assert text["value"]["text"].startswith("file:///")
    assert text["value"]["in"] == {"raw": b"r" * 9}
    assert raw["value"]["in"]["raw"].startswith(b"file:///")
    assert [header["key"] for header in raw["headers"]] == ["a", "large-fields"]
    assert nothing == {"value": None, "headers": None}
    with pytest.raises(SerializationError, match=r"stage=large-fields \(1 of 2\)"):
        encoded(plan, (values, pa.array([None] * 3, pa.string()), headers))


def test_large_rows_are_many_parts(config: dict[str, Any]) -> None:
    plan = WritePlan(config, ("value", "topic"), ("value",))
    values = [bytes([at]) * (1 << 20) for at in range(20)]
    parts = list(encode_batches(pickle.dumps(plan), iter([(pa.array(values), pa.array(["t"] * 20))])))
    assert len(parts) > 1
    assert sum(map(len, parts)) == 20


def test_ids_of_a_key_as_text(config: dict[str, Any]) -> None:
    plan = WritePlan({**config, "large.message.id": "keyed"}, ("value", "key", "topic"), ("value", "key"))
    (row,) = encoded(plan, (pa.array([b"x" * 100]), pa.array(["M 51"]), pa.array(["t"])))
    assert row["key"] == b"M 51"
    assert hashlib.sha256(b"M 51").hexdigest().encode() in row["value"]


def test_errors_name_the_stage_as_the_configuration_does(config: dict[str, Any], tmp_path: Path) -> None:
    plan = WritePlan(config, ("value", "topic"), ("value", "headers"), first=1)
    (tmp_path / "payloads").mkdir()
    (tmp_path / "payloads" / "t").touch()
    with pytest.raises(SerializationError, match=r"topic=t, field=value, stage=large-message \(1 of 1\)"):
        encoded(plan, (pa.array([b"x" * 100]), pa.array(["t"])))


def test_a_plan_shows_no_secret(config: dict[str, Any]) -> None:
    assert "secret" not in repr(WritePlan({**config, "s3.secret.key": "secret"}, ("value",), ("value",)))
    assert "secret" not in repr(ReadPlan({"s3.secret.key": "secret"}, (), None, None, (), "FAILFAST"))


@pytest.mark.parametrize(
    ("stages", "values"),
    [("bytes, large-message", [b"small", b"x" * 100, None, b""]), ("string, zstd", ["text", None, "x" * 100])],
)
def test_plain_records_are_like_others(
    config: dict[str, Any], stages: str, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config |= {"value.serializers": stages, "large.message.id": "content"}
    plan = WritePlan(config, ("value", "key", "topic"), ("value", "key", "headers"))
    keys = ["M 51", None, "k" * 5000, "M 87"][: len(values)]
    batch = (pa.array(values), pa.array(keys), pa.array(["t"] * len(values)))
    in_full: list[Any] = []
    encode = Encoder.encode

    def noted(self: Encoder, record: Any) -> Any:
        left = record.value
        in_full.append((left.data, left.at) if isinstance(left, Begun) else left)
        return encode(self, record)

    monkeypatch.setattr(Encoder, "encode", noted)
    rows = encoded(plan, batch)
    assert [row["key"] for row in rows] == [key and key.encode() for key in keys]
    # Of "x" * 100 large-message needs the record, and of a long key both chains do.
    assert in_full == ([(b"x" * 100, 1), None] if "bytes" in stages else [None, "x" * 100])
    monkeypatch.setattr(worker, "_is_short", lambda _key: False)
    assert encoded(plan, batch) == rows


def test_an_error_of_a_plain_record_has_its_place(config: dict[str, Any]) -> None:
    plan = WritePlan({**config, "value.serializers": "string, zstd"}, ("value", "topic"), ("value",))
    with pytest.raises(SerializationError, match=r"topic=t.* stage=string \(1 of 2\)"):
        encoded(plan, (pa.array([5]), pa.array(["t"])))
