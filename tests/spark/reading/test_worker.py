"""What Spark's workers do, on Arrow arrays and without Spark."""

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from payload_stores.errors import PayloadNotFoundError, PayloadStoreUnavailableError
from serde_chain import RecordContext, SerializerChain
from serde_chain.errors import ConfigError, DecodeError, MissingDependencyError, SerializationError
from serde_chain.spark.chains import worker as opened
from serde_chain.spark.chains.plan import FieldPlan, ReadPlan
from serde_chain.spark.chains.portable import load
from serde_chain.spark.reading import worker
from serde_chain.spark.reading.worker import decode_batches
from tests.spark.records import whole_plan

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS = ("value", "headers", "topic", "partition", "offset", "key")


def plan(config: Mapping[str, object], *, mode: str = "FAILFAST", whole: bool = False, given: Any = None) -> bytes:
    value = whole_plan(config, is_key=False, given=given)
    key = whole_plan(config, is_key=True) if whole else None
    gives = (
        (*(("key",) if key else ()), "value", "headers", *(("error",) if mode != "FAILFAST" else ())) if whole else ()
    )
    return pickle.dumps(ReadPlan(config, COLUMNS, value, key, gives=gives, mode=mode, python=sys.executable))


def run(pickled: bytes, *batches: tuple[Any, ...]) -> list[Any]:
    return [item for array in decode_batches(pickled, iter(batches)) for item in array.to_pylist()]


def values(*items: bytes | None) -> Any:
    return pa.array(items, type=pa.binary())


def positions(count: int) -> tuple[Any, ...]:
    return (
        pa.array([None] * count, type=HEADERS),
        pa.array(["t"] * count),
        pa.array([3] * count),
        pa.array(range(count)),
    )


JSON = {"value.deserializer": "json"}


def test_json_stays_text() -> None:
    texts = [b'{"b":1,"a":0.10}', b"null", None, b"12345678901234567890123"]
    assert run(plan(JSON), (values(*texts),)) == ['{"b":1,"a":0.10}', "null", None, "12345678901234567890123"]


def test_json_fits_a_given_type_by_name() -> None:
    kind = pa.struct(
        [
            ("i", pa.int32()),
            ("d", pa.decimal128(5, 2)),
            ("t", pa.timestamp("us", "UTC")),
            ("b", pa.binary()),
            ("l", pa.list_(pa.float64())),
            ("m", pa.map_(pa.string(), pa.bool_())),
            ("missing", pa.string()),
        ]
    )
    text = json.dumps(
        {"i": 5, "d": 1.005, "t": "2024-07-01T12:00:00+02:00", "b": "eA==", "l": [1, 2.5], "m": {"k": True}, "x": 1}
    )
    assert run(plan(JSON, given=kind), (values(text.encode(), None, b"null"),)) == [
        {
            "i": 5,
            "d": Decimal("1.01"),
            "t": datetime(2024, 7, 1, 10, tzinfo=UTC),
            "b": b"x",
            "l": [1.0, 2.5],
            "m": [("k", True)],
            "missing": None,
        },
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b'{"l":[{"i":1},{"i":"x"}]}', r"l\[1\]\.i is str of length 1, expected int32"),
        (b'{"l":[{"i":4294967296}]}', r"l\[0\]\.i is int of 33 bits"),
        (b'{"l":7}', "l is int of 3 bits, expected an array"),
        (b"[]", "the value is .*, expected an object"),
    ],
)
def test_what_does_not_fit_a_given_type_is_named(text: bytes, where: str) -> None:
    kind = pa.struct([("l", pa.list_(pa.struct([("i", pa.int32())])))])
    with pytest.raises(DecodeError, match=where) as caught:
        run(plan(JSON, given=kind), (values(text), *positions(1)))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, 0)


@pytest.mark.parametrize(
    ("stage", "data", "expected"),
    [
        ("string", b"x", "x"),
        ("bytes", b"x", b"x"),
        ("integer", b"\0\0\0\7", 7),
        ("long", b"\0\0\0\0\0\0\0\7", 7),
        ("float", b"\x3f\x80\0\0", 1.0),
        ("double", b"\x3f\xf0\0\0\0\0\0\0", 1.0),
        ("uuid", b"12345678-1234-1234-1234-123456789abc", "12345678-1234-1234-1234-123456789abc"),
        ("zstd", b"(\xb5/\xfd \x01\t\0\0x", b"x"),
    ],
)
def test_types_of_the_other_stages(stage: str, data: bytes, expected: object) -> None:
    assert run(plan({"value.deserializer": stage}), (values(data, None),)) == [expected, None]


def test_every_mode() -> None:
    good, bad = b"\0\0\0\1", b"xx"
    batch = (values(good, bad, None), *positions(3), values(None, None, None))
    config: dict[str, object] = {"value.deserializer": "integer"}
    with pytest.raises(DecodeError, match=r"topic=t, field=value, stage=integer \(1 of 1\), partition=3, offset=1"):
        run(plan(config), batch)
    assert run(plan(config, mode="PERMISSIVE"), batch) == [1, None, None]
    rows = run(plan(config, mode="PERMISSIVE", whole=True), batch)
    assert [row["value"] for row in rows] == [1, None, None]
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert "partition=3, offset=1" in rows[1]["error"]


