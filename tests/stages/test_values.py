"""Arrays, tables, tensors and MessagePack: the bytes of their own libraries, and hostile ones."""

import datetime as dt
import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
from hypothesis import strategies as st

from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, DecodeError, DeserializerChain, EncodeError, RecordContext, SerializerChain
from serde_chain.base import STREAMED_BYTES, BufferReader
from serde_chain.testing import SerializerTests
from tests.stages.test_conformance import TEXT

DTYPES = ("?", "i1", "<u2", ">i4", "<f2", "<f4", ">f8", "<c16", "S3", "<U2", "<M8[ns]", "m8[s]", "V5")
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
CELLS = st.none() | st.integers(-(2**63), 2**63 - 1)


def write(stage: str, value: Any, **config: object) -> bytes:
    return bytes(SerializerChain.from_config({"value.serializer": stage, **config})(value))


def read(stage: str, data: bytes, **config: object) -> Any:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return DeserializerChain.from_config({"value.deserializer": stage, **settings})(data)


def array(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    kind, count = np.dtype(dtype), int(np.prod(shape, dtype=int))
    numbers = np.random.default_rng(seed).integers(0, 100, count)
    values = numbers.astype("S").astype(kind) if kind.kind in "SUV" else numbers.astype(kind)
    return values.reshape(shape)


class Encoded(SerializerTests):
    """Stages whose columns hold the values as bytes."""

    def from_column(self, value: bytes) -> Any:
        return read(str(self.stage), value)


class TestNpy(Encoded):
    stage = "npy"
    values = st.builds(array, st.sampled_from(DTYPES), SHAPES, st.integers(0, 9))
    misfits = ([1], np.ma.masked_array([1]), np.array([None]), np.array(["a"], np.dtypes.StringDType()))
    foreign = (b"", b"text", b"\x93NUMPY", b"\x93NUMPY\x03\x00" + bytes(20))

    def equal(self, given_: Any, got: Any) -> bool:
        native = given_.dtype.newbyteorder("=")  # keys are little-endian
        same = native == got.dtype.newbyteorder("=") and given_.shape == got.shape
        return bool(same and given_.astype(native).tobytes() == got.astype(native).tobytes())


class TestSafetensors(Encoded):
    stage = "safetensors"
    values = st.dictionaries(
        TEXT.filter(lambda name: name != "__metadata__"),
        st.builds(array, st.sampled_from(DTYPES[:7]), SHAPES, st.integers(0, 9)),
        max_size=4,
    )
    misfits = (1, [np.ones(1)], {1: np.ones(1)}, {"a": [1.0]}, {"a": np.array(["x"])}, {"__metadata__": np.ones(1)})
    foreign = (b"", bytes(8), b"\x02" + bytes(7) + b"[]", b"\xff" * 40, b"\x02" + bytes(7) + b"{}more")

    def equal(self, given_: Any, got: Any) -> bool:
        return given_.keys() == got.keys() and all(
            np.array_equal(given_[name], got[name]) and given_[name].shape == got[name].shape for name in given_
        )


class TestArrow(Encoded):
    stage = "arrow"
    values = st.integers(0, 5).flatmap(
        lambda rows: st.builds(
            lambda numbers, texts: pa.table(
                {"n": pa.array(numbers, pa.int64()), "t": pa.array(texts).cast(pa.string()).dictionary_encode()}
            ),
            st.lists(CELLS, min_size=rows, max_size=rows),
            st.lists(TEXT, min_size=rows, max_size=rows),
        )
    )
    misfits: ClassVar[tuple[object, ...]] = (1, {"a": [1]}, pa.array([1]))
    foreign = (b"", bytes(8), b"text", b"\xff\xff\xff\xff" + bytes(4), b"\xff" * 40)

    def equal(self, given_: Any, got: Any) -> bool:
        return bool(given_.equals(got))


class TestMsgpack(SerializerTests):
    stage = "msgpack"
    values = st.recursive(
        st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False)
        | TEXT
        | st.binary()
        | st.datetimes(timezones=st.just(dt.UTC), min_value=dt.datetime(1970, 1, 1)),  # noqa: DTZ001  strategies take naive ones
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=8,
    )
    misfits: ClassVar[tuple[object, ...]] = (
        object(), (1,), {1: 2}, [{None: 1}], 2**64, dt.datetime(2026, 1, 1), {1, 2}, "half a pair \ud800",  # noqa: DTZ001
    )  # fmt: skip
    foreign = (
        b"",
        b"\xc1",
        b"\x01\x02",
        b"\xa1\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x81\x01\x02",
    )


