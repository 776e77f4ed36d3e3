"""What the tests of all stages need of each: a new stage is one row here, and no other list names them."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from serde_chain.catalogue import DESERIALIZERS, SERIALIZERS
from tests.stages.protobuf.protobuf_messages import ALERT

AVRO_SCHEMA = """{"type": "record", "name": "R", "fields": [
    {"name": "id", "type": "long"}, {"name": "blob", "type": "bytes"}]}"""


@dataclass(frozen=True)
class StageCase:
    """A stage.

    Attributes:
        suite: Its subclass of the conformance suite, below ``tests``.
        values: Two values: a small one, and where the stage allows one of more than 4 kB.
        config: The keys that it requires.
        before: Stages that a chain of values needs before it.
        follows_large_message: Whether it comes after ``large-message``.
        needs_record: Whether it needs the record's context, so that it has no plain calls.
    """

    suite: str
    values: tuple[Any, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    follows_large_message: bool = False
    needs_record: bool = False


_MESSAGE: dict[str, Any] = {
    "id": 1,
    "name": "",
    "tags": [],
    "band": "U",
    "cutout": b"",
    "scores": {},
    "history": [],
}
_BYTES = (b"small", bytes(range(256)) * 40)


def _codec(suite: str) -> StageCase:
    return StageCase(f"stages.test_conformance:{suite}", _BYTES, before=("bytes",))


_ROWS = {
    "avro": StageCase(
        "stages.test_conformance:TestAvro",
        ({"id": 1, "blob": b"small"}, {"id": 2, "blob": bytes(range(256)) * 20}),
        {"avro.schema": AVRO_SCHEMA},
    ),
    "protobuf": StageCase(
        "stages.protobuf.test_protobuf:TestDictionaries",
        (_MESSAGE, {**_MESSAGE, "cutout": bytes(5000), "scores": {"a": 0.5}, "position": {"ra": 1.5, "dec": 0.0}}),
        {"protobuf.message.class": ALERT, "protobuf.values": "dict"},
    ),
    "json": StageCase("stages.test_conformance:TestJson", ({"id": 1}, {"id": 2, "text": "x" * 5000})),
    "bson": StageCase(
        "stages.test_conformance:TestBson", ({"id": 1}, {"id": 2, "blob": bytes(range(256)) * 20, "tags": ["a"]})
    ),
    "msgpack": StageCase("stages.test_values:TestMsgpack", ({"id": 1}, {"id": 2, "blob": bytes(range(256)) * 20})),
    # Of one item, so that == has one result.
    "npy": StageCase("stages.test_values:TestNpy", (np.array([1.5]), np.array([b"x" * 5000]))),
    "safetensors": StageCase(
        "stages.test_values:TestSafetensors",
        ({"bias": np.ones(1)}, {f"layer {number}": np.array([number]) for number in range(100)}),
    ),
    "arrow": StageCase(
        "stages.test_values:TestArrow", (pa.table({"id": [1]}), pa.table({"id": range(1000), "band": ["g"] * 1000}))
    ),
    "string": StageCase("stages.test_conformance:TestString", ("small", "large " * 2000)),
    "bytes": StageCase("stages.test_conformance:TestBytes", _BYTES),
    "integer": StageCase("stages.test_conformance:TestInteger", (1, -(2**31))),
    "long": StageCase("stages.test_conformance:TestLong", (1, 2**63 - 1)),
    "float": StageCase("stages.test_conformance:TestFloat", (1.5, -0.25)),
    "double": StageCase("stages.test_conformance:TestDouble", (1.5, 1e300)),
    "uuid": StageCase("stages.test_conformance:TestUuid", (uuid.UUID(int=0), uuid.UUID(int=2**128 - 1))),
    "compress": _codec("TestCompressAboveASize"),
    "zstd": _codec("TestZstd"),
    "lz4": _codec("TestLz4"),
    "gzip": _codec("TestGzip"),
    "snappy": _codec("TestSnappy"),
    "zlib": _codec("TestZlib"),
    "encrypt": StageCase(
        "stages.encryption.test_encryption:TestGcm",
        _BYTES,
        {"encryption.keys": {"k": bytes(range(32))}},
        before=("bytes",),
        needs_record=True,
    ),
    "entry-metadata": StageCase(
        "stages.test_entry_metadata:TestConformance", _BYTES, before=("bytes",), follows_large_message=True
    ),
    "large-message": StageCase(
        "stages.test_conformance:TestLargeMessageOffloaded",
        _BYTES,
        {"large.message.payload.store.class": "memory"},
        before=("bytes",),
    ),
}


def _complete(rows: Mapping[str, StageCase]) -> Mapping[str, StageCase]:
    # A stage from object to object needs one behind it: tests/stages/large_fields.
    names = (SERIALIZERS.builtins.keys() & DESERIALIZERS.builtins.keys()) - {"large-fields"}
    assert rows.keys() == names, f"tests/stages/cases.py and the catalogue differ: {sorted(rows.keys() ^ names)}"
    return rows


STAGES = _complete(_ROWS)