def test_key_and_value_fail_together() -> None:
    config: dict[str, object] = {"value.deserializer": "integer", "key.deserializer": "uuid"}
    [row] = run(plan(config, mode="PERMISSIVE", whole=True), (values(b"x"), *positions(1), values(b"y")))
    assert "field=key" in row["error"]
    assert "field=value" in row["error"]


def test_a_value_that_arrow_refuses_is_named_and_the_others_kept() -> None:
    schema = {"type": "long", "logicalType": "timestamp-millis"}  # µs have 64 bits too
    config: dict[str, object] = {"value.deserializer": "avro", "avro.schema": json.dumps(schema)}
    huge = bytes([0xFE, *[0xFF] * 8, 0x01])
    batch = (values(b"\2", huge, b"\4"), *positions(3))
    with pytest.raises(DecodeError, match="offset=1"):
        run(plan(config), batch)
    assert [item is None for item in run(plan(config, mode="PERMISSIVE"), batch)] == [False, True, False]


def _unavailable(_data: object, _ctx: object) -> object:
    raise PayloadStoreUnavailableError("the store is down", store="s3")


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_a_store_that_is_down_loses_no_record_in_any_mode(mode: str) -> None:
    config: dict[str, object] = {"value.deserializers": [_unavailable, "string"]}
    with pytest.raises(SerializationError, match="the store is down"):
        run(plan(config, mode=mode), (values(b"x"),))


def test_output_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_PART_BYTES", 1000)
    items = [bytes([n % 256]) * 300 for n in range(100)]
    batches = iter([(values(*items),), (values(),), (values(b"last"),)])
    arrays = list(decode_batches(plan({"value.deserializer": "bytes"}), batches))
    assert [item for array in arrays for item in array.to_pylist()] == [*items, b"last"]
    assert max(array.nbytes for array in arrays) < 1100


def test_headers_are_handed_over_without_those_of_stages() -> None:
    def take(data: Any, ctx: Any) -> Any:
        ctx.headers[:] = [header for header in ctx.headers or [] if header[0] != "mine"]
        return data

    headers: list[list[tuple[str, bytes | None]]] = [
        [("mine", b"1"), ("h", None), ("h", b"2")],
        [("mine", b"1")],
        [("h", b"")],
    ]
    dicts = [[{"key": key, "value": value} for key, value in row] for row in headers]
    arrays = (values(b"a", b"b", b"c"), pa.array(dicts, type=HEADERS), *positions(3)[1:], values(None, None, None))
    # A function of this test cannot be pickled: the worker's own part, then.
    kind = FieldPlan(is_key=False, arrow_type=pa.binary(), needs_headers=False)
    decoder = worker._Decoder(
        ReadPlan(
            {"value.deserializers": [take, "bytes"]},
            COLUMNS,
            kind,
            None,
            gives=("value", "headers"),
            mode="FAILFAST",
            python="",
        )
    )
    [array] = decoder.decode(arrays, decoder.steps())
    assert [row["headers"] for row in array.to_pylist()] == [dicts[0][1:], None, dicts[2]]


def test_a_column_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="the column for value is string, expected binary"):
        run(plan({"value.deserializer": "bytes"}), (pa.array(["x"]),))


def test_a_package_that_the_worker_lacks_names_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = plan({"value.deserializer": "avro", "avro.schema": '"int"', "avro.framing": "none"})
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingDependencyError, match="fastavro is not installed in the interpreter of") as caught:
        run(pickled, (values(b"\2"),))
    assert "PYSPARK_PYTHON" in str(caught.value)


_PROCESS = """
import pickle, sys
from pathlib import Path
import pyarrow as pa
from serde_chain.spark.chains.plan import FieldPlan
from serde_chain.spark.chains.plan import ReadPlan
from serde_chain.spark.reading.worker import decode_batches
from tests.spark.records import whole_plan

class Stage:
    def __init__(self):
        self.log("open")
    def log(self, what):
        with Path(sys.argv[1]).open("a") as file:
            file.write(what + "\\n")
    def __call__(self, data, ctx):
        return data
    def close(self):
        self.log("close")

field = FieldPlan(False, pa.binary(), False)
pickled = pickle.dumps(ReadPlan({"value.deserializer": Stage}, ("value",), field, None, (), "FAILFAST", ""))
for _ in range(3):
    assert len(list(decode_batches(pickled, iter([pa.array([b"x"])])))) == 1
"""


def test_a_chain_is_opened_once_per_process_and_closed_at_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    subprocess.run([sys.executable, "-c", _PROCESS, str(log)], check=True, timeout=60)
    assert log.read_text().split() == ["open", "close"]


class Watched:
    """A stage that counts how many of it are open."""

    open = made = 0

    def __init__(self) -> None:
        Watched.open += 1
        Watched.made += 1

    def __call__(self, data: bytes, _ctx: object) -> bytes:
        return data

    def close(self) -> None:
        Watched.open -= 1