# The bytes of their libraries


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [*DTYPES, [("ra", "<f8"), ("name", "S3"), ("flux", "<f4", (2,))]])
def test_npy_is_what_numpy_saves(dtype: Any, order: Any) -> None:
    value = np.zeros((3, 2), dtype, order)
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    assert write("npy", value) == file.getvalue()
    found = read("npy", file.getvalue())
    assert found.dtype == value.dtype
    assert found.flags.f_contiguous is value.flags.f_contiguous
    assert np.array_equal(found, value)
    assert np.array_equal(np.load(io.BytesIO(write("npy", value[::2])), allow_pickle=False), value[::2])


def test_equal_arrays_are_equal_keys() -> None:
    key = SerializerChain.from_config({"key.serializer": "npy"}, is_key=True)
    value = np.arange(6).reshape(2, 3)
    assert key(value) == key(np.asfortranarray(value)) == key(value.astype(">i8")) == write("npy", value)
    assert key(np.array(7, ">i8")) == write("npy", np.array(7, "<i8"))
    with pytest.raises(ConfigError, match=r"arrow .* is not for keys"):
        SerializerChain.from_config({"key.serializer": "arrow"}, is_key=True)


def test_safetensors_are_what_the_package_saves() -> None:
    tensors = {
        "bias": np.ones(3, "f4"), "é": np.zeros((0, 2), "f2"), "weight": np.arange(4).reshape(2, 2),
        "mask": np.array([True]), "spectrum": np.ones(2, "c8"), "scalar": np.array(7, "u1"),
        "counts": np.arange(3, dtype="i2"),
    }  # fmt: skip
    data = safetensors.numpy.save(tensors, {"source": "test"})
    found = read("safetensors", data)
    assert found.keys() == tensors.keys()
    assert all(np.array_equal(found[name], tensors[name]) for name in tensors)
    assert write("safetensors", tensors) == safetensors.numpy.save(tensors)
    order = {name: tensors[name] for name in reversed(tensors)}
    assert write("safetensors", order) == write("safetensors", tensors)


