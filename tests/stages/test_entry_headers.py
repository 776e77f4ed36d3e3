"""``entry.metadata.headers``: a reader gets time and index of the frame, and nothing that a writer has put there."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

from payload_stores import StoredRecord
from serde_chain import DecodeError, DeserializerChain, RecordContext, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.wire.entry_metadata import frame
from tests.stages.large_message.test_whole_records import Shelf

TIME_MS = 1_700_000_000_123
FORGED: list[Any] = [
    ("serde-chain-entry-index", b"666"),
    ("band", b"g"),
    ("serde-chain-entry-timestamp", b"0"),
    ("serde-chain-entry-index", b"667"),
]
KEPT = [("band", b"g")]
TRUE = [("serde-chain-entry-timestamp", b"%d" % TIME_MS), ("serde-chain-entry-index", b"41")]

# A value as stored, and the headers that a reader gets besides the others.
CASES: dict[str, tuple[bytes | None, list[Any]]] = {
    "both": (frame(b"x", broker_timestamp=TIME_MS, index=41), TRUE),
    "time": (frame(b"x", broker_timestamp=TIME_MS), TRUE[:1]),
    "index": (frame(b"x", index=41), TRUE[1:]),
    "neither": (frame(b"x"), []),
    "unframed": (b"x", []),
    "tombstone": (None, []),
}
EACH = pytest.mark.parametrize("case", CASES)


def reader(deserializers: str = "entry-metadata, string", **config: object) -> DeserializerChain:
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    return DeserializerChain.from_config(
        {"value.deserializers": deserializers, "entry.metadata.headers": "true", **dotted}
    )


@EACH
@pytest.mark.parametrize("call", ["chain", "begin", "pickled", "nested"])
def test_the_frames_values_replace_those_of_writers(case: str, call: str) -> None:
    value, found = CASES[case]
    chain = reader()
    if call == "pickled":
        chain = pickle.loads(pickle.dumps(chain))  # noqa: S301, our own bytes
    if call == "nested":
        chain = DeserializerChain([DeserializerChain(chain.stages[:1]), *chain.stages[1:]])
    headers = list(FORGED)
    ctx = RecordContext("events", "value", headers)
    assert (chain.begin if call == "begin" else chain)(value, ctx) == (None if value is None else "x")
    assert ctx.headers == [*KEPT, *found]


@EACH
def test_headers_as_a_dictionary(case: str) -> None:
    value, found = CASES[case]
    ctx = RecordContext("events", "value", dict(FORGED))
    reader()(value, ctx)
    assert ctx.headers == dict([*KEPT, *found])


def test_without_the_option_headers_stay() -> None:
    ctx = RecordContext("events", "value", list(FORGED))
    chain = reader(entry_metadata_headers=False)
    assert chain(CASES["both"][0], ctx) == "x"
    assert ctx.headers == FORGED
    assert chain.plain is not None  # the fast path


def test_keys_have_no_time_of_entry() -> None:
    chain = DeserializerChain.from_config(
        {"key.deserializers": "entry-metadata, string", "entry.metadata.headers": True}, is_key=True
    )
    ctx = RecordContext("events", "key", [*TRUE])
    assert chain(frame(b"M 51"), ctx) == "M 51"
    assert ctx.headers == TRUE  # of the value, which is decoded first


@EACH
def test_a_chain_that_describes_itself(case: str) -> None:
    value, found = CASES[case]
    described = [("serde-chain", b"1:string,entry-metadata")] if value is None or value[:1] == b"\x0e" else []
    chain = reader("auto", serde_chain_allow="string, entry-metadata", serde_chain_default="string")
    ctx = RecordContext("events", "value", [*described, *FORGED])
    assert chain(value, ctx) == (None if value is None else "x")
    left = described if value is None else []
    assert ctx.headers == [*left, *KEPT, *found]


@pytest.mark.parametrize("columns", [False, True])
def test_batches(*, columns: bool) -> None:
    headers: list[Any] = [list(FORGED) for _ in CASES]
    source: Any = headers
    if columns:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        source = pa.array([[{"key": name, "value": data} for name, data in each] for each in headers], kind)
    result = reader().read_batch(Batch([value for value, _ in CASES.values()], source, topic="events"))
    assert result.values.to_pylist() == [None if value is None else "x" for value, _ in CASES.values()]
    got = result.headers
    if columns:
        got = [[(pair["key"], pair["value"]) for pair in each] for each in got.to_pylist()]
    assert got == [[*KEPT, *found] for _, found in CASES.values()]


def test_a_record_that_the_store_keeps_whole_brings_no_forged_ones() -> None:
    store = Shelf()
    config = {
        "value.serializers": "bytes, large-message, entry-metadata",
        "value.deserializers": "entry-metadata, large-message, bytes",
        "large.message.payload.store.class": store,
        "large.message.format": "hop",
        "large.message.threshold.bytes": 100,
        "entry.metadata.index": True,
        "entry.metadata.headers": True,
    }
    ctx = RecordContext("events", "value", [("band", b"g")], b"key", 0)
    value = SerializerChain.from_config(config)(bytes(1000), ctx)
    ((reference, stored),) = store.records.items()
    store.records[reference] = StoredRecord(stored.value, (*stored.headers, *FORGED), stored.key, stored.timestamp)
    with DeserializerChain.from_config(config) as chain:
        assert chain(value, ctx) == bytes(1000)
    assert isinstance(ctx.headers, list)
    found = [data for name, data in ctx.headers if name == "serde-chain-entry-index"]
    assert found == [b"0"]
    # Likewise if the frame is in the payload.
    inside = frame(b"x", broker_timestamp=TIME_MS)
    store.records[reference] = StoredRecord(inside, (*stored.headers, *FORGED), stored.key, stored.timestamp)
    ctx = RecordContext("events", "value", [("_format", b"external")], b"key", 0)
    inner = DeserializerChain.from_config({**config, "value.deserializers": "large-message, entry-metadata"})
    with inner as chain:
        assert chain(b'{"url": "%s"}' % reference.encode(), ctx) == b"x"
    assert isinstance(ctx.headers, list)
    assert [header for header in ctx.headers if header[0].startswith("serde-chain-")] == TRUE[:1]


class ConfluentContext:
    """A context as Confluent's clients make it for a record without headers."""

    topic, field, headers = "events", "value", None


@pytest.mark.parametrize("ctx", [None, ConfluentContext()])
def test_where_there_is_no_place_for_them(ctx: Any) -> None:
    value, _ = CASES["both"]
    with pytest.raises(DecodeError, match=r"cannot be added as headers.*entry\.metadata\.headers = false") as caught:
        reader()(value, ctx)
    assert not caught.value.about_record
    assert reader()(b"x", ctx) == "x"
    made = RecordContext("events", "value")
    assert reader()(value, made) == "x"
    assert made.headers == TRUE