def test_plans_with_the_same_configuration_share_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "made", 0)
    config: dict[str, object] = {"value.deserializers": [Watched, "bytes"]}
    for mode in ("FAILFAST", "PERMISSIVE"):
        assert run(plan(config, mode=mode), (values(b"x"),)) == [b"x"]
    assert Watched.made == 1 + 2  # the driver's own, to find out the type, are closed already
    assert Watched.open == 1
    opened.close_all()
    assert Watched.open == 0


def test_a_process_does_not_keep_every_chain_that_it_ever_had() -> None:
    for at in range(40):
        config: dict[str, object] = {"value.deserializers": [Watched, "bytes"], "group.id": f"{at}"}
        assert run(plan(config), (values(b"x"),)) == [b"x"]
    assert Watched.open == opened._MOST


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    opened.close_all()


def test_a_file_of_the_driver_travels_as_its_content(tmp_path: Path) -> None:
    path = tmp_path / "schema.avsc"
    path.write_text('"int"')
    options = {"class": "avro", "avro.schema.file": str(path)}
    assert load({"value.deserializers": [options]})["value.deserializers"] == [
        {"class": "avro", "avro.schema.file": b'"int"'}
    ]
    assert load({"value.deserializer": "avro", "avro.schema.file": str(path)})["avro.schema.file"] == b'"int"'
    with pytest.raises(ConfigError, match=r"avro\.schema\.file"):
        load({"value.deserializer": "avro", "avro.schema.file": str(tmp_path / "none")})


HOP = {
    "value.deserializers": "large-message, json",
    "large.message.payload.store.class": "memory",
    "large.message.accept": "kip1159, hop",
}


def test_json_that_a_header_calls_json_fits_a_given_type_and_is_read_without_one_afterwards() -> None:
    headers = pa.array([[{"key": "_format", "value": b"json"}]], type=HEADERS)
    columns = (values(b'{"n":1}'), headers, *positions(1)[1:])
    for _ in range(2):
        assert run(plan(HOP, given=pa.struct([("n", pa.int64())])), columns) == [{"n": 1}]
        assert run(plan(HOP), columns) == ['{"n":1}']


def test_a_record_of_another_format_is_resolved_since_later_stages_do_not_read_it() -> None:
    headers = pa.array([[{"key": "_format", "value": b"blob"}]], type=HEADERS)
    columns = (values(b"no JSON"), headers, *positions(1)[1:])
    resolving = FieldPlan(is_key=False, arrow_type=pa.binary(), stages=1, needs_headers=True)
    pickled = pickle.dumps(ReadPlan(HOP, COLUMNS, resolving, None, gives=(), mode="FAILFAST", python=sys.executable))
    with pytest.raises(SerializationError, match="has the format 'blob'"):
        run(plan(HOP), columns)
    assert run(pickled, columns) == [b"no JSON"]


def test_payloads_are_fetched_in_growing_steps(tmp_path: Path) -> None:
    """A worker fetches a step only once the one before is taken, across batches too."""
    config: dict[str, object] = {
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "large.message.threshold.bytes": "0",
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
    }
    records: list[tuple[Any, Any]] = []
    with SerializerChain.from_config(config) as chain:
        for at in range(20):
            headers: list[Any] = []
            value = chain(b"%d" % at, RecordContext("t", "value", headers))
            records.append((value, [{"key": key, "value": mark} for key, mark in headers]))
    batches = [
        (
            values(*(value for value, _ in part)),
            pa.array([headers for _, headers in part], type=HEADERS),
            *positions(10)[1:],
        )
        for part in (records[:10], records[10:])
    ]
    arrays = [array.to_pylist() for array in decode_batches(plan(config), iter(batches))]
    assert [len(array) for array in arrays] == [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 2]
    assert [item for array in arrays for item in array] == [b"%d" % at for at in range(20)]
    rest = decode_batches(plan(config), iter(batches))
    assert [next(rest).to_pylist() for _ in range(4)] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    [fifth] = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes() == b"4"]
    fifth.unlink()
    with pytest.raises(PayloadNotFoundError, match="offset=4"):
        next(rest)


def test_batches_that_the_jvm_reads_itself_pass_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    value = whole_plan({"value.deserializer": "string"}, is_key=False)
    whole = ReadPlan({"value.deserializer": "string"}, COLUMNS, value, None, ("value", "headers"), "FAILFAST")
    skipping = pickle.dumps(replace(whole, skips=True))
    headers, strings, numbers = pa.array([[], []], HEADERS), pa.nulls(2, pa.string()), pa.nulls(2, pa.int64())
    nothing = (values(None, None), headers, strings, numbers, numbers, values(None, None))
    some = (values(b"a", None), headers, pa.array(["t", None]), numbers, numbers, values(None, None))
    [read] = decode_batches(skipping, iter([some]))
    monkeypatch.setattr(worker._Field, "parts", None)  # no stage is called
    [empty] = decode_batches(skipping, iter([nothing]))
    assert empty.to_pylist() == [None, None]
    assert empty.type == read.type
    assert read.to_pylist()[0] == {"value": "a", "headers": None}