def test_arrow_streams_of_pyarrow() -> None:
    batch = pa.record_batch({"flux": pa.array([1.5, None]), "band": pa.array(["g", "r"]).dictionary_encode()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    table = pa.Table.from_batches([batch, batch])
    assert read("arrow", sink.getvalue()).equals(table)
    assert pa.ipc.open_stream(write("arrow", table)).read_all().equals(table)


def test_msgpack_of_other_writers() -> None:
    value = {"at": msgpack.Timestamp(1, 2000), "more": msgpack.ExtType(5, b"abc"), b"raw": [None, 2**64 - 1]}
    expected = {**value, "at": dt.datetime(1970, 1, 1, 0, 0, 1, 2, dt.UTC)}
    assert read("msgpack", msgpack.packb(value)) == expected
    assert write("msgpack", expected) == msgpack.packb(value)
    key = SerializerChain.from_config({"key.serializer": "msgpack"}, is_key=True)
    assert key({"b": 1, "a": [{"d": 1, "c": 2}]}) == key({"a": [{"c": 2, "d": 1}], "b": 1})


# Hostile bytes: each is small, and would cost gigabytes, seconds, or the process


def npy(header: str, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header.encode("latin-1") + body


def described(dtype: object, shape: object) -> str:
    return f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "data",
    [
        npy(described("<f8", (2**40,))),
        npy(described("<f8", (2**62, 2**62, 0, 2**62))),
        npy(described("V0", (2**40,))),
        npy(described([("a", "<f4", (0,))], (2**40,))),
        npy(described("<f8", (-1,)), bytes(8)),
        npy(described("<f8", "(True,)"), bytes(8)),
        npy(described("|O", (1,)), b"\x80\x04K\x01."),
        npy(described([("a", "|O")], (1,)), bytes(8)),
        npy(described("T", (1,)), bytes(16)),
        npy(described("<U1", (1,)), b"\xff\xff\xff\xff"),
        npy(described([("a", "<U1", (2,))], (1,)), b"\xff" * 8),
        npy(described("<f8", (1,)), bytes(9)),
        npy("(" * 9000),
        npy("-" * 9000 + "1"),
        npy(" " * 11_000),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
    ],
    ids=range(16),
)
def test_hostile_npy(data: bytes) -> None:
    with pytest.raises(DecodeError, match="not an npy array"):
        read("npy", data)


def tensors(header: object, body: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def entry(begin: Any, end: Any, shape: Any, dtype: str = "U8", **more: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


@pytest.mark.parametrize(
    "data",
    [
        tensors({}, size=2**63),
        tensors({}, size=2**64 - 1),
        tensors({"a": entry(0, 2**40, [2**40])}),
        tensors({"a": entry(0, 4, [2])}, bytes(4)),
        tensors({"a": entry(0, 0, [2**62, 2**62, 0, 2**62])}),
        tensors({"a": entry(0, 0, [0] * 1000)}),
        tensors({"a": entry(0, 1, [2**64])}, bytes(1)),
        tensors({"a": entry(0, 4, [4]), "b": entry(0, 4, [4])}, bytes(4)),
        tensors({"a": entry(0, 4, [4]), "b": entry(6, 8, [2])}, bytes(8)),
        tensors({"a": entry(0, 4, [4])}, bytes(5)),
        tensors({"a": entry(0, 4, [True, 4])}, bytes(4)),
        tensors({"a": entry(0, 4, [2], "BF16")}, bytes(4)),
        tensors({"a": entry(0, 4, "4")}, bytes(4)),
        tensors({"a": 1}),
        tensors({"__metadata__": {"a": 1}}),
        tensors(b'{"a": {}, "a": {}}'),
        tensors(b"[" * 50_000),
        tensors(b'{"a":' * 20_000),
        tensors(b'{"a": ' + b"9" * 100_000 + b"}"),
        tensors(b'{"a": "\\ud800"}'),
    ],
    ids=range(20),
)
def test_hostile_safetensors(data: bytes) -> None:
    with pytest.raises(DecodeError, match="not safetensors"):
        read("safetensors", data)
    with pytest.raises(Exception):  # noqa: B017, PT011  the package refuses it too, or lacks the dtype
        safetensors.numpy.load(data)


def test_the_limit_of_parts_of_safetensors() -> None:
    data = tensors({"a": entry(0, 1, [1])}, bytes(1))
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    parts = 1 + sum(map(header.count, b",[{"))
    assert read("safetensors", data, serde_max_parts=parts).keys() == {"a"}
    with pytest.raises(DecodeError, match=f"more than {parts - 1} parts"):
        read("safetensors", data, serde_max_parts=parts - 1)


@pytest.mark.parametrize("shape", [[999_999_999] * 100_000, [2] * 65, [2**64]], ids=["long", "axes", "large"])
def test_shapes_are_not_multiplied_without_a_limit(shape: list[int]) -> None:
    """The product of a header's numbers takes time by the square of their number."""
    with pytest.raises(DecodeError, match="place or shape"):
        read("safetensors", tensors({"a": entry(0, 1, shape)}, bytes(1)))


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write(table)
    return sink.getvalue()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_compressed_arrow(codec: str, dictionary: bool) -> None:
    column = pa.array([f"{number % 7} {'x' * 1000}" for number in range(1000)])
    table = pa.table({"a": column.dictionary_encode() if dictionary else column})
    with pytest.raises(DecodeError, match="compressed"):
        read("arrow", stream(table, compression=codec))


def test_an_arrow_dictionary_alone_may_be_compressed_too() -> None:
    table = pa.table({"a": pa.array(["x" * 1000, "y" * 1000]).dictionary_encode()})
    (schema, _, batch), (_, dictionary, _) = (
        pa.ipc.MessageReader.open_stream(stream(table, compression=codec)) for codec in (None, "zstd")
    )
    with pytest.raises(DecodeError, match="compressed"):
        read("arrow", b"".join(bytes(message.serialize()) for message in (schema, dictionary, batch)))


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(1000),
        pa.StructArray.from_arrays([pa.nulls(1000)], ["a"]),
        pa.array([[]] * 1000, pa.list_(pa.int8(), 0)),
        pa.array([b""] * 1000, pa.binary(0)),
        pa.array([{}] * 1000, pa.struct([])),
        pa.RunEndEncodedArray.from_arrays([1000], [7]),
    ],
    ids=lambda column: str(column.type)[:20],
)
def test_rows_without_bytes(column: Any) -> None:
    """Each number of rows in the stream becomes 2^40."""
    data = stream(pa.table({"a": column}))
    assert read("arrow", data).num_rows == 1000
    with pytest.raises(DecodeError, match="more than 900 parts"):
        read("arrow", data, serde_max_parts=900)
    for size in ("<q", "<i"):
        for claimed in (2**30, 2**40)[: 1 if size == "<i" else 2]:
            with pytest.raises(DecodeError):
                read("arrow", data.replace(struct.pack("<q", 1000), struct.pack("<q", claimed)))


def shared(data: bytes, names: list[bytes]) -> bytes:
    """A stream whose metadata all refer to the last pair (FlatBuffers: offsets are relative and unsigned)."""
    changed = bytearray(data)
    starts: dict[int, list[int]] = {}
    for at in range(0, len(data) - 3, 4):
        target = at + struct.unpack_from("<I", data, at)[0]
        starts.setdefault(target, []).append(at)
    # A pair begins with the offset of its vtable, and is the only one that refers to its name.
    pairs = {name: _pair_of(data, name, starts) for name in names}
    vector = [at for name in names for at in starts[pairs[name]]]
    last = max(pairs.values())
    for at in vector:
        struct.pack_into("<I", changed, at, last - at)
    return bytes(changed)


def _pair_of(data: bytes, name: bytes, starts: dict[int, list[int]]) -> int:
    (at,) = starts[data.index(struct.pack("<I", len(name)) + name)]
    return next(start for start in (at - 4, at - 8) if start in starts)


def test_a_wrong_value_of_arrow_is_not_quoted() -> None:
    column = pa.array([-123_456_789], pa.int32()).view(pa.time32("s"))
    with pytest.raises(DecodeError, match=r"time32\[s\] … is not within") as raised:
        read("arrow", stream(pa.table({"a": column})))
    assert "456" not in f"{raised.value}{raised.value.__cause__!r}{raised.value.__cause__.__context__!r}"  # type: ignore[union-attr]


def test_metadata_of_arrow_that_are_shared() -> None:
    """Reading copies them for each offset: a megabyte would become gigabytes."""
    names = [f"name-{number:04}".encode() for number in range(50)]
    schema = pa.schema([("a", pa.int8())], metadata=dict.fromkeys(names, "x" * 100))
    data = stream(schema.empty_table())
    assert read("arrow", data).schema.metadata == schema.metadata
    hostile = shared(data, names)
    assert len(pa.ipc.open_stream(hostile).schema.metadata) == 1  # pyarrow itself reads it
    with pytest.raises(DecodeError, match="referred to twice"):
        read("arrow", hostile)


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 20, reason="older ones cannot make such views")
def test_views_of_arrow_that_overlap() -> None:
    """Each view of a text is validated, and each view of a list becomes a list."""
    views = struct.pack("<i4sii", 10_000, b"xxxx", 0, 0) * 1000
    text = pa.Array.from_buffers(pa.string_view(), 1000, [None, pa.py_buffer(views), pa.py_buffer(b"x" * 10_000)])
    many = pa.array([1000] * 1000, pa.int32())
    lists = pa.ListViewArray.from_arrays(pa.array([0] * 1000, pa.int32()), many, pa.array(range(1000)))
    for column, kind in ((text, "text"), (lists, "lists")):
        with pytest.raises(DecodeError, match=f"its views of {kind} overlap"):
            read("arrow", stream(pa.table({"a": column})))
    fine = pa.table({"a": pa.array(["x" * 100, None, "y"] * 9, pa.string_view())})
    fine = fine.append_column("b", pa.array([[1, 2], None, []] * 9, pa.list_view(pa.int8())))
    assert read("arrow", stream(fine)).equals(fine)


@pytest.mark.parametrize("claimed", [2**31 - 1, 2**40, 2**62, -1])
def test_lying_lengths_of_arrow(claimed: int) -> None:
    table = pa.table({"n": pa.array(range(1000)), "t": pa.array(["ab"] * 1000)})
    data = stream(table)
    for true in (1000, 8000, 4004, 2000):
        found = data.replace(struct.pack("<q", true), struct.pack("<q", claimed))
        assert found != data
        try:
            value = read("arrow", found)
        except DecodeError as error:
            assert "not an Arrow IPC stream" in str(error)  # noqa: PT017, the other outcome is below
        else:
            assert value.equals(table)  # pyarrow 16 cuts a buffer at the end of the bytes


def test_wrong_offsets_of_arrow() -> None:
    """Without validation, these would read beyond the memory."""
    data = stream(pa.table({"t": pa.array(["ab", "cd"])}))
    at = data.index(struct.pack("<iii", 0, 2, 4))
    for offsets in ((0, 2, 2**31 - 1), (0, 4, 2), (-4, 2, 4)):
        with pytest.raises(DecodeError, match="not an Arrow IPC stream"):
            read("arrow", data[:at] + struct.pack("<iii", *offsets) + data[at + 12 :])
    with pytest.raises(DecodeError, match="UTF8"):
        read("arrow", data.replace(b"abcd", b"\xff\xff\xff\xff"))


def test_names_of_arrow_that_are_no_text() -> None:
    names = (("name", pa.array([1])), ("a", pa.array([{"name": 1}])), ("a", pa.array([1], pa.timestamp("s", "name"))))
    encoded = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([{"name": 1}]))
    for name, column in (*names, ("a", encoded)):
        data = stream(pa.table({name: column}))
        assert b"name" in data
        read("arrow", data)
        with pytest.raises(DecodeError, match="not an Arrow IPC stream"):
            read("arrow", data.replace(b"name", b"na\xffe"))


def test_rows_without_columns() -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 1000, pa.struct([])))
    data = stream(pa.Table.from_batches([batch]))
    assert read("arrow", data).num_rows == 1000
    with pytest.raises(DecodeError, match="more than"):
        read("arrow", data.replace(struct.pack("<q", 1000), struct.pack("<q", 2**33)))


def nested(levels: int) -> bytes:
    return b"\x91" * levels + b"\x01"


@pytest.mark.parametrize(
    ("seconds", "is_read"),
    [(253_402_300_799, True), (253_402_300_800, False), (-62_135_596_801, False), (2**62, False)],
)
def test_timestamps_of_msgpack_beyond_pythons_years(seconds: int, *, is_read: bool) -> None:
    data = msgpack.packb(msgpack.Timestamp(seconds, 0))
    if is_read:
        assert read("msgpack", data).year == 9999
        return
    with pytest.raises(DecodeError, match="a timestamp is outside of the years 1 to 9999") as caught:
        read("msgpack", data)
    assert caught.value.about_record


@pytest.mark.parametrize(("name", "kind"), [(1, "int"), (None, "NoneType"), (1.5, "float"), ((1, 2), "list")])
def test_names_in_msgpack_that_are_no_text(name: object, kind: str) -> None:
    with pytest.raises(DecodeError, match=f"the name of a member is {kind}, not text or bytes"):
        read("msgpack", msgpack.packb({"a": {name: 1}}))


def test_hostile_msgpack() -> None:
    assert read("msgpack", nested(200))
    for levels in (202, 500, 5000, 100_000):
        with pytest.raises(DecodeError, match="not MessagePack"):
            read("msgpack", nested(levels))
    # A thousand arrays that claim a million items each.
    data = b"\xdd\x00\x0f\x42\x40" * 1000 + bytes(1_000_000)
    with pytest.raises(DecodeError, match="not MessagePack"):
        read("msgpack", data)
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(EncodeError, match="nests deeper than 200"):
        write("msgpack", loop)


def test_every_part_of_msgpack_is_counted() -> None:
    long = ["x" * 40, "x" * 300, "x" * 70_000, b"x", b"x" * 300, b"x" * 70_000, [0] * 20, [0] * 70_000]
    small: list[Any] = [1, -1, 200, 70_000, 2**40, -200, -70_000, -(2**40), 1.5, None, True, "ab", {"a": 1}]
    small += [{str(number): 1 for number in range(count)} for count in (20, 70_000)]
    small += [msgpack.ExtType(1, bytes(size)) for size in (1, 2, 4, 8, 16, 3, 300, 70_000)]
    # Values that a C float and small sizes have in other writers.
    data = msgpack.packb([*long, *small])
    parts = 1 + len(long) + len(small) + 20 + 70_000 + 2 + 2 * (20 + 70_000)
    assert read("msgpack", data, serde_max_parts=parts) == [*long, *small]
    with pytest.raises(DecodeError, match=f"more than {parts - 1} parts"):
        read("msgpack", data, serde_max_parts=parts - 1)
    assert read("msgpack", msgpack.packb([1.5] * 9, use_single_float=True), serde_max_parts=10) == [1.5] * 9


@pytest.mark.parametrize("stage", ["npy", "safetensors", "arrow", "msgpack"])
def test_errors_hold_no_payload(stage: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read(stage, b"SECRET " * 20)
    held: list[BaseException | None] = [caught.value]
    while (error := held[-1]) is not None:
        assert "SECRET" not in f"{error} {vars(error)}"
        held.append(error.__cause__)


# Large values


@pytest.fixture
def store() -> Iterator[dict[str, Any]]:
    yield {"large.message.payload.store.class": "memory"}
    MemoryStore.clear()


LARGE = np.arange(STREAMED_BYTES // 8 + 1000)
VALUES: dict[str, Any] = {
    "npy": LARGE.reshape(2, -1),
    "safetensors": {"a": LARGE, "b": LARGE[:10]},
    "arrow": pa.table({"a": LARGE}),
}


@pytest.mark.parametrize("stage", VALUES)
@pytest.mark.parametrize("ids", ["random", "content"])
def test_large_values_are_uploaded_from_their_memory(stage: str, ids: str, store: dict[str, Any]) -> None:
    config = {**store, "large.message.id": ids, "value.serializers": f"{stage}, large-message"}
    chain = SerializerChain.from_config(config)
    assert isinstance(chain.stages[0](VALUES[stage]), BufferReader)
    ctx = RecordContext("t", "value", [])
    data = chain(VALUES[stage], ctx)
    assert len(data) < 1000
    found = DeserializerChain.from_config({**store, "value.deserializers": f"large-message, {stage}"})(data, ctx)
    assert write(stage, found) == write(stage, VALUES[stage])


@pytest.mark.parametrize(
    "settings",
    [
        {"large.message.format": "bakdata-headers", "large.message.compression": "lz4"},
        {"large.message.format": "bakdata-headers", "large.message.id": "murmur3"},
        {"large.message.threshold.bytes": 1 << 30},
        {"value.serializers": "npy, zstd, large-message", "value.deserializers": "large-message, zstd, npy"},
    ],
    ids=["compression", "murmur3", "inline", "another stage"],
)
def test_large_values_where_uploads_need_all_bytes(settings: dict[str, Any], store: dict[str, Any]) -> None:
    config = {
        "value.serializers": "npy, large-message",
        "value.deserializers": "large-message, npy",
        **store,
        **settings,
    }
    ctx = RecordContext("t", "value", [])
    data = SerializerChain.from_config(config)(LARGE, ctx)
    assert np.array_equal(DeserializerChain.from_config(config)(data, ctx), LARGE)


def test_values_share_the_memory_of_their_bytes(tmp_path: Path) -> None:
    arrays = [read("npy", write("npy", LARGE)), read("safetensors", write("safetensors", {"a": LARGE}))["a"]]
    for found in arrays:
        assert not found.flags.owndata
        assert not found.flags.writeable
    before = pa.total_allocated_bytes()
    table = read("arrow", write("arrow", VALUES["arrow"]))
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert table.num_rows == len(LARGE)
    np.save(tmp_path / "a.npy", LARGE)
    assert read("npy", write("npy", np.load(tmp_path / "a.npy", mmap_mode="r")))[7] == 7


def test_a_reader_of_buffers() -> None:
    reader = BufferReader([b"abc", b"", memoryview(b"defg")])
    assert [reader.read(2), reader.read(3), reader.read(9), reader.read(1)] == [b"ab", b"cde", b"fg", b""]
    assert (reader.seek(-5, io.SEEK_END), reader.read(), reader.tell(), len(reader)) == (2, b"cdefg", 7, 7)
    assert (reader.seek(1), reader.seek(1, io.SEEK_CUR), reader.read(1)) == (1, 2, b"c")
    with pytest.raises(ValueError, match="before the beginning"):
        reader.seek(-8, io.SEEK_END)


@pytest.mark.parametrize("value", [(1, 2), {1}, 1 << 70, dt.datetime(2026, 1, 1)])  # noqa: DTZ001  without a zone
def test_what_msgpack_takes_is_said(value: Any) -> None:
    with pytest.raises(EncodeError, match="Pass dictionaries, lists"):
        SerializerChain.from_config({"value.serializer": "msgpack"})({"value": value})


@pytest.mark.full
def test_other_bytes_than_npy_are_named() -> None:
    with pytest.raises(DecodeError, match="do not begin with 93 4E 55"):
        DeserializerChain.from_config({"value.deserializer": "npy"})(b'{"id": 1}')
